"""Rows that MariaDB and MySQL cannot hash: no value may be larger than ``max_allowed_packet``.

Rules of this file: what the server can hash is left to it; any other row is read here, one part
after the other, since each part alone was stored once, and can be sent.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from sqlalchemy import Connection, Row, select, text

from migrator.nservicebus.timeouts import content_hash
from migrator.stores.sql.legacy_table import LegacyTable

FITS_ANYWHERE_BYTES: Final = 512 * 1024
"""So little is not asked about: servers come with 1 MiB or more."""
_AS_UTF8: Final = 3
"""A byte of text in another character set is at most so many in UTF-8."""


def room_of(connection: Connection) -> int:
    """Return how many bytes a statement, or a value, may have."""
    return int(connection.scalar(text("SELECT @@max_allowed_packet")) or 0)


def hashed_here(
    connection: Connection, legacy: LegacyTable, rows: Sequence[Row[Any]]
) -> Mapping[int, str]:
    """Return the content's hash of each row that is too large for the server, by place, from 1.

    *rows* are locked, and say ``Id``, ``body_bytes`` and ``headers_bytes``. Mostly empty.
    """
    needed = {
        place: row.body_bytes + _AS_UTF8 * row.headers_bytes + 1
        for place, row in enumerate(rows, start=1)
    }
    if max(needed.values(), default=0) <= FITS_ANYWHERE_BYTES:
        return {}
    room = room_of(connection)
    return {
        place: _hash_of(connection, legacy, rows[place - 1].Id)
        for place, size in needed.items()
        if size > room
    }


def _hash_of(connection: Connection, legacy: LegacyTable, id_: str) -> str:
    row = legacy.table.c
    headers, body = (
        connection.scalar(select(part).where(row.Id == id_)) for part in (row.Headers, row.State)
    )
    return content_hash(headers, body)
