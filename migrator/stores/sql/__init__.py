"""Legacy stores in a SQL database that holds the ledger as well.

``sql_persistence`` and ``nhibernate`` are the two layouts of a table, ``claims`` moves rows into
the ledger and back, ``dialects`` has what differs between kinds of server. A claim is one
transaction: a row is in the legacy table or in the ledger, never in both.
"""
