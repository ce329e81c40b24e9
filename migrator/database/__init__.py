"""One SQL database, which holds the ledger and mostly the legacy tables, too.

``engine`` opens connections and the two kinds of transaction, ``types`` maps aware UTC datetimes,
``failures`` is the one place where driver errors become ours, ``portable`` says what every server
understands. ``stores`` and ``ledger`` build on this package; it knows neither.
"""
