"""The ledger: what was claimed, how far each batch is, who works on it, and what happened.

It lives in the database of the legacy table, so that a claim is one local transaction.
``tables`` and ``migrations`` say what it looks like, ``leases``, ``batches``, ``runs`` and
``clock`` are the ports the engine writes through, ``books`` and ``quarantine`` serve people,
``identity`` keeps a cloned database from using the queues of its original, and ``adoption`` is
for those who know which of the two it is.
"""
