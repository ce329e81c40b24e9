"""The legacy stores: where timeouts are, and how they move into the ledger and back.

``ports`` says what a store can be asked (``Store``) and how rows move (``Claims``). ``sql`` has the
stores in a SQL database, which holds the ledger as well; ``documents`` what claims in two steps
have in common, for ``azure`` and ``ravendb``. Claiming into the ledger is a store's job: it uses
the ledger's tables directly, and knows no capability. Start reading at ``ports``, then
``sql.claims``.
"""
