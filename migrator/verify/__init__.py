"""Whether store, ledger and broker agree; looks, and changes nothing.

``sweep`` goes through the levels, ``rows`` through the ledger, ``counting`` compares sums, and
``verifier`` does one after the other; ``judging`` decides, ``places`` remembers what was seen,
``findings`` what is wrong. A daemon may work meanwhile: whatever looks wrong by comparing two
answers is asked again. Source: docs/verify.md.
"""
