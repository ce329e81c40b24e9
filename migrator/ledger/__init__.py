"""The ledger: what was claimed, how far each batch is, who works on it, and what happened.

It is in the database of the legacy table, so that a claim is one local transaction; for stores
with two-step claims it has a database of its own. Start with ``tables`` and ``states``.
``batches``, ``claims`` and ``leases`` are what lanes write; ``queries`` is for people;
``identity`` refuses a cloned database. It imports no store.
"""
