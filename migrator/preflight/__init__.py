"""What would go wrong: asked before a migration begins, and again while it runs.

``findings`` is what a check answers; ``checks`` has them all, ``checks.registry`` by name.
``broker`` and ``queries`` ask the broker and the ledger; nothing here changes anything.
"""
