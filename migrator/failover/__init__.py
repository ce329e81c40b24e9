"""A database that failed over to a replica which was behind: ``db adopt --after-failover``.

It works while nobody claims. ``settle`` scans the delay levels, then ``store`` updates store and
ledger in one transaction. It may change our own staging and receipts queues, never a level.
Start with ``settle.FailoverSettlement.run``.
"""
