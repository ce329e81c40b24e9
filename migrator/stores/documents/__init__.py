"""Timeouts in a document store, with the ledger in a SQL database of its own.

Start with ``claims``, which takes and puts back in two recorded steps; ``ledger`` records them,
``store`` answers questions. ``stores.azure`` and ``stores.ravendb`` only implement ``ports``.
Reasons: docs/adr/0008-two-step-claims.md.
"""
