"""The legacy stores: one file per kind, and the SQLAlchemy pieces they share.

``sql_persistence`` is NServiceBus.Persistence.Sql; ``claims`` moves rows between a legacy table
and the ledger, ``dialects`` holds what differs per kind of database, ``legacy_table`` the table as
values. Claiming into the ledger is a store's job, in one transaction; it uses the ledger's tables.
"""
