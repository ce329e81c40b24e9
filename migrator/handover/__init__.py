"""From a legacy store into the native delays: claim, prepare, publish, receipt.

Start with ``lane``: the work of one lane, top to bottom. ``claiming`` picks the next rows,
``prepare`` makes messages of them, and ``pace`` says when the levels have room. ``staged`` and
``direct`` publish over ``link`` and its ``staging`` queue; ``holding`` handles destinations that
cannot be reached. May use stores, ledger and broker. Source: docs/adr/0001 and design.md.
"""
