"""Rows in quarantine: list them, look at one, try them again, or give them up.

Rules of this file: only rows of settled batches are touched, so a daemon never loses a row of
the batch in its hands; a row that is tried again leaves its old batch, whose size says so.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any, Final

import sqlalchemy as sa
from sqlalchemy.sql.elements import NamedColumn

from migrator.database.engine import RETURNS_BODIES
from migrator.database.portable import first_for_update, prefer_indexes
from migrator.database.types import byte_length, database_now
from migrator.ledger.claims import in_quarantine, inserted_id, latest_run
from migrator.ledger.report import QuarantinedRow, QuarantinedTimeout, QuarantineFilter
from migrator.ledger.states import BatchState, Mode, RowState
from migrator.ledger.tables import INCOMPLETE, NO_TOKEN, LedgerPart
from migrator.ledger.work import SHARED_LANE
from migrator.nservicebus.conversion import Reason

_DOING: Final = "reading the quarantine"
PAGE_ROWS: Final = 200
RETRY_ROWS: Final = 1000
"""Rows of a batch made by ``retry``."""
CONTENT_BYTES: Final = 8 * 1024 * 1024
"""Bodies and headers of such a batch, and of what is read at a time."""
_TEXTS: Final = ("destination", "headers", "persistence_version")
"""Columns with text as endpoints wrote it, which need be none."""


class SqlQuarantine(LedgerPart):
    """The quarantine of one ledger."""

    def page(
        self, which: QuarantineFilter, *, after: int = 0, limit: int = PAGE_ROWS
    ) -> Sequence[QuarantinedRow]:
        """Return rows whose ``key`` is above *after*, ascending, without their content."""
        row = self._tables.timeout
        columns = [column for column in row.c if column.name not in {"body", "headers"}]
        return [_listed(found) for found in self._found(columns, which, after, limit)]

    def full(
        self, which: QuarantineFilter, *, after: int = 0, limit: int = PAGE_ROWS
    ) -> Sequence[QuarantinedTimeout]:
        """Return rows with everything the store had; for showing one and for export.

        As many as fit ``CONTENT_BYTES`` together, one at least.
        """
        row = self._tables.timeout.c
        sizes = [row.id, byte_length(row.headers).label("headers_bytes")]
        count = len(_fitting(self._found(sizes, which, after, limit)))
        if not count:
            return ()
        return [
            QuarantinedTimeout(
                row=_listed(row),
                saga_id=row.saga_id,
                headers_text=row.headers,
                body=row.body,
                persistence_version=row.persistence_version,
                content_hash=row.content_hash,
            )
            for row in self._found(list(self._tables.timeout.c), which, after, count)
        ]

    def _found(
        self, columns: Sequence[NamedColumn[Any]], which: QuarantineFilter, after: int, limit: int
    ) -> Sequence[sa.Row[Any]]:
        row = self._tables.timeout
        shown = (self._tables.shown(each.name) if each.name in _TEXTS else each for each in columns)
        query = sa.select(*shown, byte_length(row.c.body).label("body_bytes"))
        query = query.where(*self._is(which), row.c.id > after).order_by(row.c.id).limit(limit)
        query = query.execution_options(**RETURNS_BODIES)
        with self._reading(_DOING) as connection:
            prefer_indexes(connection)
            return [*connection.execute(query)]

    def retry(self, which: QuarantineFilter, *, mode: Mode) -> int:
        """Put rows of settled batches into new batches for any lane; return how many rows.

        Overdue ones go ``direct``, the others as *mode* says. They belong to the latest run of
        their endpoint, whose map applies, or to the next one if that begins first. A lane finds
        them at its next look. Rows a dispatcher claimed are left: it looks for rows in the store,
        and there they go (``SqlClaims.release_quarantined``).
        """
        with self._reading(_DOING) as connection:
            prefer_indexes(connection)
            now = connection.execute(sa.select(database_now())).scalar_one()
            # a row that comes back into quarantine meanwhile is not tried a second time
            last = (
                connection.execute(sa.select(sa.func.max(self._tables.batch.c.id))).scalar_one()
                or 0
            )
            groups = self._groups(connection, which)
        retried = 0
        for source, endpoint in groups:
            row = self._tables.timeout
            of_group = [row.c.source == source, row.c.endpoint == endpoint, *self._is(which)]
            overdue = row.c.due <= now
            for chosen, is_due in ((Mode.DIRECT, overdue), (mode, ~overdue)):
                while moved := self._retry_batch([*of_group, is_due], last, chosen):
                    retried += moved
        return retried

    def discard(self, which: QuarantineFilter) -> int:
        """Let rows of settled batches never be sent; return how many. A purge removes them."""
        row, batch = self._tables.timeout, self._tables.batch
        settled = sa.select(batch.c.id).where(batch.c.state.not_in(INCOMPLETE))
        statement = (
            sa.update(row)
            .where(*self._is(which), row.c.going_back.is_(None), row.c.batch_id.in_(settled))
            .values(state=RowState.DISCARDED)
        )
        with self._writing("discarding quarantined rows") as connection:
            prefer_indexes(connection)
            return connection.execute(statement).rowcount

    def _groups(self, connection: sa.Connection, which: QuarantineFilter) -> list[tuple[str, str]]:
        row = self._tables.timeout.c
        query = sa.select(row.source, row.endpoint).where(*self._is(which)).distinct()
        return sorted((found.source, found.endpoint) for found in connection.execute(query))

    def _retry_batch(self, which: list[sa.ColumnElement[bool]], last: int, mode: Mode) -> int:
        with self._writing("trying quarantined rows again") as connection:
            prefer_indexes(connection)
            rows = self._chosen(connection, which, last)
            if rows:
                self._move(connection, rows, self._new_batch(connection, rows, mode))
        return len(rows)

    def _chosen(
        self, connection: sa.Connection, which: list[sa.ColumnElement[bool]], last: int
    ) -> Sequence[sa.Row[Any]]:
        row, batch = self._tables.timeout, self._tables.batch
        query = (
            sa.select(
                row.c.id,
                row.c.batch_id,
                row.c.endpoint,
                row.c.source,
                row.c.due,
                batch.c.run_id,
                byte_length(row.c.body).label("body_bytes"),
                byte_length(row.c.headers).label("headers_bytes"),
            )
            .join(batch, batch.c.id == row.c.batch_id)
            .where(
                *which,
                row.c.going_back.is_(None),  # `rollback` began to put it back; only it can end that
                row.c.reason != Reason.BODY_MISSING,  # there is nothing to hand over
                batch.c.mode != Mode.DISPATCH,
                batch.c.state.not_in(INCOMPLETE),
                batch.c.id <= last,
            )
            .order_by(row.c.due, row.c.id)
        )
        query = first_for_update(query, row, at_most=RETRY_ROWS, dialect=connection.dialect.name)
        return _fitting(connection.execute(query))

    def _new_batch(self, connection: sa.Connection, rows: Sequence[sa.Row[Any]], mode: Mode) -> int:
        statement = sa.insert(self._tables.batch).values(
            run_id=latest_run(connection, self._tables, rows[0].source, rows[0].endpoint)
            or rows[0].run_id,
            endpoint=rows[0].endpoint,
            source=rows[0].source,
            lane=SHARED_LANE,
            mode=mode,
            state=BatchState.CLAIMED,
            attempt=0,
            size=len(rows),
            body_bytes=sum(row.body_bytes for row in rows),
            first_due=rows[0].due,
            last_due=rows[-1].due,
            lease_token=NO_TOKEN,
            claimed_at=database_now(),
        )
        return inserted_id(connection.execute(statement))

    def _move(self, connection: sa.Connection, rows: Sequence[sa.Row[Any]], batch_id: int) -> None:
        row, batch = self._tables.timeout, self._tables.batch
        for index, found in enumerate(rows):
            connection.execute(
                sa.update(row)
                .where(row.c.id == found.id)
                .values(
                    batch_id=batch_id,
                    row_index=index,
                    state=None,
                    reason=None,
                    reason_detail=None,
                )
            )
        left, body_bytes = Counter[int](), Counter[int]()
        for found in rows:
            left[found.batch_id] += 1
            body_bytes[found.batch_id] += found.body_bytes
        for old_id, count in sorted(left.items()):  # in a purge's order: no deadlock
            connection.execute(
                sa.update(batch)
                .where(batch.c.id == old_id)
                .values(
                    size=batch.c.size - count,
                    body_bytes=batch.c.body_bytes - body_bytes[old_id],
                )
            )

    def _is(self, which: QuarantineFilter) -> list[sa.ColumnElement[bool]]:
        return in_quarantine(self._tables.timeout, self._tables.batch, which)


def _fitting(rows: Iterable[sa.Row[Any]]) -> Sequence[sa.Row[Any]]:
    """Return the first of *rows* whose contents fit ``CONTENT_BYTES`` together, one at least."""
    chosen = list[sa.Row[Any]]()
    size = 0
    for row in rows:
        size += row.body_bytes + row.headers_bytes
        if chosen and size > CONTENT_BYTES:
            break
        chosen.append(row)
    return chosen


def _listed(row: sa.Row[Any]) -> QuarantinedRow:
    return QuarantinedRow(
        key=row.id,
        endpoint=row.endpoint,
        source=row.source,
        timeout_id=row.store_id,
        batch=row.batch_id,
        destination=row.destination,
        due_at=row.due,
        body_bytes=row.body_bytes,
        reason=row.reason or "",
        detail=row.reason_detail or "",
    )
