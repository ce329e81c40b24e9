"""What was claimed, how far each batch is, which process owns each lane, and what happened.

For SQL stores the ledger is in the database of the legacy tables, so that a claim is one local
transaction. Other stores claim in two steps, and their ledger has its own database. Start with
``tables`` and ``states``. Lanes write through ``batches``, ``claims`` and ``leases``; operators
read through ``queries``. ``identity`` refuses a cloned database. This package imports no store.
"""
