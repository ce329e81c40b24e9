"""Moving messages from delay levels to other delay levels: another generation, another broker.

``judging`` says what becomes of a message, ``moving`` goes through the levels and does it, or only
counts; ``outcome`` is what both report. Source: docs/delays.md; reference ``native-delays.md``
section 8.
"""
