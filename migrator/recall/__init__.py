"""Bringing timeouts back: ``migrator recall`` and ``migrator rollback``.

``recall`` takes handed-over timeouts out of the delay levels, into the store through ``restore``;
``rollback`` first returns claimed rows to their table, then recalls. ``queries`` says what the
ledger expects, and what a message in a level is. It may touch store, ledger and levels, while
nobody claims. Begin with ``recall.Recall.run`` and ``rollback.Rollback.run``.
"""
