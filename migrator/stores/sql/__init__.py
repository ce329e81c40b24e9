"""Legacy stores in a SQL database that holds the ledger as well.

``store`` is what all tables have in common, ``sql_persistence`` and ``nhibernate`` are the two
layouts, ``claims`` and ``moving`` move rows into the ledger and back, ``intake`` stores new ones,
``dialects`` has what differs between kinds of server. A claim is one transaction: a row is in the
legacy table or in the ledger, never in both.
"""
