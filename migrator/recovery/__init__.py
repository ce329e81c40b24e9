"""What a dead owner or a lost database left: who the ledger belongs to, and what became of rows.

``adoption`` is for a ledger in another database than the one it was created in, ``failover`` and
``lost_window`` for one on a replica that was behind, ``unresolved`` for batches of which it is
unknown whether they were handed over. That another server took over is detected in
``ledger.failover``, which every connection asks; lanes of a dead owner are taken by
``service.lanes``.
"""
