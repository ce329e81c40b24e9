"""Checks: what would go wrong, before a migration begins and while it runs.

Start with ``registry``: every check by name. A check is a function in ``checks_<subject>`` that
takes the ``context`` and yields ``findings``. ``delays.broker`` and ``queries`` ask the broker and
the ledger. Nothing here changes anything.
"""
