"""SQLAlchemy engines and types for the ledger's database, which mostly has the legacy tables, too.

Start with ``engine``: connections and the two kinds of transaction. ``types`` maps UTC datetimes,
``failures`` translates driver errors, ``portable`` is SQL for every server. ``stores`` and
``ledger`` build on this package; it knows neither.
"""
