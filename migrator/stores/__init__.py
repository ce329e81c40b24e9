"""The legacy stores: where timeouts are, and how they move into the ledger and back.

Start with ``ports``: what a store can be asked (``Store``) and how rows move (``Claims``); then
``sql.claims``. ``sql`` has the stores in the ledger's own database, ``documents`` the two-step
claims that ``azure`` and ``ravendb`` share. Claiming into the ledger is a store's job: it uses the
ledger's tables directly, and knows no capability.
"""
