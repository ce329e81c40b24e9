"""Batches of which only an operator can decide whether they were handed over.

Rules of this file: what is half done is not closed while its document store answers, whatever the
operator says; what is recorded is recorded with the evidence.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final, Literal, Protocol

import sqlalchemy as sa

from migrator.database.portable import for_update
from migrator.database.types import database_now
from migrator.errors import (
    ConfigError,
    LedgerError,
    PreflightRefused,
    SourceElsewhere,
    SourceGone,
    StoreError,
)
from migrator.ledger.batches import SqlBatches, SqlRuns
from migrator.ledger.claims import latest_run
from migrator.ledger.queries import LedgerQueries
from migrator.ledger.report import DoubtfulBatch
from migrator.ledger.states import (
    HALF_DONE,
    OPEN,
    RAISES_ATTEMPT,
    BatchState,
    Event,
    RowState,
    next_state,
)
from migrator.ledger.tables import NO_TOKEN, LedgerPart
from migrator.ledger.work import SHARED_LANE, Batch, StoreEndpoint
from migrator.nservicebus.timeouts import RECALL_LANE, BatchId, EndpointName, Lane, TimeoutId
from migrator.text import counted, grouped

if TYPE_CHECKING:  # few ledgers have such a store, and its claims are slow to import
    from migrator.stores.documents.claims import DocumentClaims

Resolution = Literal[BatchState.HANDED_OVER, BatchState.CLAIMED]
_EVENTS: Final[Mapping[tuple[BatchState, Resolution], Sequence[Event]]] = {
    (BatchState.DOUBTFUL, BatchState.HANDED_OVER): (Event.RECEIPT,),
    (BatchState.DOUBTFUL, BatchState.CLAIMED): (Event.ABANDON,),
    (BatchState.COMMITTING, BatchState.HANDED_OVER): (Event.RECEIPT,),
    (BatchState.COMMITTING, BatchState.CLAIMED): (Event.GIVE_UP, Event.ABANDON),
    (BatchState.PUBLISHING, BatchState.HANDED_OVER): (Event.ALL_SETTLED,),
    (BatchState.PUBLISHING, BatchState.CLAIMED): (Event.GIVE_UP, Event.ABANDON),
    (BatchState.STAGING, BatchState.CLAIMED): (Event.ABANDON,),
    (BatchState.CLAIMED, BatchState.CLAIMED): (),
}
_MAY_WAIT: Final = OPEN - HALF_DONE
HalfDoneOutcome = Literal[BatchState.CLAIMED, BatchState.RELEASED]
_OURS: Final = {BatchState.CLAIMING: Event.ALL_TAKEN, BatchState.RELEASING: Event.ABANDON}
WRITTEN_OFF: Final = "written-off"
"""The reason of rows whose store was lost before it could answer whether it has them."""


class Outcome(StrEnum):
    """What an operator may decide about a batch, or about its rows that go back to a store."""

    HANDED_OVER = "handed-over"
    """All of it reached the delays; rows of a recall still have their messages on the broker."""
    CLAIMED = "claimed"
    """None of it did: it is handed over again."""
    QUARANTINED = "quarantined"
    """Rows out of quarantine are in it again, and can be retried."""
    WRITTEN_OFF = "written-off"
    """It went with its store, and is never sent."""


_DOUBTFUL: Final[Mapping[Outcome, Resolution]] = {
    Outcome.HANDED_OVER: BatchState.HANDED_OVER,
    Outcome.CLAIMED: BatchState.CLAIMED,
}
_HALF_DONE: Final[Mapping[Outcome, HalfDoneOutcome]] = {
    Outcome.CLAIMED: BatchState.CLAIMED,
    Outcome.WRITTEN_OFF: BatchState.RELEASED,
}
_RETURNING: Final = {
    Outcome.HANDED_OVER: RowState.RECALLED,
    Outcome.QUARANTINED: RowState.RELEASED,
    Outcome.WRITTEN_OFF: RowState.RELEASED,
}
"""What rows were to become, by the outcome that closes them."""
_RETURNING_TEXT: Final = {
    RowState.RECALLED: "that were being recalled",
    RowState.RELEASED: "that were leaving quarantine",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class GoingBack:
    """Rows of one batch whose return to the store is recorded but not confirmed."""

    batch: BatchId
    endpoint: EndpointName
    source: str
    towards: RowState
    """``released``: out of quarantine; ``recalled``: out of the delay levels."""
    rows: int


class UnresolvedBatches(LedgerPart):
    """Batches that wait for a decision."""

    def resolve(self, batch: BatchId, outcome: Resolution) -> None:
        """Record what an operator found out about a batch that is doubtful, or waits for a daemon.

        ``claimed``: none of it reached its delays, so it is handed over again by the latest run of
        its endpoint. ``handed_over``: all of it did. A batch that waits is open and its lane has no
        owner, for example because its broker is gone.

        Raises:
            LedgerError: There is no such batch, or a process works on it, or it is complete, or
            *outcome* does not apply to its state. Nothing was changed.
        """
        with self._writing(f"resolving batch {batch}") as connection:
            found = self._locked(connection, batch, {BatchState.DOUBTFUL})
            if found is None:
                found = self._waiting(connection, batch)
            events = _EVENTS.get((BatchState(found.state), outcome))
            if events is None:
                raise LedgerError(
                    f"batch {batch} is {found.state}: nothing of it was sent, so it can only be "
                    "claimed; nothing was changed"
                )
            self._step(connection, found, *events)

    def _waiting(self, connection: sa.Connection, batch: BatchId) -> sa.Row[Any]:
        table = self._tables.batch
        query = sa.select(table.c.state, table.c.lane, table.c.lease_token)
        seen = connection.execute(query.where(table.c.id == batch)).first()
        if seen is None or BatchState(seen.state) not in _MAY_WAIT:
            raise LedgerError(
                f"batch {batch} is not doubtful, nor does it wait; nothing was changed"
            )
        is_put_in = (seen.state, seen.lease_token) == (BatchState.CLAIMED, NO_TOKEN)
        if not is_put_in and (owner := self._owner(connection, seen.lane)):
            raise LedgerError(
                f"batch {batch} is not doubtful, and {owner} owns its lane {seen.lane}: stop it "
                "first; nothing was changed"
            )
        found = self._locked(connection, batch, {BatchState(seen.state)})
        if found is None or found.lease_token != seen.lease_token:
            raise LedgerError(f"a process works on batch {batch}; nothing was changed")
        return found

    def close_half_done(
        self, batch: BatchId, outcome: HalfDoneOutcome, *, evidence: str, event: sa.Executable
    ) -> int:
        """Record what an operator decided about a half-done batch whose store is gone.

        ``claimed``: the ledger has all of it, and the lane's owner hands it over. ``released``: the
        ledger has none of it; its rows get the reason ``written-off`` with the *evidence*, and are
        kept until they are purged. *event* is executed in the same transaction. Return the number
        of rows.

        Raises:
            LedgerError: There is no such batch, or it is not half-done, or its lane has an owner
            that may still ask the store. Nothing was changed.
        """
        with self._writing(f"closing batch {batch}") as connection:
            self._demand_no_owner(connection, batch)
            found = self._locked(connection, batch, HALF_DONE)
            if found is None:
                raise LedgerError(f"batch {batch} is not half-done; nothing was changed")
            is_written_off = outcome is BatchState.RELEASED
            self._step(connection, found, Event.WRITE_OFF if is_written_off else _OURS[found.state])
            if is_written_off:
                self._write_off(connection, batch, evidence)
            connection.execute(event)
        return int(found.size)

    def _locked(
        self, connection: sa.Connection, batch: BatchId, states: Collection[BatchState]
    ) -> sa.Row[Any] | None:
        table = self._tables.batch
        query = sa.select(table).where(table.c.id == batch, table.c.state.in_(states))
        return connection.execute(for_update(query, table)).first()

    def _step(self, connection: sa.Connection, batch: sa.Row[Any], *events: Event) -> None:
        """Record what happens to a batch; its lane's next owner continues with it.

        A batch that is to be handed over again goes to any lane, as one of its endpoint's latest
        run, whose map, broker and delays apply.
        """
        table, state = self._tables.batch, BatchState(batch.state)
        for event in events:
            state = next_state(state, event)
        values = {
            "state": state,
            "attempt": batch.attempt + sum(event in RAISES_ATTEMPT for event in events),
            "lease_token": NO_TOKEN,
            "owner": None,
        }
        if events:
            values[f"{state}_at"] = database_now()
        if state is BatchState.CLAIMED:
            run = latest_run(connection, self._tables, batch.source, batch.endpoint)
            values |= {"lane": SHARED_LANE, "run_id": run or batch.run_id}
        connection.execute(sa.update(table).where(table.c.id == batch.id).values(values))

    def _demand_no_owner(self, connection: sa.Connection, batch: BatchId) -> None:
        """Keep the lane from being taken. It is locked before the batch, as in a takeover."""
        table = self._tables.batch.c
        lane = connection.scalar(sa.select(table.lane).where(table.id == batch))
        if lane is not None and (owner := self._owner(connection, lane)):
            raise LedgerError(f"{owner} owns lane {lane}: stop it first; nothing was changed")

    def _owner(self, connection: sa.Connection, lane: Lane) -> str | None:
        """Return who owns *lane*, and keep it from being taken by another, if it ever was."""
        lease = self._tables.lease
        is_its = lease.c.name == self._tables.lease_name(lane)
        connection.execute(for_update(sa.select(lease.c.name).where(is_its), lease))
        is_alive = lease.c.owner.is_not(None), lease.c.until > database_now()
        return connection.scalar(sa.select(lease.c.owner).where(is_its, *is_alive))

    def _write_off(self, connection: sa.Connection, batch: BatchId, evidence: str) -> None:
        row = self._tables.timeout
        is_here = row.c.state.is_(None) | (row.c.state == RowState.QUARANTINED)
        statement = sa.update(row).where(row.c.batch_id == batch, is_here)
        connection.execute(statement.values(_written_off(evidence)))

    # ── rows that go back one by one ────────────────────────────────────────────────────────

    def going_back(self, batch: BatchId | None = None) -> Sequence[GoingBack]:
        row, of = self._tables.timeout.c, self._tables.batch.c
        only = [] if batch is None else [row.batch_id == batch]
        query = (
            sa.select(
                row.batch_id, of.endpoint, of.source, row.going_back, sa.func.count().label("rows")
            )
            .join(self._tables.batch, of.id == row.batch_id)
            .where(row.going_back.is_not(None), *only)
            .group_by(row.batch_id, of.endpoint, of.source, row.going_back)
            .order_by(row.batch_id, row.going_back)
        )
        with self._reading("looking for rows that go back") as connection:
            if not self._ever_claimed_documents(connection):
                return ()
            return [
                GoingBack(
                    batch=found.batch_id,
                    endpoint=found.endpoint,
                    source=found.source,
                    towards=RowState(found.going_back),
                    rows=found.rows,
                )
                for found in connection.execute(query)
            ]

    def ids_going_back(self, going: GoingBack) -> Sequence[TimeoutId]:
        row = self._tables.timeout.c
        query = sa.select(row.store_id).where(*self._is(going)).order_by(row.row_index)
        return [row.store_id for row in self._read(query, doing="reading rows that go back")]

    def close_going_back(
        self, going: GoingBack, outcome: Outcome, *, evidence: str, event: sa.Executable
    ) -> int:
        """Record *outcome* of the rows that *going* counts; return how many.

        Rows written off record the *evidence*, and are kept until they are purged. *event* is
        executed in the same transaction.

        Raises:
            LedgerError: Their number has changed, or a recall runs. Nothing was changed.
        """
        row = self._tables.timeout
        values: dict[str, Any] = {"going_back": None}
        if outcome is Outcome.WRITTEN_OFF:
            values = _written_off(evidence)
        with self._writing(f"closing rows of batch {going.batch}") as connection:
            if owner := self._owner(connection, RECALL_LANE):
                raise LedgerError(f"{owner} runs a recall: stop it first; nothing was changed")
            changed = connection.execute(sa.update(row).where(*self._is(going)).values(values))
            if changed.rowcount != going.rows:
                raise LedgerError(
                    f"{counted(changed.rowcount, 'row')} of batch {going.batch} would go back now, "
                    f"not {grouped(going.rows)}: a process works on them; nothing was changed"
                )
            connection.execute(event)
        return going.rows

    def _is(self, going: GoingBack) -> list[Any]:
        row = self._tables.timeout.c
        return [row.batch_id == going.batch, row.going_back == going.towards]

    def _ever_claimed_documents(self, connection: sa.Connection) -> bool:
        """Rows of tables go back in one transaction. Otherwise all rows must be read."""
        batch = self._tables.batch.c
        query = sa.select(batch.id).where(batch.claiming_at.is_not(None)).limit(1)
        return connection.scalar(query) is not None


def _written_off(evidence: str) -> dict[str, str | None]:
    return {
        "state": RowState.RELEASED,
        "going_back": None,
        "reason": WRITTEN_OFF,
        "reason_detail": evidence,
    }


# ── what an operator decides ──────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True, kw_only=True)
class Unresolved:
    """Everything that waits for a decision, or for its store."""

    doubtful: Sequence[DoubtfulBatch]
    half_done: Sequence[Batch]
    going_back: Sequence[GoingBack]


@dataclass(frozen=True, slots=True, kw_only=True)
class LostStore:
    """Something half done whose document store is gone."""

    what: Batch | GoingBack
    state: str
    rows: int
    evidence: str
    """How it is known that the store is gone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ResolutionPlan:
    """What would be recorded."""

    batch: BatchId
    outcome: Outcome
    lost: LostStore | None
    """None: the batch is doubtful, or waits for a daemon."""

    @property
    def document(self) -> dict[str, object]:
        """The plan as plain values; what was half done is recorded like this."""
        document: dict[str, object] = {"batch": self.batch, "as": self.outcome}
        if (lost := self.lost) is not None:
            document |= {"state": lost.state, "source": lost.what.source, "rows": lost.rows}
            document["evidence"] = lost.evidence
        return document


class DocumentSide(Protocol):
    """A document store; it is opened when it is first asked."""

    @property
    def claims(self) -> DocumentClaims: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Resolver:
    """Records what an operator decides; made by ``app.resolve``."""

    queries: LedgerQueries
    batches: SqlBatches
    unresolved: UnresolvedBatches
    runs: SqlRuns
    documents: DocumentSide | None
    store_kind: str
    is_store_lost: bool
    """According to the operator, a store that does not answer never will again."""

    def waiting(self) -> Unresolved:
        """Return what waits; doubtful batches oldest first."""
        return Unresolved(
            doubtful=self.queries.progress().doubtful,
            half_done=[each for each in self.queries.open_batches() if each.state in HALF_DONE],
            going_back=self.unresolved.going_back(),
        )

    def plan(self, batch: BatchId, outcome: Outcome) -> ResolutionPlan:
        """Return what would be recorded; changes nothing.

        Raises:
            ConfigError: *outcome* is none that *batch* can have.
            PreflightRefused: The document store answers, or may do so later.
        """
        found, going = self.batches.find(batch), self.unresolved.going_back(batch)
        if found is not None and found.state in HALF_DONE:
            lost = self._half_done(found, outcome)
        elif going:
            lost = self._going_back(going, outcome)
        elif outcome in _DOUBTFUL:
            lost = None
        else:
            raise ConfigError(
                f"only what is half done, of a store that is gone, can be {outcome}; a doubtful "
                "batch is handed-over or claimed"
            )
        return ResolutionPlan(batch=batch, outcome=outcome, lost=lost)

    def apply(self, plan: ResolutionPlan) -> None:
        """Record the outcome.

        Raises:
            LedgerError: A process owns the lane, or the batch is another than planned. Nothing was
                changed.
        """
        if plan.lost is None:
            self.unresolved.resolve(plan.batch, _DOUBTFUL[plan.outcome])
            self.runs.record("batch_resolved", detail={"as": plan.outcome}, batch=plan.batch)
            return
        what, evidence = plan.lost.what, plan.lost.evidence
        event = self.runs.event("batch_resolved", detail=plan.document, batch=plan.batch)
        if isinstance(what, Batch):
            self.unresolved.close_half_done(
                what.id, _HALF_DONE[plan.outcome], evidence=evidence, event=event
            )
        else:
            self.unresolved.close_going_back(what, plan.outcome, evidence=evidence, event=event)

    def _half_done(self, batch: Batch, outcome: Outcome) -> LostStore:
        if outcome not in _HALF_DONE:
            raise ConfigError(
                "a half-done batch was never sent: it can only be claimed or written-off"
            )
        try:
            there = self._claims().still_there(batch)
        except StoreError as exc:
            evidence = self._evidence(exc)
            return LostStore(what=batch, state=batch.state, rows=batch.size, evidence=evidence)
        raise _refused(there, "`migrator run --once` or `migrator rollback` finishes the batch")

    def _going_back(self, under_way: Sequence[GoingBack], outcome: Outcome) -> LostStore:
        wanted = {each.towards: each for each in under_way}
        towards = _RETURNING.get(outcome)
        if towards is None or (going := wanted.get(towards)) is None:
            allowed = [str(each) for each, towards in _RETURNING.items() if towards in wanted]
            what = " and ".join(_RETURNING_TEXT[each] for each in wanted)
            raise ConfigError(f"rows {what} can only be {' or '.join(allowed)}")
        ids = self.unresolved.ids_going_back(going)
        endpoint = StoreEndpoint(name=going.endpoint, source=going.source)
        try:
            there = self._claims().count_there(endpoint, ids)
        except StoreError as exc:
            state = f"going back, {going.towards}"
            return LostStore(what=going, state=state, rows=going.rows, evidence=self._evidence(exc))
        raise _refused(there, "`migrator rollback` finishes it")

    def _claims(self) -> DocumentClaims:
        if self.documents is None:
            raise SourceElsewhere(f"store.kind is {self.store_kind} now")
        return self.documents.claims

    def _evidence(self, failure: StoreError) -> str:
        """Return how it is known that the store is gone.

        Raises:
            PreflightRefused: It may answer later.
        """
        if isinstance(failure, SourceGone) and not isinstance(failure, SourceElsewhere):
            return str(failure)
        if self.is_store_lost:
            return f"{failure}; according to the operator, the store is gone"
        raise PreflightRefused(
            f"the store may still know what happened to it ({failure}); if it is gone for good, "
            "add --assume-store-lost. Nothing was changed"
        ) from failure


def _refused(there: int, finish: str) -> PreflightRefused:
    return PreflightRefused(
        f"the store answers, and has {grouped(there)} of its timeouts: {finish} from what the "
        "store knows. Nothing was changed"
    )
