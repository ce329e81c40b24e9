"""What a dead owner or a lost database left: a ledger's place, and batches of unknown outcome.

``adoption`` is for a ledger in another database than the one it was created in, ``failover`` and
``lost_window`` for one on a replica that was behind, ``resolve`` for batches of which it is unknown
whether they were handed over. That another server took over is detected in ``ledger.failover``,
which every connection asks; lanes of a dead owner are taken by ``service.lanes``.
"""
