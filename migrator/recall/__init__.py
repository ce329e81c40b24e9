"""Bring timeouts back into the store: ``migrator rollback``.

Start with ``recall.Recall.run``: it takes handed-over timeouts out of the delay levels and puts
them back through ``restore``. ``rollback.Rollback.run`` first returns claimed rows to their table,
then recalls. ``queries`` reads what the ledger expects, ``rules`` decides what a message in a
level is. It may change store, ledger and levels, while no lane claims.
"""
