"""Parked rows: they wait in the ledger, in batches of their own, for a destination.

Rules of this file: a parked batch has rows of one source, one run and one destination, and no
owner. Changing it begins with locking it. Moving rows out of a batch in progress begins with
proving the ownership of lane and batch. Each call is one transaction. Source:
docs/adr/0013-parked-rows.md.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, Final

import sqlalchemy as sa

from migrator.database.portable import among, for_update, in_lists, prefer_indexes, row_by_row
from migrator.database.types import byte_length, database_now
from migrator.ledger.batches import batch_of
from migrator.ledger.claims import hold_batch, hold_lease, inserted_id
from migrator.ledger.states import BatchState, Event, Mode, next_state
from migrator.ledger.tables import NO_TOKEN, LedgerPart
from migrator.ledger.work import Batch, Lease
from migrator.nservicebus.timeouts import EndpointName, Lane, RunId

PARKED_ROWS: Final = 250
"""Parked rows are sent together, and new claims wait for two or three such batches."""
PARKED_BYTES: Final = 8 * 1024 * 1024
"""Bodies of such a batch; a larger row is alone in its batch."""
_TRIES: Final = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class ParkedRows:
    endpoint: EndpointName
    source: str
    destination: str
    rows: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    run: RunId
    mode: Mode
    lease: Lease
    most_rows: int
    due_until: datetime | None = None
    """Inclusive; None: any."""


class SqlParking(LedgerPart):
    def park(self, batch: Batch, rows: Mapping[int, str], lease: Lease) -> Batch:
        """Move *rows* of *batch*, each with its destination, into parked batches; return the rest.

        Rows that were moved before are left out, so repeating is harmless.

        Raises:
            LeaseLost: Nothing was changed.
        """
        with self._writing(f"parking rows of batch {batch.id}") as connection:
            prefer_indexes(connection)
            hold_lease(connection, self._tables, lease)
            size, body_bytes = hold_batch(connection, self._tables, batch, lease)
            of_destination = defaultdict[str, list[sa.Row[Any]]](list)
            for found in self._rows(connection, batch.id, only=rows):
                of_destination[rows[found.row_index]].append(found)
            if not of_destination:
                return replace(batch, size=size, body_bytes=body_bytes)
            room = self._room(connection, batch, of_destination)
            for destination, moved in sorted(of_destination.items()):
                self._append(connection, batch, destination, moved, room[destination])
                size -= len(moved)
                body_bytes -= sum(each.body_bytes for each in moved)
            table = self._tables.batch
            connection.execute(
                sa.update(table)
                .where(table.c.id == batch.id)
                .values(size=size, body_bytes=body_bytes)
            )
        return replace(batch, size=size, body_bytes=body_bytes, fresh=None)

    def unpark(self, source: str, destination: str, wanted: Wanted) -> Batch | None:
        """Claim the soonest parked rows for *destination* into the lane; None: there are none.

        A parked batch whose rows are all wanted becomes the claim. Otherwise the wanted rows move
        into a new batch.

        Raises:
            LeaseLost: Another process has the lane. Nothing was changed.
        """
        batch = self._tables.batch.c
        which = self._parked(source, is_dispatched=wanted.mode is Mode.DISPATCH)
        soonest = (
            sa.select(batch.id)
            .where(*which, batch.destination == destination, *_due(batch.first_due, wanted))
            .order_by(batch.first_due, batch.id)
            .limit(_TRIES)
        )
        for found in self._read(soonest, doing="looking for parked rows", by_index=True):
            with self._writing(f"taking parked batch {found.id}") as connection:
                prefer_indexes(connection)
                hold_lease(connection, self._tables, wanted.lease)
                if (parked := self._locked(connection, found.id)) is None:
                    continue  # another process was faster
                if (taken := self._taken(connection, parked, wanted)) is not None:
                    return taken
        return None

    def release(self, batch: Batch, lease: Lease) -> Batch | None:
        """Claim the whole of *batch* into its own lane, as ``unpark``; None: no longer parked."""
        with self._writing(f"taking parked batch {batch.id}") as connection:
            hold_lease(connection, self._tables, lease)
            if (parked := self._locked(connection, batch.id)) is None:
                return None
            wanted = Wanted(run=batch.run, mode=batch.mode, lease=lease, most_rows=parked.size)
            return self._take_all(connection, parked, wanted)

    def batches(self, lane: Lane | None = None) -> Sequence[Batch]:
        """By id, of one *lane* if it is given: the last in which their rows were in progress."""
        table = self._tables.batch
        query = select_parked(table).order_by(table.c.id)
        if lane is not None:
            query = query.where(table.c.lane == lane)
        return [batch_of(row) for row in self._read(query, doing="listing parked batches")]

    def destinations_of_runs(self, source: str) -> Collection[tuple[RunId, str]]:
        batch = self._tables.batch.c
        query = (
            sa.select(batch.run_id, batch.destination)
            .where(*self._parked(source, is_dispatched=False), batch.destination.is_not(None))
            .distinct()
        )
        found = self._read(query, doing="asking which runs parked rows", by_index=True)
        return {(RunId(row.run_id), row.destination) for row in found}

    def rows(
        self, sources: Collection[str], *, is_dispatched: bool | None = None
    ) -> Sequence[ParkedRows]:
        """By destination; *is_dispatched*: a dispatcher's, or those of hand-over; None: both."""
        batch = self._tables.batch.c
        query = parked_rows(self._tables.batch).where(among(batch.source, sources))
        if is_dispatched is not None:
            query = query.where(_of_kind(batch, is_dispatched=is_dispatched))
        doing = "counting parked rows"
        return [
            ParkedRows(endpoint=endpoint, source=source, destination=destination, rows=int(rows))
            for endpoint, source, destination, rows in self._read(query, doing=doing, by_index=True)
        ]

    def take_over(self, sources: Collection[str], mode: Mode) -> int:
        """Change parked batches of the other kind of worker to *mode*; none may stay behind."""
        batch = self._tables.batch
        others = [
            batch.c.destination.is_not(None),
            among(batch.c.source, sources),
            _of_kind(batch.c, is_dispatched=mode is not Mode.DISPATCH),
        ]
        found = sa.select(batch.c.id).where(*others).limit(1)
        if not self._read(found, doing="looking for parked rows", by_index=True):
            return 0
        with self._writing("taking over parked rows") as connection:
            prefer_indexes(connection)
            changed = sa.update(batch).where(*others, batch.c.state == BatchState.PARKED)
            return connection.execute(changed.values(mode=mode)).rowcount

    # ── parts ───────────────────────────────────────────────────────────────────────────────

    def _parked(self, source: str, *, is_dispatched: bool) -> list[sa.ColumnElement[bool]]:
        batch = self._tables.batch.c
        return [
            batch.state == BatchState.PARKED,
            batch.source == source,
            _of_kind(batch, is_dispatched=is_dispatched),
        ]

    def _rows(
        self, connection: sa.Connection, batch_id: int, *, only: Collection[int] | None = None
    ) -> Sequence[sa.Row[Any]]:
        row = self._tables.timeout.c
        query = (
            sa.select(row.id, row.row_index, row.due, byte_length(row.body).label("body_bytes"))
            .where(row.batch_id == batch_id, row.state.is_(None))
            .order_by(row.due, row.row_index)
        )
        if only is not None:
            query = query.where(among(row.row_index, only))
        return connection.execute(query).all()

    def _room(
        self, connection: sa.Connection, batch: Batch, destinations: Collection[str]
    ) -> Mapping[str, list[sa.Row[Any]]]:
        table, found = self._tables.batch, defaultdict[str, list[sa.Row[Any]]](list)
        which = self._parked(batch.source, is_dispatched=batch.mode is Mode.DISPATCH)
        for some in in_lists(sorted(destinations)):
            query = (
                sa.select(table)
                .where(
                    *which,
                    table.c.run_id == batch.run,
                    table.c.destination.in_(some),
                    table.c.size < PARKED_ROWS,
                    table.c.body_bytes < PARKED_BYTES,
                )
                .order_by(table.c.id)  # all lock in this order, so none waits for another's
            )
            for each in connection.execute(for_update(query, table)):
                found[each.destination].append(each)
        return found

    def _append(
        self,
        connection: sa.Connection,
        batch: Batch,
        destination: str,
        rows: Sequence[sa.Row[Any]],
        room: list[sa.Row[Any]],
    ) -> None:
        left = [*rows]
        while left:
            target = room.pop(0) if room else None
            size, body_bytes = (0, 0) if target is None else (target.size, target.body_bytes)
            part = list[sa.Row[Any]]()
            while left and len(part) + size < PARKED_ROWS:
                if (size or part) and body_bytes + left[0].body_bytes > PARKED_BYTES:
                    break
                body_bytes += left[0].body_bytes
                part.append(left.pop(0))
            if not part:
                continue
            if target is None:
                number = self._insert(
                    connection,
                    self._row_of(connection, batch.id),
                    part,
                    run_id=batch.run,
                    mode=batch.mode,
                    state=BatchState.PARKED,
                    destination=destination,
                    lease_token=NO_TOKEN,
                    parked_at=database_now(),
                )
                self._move(connection, part, number, first_index=0)
                continue
            self._move(connection, part, target.id, first_index=self._next(connection, target.id))
            self._set(
                connection,
                target.id,
                size=size + len(part),
                body_bytes=body_bytes,
                first_due=min(target.first_due, part[0].due),
                last_due=max(target.last_due, part[-1].due),
            )

    def _taken(
        self, connection: sa.Connection, parked: sa.Row[Any], wanted: Wanted
    ) -> Batch | None:
        is_all_due = wanted.due_until is None or parked.last_due <= wanted.due_until
        if is_all_due and parked.size <= wanted.most_rows:
            return self._take_all(connection, parked, wanted)
        rows = self._rows(connection, parked.id)
        until = wanted.due_until
        part = [each for each in rows if until is None or each.due <= until][: wanted.most_rows]
        if len(part) == len(rows):
            return self._take_all(connection, parked, wanted)
        if not part:
            return None
        number = self._insert(
            connection,
            parked,
            part,
            run_id=wanted.run,
            mode=wanted.mode,
            lane=wanted.lease.lane,
            owner=wanted.lease.owner,
            lease_token=wanted.lease.token,
            state=BatchState.CLAIMED,
            claimed_at=database_now(),
        )
        self._move(connection, part, number, first_index=0)
        taken = {each.id for each in part}
        left = [each for each in rows if each.id not in taken]
        self._set(connection, parked.id, **_measured(left))
        return batch_of(self._row_of(connection, number))

    def _take_all(self, connection: sa.Connection, parked: sa.Row[Any], wanted: Wanted) -> Batch:
        state = next_state(BatchState.PARKED, Event.UNPARK)
        self._set(
            connection,
            parked.id,
            state=state,
            attempt=parked.attempt + 1,
            run_id=wanted.run,
            mode=wanted.mode,
            lane=wanted.lease.lane,
            owner=wanted.lease.owner,
            lease_token=wanted.lease.token,
            destination=None,
            claimed_at=database_now(),
        )
        return batch_of(self._row_of(connection, parked.id))

    def _locked(self, connection: sa.Connection, batch_id: int) -> sa.Row[Any] | None:
        table = self._tables.batch
        query = sa.select(table).where(table.c.id == batch_id, table.c.state == BatchState.PARKED)
        return connection.execute(for_update(query, table)).first()

    def _row_of(self, connection: sa.Connection, batch_id: int) -> sa.Row[Any]:
        table = self._tables.batch
        return connection.execute(sa.select(table).where(table.c.id == batch_id)).one()

    def _next(self, connection: sa.Connection, batch_id: int) -> int:
        row = self._tables.timeout.c
        last = connection.scalar(
            sa.select(sa.func.max(row.row_index)).where(row.batch_id == batch_id)
        )
        return 0 if last is None else int(last) + 1

    def _insert(
        self,
        connection: sa.Connection,
        of: sa.Row[Any],
        rows: Sequence[sa.Row[Any]],
        **values: Any,
    ) -> int:
        written = {
            "endpoint": of.endpoint,
            "source": of.source,
            "lane": of.lane,
            "attempt": 0,
            "claiming_at": of.claiming_at,
            **_measured(rows),
            **values,
        }
        return inserted_id(connection.execute(sa.insert(self._tables.batch).values(written)))

    def _move(
        self, connection: sa.Connection, rows: Sequence[sa.Row[Any]], to: int, *, first_index: int
    ) -> None:
        row = self._tables.timeout
        moving = (
            sa.update(row)
            .where(row.c.id == sa.bindparam("of_row"))
            .values(batch_id=to, row_index=sa.bindparam("at"))
        )
        connection.execute(
            row_by_row(moving),
            [{"of_row": each.id, "at": first_index + n} for n, each in enumerate(rows)],
        )

    def _set(self, connection: sa.Connection, batch_id: int, **values: Any) -> None:
        table = self._tables.batch
        connection.execute(sa.update(table).where(table.c.id == batch_id).values(values))


def select_parked(batch: sa.Table) -> sa.Select[Any]:
    return sa.select(batch).where(
        batch.c.destination.is_not(None), batch.c.state == BatchState.PARKED
    )


def parked_rows(batch: sa.Table) -> sa.Select[Any]:
    what = (batch.c.endpoint, batch.c.source, batch.c.destination)
    return (
        sa.select(*what, sa.func.sum(batch.c.size).label("rows"))
        .where(batch.c.destination.is_not(None), batch.c.state == BatchState.PARKED)
        .group_by(*what)
    )


def _of_kind(
    batch: sa.ColumnCollection[str, sa.Column[Any]], *, is_dispatched: bool
) -> sa.ColumnElement[bool]:
    return batch.mode == Mode.DISPATCH if is_dispatched else batch.mode != Mode.DISPATCH


def _due(first_due: sa.Column[Any], wanted: Wanted) -> list[sa.ColumnElement[bool]]:
    return [] if wanted.due_until is None else [first_due <= wanted.due_until]


def _measured(rows: Sequence[sa.Row[Any]]) -> dict[str, Any]:
    due = [each.due for each in rows]
    return {
        "size": len(rows),
        "body_bytes": sum(each.body_bytes for each in rows),
        "first_due": min(due),
        "last_due": max(due),
    }
