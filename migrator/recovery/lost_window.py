"""Recovering in one transaction what a database lost when it failed over.

Rules of this file: a row whose message was found in a delay level was handed over. A row that was
not found, and is due later than the levels were read, was not. Of a row that was due before, it is
unknown: its batch is doubtful.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import sqlalchemy as sa

from migrator import __version__
from migrator.database.portable import in_lists, pair_in
from migrator.database.types import byte_length, database_now
from migrator.delays.tagged import TaggedMessage
from migrator.ledger.batches import SqlRuns
from migrator.ledger.claims import hold_lease, insert_run, inserted_id
from migrator.ledger.failover import record_position
from migrator.ledger.states import HALF_DONE, BatchState, Mode
from migrator.ledger.tables import INCOMPLETE, NO_TOKEN, LedgerPart, LedgerTables
from migrator.ledger.work import Batch, Lease, StoreEndpoint
from migrator.nservicebus.tags import Attempt
from migrator.nservicebus.timeouts import (
    FIRST_DISPATCHER_LANE,
    RECALL_LANE,
    SCAN_LANE,
    BatchId,
    Lane,
    RunId,
    TimeoutId,
)
from migrator.stores.requests import ClaimRequest
from migrator.stores.sql.claims import SqlClaims
from migrator.stores.sql.moving import id_text, ids_for
from migrator.stores.sql.store import TableStore

_FIRST_LANE: Final = Lane(0)
_LATEST: Final = datetime(9999, 12, 31, tzinfo=UTC)
_BYTES: Final = 2**62
_COMMITTED: Final = (BatchState.HANDED_OVER, BatchState.DOUBTFUL)


@dataclass(slots=True)
class RecoveredWindow:
    """How the rows of the lost window are recorded, by where their messages were found."""

    handed_over_from_store: int = 0
    """Rows that were in the store again while their messages wait in the levels."""
    handed_over_from_batches: int = 0
    """Rows of batches under way whose messages wait in the levels."""
    not_sent: int = 0
    """Rows of batches under way that have not come to the levels: claimed, they are to go yet."""
    doubtful: int = 0
    """Rows due by now that were found nowhere: they may have been delivered, and may not."""
    doubtful_batches: list[BatchId] = field(default_factory=list)
    """Their batches; an operator decides."""
    nowhere: int = 0
    """Messages in the levels whose rows are neither in the store nor in the ledger: they come."""
    committed: frozenset[Attempt] = frozenset()
    """Attempts of which the ledger says that they were committed, or may have been."""

    @property
    def counts(self) -> Mapping[str, object]:
        """The same as plain values."""
        return {name: count for name, count in asdict(self).items() if name != "committed"}


@dataclass(frozen=True, slots=True, kw_only=True)
class FailoverTerms:
    """Which rows may have been lost, and how their due times are judged."""

    endpoints: Sequence[StoreEndpoint]
    """Whose rows are moved."""
    mode: Mode
    doubtful_from: datetime | None
    """Rows of the store that were due before were not handed over in the window; None: any may."""
    left_until: datetime
    """What is due later than this was still in the levels when they were read."""
    receipts: Collection[Attempt] = ()
    """Attempts whose receipts or leftovers are in our own queues."""


class LostWindow(LedgerPart):
    """Recovers the window in a database that has both, store and ledger."""

    def __init__(
        self,
        engine: sa.Engine,
        ledger: LedgerTables,
        store: TableStore,
        claims: SqlClaims,
        runs: SqlRuns,
    ) -> None:
        super().__init__(engine, ledger)
        self._store = store
        self._claims = claims
        self._runs = runs

    def last_heartbeat(self) -> datetime | None:
        """Return when a lane was last renewed in this database; None: never."""
        lease = self._tables.lease.c
        aside = [self._tables.lease_name(each) for each in (RECALL_LANE, SCAN_LANE)]
        query = sa.select(sa.func.max(lease.renewed_at)).where(lease.name.not_in(aside))
        with self._reading("asking for the last heartbeat") as connection:
            found: datetime | None = connection.scalar(query)
        return found

    def cutoffs(self, since: datetime | None) -> Collection[timedelta]:
        """Return the cutoffs of runs that had not ended by *since*; None: of all runs.

        The settings may name another one: a daemon may have been given its own as an option.
        """
        run = self._tables.run.c
        query = sa.select(run.options)
        if since is not None:
            query = query.where(sa.or_(run.ended_at.is_(None), run.ended_at >= since))
        with self._reading("asking for the cutoffs of runs") as connection:
            found = [json.loads(each).get("cutoff_s") for each in connection.scalars(query)]
        return {timedelta(seconds=each) for each in found if isinstance(each, int)}

    def nowhere(self, ids: Collection[TimeoutId]) -> Collection[TimeoutId]:
        """Return those of *ids* that neither the store nor the ledger has."""
        left, row = {*ids}, self._tables.timeout.c
        with self._reading("looking for rows of a staging queue") as connection:
            for some in in_lists(sorted(left)):
                left -= {*connection.scalars(sa.select(row.store_id).where(row.store_id.in_(some)))}
            for endpoint in self._store.endpoints():
                legacy = self._store.legacy_table(endpoint.source)
                for some in in_lists(sorted(left)):
                    called = legacy.table.c.Id.in_(ids_for(legacy, some))
                    left -= {*connection.scalars(sa.select(id_text(legacy)).where(called))}
        return left

    def recover(
        self,
        seen: Collection[TaggedMessage],
        terms: FailoverTerms,
        lease: Lease,
        *,
        is_dry_run: bool,
    ) -> RecoveredWindow:
        """Record every row of the window, and continue on this server; or roll all of it back."""
        with self._writing("recovering what the database lost") as connection:
            hold_lease(connection, self._tables, lease)
            work = _Work(
                connection=connection,
                ledger=self._tables,
                store=self._store,
                claims=self._claims,
                terms=terms,
                lease=lease,
            )
            found = work.recover(seen)
            if is_dry_run:
                connection.rollback()
            else:
                record_position(connection, self._tables)
                event = self._runs.event("failover_settled", detail=found.counts, batch=None)
                connection.execute(event)
        return found


@dataclass(kw_only=True, eq=False)
class _Work:
    """One recovery in one transaction."""

    connection: sa.Connection
    ledger: LedgerTables
    store: TableStore
    claims: SqlClaims
    terms: FailoverTerms
    lease: Lease
    _runs: dict[str, RunId] = field(default_factory=dict)
    _found: RecoveredWindow = field(default_factory=RecoveredWindow)

    def recover(self, seen: Collection[TaggedMessage]) -> RecoveredWindow:
        self._number_above([*(each.batch for each in seen)])
        known, unknown = self._by_batch(seen)
        for number, rows in sorted(unknown.items()):
            self._take(number, rows)
        for batch in self._open_batches():
            self._split(batch, known.get(batch.id, {}))
        for endpoint in self.terms.endpoints:
            self._doubt_overdue(endpoint)
        self._found.committed = self._committed()
        return self._found

    def _number_above(self, seen: Collection[int]) -> None:
        """Give new batches numbers that no message has; this stays when all else is rolled back.

        Drawn one by one: to set a sequence is a right that a daemon's user need not have.
        """
        batch = self.ledger.batch
        highest = max([*seen, *(each.batch for each in self.terms.receipts)], default=0)
        name = self.connection.dialect.identifier_preparer.format_table(batch)
        sequence = sa.func.pg_get_serial_sequence(name, "id")
        most = self.connection.scalar(sa.select(sa.func.max(batch.c.id))) or 0
        present = self.connection.scalar(sa.select(sa.func.nextval(sequence))) or 0
        left = sa.func.generate_series(present + 1, max(most, highest)).table_valued("number")
        drawn = sa.select(sa.func.nextval(sequence).label("drawn")).select_from(left).subquery()
        self.connection.execute(sa.select(sa.func.max(drawn.c.drawn)))

    # ── messages that were found ────────────────────────────────────────────────────────────

    def _by_batch(
        self, seen: Collection[TaggedMessage]
    ) -> tuple[Mapping[int, Mapping[int, int]], Mapping[BatchId, Sequence[TaggedMessage]]]:
        """Return the attempts of rows that the ledger has, by batch and row, and what it lacks."""
        row, dialect = self.ledger.timeout.c, self.connection.dialect.name
        known: dict[int, dict[int, int]] = defaultdict(dict)
        unknown: dict[BatchId, list[TaggedMessage]] = defaultdict(list)
        # of what was seen twice, the later attempt counts
        for some in in_lists(sorted(seen, key=lambda each: each.attempt)):
            keys = {each.row for each in some}
            query = sa.select(row.batch_id, row.row_index, row.store_id).where(
                pair_in(row.batch_id, row.row_index, keys, dialect=dialect)
            )
            there = {(r.batch_id, r.row_index): r.store_id for r in self.connection.execute(query)}
            for each in some:
                batch, index = each.batch, each.row_index
                if there.get((batch, index)) == each.timeout_id:
                    known[batch][index] = each.attempt
                else:
                    unknown[batch].append(each)
        return known, unknown

    def _take(self, batch: BatchId, rows: Sequence[TaggedMessage]) -> None:
        """Move rows of a batch that is unknown here out of the store: they were handed over."""
        left = {each.timeout_id: each for each in rows}
        for endpoint in self.store.endpoints():
            if not left:
                return
            claimed = self._claimed(endpoint, only=[*left], max_rows=len(left), due_until=_LATEST)
            if claimed is None:
                continue
            taken = self._ids_in(claimed.id) & left.keys()
            self._number(claimed.id, [left.pop(each) for each in sorted(taken)])
            self._enter(claimed.id, batch, max(each.attempt for each in rows))
            self._found.handed_over_from_store += len(taken)
        self._found.nowhere += len(left)

    def _ids_in(self, batch: int) -> set[TimeoutId]:
        row = self.ledger.timeout.c
        query = sa.select(row.store_id).where(row.batch_id == batch)
        return {TimeoutId(each) for each in self.connection.scalars(query)}

    def _number(self, batch: int, rows: Iterable[TaggedMessage]) -> None:
        """Give rows the index that their messages have, so that they are found by their tag."""
        row = self.ledger.timeout
        statement = (
            sa.update(row)
            .where(row.c.batch_id == batch, row.c.store_id == sa.bindparam("called"))
            .values(row_index=sa.bindparam("at"))
        )
        given = [{"called": each.timeout_id, "at": each.row_index} for each in rows]
        self.connection.execute(statement, given)

    def _enter(self, claimed: int, batch: BatchId, attempt: int) -> None:
        """Record a claimed batch as handed over, under the number that its messages have."""
        table, row = self.ledger.batch, self.ledger.timeout
        number = claimed
        if self.connection.scalar(sa.select(table.c.id).where(table.c.id == batch)) is None:
            number = batch
            moving = sa.update(row).where(row.c.batch_id == claimed).values(batch_id=number)
            self.connection.execute(moving)
        self._record(claimed, BatchState.HANDED_OVER, id=number, attempt=attempt)

    def _record(self, batch: int, state: BatchState, **values: Any) -> None:
        """Record the *state* of a batch that was claimed here; it has no owner."""
        values |= {"state": state, f"{state}_at": database_now()}
        self._set(batch, lane=_FIRST_LANE, lease_token=NO_TOKEN, **values)

    def _set(self, batch: int, **values: Any) -> None:
        table = self.ledger.batch
        self.connection.execute(sa.update(table).where(table.c.id == batch).values(values))

    # ── batches under way ───────────────────────────────────────────────────────────────────

    def _open_batches(self) -> Sequence[sa.Row[Any]]:
        table = self.ledger.batch
        states = {*INCOMPLETE} - {*HALF_DONE}
        query = (
            sa.select(table)
            .where(table.c.state.in_(states), table.c.lane < FIRST_DISPATCHER_LANE)
            .order_by(table.c.id)
        )
        return self.connection.execute(query).all()

    def _split(self, batch: sa.Row[Any], seen: Mapping[int, int]) -> None:
        """Split a batch under way by state; the first part keeps its number."""
        row = self.ledger.timeout.c
        query = sa.select(row.id, row.row_index, row.due).where(
            row.batch_id == batch.id, row.state.is_(None)
        )
        parts: dict[BatchState, list[int]] = defaultdict(list)
        for each in self.connection.execute(query):
            if each.row_index in seen:
                parts[BatchState.HANDED_OVER].append(each.id)
            elif each.due <= self.terms.left_until:
                parts[BatchState.DOUBTFUL].append(each.id)
            else:
                parts[BatchState.CLAIMED].append(each.id)
        self._found.handed_over_from_batches += len(parts[BatchState.HANDED_OVER])
        self._found.doubtful += len(parts[BatchState.DOUBTFUL])
        self._found.not_sent += len(parts[BatchState.CLAIMED])
        attempt = max(seen.values(), default=batch.attempt)
        order = (BatchState.HANDED_OVER, BatchState.DOUBTFUL, BatchState.CLAIMED)
        for place, state in enumerate(state for state in order if parts[state]):
            self._part(batch, state, parts[state], attempt=attempt, is_first=place == 0)

    def _part(
        self, batch: sa.Row[Any], state: BatchState, ids: list[int], *, attempt: int, is_first: bool
    ) -> None:
        table, row = self.ledger.batch, self.ledger.timeout
        # what is passed again must be higher than what our queues may still hold of it
        highest = max((p.number for p in self.terms.receipts if p.batch == batch.id), default=0)
        if state is BatchState.CLAIMED:
            attempt = max(attempt, highest) + 1
        now = self.connection.scalar(sa.select(database_now()))
        values: dict[str, Any] = {"state": state, f"{state}_at": now, "attempt": attempt}
        values["destination"] = None
        number = batch.id
        if not is_first:
            kept = {key: value for key, value in batch._mapping.items() if key != "id"}
            number = inserted_id(
                self.connection.execute(sa.insert(table).values(**kept | values | {"size": 0}))
            )
            for some in in_lists(ids):
                moving = sa.update(row).where(row.c.id.in_(some)).values(batch_id=number)
                self.connection.execute(moving)
        self._set(number, **values)
        for each in {number, batch.id}:
            self._measure(each)
        if state is BatchState.DOUBTFUL:
            self._found.doubtful_batches.append(BatchId(number))

    def _measure(self, batch: int) -> None:
        """Update size and due times of a batch."""
        row = self.ledger.timeout.c
        query = sa.select(
            sa.func.count().label("size"),
            sa.func.coalesce(sa.func.sum(byte_length(row.body)), 0).label("body_bytes"),
            sa.func.min(row.due).label("first_due"),
            sa.func.max(row.due).label("last_due"),
        ).where(row.batch_id == batch)
        self._set(batch, **self.connection.execute(query).one()._mapping)

    # ── what may have left ──────────────────────────────────────────────────────────────────

    def _doubt_overdue(self, endpoint: StoreEndpoint) -> None:
        """Record as doubtful what was due by now, and could be claimed in the window."""
        due = {"due_after": self.terms.doubtful_from, "due_until": self.terms.left_until}
        while batch := self._claimed(endpoint, max_rows=1000, **due):
            self._record(batch.id, BatchState.DOUBTFUL)
            self._found.doubtful += batch.size
            self._found.doubtful_batches.append(batch.id)

    def _committed(self) -> frozenset[Attempt]:
        table = self.ledger.batch.c
        found = set[Attempt]()
        for some in in_lists(sorted({each.batch for each in self.terms.receipts})):
            query = sa.select(table.id, table.attempt).where(
                table.id.in_(some), table.state.in_(_COMMITTED)
            )
            rows = self.connection.execute(query)
            found |= {Attempt(batch=BatchId(row.id), number=row.attempt) for row in rows}
        return frozenset(found)

    def _claimed(
        self, endpoint: StoreEndpoint, *, due_after: datetime | None = None, **which: Any
    ) -> Batch | None:
        """Claim rows of the store; None: there are none, and neither batch nor run remains."""
        with self.connection.begin_nested() as attempt:
            request = ClaimRequest(
                run=self._run(endpoint),
                endpoint=endpoint,
                lease=self.lease,
                mode=self.terms.mode,
                due_after=due_after,
                max_bytes=_BYTES,
                cursor=None,
                **which,
            )
            legacy = self.store.legacy_table(endpoint.source)
            claim = self.claims.claim_within(self.connection, legacy, request)
            if claim is None:
                attempt.rollback()
                self._runs.pop(endpoint.source, None)
        return None if claim is None else claim.batch

    def _run(self, endpoint: StoreEndpoint) -> RunId:
        """Return the run that rows of *endpoint* are recorded under."""
        if endpoint.source not in self._runs:
            self._runs[endpoint.source] = insert_run(
                self.connection,
                self.ledger,
                endpoint,
                options={"after_failover": True},
                version=__version__,
                status="done",
                ended_at=database_now(),
            )
        return self._runs[endpoint.source]
