"""Timeouts in a document store, with the ledger in a SQL database of its own.

What all document stores have in common: claims in two recorded steps, putting back, recall,
verification. The store itself is behind ``stores.documents.ports``; its adapters are this package's
neighbours. Reasons: docs/adr/0008-two-step-claims.md.
"""
