"""Moving rows where the database cannot hash them: picked and locked, read, copied, removed.

Rules of this file: everything happens in the claim's one transaction; a row is copied by the
database, so what the ledger keeps is what the table had, and only its hash is made here; rows that
were picked, read, copied and removed must be the same, or all of it is rolled back; what is read
at a time is bounded.

For SQL Server, whose text is UTF-16 (UTF-8 is a collation of 2019 and later), and Oracle, whose
STANDARD_HASH takes no LOB and whose DBMS_CRYPTO wants a grant.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any, Final

from sqlalchemy import Connection, Delete, Row, Select, delete, literal_column, select

from migrator.database.types import byte_length
from migrator.errors import StoreError
from migrator.ledger.tables import LedgerTables
from migrator.nservicebus.timeouts import content_hash
from migrator.stores.ports import ClaimRequest
from migrator.stores.sql.legacy_table import LegacyTable
from migrator.stores.sql.moving import Moved, id_text, in_ledger
from migrator.stores.sql.selection import wanted

MOST_ROWS: Final = 1000
"""Rows of one claim: SQL Server locks a whole table instead of 5000 rows."""
_CHUNK_ROWS: Final = 500
"""Rows copied by one statement: SQL Server takes 2100 parameters, Oracle 1000 in a list."""
_CHUNK_BYTES: Final = 16 * 1024 * 1024
"""Bodies and headers read at a time; a larger row is read alone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Copied:
    """One row's place in its batch, and the hash of its content."""

    id: str
    row_index: int
    content_hash: str


Copier = Callable[[Sequence[Copied]], int]
"""Copies rows of the legacy table into the ledger; returns how many there were."""


def picking(legacy: LegacyTable, ledger: LedgerTables, request: ClaimRequest) -> Select[Any]:
    """Return what finds the rows that are wanted, soonest first, with their sizes.

    Neither limit nor lock: how they are asked for is the dialect's.
    """
    row = legacy.table.c
    return (
        select(
            id_text(legacy).label("id"),
            row.Time.label("due"),
            byte_length(row.State).label("body_bytes"),
            byte_length(row.Headers).label("headers_bytes"),
        )
        .where(*wanted(legacy, request), in_ledger(legacy, ledger).is_(None))
        .order_by(row.Time)
    )


def reading_content(legacy: LegacyTable, ids: Sequence[str]) -> Select[Any]:
    """Return what reads what a hash is made of."""
    row = legacy.table.c
    return select(
        id_text(legacy).label("id"), row.Headers.label("headers"), row.State.label("body")
    ).where(row.Id.in_(ids))


def removing(legacy: LegacyTable, ids: Sequence[str]) -> Delete:
    """Return what removes rows."""
    return delete(legacy.table).where(legacy.table.c.Id.in_(ids))


def move_rows(
    connection: Connection,
    legacy: LegacyTable,
    picked: Sequence[Row[Any]],
    max_bytes: int,
    copy: Copier,
) -> Moved | None:
    """Move the first rows of *picked* that have no more than *max_bytes* together; one at least.

    Raises:
        StoreError: A row was not where it was a moment ago; the caller rolls back.
    """
    rows = fitting(picked, max_bytes)
    if not rows:
        return None
    position = 0
    for chunk in _chunks(rows):
        ids = [row.id for row in chunk]
        hashes = {
            found.id: content_hash(found.headers, found.body)
            for found in connection.execute(reading_content(legacy, ids))
        }
        _demand(legacy, "read", len(hashes), of=len(chunk))
        copied = copy(
            [
                Copied(id=row.id, row_index=position + place, content_hash=hashes[row.id])
                for place, row in enumerate(chunk)
            ]
        )
        _demand(legacy, "copied", copied, of=len(chunk))
        removed = connection.execute(removing(legacy, ids)).rowcount
        _demand(legacy, "removed", removed, of=len(chunk))
        position += len(chunk)
    return Moved(
        size=len(rows),
        body_bytes=sum(row.body_bytes for row in rows),
        first_due=rows[0].due,
        last_due=rows[-1].due,
        last_id=rows[-1].id,
    )


def place_of(name: str) -> Any:
    """Return a column of what the copying statement calls ``picked``."""
    return literal_column(f"picked.{name}")


def _demand(legacy: LegacyTable, done: str, count: int, *, of: int) -> None:
    if count != of:
        raise StoreError(f"{legacy.source}: of {of} rows, {count} were {done}; rolled back")


def fitting(picked: Sequence[Row[Any]], max_bytes: int) -> Sequence[Row[Any]]:
    """Return the first rows, as many as have no more bytes together; one at least."""
    totals = accumulate(row.body_bytes + row.headers_bytes for row in picked)
    return picked[: max(sum(total <= max_bytes for total in totals), 1)]


def _chunks(rows: Sequence[Row[Any]]) -> Iterator[Sequence[Row[Any]]]:
    begin, size = 0, 0
    for end, row in enumerate(rows):
        own = row.body_bytes + row.headers_bytes
        if end > begin and (end - begin == _CHUNK_ROWS or size + own > _CHUNK_BYTES):
            yield rows[begin:end]
            begin, size = end, 0
        size += own
    yield rows[begin:]
