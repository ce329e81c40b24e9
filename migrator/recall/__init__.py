"""Bringing timeouts back: ``migrator recall`` and ``migrator rollback``.

``rollback`` returns claimed rows to their table. ``work`` takes handed-over timeouts out of the
delay levels, into the store through ``store`` (SQL) or ``documents``; ``sightings`` says what a
message in a level is by the ledger, ``forecast`` what should be in each. Begin with ``run``.
"""
