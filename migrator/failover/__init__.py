"""A database that failed over to a replica which was behind: ``db adopt --after-failover``.

``rules`` says what may have become of a timeout, ``work`` looks through the delay levels,
``store`` settles what it found in store and ledger, and ``run`` does it while nobody claims.
"""
