"""The ledger as people ask about it; nothing here changes it."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import Connection, Engine, Row, func, select

from migrator.database.engine import reading
from migrator.database.portable import among
from migrator.database.types import database_now
from migrator.errors import LedgerError
from migrator.ledger.batches import batch_of
from migrator.ledger.held_destinations import HeldDestination
from migrator.ledger.identity import check_identity
from migrator.ledger.report import (
    AuditEvent,
    DoubtfulBatch,
    EndpointProgress,
    LaneStatus,
    OpenCommit,
    Progress,
    QuarantineCount,
    RunSummary,
)
from migrator.ledger.states import OPEN, BatchState, Mode, RowState
from migrator.ledger.tables import LedgerTables, progress_view
from migrator.ledger.work import Batch, StoreEndpoint
from migrator.nservicebus.conversion import destination_of
from migrator.nservicebus.timeouts import (
    RECALL_LANE,
    SCAN_LANE,
    BatchId,
    EndpointName,
    Lane,
    QueueName,
    RunId,
)


class SqlBooks:
    """Progress, lanes and history; each answer is read in one go."""

    def __init__(self, engine: Engine, tables: LedgerTables) -> None:
        """Read the ledger in *tables*."""
        self._engine = engine
        self._tables = tables
        self._progress = progress_view(tables.names)

    def progress(self) -> Progress:
        """Return the whole ledger at one moment, in database time."""
        with reading(self._engine, LedgerError, doing="reading the progress") as connection:
            now = connection.execute(select(database_now())).scalar_one()
            return Progress(
                taken_at=now,
                endpoints=self._endpoints(connection),
                quarantine=self._quarantine(connection),
                doubtful=self._doubtful(connection),
                oldest_open_age=self._oldest_open_age(connection, now),
                lanes=self._lanes(connection, now),
                held=self._held(connection),
            )

    def quarantined(self, endpoints: Sequence[StoreEndpoint]) -> int:
        """Return how many rows of *endpoints* are in quarantine."""
        row = self._tables.timeout.c
        query = select(func.count()).where(
            row.state == RowState.QUARANTINED, among(row.source, {e.source for e in endpoints})
        )
        with reading(self._engine, LedgerError, doing="counting the quarantine") as connection:
            return connection.execute(query).scalar_one()

    def doubtful(self, endpoints: Sequence[StoreEndpoint]) -> int:
        """Return how many batches of *endpoints* are doubtful."""
        batch = self._tables.batch.c
        query = select(func.count()).where(
            batch.state == BatchState.DOUBTFUL, among(batch.source, {e.source for e in endpoints})
        )
        with reading(self._engine, LedgerError, doing="counting doubtful batches") as connection:
            return connection.execute(query).scalar_one()

    def held(self) -> Sequence[HeldDestination]:
        """Return the destinations whose rows wait in the store."""
        with reading(self._engine, LedgerError, doing="reading what is held") as connection:
            return self._held(connection)

    def open_batches(self) -> Sequence[Batch]:
        """Return every batch that is claimed and not settled, of all lanes, oldest first.

        Takes nobody's lane: any of it may change at once. Doubtful ones are not included.
        """
        table = self._tables.batch
        query = select(table).where(table.c.state.in_(OPEN)).order_by(table.c.id)
        with reading(self._engine, LedgerError, doing="listing open batches") as connection:
            return [batch_of(row) for row in connection.execute(query).all()]

    def commits_of_others(self, delays: str) -> Sequence[OpenCommit]:
        """Return the ``committing`` batches that cannot have been staged for *delays*.

        The ledger does not say which run staged a batch. It was one that began when the batch was
        claimed, or later: where any of these was for *delays*, the batch is left out.
        """
        batch, run = self._tables.batch.c, self._tables.run.c
        query = (
            select(batch.id, batch.lane, batch.run_id)
            .where(batch.state == BatchState.COMMITTING)
            .order_by(batch.id)
        )
        with reading(self._engine, LedgerError, doing="listing commits under way") as connection:
            found = connection.execute(query).all()
            if not found:
                return []
            since = select(run.id, run.options).where(run.id >= min(row.run_id for row in found))
            runs = {row.id: json.loads(row.options) for row in connection.execute(since)}
        commits = []
        for row in found:
            used = {each.get("delays") for key, each in runs.items() if key >= row.run_id} - {None}
            if used and delays not in used:
                commits.append(OpenCommit(batch=row.id, lane=Lane(row.lane), delays=used.pop()))
        return commits

    def runs(self, *, limit: int = 50) -> Sequence[RunSummary]:
        """Return the latest runs, newest first."""
        run, batch = self._tables.run, self._tables.batch
        claimed = (
            select(func.coalesce(func.sum(batch.c.size), 0))
            .where(batch.c.run_id == run.c.id)
            .scalar_subquery()
        )
        query = select(run, claimed.label("claimed")).order_by(run.c.id.desc()).limit(limit)
        with reading(self._engine, LedgerError, doing="listing runs") as connection:
            return [_run(row) for row in connection.execute(query)]

    def events(self, *, after: int = 0, limit: int = 200) -> Sequence[AuditEvent]:
        """Return events whose id is above *after*, oldest first."""
        event = self._tables.event
        query = select(event).where(event.c.id > after).order_by(event.c.id).limit(limit)
        with reading(self._engine, LedgerError, doing="listing events") as connection:
            return [_event(row) for row in connection.execute(query)]

    def latest_events(self, *, limit: int) -> Sequence[AuditEvent]:
        """Return the latest events, newest first."""
        event = self._tables.event
        query = select(event).order_by(event.c.id.desc()).limit(limit)
        with reading(self._engine, LedgerError, doing="listing the latest events") as connection:
            return [_event(row) for row in connection.execute(query)]

    def latest_event(self, kind: str) -> AuditEvent | None:
        """Return the latest event of *kind*; None: there is none."""
        event = self._tables.event
        query = select(event).where(event.c.kind == kind).order_by(event.c.id.desc()).limit(1)
        doing = f"looking for the latest {kind}"
        with reading(self._engine, LedgerError, doing=doing) as connection:
            row = connection.execute(query).one_or_none()
            return None if row is None else _event(row)

    def latest_event_of_each(
        self, kind: str, endpoints: Collection[EndpointName]
    ) -> Mapping[EndpointName, AuditEvent]:
        """Return the latest event of *kind* of each of *endpoints* that has one."""
        event = self._tables.event
        latest = (
            select(func.max(event.c.id))
            .where(event.c.kind == kind, among(event.c.endpoint, endpoints))
            .group_by(event.c.endpoint)
        )
        query = select(event).where(event.c.id.in_(latest))
        doing = f"looking for the latest {kind} of each endpoint"
        with reading(self._engine, LedgerError, doing=doing) as connection:
            return {EndpointName(row.endpoint): _event(row) for row in connection.execute(query)}

    def _endpoints(self, connection: Connection) -> Sequence[EndpointProgress]:
        view, counts = self._progress.c, defaultdict[str, dict[str, int]](dict)
        query = select(view.endpoint, view.state, view.rows)
        for endpoint, state, rows in connection.execute(query):
            counts[endpoint][state] = int(rows)
        return [
            EndpointProgress(endpoint=EndpointName(endpoint), rows=counts[endpoint])
            for endpoint in sorted(counts)
        ]

    def _quarantine(self, connection: Connection) -> Sequence[QuarantineCount]:
        row = self._tables.timeout.c
        query = (
            select(row.endpoint, row.reason, func.count())
            .where(row.state == RowState.QUARANTINED)
            .group_by(row.endpoint, row.reason)
            .order_by(row.endpoint, row.reason)
        )
        return [
            QuarantineCount(endpoint=EndpointName(endpoint), reason=reason or "", rows=count)
            for endpoint, reason, count in connection.execute(query)
        ]

    def _doubtful(self, connection: Connection) -> Sequence[DoubtfulBatch]:
        batch = self._tables.batch
        query = (
            select(batch)
            .where(batch.c.state == BatchState.DOUBTFUL)
            .order_by(batch.c.doubtful_at, batch.c.id)
        )
        return [
            DoubtfulBatch(
                batch=BatchId(row.id),
                endpoint=EndpointName(row.endpoint),
                lane=Lane(row.lane),
                mode=Mode(row.mode),
                attempt=row.attempt,
                size=row.size,
                since=row.doubtful_at,
            )
            for row in connection.execute(query)
        ]

    def _oldest_open_age(self, connection: Connection, now: datetime) -> timedelta | None:
        batch = self._tables.batch.c
        query = select(func.min(batch.claimed_at)).where(batch.state.in_(OPEN))
        oldest = connection.execute(query).scalar_one()
        return None if oldest is None else max(now - oldest, timedelta(0))

    def _lanes(self, connection: Connection, now: datetime) -> Sequence[LaneStatus]:
        batch = self._tables.batch.c
        counting = (
            select(batch.lane, func.count()).where(batch.state.in_(OPEN)).group_by(batch.lane)
        )
        opened = {lane: count for lane, count in connection.execute(counting)}
        found = []
        for row in connection.execute(select(self._tables.lease)):
            lane = self._tables.lane_of(row.name)
            if lane in (RECALL_LANE, SCAN_LANE) and row.owner is None:
                continue  # only there to be locked
            found.append(
                LaneStatus(
                    lane=lane,
                    owner=row.owner,
                    doing=row.doing,
                    until=row.until,
                    renewed_at=row.renewed_at,
                    is_alive=row.owner is not None and row.until > now,
                    open_batches=opened.get(lane, 0),
                    serves=row.serves,
                )
            )
        return sorted(found, key=lambda status: status.lane)

    def _held(self, connection: Connection) -> Sequence[HeldDestination]:
        table = self._tables.held_destination
        found = [HeldDestination(**row) for row in connection.execute(select(table)).mappings()]
        return sorted(found, key=lambda each: (each.endpoint, each.source, each.destination))


def _run(row: Row[Any]) -> RunSummary:
    return RunSummary(
        run=RunId(row.id),
        endpoint=EndpointName(row.endpoint),
        status=row.status,
        begun_at=row.begun_at,
        ended_at=row.ended_at,
        tool_version=row.tool_version,
        options=json.loads(row.options),
        claimed=int(row.claimed),
    )


def _event(row: Row[Any]) -> AuditEvent:
    return AuditEvent(
        id=row.id,
        at=row.at,
        kind=row.kind,
        batch=None if row.batch_id is None else BatchId(row.batch_id),
        endpoint=None if row.endpoint is None else EndpointName(row.endpoint),
        actor=row.actor,
        detail=json.loads(row.detail),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class HandedOver:
    """Timeouts that were handed over for one destination."""

    destination: QueueName
    rows: int
    first_due: datetime
    """Aware, UTC; of those that were asked for."""
    last_due: datetime


class SqlHandOvers:
    """What the ledger knows of timeouts that wait in the delays, or waited there."""

    def __init__(self, engine: Engine, tables: LedgerTables, renamed: Mapping[str, str]) -> None:
        """Read the ledger in *tables*; *renamed* are the destinations that have other names."""
        self._engine = engine
        self._tables = tables
        self._renamed = renamed

    def handed_over(
        self,
        *,
        due_from: datetime,
        due_until: datetime | None = None,
        handed_over_from: datetime | None = None,
    ) -> Sequence[HandedOver]:
        """Return what was handed over and is due in a range, by destination, sorted; may be empty.

        Names are those that messages went to, as far as the renaming in force now is the one
        of that time. Rows whose destination stands in their headers only are left out: that would
        mean to read all of them.

        Args:
            due_from: Aware, UTC; included.
            due_until: Aware, UTC; not included. None: without end.
            handed_over_from: Aware, by the ledger's clock; what was handed over before is left
                out, and not read. None: nothing is.

        Raises:
            StoreUnavailable, LedgerMissing, LedgerError: It cannot be asked; nothing was changed.
        """
        check_identity(self._engine, self._tables)
        row, batch = self._tables.timeout.c, self._tables.batch.c
        query = (
            select(row.destination, func.count(), func.min(row.due), func.max(row.due))
            .join_from(self._tables.batch, self._tables.timeout, row.batch_id == batch.id)
            .where(
                batch.state == BatchState.HANDED_OVER,
                batch.last_due >= due_from,
                row.state.is_(None),
                row.due >= due_from,
                row.destination.is_not(None),
            )
            .group_by(row.destination)
        )
        if due_until is not None:
            query = query.where(batch.first_due < due_until, row.due < due_until)
        if handed_over_from is not None:
            query = query.where(batch.handed_over_at >= handed_over_from)
        doing = "asking where timeouts were handed over to"
        with reading(self._engine, LedgerError, doing=doing) as connection:
            found = connection.execute(query).all()
        return self._merged(
            HandedOver(
                destination=destination_of(column, {}, self._renamed),
                rows=rows,
                first_due=first,
                last_due=last,
            )
            for column, rows, first, last in found
        )

    @staticmethod
    def _merged(found: Iterable[HandedOver]) -> Sequence[HandedOver]:
        """Return one for each destination: ``Sales`` and ``Sales@MACHINE`` are the same."""
        merged: dict[QueueName, HandedOver] = {}
        for each in found:
            known = merged.get(each.destination, each)
            merged[each.destination] = replace(
                each,
                rows=each.rows + (0 if known is each else known.rows),
                first_due=min(each.first_due, known.first_due),
                last_due=max(each.last_due, known.last_due),
            )
        return [merged[name] for name in sorted(merged)]
