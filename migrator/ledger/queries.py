"""Queries of the ledger for operators; nothing here changes it."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from operator import attrgetter
from typing import Any

from sqlalchemy import Column, ColumnElement, Connection, Engine, Row, func, select

from migrator.database.portable import among, prefer_indexes
from migrator.database.types import database_now
from migrator.ledger.batches import batch_of
from migrator.ledger.held_destinations import held_rows
from migrator.ledger.identity import check_identity
from migrator.ledger.parking import parked_rows
from migrator.ledger.report import (
    AuditEvent,
    BatchElsewhere,
    DoubtfulBatch,
    EndpointProgress,
    HeldDestination,
    LaneStatus,
    Progress,
    QuarantineCount,
)
from migrator.ledger.run_terms import BrokerPlace, read_place
from migrator.ledger.states import OPEN, BatchState, Mode, RowState
from migrator.ledger.tables import LedgerPart, LedgerTables, progress_view
from migrator.ledger.work import Batch, StoreEndpoint
from migrator.nservicebus.conversion import destination_of
from migrator.nservicebus.timeouts import (
    FIRST_DISPATCHER_LANE,
    RECALL_LANE,
    SCAN_LANE,
    BatchId,
    EndpointName,
    Lane,
    QueueName,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class LatestRun:
    endpoint: StoreEndpoint
    options: Mapping[str, Any]


class LedgerQueries(LedgerPart):
    def __init__(self, engine: Engine, tables: LedgerTables) -> None:
        super().__init__(engine, tables)
        self._progress = progress_view(tables.names)

    def progress(self) -> Progress:
        with self._reading("reading the progress") as connection:
            prefer_indexes(connection)
            now = connection.execute(select(database_now())).scalar_one()
            return Progress(
                taken_at=now,
                endpoints=self._endpoints(connection),
                quarantine=self._quarantine(connection),
                doubtful=self._doubtful(connection),
                oldest_open_age=self._oldest_open_age(connection, now),
                lanes=lane_statuses(connection, self._tables, now),
                held=self._held(connection),
            )

    def quarantined(self, endpoints: Sequence[StoreEndpoint]) -> int:
        row = self._tables.timeout.c
        return self._count(row.state == RowState.QUARANTINED, row.source, endpoints)

    def sources(self) -> Sequence[str]:
        query = select(self._tables.batch.c.source).distinct()
        return sorted(source for (source,) in self._read(query, doing="reading sources"))

    def doubtful(self, endpoints: Sequence[StoreEndpoint]) -> int:
        batch = self._tables.batch.c
        return self._count(batch.state == BatchState.DOUBTFUL, batch.source, endpoints)

    def _count(
        self, which: ColumnElement[bool], source: Column[Any], endpoints: Sequence[StoreEndpoint]
    ) -> int:
        sources = {each.source for each in endpoints}
        query = select(func.count()).where(which, among(source, sources))
        doing = "counting the quarantine and doubtful batches"
        ((count,),) = self._read(query, doing=doing, by_index=True)
        return int(count)

    def held(self) -> Sequence[HeldDestination]:
        with self._reading("reading the parked destinations") as connection:
            return self._held(connection)

    def open_batches(self) -> Sequence[Batch]:
        """Return the open batches of all lanes, oldest first, without locks or doubtful ones."""
        table = self._tables.batch
        query = select(table).where(table.c.state.in_(OPEN)).order_by(table.c.id)
        return [batch_of(row) for row in self._read(query, doing="listing open batches")]

    def batches_of_others(
        self, place: BrokerPlace, *states: BatchState
    ) -> Sequence[BatchElsewhere]:
        batch, run = self._tables.batch.c, self._tables.run.c
        query = (
            select(batch.id, batch.lane, run.options)
            .join_from(self._tables.batch, self._tables.run, run.id == batch.run_id)
            .where(batch.state.in_(states), batch.lane < FIRST_DISPATCHER_LANE)
            .order_by(batch.id)
        )
        found = [
            BatchElsewhere(
                batch=BatchId(row.id),
                lane=Lane(row.lane),
                place=read_place(json.loads(row.options)),
            )
            for row in self._read(query, doing="listing batches that go elsewhere")
        ]
        return [each for each in found if not each.place.may_be(place)]

    def latest_events(self, *, limit: int, without: Collection[str] = ()) -> Sequence[AuditEvent]:
        """Newest first, without those of kinds *without*."""
        event = self._tables.event
        query = select(event).order_by(event.c.id.desc()).limit(limit)
        if without:
            query = query.where(event.c.kind.not_in(sorted(without)))
        return [_event(row) for row in self._read(query, doing="listing the latest events")]

    def latest_event(self, kind: str) -> AuditEvent | None:
        event = self._tables.event
        query = select(event).where(event.c.kind == kind).order_by(event.c.id.desc()).limit(1)
        return next(map(_event, self._read(query, doing=f"looking for the latest {kind}")), None)

    def latest_event_of_each(
        self, kind: str, endpoints: Collection[EndpointName]
    ) -> Mapping[EndpointName, AuditEvent]:
        event = self._tables.event
        latest = (
            select(func.max(event.c.id))
            .where(event.c.kind == kind, among(event.c.endpoint, endpoints))
            .group_by(event.c.endpoint)
        )
        query = select(event).where(event.c.id.in_(latest))
        doing = f"looking for the latest {kind} of each endpoint"
        return {row.endpoint: _event(row) for row in self._read(query, doing=doing)}

    def latest_runs(self) -> Sequence[LatestRun]:
        run = self._tables.run
        latest = select(func.max(run.c.id)).group_by(run.c.endpoint)
        query = select(run.c.endpoint, run.c.source, run.c.options).where(run.c.id.in_(latest))
        found = [
            LatestRun(
                endpoint=StoreEndpoint(name=EndpointName(row.endpoint), source=row.source),
                options=json.loads(row.options),
            )
            for row in self._read(query, doing="looking for the latest runs")
        ]
        return sorted(found, key=attrgetter("endpoint.name"))

    def settled_since(self, since: datetime) -> Mapping[EndpointName, int]:
        batch = self._tables.batch.c
        query = (
            select(batch.endpoint, func.sum(batch.size))
            .where((batch.handed_over_at >= since) | (batch.dispatched_at >= since))
            .group_by(batch.endpoint)
        )
        doing = "counting the latest hand-overs"
        return {EndpointName(name): int(rows) for name, rows in self._read(query, doing=doing)}

    def settled_lately(self, since: datetime, *, at_most: int) -> Sequence[tuple[datetime, int]]:
        """Of the latest *at_most* batches only: there is no index by time."""
        batch = self._tables.batch.c
        times = (batch.handed_over_at, batch.dispatched_at)
        latest = select(*times, batch.size).order_by(batch.id.desc()).limit(at_most).subquery().c
        query = select(latest.handed_over_at, latest.dispatched_at, latest.size).where(
            (latest.handed_over_at >= since) | (latest.dispatched_at >= since)
        )
        found = self._read(query, doing="reading the latest hand-overs", by_index=True)
        return [(row.handed_over_at or row.dispatched_at, row.size) for row in found]

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
            QuarantineCount(endpoint=endpoint, reason=reason or "", rows=count)
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
                batch=row.id,
                endpoint=row.endpoint,
                lane=row.lane,
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

    def _held(self, connection: Connection) -> Sequence[HeldDestination]:
        table, parked = self._tables.held_destination, Counter[tuple[str, str]]()
        for _, source, destination, rows in connection.execute(parked_rows(self._tables.batch)):
            parked[source, destination] += int(rows)
        found = held_rows(table, connection.execute(select(table)), parked)
        return sorted(found, key=attrgetter("endpoint", "source", "destination"))


def lane_statuses(
    connection: Connection, tables: LedgerTables, now: datetime
) -> Sequence[LaneStatus]:
    """Ascending by lane; the lanes of recall and scan only while owned."""
    batch, run = tables.batch.c, tables.run.c
    counting = (
        select(batch.lane, run.options, func.count(), func.min(batch.id))
        .join_from(tables.batch, tables.run, run.id == batch.run_id)
        .where(batch.state.in_(OPEN))
        .group_by(batch.lane, run.options)
    )
    opened, waits_for = Counter[int](), dict[int, str]()
    for lane, options, count, first in connection.execute(counting):
        opened[lane] += count
        waits_for[lane] = f"waits for a daemon on {read_place(json.loads(options))} (batch {first})"
    found = []
    for row in connection.execute(select(tables.lease)):
        lane = tables.lane_of(row.name)
        if lane in (RECALL_LANE, SCAN_LANE) and row.owner is None:
            continue  # only there to be locked
        is_alive = row.owner is not None and row.until > now
        found.append(
            LaneStatus(
                lane=lane,
                owner=row.owner,
                doing=row.doing if is_alive else waits_for.get(lane, row.doing),
                until=row.until,
                renewed_at=row.renewed_at,
                is_alive=is_alive,
                open_batches=opened[lane],
                serves=row.serves,
            )
        )
    return sorted(found, key=attrgetter("lane"))


def _event(row: Row[Any]) -> AuditEvent:
    fields = {**row._mapping}
    detail = json.loads(fields.pop("detail"))
    return AuditEvent(batch=fields.pop("batch_id"), detail=detail, **fields)


@dataclass(frozen=True, slots=True, kw_only=True)
class HandedOver:
    destination: QueueName
    first_due: datetime
    """Aware, UTC; of the requested range."""
    last_due: datetime
    rows: int = 0


class SqlHandOvers(LedgerPart):
    def __init__(self, engine: Engine, tables: LedgerTables, renamed: Mapping[str, str]) -> None:
        super().__init__(engine, tables)
        self._renamed = renamed

    def handed_over(
        self,
        *,
        due_from: datetime,
        due_until: datetime | None = None,
        handed_over_from: datetime | None = None,
    ) -> Sequence[HandedOver]:
        """Return what was handed over and is due in a range, by destination, sorted.

        *due_from* is included, *due_until* is not, None is without end; aware, UTC.
        *handed_over_from* is by the ledger's clock; earlier hand-overs are not read. Names are
        those that messages went to: a run records how it renamed destinations, and the present
        renaming applies to runs that did not. Rows whose destination is only in their headers are
        left out: finding them would mean reading every row.

        Raises:
            StoreUnavailable, LedgerMissing, LedgerError: It cannot be read.
        """
        check_identity(self._engine, self._tables)
        merged: dict[QueueName, HandedOver] = {}
        for renamed, of_runs in self._of_renamings():
            found = self._by_column(
                of_runs,
                due_from=due_from,
                due_until=due_until,
                handed_over_from=handed_over_from,
            )
            for column, rows, first, last in found:
                name = destination_of(column, {}, renamed)  # of `Sales` and `Sales@MACHINE`
                new = HandedOver(destination=name, first_due=first, last_due=last)
                known = merged.get(name, new)
                merged[name] = replace(
                    known,
                    rows=known.rows + rows,
                    first_due=min(first, known.first_due),
                    last_due=max(last, known.last_due),
                )
        return [merged[name] for name in sorted(merged)]

    def renamings(self) -> Mapping[int, Mapping[str, str]]:
        """Return how runs renamed destinations; runs that did not record it are left out."""
        run = self._tables.run.c
        query = select(run.id, run.options).where(run.options.like('%"map"%'))
        found = self._read(query, doing="asking what runs renamed")
        return {row.id: json.loads(row.options)["map"] for row in found}

    def _of_renamings(self) -> Iterator[tuple[Mapping[str, str], Sequence[ColumnElement[bool]]]]:
        claimed_by = self._tables.batch.c.run_id
        runs = defaultdict[tuple[tuple[str, str], ...], list[int]](list)
        for run, kept in self.renamings().items():
            runs[tuple(sorted(kept.items()))].append(run)
        for renamed, ids in runs.items():
            yield dict(renamed), [among(claimed_by, ids)]
        every = [each for ids in runs.values() for each in ids]
        yield self._renamed, [~among(claimed_by, every)] if every else []

    def _by_column(
        self,
        of_runs: Sequence[ColumnElement[bool]],
        *,
        due_from: datetime,
        due_until: datetime | None,
        handed_over_from: datetime | None,
    ) -> Sequence[Any]:
        row, batch = self._tables.timeout.c, self._tables.batch.c
        doing = "asking what was handed over"
        batches = select(batch.id).where(
            batch.state == BatchState.HANDED_OVER, batch.last_due >= due_from, *of_runs
        )
        query = (
            select(row.destination, func.count(), func.min(row.due), func.max(row.due))
            .where(row.state.is_(None), row.due >= due_from, row.destination.is_not(None))
            .group_by(row.destination)
        )
        if due_until is not None:
            batches = batches.where(batch.first_due < due_until)
            query = query.where(row.due < due_until)
        if handed_over_from is None:
            query = query.where(row.batch_id.in_(batches))
        else:  # few batches, by their numbers: joined, all rows might be read to find theirs
            batches = batches.where(batch.handed_over_at >= handed_over_from)
            ids = [each.id for each in self._read(batches, doing=doing)]
            query = query.where(among(row.batch_id, ids))
        return self._read(query, doing=doing, by_index=handed_over_from is not None)
