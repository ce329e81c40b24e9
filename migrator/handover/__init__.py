"""Move timeouts from a legacy store into the native delays: claim, prepare, publish, receipt.

Start with ``lane``, the work of one lane from top to bottom. Sources: docs/adr/0001, design.md.
"""
