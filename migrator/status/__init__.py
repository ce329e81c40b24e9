"""How far everything is: read once, shown by the command line, metrics, hooks and the page.

Start with ``remaining``: the rows left in a store, and the rules ``is_finished`` and ``phase_of``.
``finished`` watches endpoints, ``poller`` reads for a daemon at intervals, ``reader`` reads the
ledger when it is asked, and ``document`` is what all of them show. Reads, and changes nothing.
"""
