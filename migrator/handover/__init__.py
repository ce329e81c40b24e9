"""From a legacy store into the native delays: claim, prepare, publish, receipt.

Start with ``lane``: the work of one lane, top to bottom. ``claiming`` says which rows come next,
``prepare`` makes messages of them, ``prefetch`` does both in the background; ``staged`` and
``direct`` publish, over ``link`` and its ``staging`` queue; ``holding`` is for destinations that
cannot be reached. Source: docs/adr/0001 and design.md.
"""
