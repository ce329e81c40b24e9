"""Timeouts in a document store, with the ledger in a SQL database of its own.

What all document stores have in common: ``claims`` takes and puts back in two recorded steps,
``ledger`` records them, ``store`` answers questions. An adapter (``stores.azure``,
``stores.ravendb``) only implements ``ports``. Reasons: docs/adr/0008-two-step-claims.md.
"""
