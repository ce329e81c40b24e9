"""Writes docs/reference from the code: what an operator may rely on, and nothing by memory.

Rules of this package: the same code gives the same bytes, on every machine and every day; a name
without a sentence (``words``) is an error, so that no page falls behind in silence.
``settings``, ``ledger``, ``names`` and ``web`` each make pages, ``markdown`` is what they share.
"""
