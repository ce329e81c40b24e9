"""A database that failed over to a replica which was behind: ``db adopt --after-failover``.

``settle`` does it while nobody claims: it looks through the delay levels, and ``store`` then
settles what was found in store and ledger, in one transaction. It may touch our own staging and
receipts queues, never a level. Begin with ``settle.FailoverSettlement.run``.
"""
