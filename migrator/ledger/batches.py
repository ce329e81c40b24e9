"""Batches and their rows, written only by the owner of their lane; runs and the audit trail.

Rules of batches: every write names the state, attempt and token it expects, and is committed when
the call returns. If no row matched, another process owns the batch now.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from sqlalchemy import (
    ColumnElement,
    Engine,
    FromClause,
    Insert,
    Row,
    Select,
    insert,
    select,
    update,
)

from migrator.database.engine import RETURNS_BODIES, writing_once
from migrator.database.failures import in_halves, is_of_row, translating
from migrator.database.portable import among, for_update, row_by_row
from migrator.database.types import database_now
from migrator.errors import LeaseLost, LedgerError
from migrator.ledger.claims import hold_batch, hold_lease, insert_run, take_over, too_long
from migrator.ledger.failover import FailoverDetector
from migrator.ledger.states import (
    OPEN,
    RAISES_ATTEMPT,
    BatchState,
    Event,
    Mode,
    RowState,
    next_state,
)
from migrator.ledger.tables import NO_TOKEN, LedgerPart, LedgerTables
from migrator.ledger.work import SHARED_LANE, Batch, Lease, StoreEndpoint
from migrator.nservicebus.conversion import Quarantine, unprocessable
from migrator.nservicebus.timeouts import (
    BatchId,
    RunId,
    StoredTimeout,
    TimeoutId,
)


class SqlBatches(LedgerPart):
    def __init__(
        self, engine: Engine, tables: LedgerTables, detector: FailoverDetector | None = None
    ) -> None:
        super().__init__(engine, tables)
        self._detector = detector

    def open_batches(self, lease: Lease) -> Sequence[Batch]:
        batch = self._tables.batch
        mine = (batch.c.lane == lease.lane, batch.c.state.in_(OPEN))
        with self._writing(f"listing lane {lease.lane}") as connection:
            hold_lease(connection, self._tables, lease)
            take_over(connection, self._tables, lease)
            rows = connection.execute(select(batch).where(*mine).order_by(batch.c.id)).all()
        return [batch_of(row) for row in rows]

    def put_in(self, lease: Lease, *, not_of: Collection[RunId] = ()) -> Sequence[Batch]:
        batch = self._tables.batch
        query = select(batch).where(
            batch.c.lane.in_({lease.lane, SHARED_LANE}),
            batch.c.state == BatchState.CLAIMED,
            batch.c.lease_token == NO_TOKEN,
        )
        if not_of:
            query = query.where(~among(batch.c.run_id, not_of))

        if not self._read(query.limit(1), doing=f"checking lane {lease.lane}"):
            return []
        with self._writing(f"taking over batches put into lane {lease.lane}") as connection:
            hold_lease(connection, self._tables, lease)
            rows = connection.execute(for_update(query.order_by(batch.c.id), batch)).all()
            connection.execute(
                update(batch)
                .where(among(batch.c.id, [row.id for row in rows]))
                .values(lease_token=lease.token, owner=lease.owner, lane=lease.lane)
            )
        return [replace(batch_of(row), lane=lease.lane) for row in rows]

    def pass_on(self, batch: Batch, lease: Lease) -> None:
        table = self._tables.batch
        statement = (
            update(table)
            .where(
                table.c.id == batch.id,
                table.c.state == BatchState.CLAIMED,
                table.c.attempt == batch.attempt,
                table.c.lease_token == lease.token,
            )
            .values(lane=SHARED_LANE, lease_token=NO_TOKEN)
        )
        with self._writing(f"passing on batch {batch.id}") as connection:
            if connection.execute(statement).rowcount != 1:
                raise LeaseLost(f"batch {batch.id} no longer belongs to {lease.owner}")

    def find(self, batch: BatchId) -> Batch | None:
        table = self._tables.batch
        query = select(table).where(table.c.id == batch)
        return next(map(batch_of, self._read(query, doing=f"reading batch {batch}")), None)

    def rows(self, batch: Batch) -> Sequence[StoredTimeout]:
        query = self._content_of(batch)
        return timeouts_of(self._read(query, doing=f"reading the rows of batch {batch.id}"))

    def _content_of(self, batch: Batch) -> Select[Any]:
        query = self._of(batch, *content_of(self._tables.timeout))
        return query.execution_options(**RETURNS_BODIES)

    def readable(self, batch: Batch) -> tuple[Sequence[StoredTimeout], Sequence[Quarantine]]:
        if batch.fresh is not None:
            return batch.fresh, ()
        try:
            return self.rows(batch), ()
        except Exception as exc:
            if not is_of_row(exc):
                raise
        return self._read_apart(batch)

    def _read_apart(self, batch: Batch) -> tuple[Sequence[StoredTimeout], Sequence[Quarantine]]:
        row, doing = self._tables.timeout.c, f"reading a row of batch {batch.id}"
        found = self._read(self._of(batch, row.row_index, row.store_id), doing=doing)
        ids = {each.row_index: TimeoutId(each.store_id) for each in found}
        content = self._content_of(batch)

        def read(indexes: Sequence[int]) -> Sequence[StoredTimeout]:
            query = content.where(among(row.row_index, indexes))
            return timeouts_of(self._read(query, doing=doing))

        rows, odd = in_halves(list(ids), read)
        return rows, [unprocessable(ids[index], index, exc) for index, exc in odd.items()]

    def _of(self, batch: Batch, *columns: ColumnElement[Any]) -> Select[Any]:
        row = self._tables.timeout.c
        return (
            select(*columns)
            .where(row.batch_id == batch.id, row.state.is_(None))
            .order_by(row.row_index)
        )

    def advance(self, batch: Batch, event: Event, lease: Lease) -> Batch:
        state = next_state(batch.state, event)
        attempt = batch.attempt + 1 if event in RAISES_ATTEMPT else batch.attempt
        table = self._tables.batch
        statement = (
            update(table)
            .where(
                table.c.id == batch.id,
                table.c.state == batch.state,
                table.c.attempt == batch.attempt,
                table.c.lease_token == lease.token,
            )
            .values({"state": state, "attempt": attempt, f"{state}_at": database_now()})
        )
        doing = f"recording {event} of batch {batch.id}"
        with translating(LedgerError, doing=doing), writing_once(self._engine) as connection:
            if connection.execute(statement).rowcount != 1:
                raise LeaseLost(
                    f"batch {batch.id} is no longer {batch.state} in attempt {batch.attempt} "
                    f"under {lease.owner}; {event} was not recorded"
                )
        after = replace(batch, state=state, attempt=attempt, fresh=None)
        if self._detector is not None:
            self._detector.note(after)
        return after

    def quarantine(self, batch: Batch, findings: Collection[Quarantine], lease: Lease) -> None:
        row = self._tables.timeout
        alike = defaultdict[tuple[str, str], list[int]](list)  # one statement for each reason
        for finding in findings:
            alike[finding.reason, finding.detail].append(finding.row_index)
        may_change = row.c.state.is_(None) | (row.c.state == RowState.QUARANTINED)
        with self._writing(f"quarantining rows of batch {batch.id}") as connection:
            hold_batch(connection, self._tables, batch, lease)
            for (reason, detail), indexes in alike.items():
                which = (row.c.batch_id == batch.id, among(row.c.row_index, indexes), may_change)
                values = {"state": RowState.QUARANTINED, "reason": reason, "reason_detail": detail}
                connection.execute(row_by_row(update(row).where(*which).values(values)))


def batch_of(row: Row[Any]) -> Batch:
    return Batch(
        id=row.id,
        run=row.run_id,
        endpoint=row.endpoint,
        source=row.source,
        lane=row.lane,
        mode=Mode(row.mode),
        state=BatchState(row.state),
        attempt=row.attempt,
        size=row.size,
        body_bytes=row.body_bytes,
        ledger_id=row.ledger_id,
        claimed_at=row.claimed_at,
    )


def content_of(timeout: FromClause) -> Sequence[ColumnElement[Any]]:
    """Return the columns that ``timeouts_of`` reads, in its order."""
    row = timeout.c
    return row.row_index, row.store_id, row.destination, row.due, row.body, row.headers


def timeouts_of(rows: Iterable[Any]) -> list[StoredTimeout]:
    return [
        StoredTimeout(
            id=store_id,
            row_index=row_index,
            destination=destination,
            due_at=due,
            body=body or b"",
            headers_text=headers,
        )
        for row_index, store_id, destination, due, body, headers in rows
    ]


# ── runs and the audit trail ──────────────────────────────────────────────────────────────────────

RUNNING: Final = "running"


class SqlRuns(LedgerPart):
    """*actor* is written into the audit trail: ``user@host`` of the operator or daemon."""

    def __init__(self, engine: Engine, tables: LedgerTables, *, actor: str, version: str) -> None:
        super().__init__(engine, tables)
        self._actor = actor
        self._version = version

    def begin(self, endpoint: StoreEndpoint, options: Mapping[str, object]) -> RunId:
        """Record that a run begins; *options* carry no secrets.

        Batches that an operator put in for the endpoint, and no lane has taken, belong to this run
        from now on.
        """
        if (why := too_long(endpoint, self._engine.dialect.name)) is not None:
            raise LedgerError(why)
        batch = self._tables.batch
        waiting = (
            batch.c.source == endpoint.source,
            batch.c.state == BatchState.CLAIMED,
            batch.c.lease_token == NO_TOKEN,
            batch.c.owner.is_(None),
        )
        with self._writing(f"beginning a run of {endpoint.name}") as connection:
            run = insert_run(
                connection,
                self._tables,
                endpoint,
                options=options,
                version=self._version,
                status=RUNNING,
            )
            connection.execute(update(batch).where(*waiting).values(run_id=run))
        return run

    def options_of(self, run: RunId) -> Mapping[str, Any]:
        table = self._tables.run
        query = select(table.c.options).where(table.c.id == run)
        found = self._read(query, doing=f"reading the options of run {run}")
        options: Mapping[str, Any] = json.loads(found[0].options) if found else {}
        return options

    def end(self, run: RunId, status: str) -> None:
        """Record how a run ended: ``done``, ``stopped`` or ``failed``."""
        table = self._tables.run
        with self._writing(f"ending run {run}") as connection:
            connection.execute(
                update(table)
                .where(table.c.id == run)
                .values(status=status, ended_at=database_now())
            )

    def record(self, kind: str, *, detail: Mapping[str, object], batch: BatchId | None) -> None:
        with self._writing(f"recording {kind}") as connection:
            connection.execute(self.event(kind, detail=detail, batch=batch))

    def event(self, kind: str, *, detail: Mapping[str, object], batch: BatchId | None) -> Insert:
        endpoint = detail.get("endpoint")
        return insert(self._tables.event).values(
            at=database_now(),
            kind=kind,
            batch_id=batch,
            endpoint=None if endpoint is None else str(endpoint),
            actor=self._actor,
            detail=json.dumps(dict(detail), sort_keys=True, default=str),
        )
