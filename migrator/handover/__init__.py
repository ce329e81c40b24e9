"""From a legacy store into the native delays: claim, prepare, publish, receipt.

``lane`` is the work of one lane, top to bottom; ``claiming`` says which rows it takes next,
``prepare`` turns them into messages, ``staged`` and ``direct`` are the two ways to publish, over
``link`` and its ``staging`` queue. Source: docs/adr/0001 and design.md.
"""
