"""One SQL database, which holds both the legacy table and the ledger: engine, types, failures.

``engine`` opens connections and transactions the way every dialect needs them, ``types`` maps
aware UTC datetimes, ``failures`` is the one place where driver errors become ours. The adapters
``stores`` and ``ledger`` both build on this package and know nothing of each other.
"""
