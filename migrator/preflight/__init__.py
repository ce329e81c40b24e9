"""What would go wrong: asked before a migration begins, and again while it runs.

Start in ``registry``: every check by name. A check is a function in ``checks_<subject>`` that takes
the ``context`` and yields ``findings``. ``broker`` and ``queries`` ask the broker and the ledger;
nothing here changes anything.
"""
