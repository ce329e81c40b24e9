"""Legacy stores in the SQL database that also contains the ledger.

Start with ``claims``: a claim is one transaction, and a row is in the legacy table or in the
ledger, never in both. ``moving`` has its SQL, ``intake`` stores new rows, ``store`` is common to
all tables. ``sql_persistence`` and ``nhibernate`` are the two layouts, ``dialects`` has the
differences between kinds of server.
"""
