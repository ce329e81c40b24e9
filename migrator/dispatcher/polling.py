"""From stored rows that get due to items in the outbox, and from sent items back to the ledger.

Rules of this file: a row is claimed (it leaves the legacy table for the ledger) before it is
sent, so that no second program sends it; the batch is ``publishing`` before its first row is;
what cannot be sent goes back to the legacy table as it was. Everything here runs in one
background thread, in order, so that the thread that serves the broker never waits for it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Final

from migrator.delays.routing import Unreachable
from migrator.dispatcher.delivery import to_dispatch
from migrator.dispatcher.outbox import StoredRow
from migrator.dispatcher.ports import Dispatching, Route, Routes
from migrator.errors import PreflightRefused
from migrator.ledger.held_destinations import HeldDestinations, SqlHeldDestinations, is_over
from migrator.ledger.ports import Batches
from migrator.ledger.states import Event, Mode
from migrator.ledger.work import Batch, Clock, FaultPoint, Lease, StoreEndpoint
from migrator.nservicebus.conversion import Quarantine, Reason, Rules, destination_of
from migrator.nservicebus.timeouts import (
    BatchId,
    NativeMessage,
    QueueName,
    RunId,
    StoredTimeout,
    TimeoutId,
)
from migrator.stores.due_times import DueTimeReading
from migrator.stores.ports import ClaimRequest, RowClaims

_log = logging.getLogger(__name__)

_DUE_TIMES_AGAIN_S: Final = 600.0
"""After rows that were read in the right zone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PollRules:
    """How rows are looked for."""

    look_ahead: timedelta
    """Rows due within this are claimed, and wait in memory."""
    max_rows: int
    max_bytes: int
    remember: timedelta
    """How long a dispatched timeout is remembered, so that a redelivered message is known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Claimed:
    """A batch that is ours to send."""

    batch: Batch
    rows: Sequence[StoredRow]
    """Those to be sent, in no order."""
    was_full: bool
    """There may be more rows that are due."""


@dataclass(slots=True)
class Sending:
    """A batch whose rows are being sent; outlives the link, so that none is sent twice."""

    batch: Batch
    waiting: set[int] = field(default_factory=set)
    """Row indexes without an answer."""
    answered: set[int] = field(default_factory=set)
    """Row indexes that need not be sent again, whatever happens to the link."""
    returned: list[tuple[StoredTimeout, Unreachable]] = field(default_factory=list)
    """Rows that no queue took, with the reason: they are nowhere but in the ledger."""
    unfit: list[Quarantine] = field(default_factory=list)
    """Rows that the broker will never take."""
    begun_s: float = 0.0
    """When this process first saw it, by its monotonic clock."""
    reached: set[str | None] = field(default_factory=set)
    """Destinations that took a message, as in the column."""

    def note_sent(self, row: StoredTimeout) -> None:
        """The broker confirmed *row*."""
        self._note(row)
        self.reached.add(row.destination)

    def note_returned(self, row: StoredTimeout, why: Unreachable) -> None:
        """The broker did not take *row*, and may do so later."""
        self._note(row)
        self.returned.append((row, why))

    def note_unfit(self, row: StoredTimeout, reason: Reason, detail: str) -> None:
        """The broker will never take *row*."""
        self._note(row)
        self.unfit.append(
            Quarantine(row_index=row.row_index, timeout_id=row.id, reason=reason, detail=detail)
        )

    def _note(self, row: StoredTimeout) -> None:
        self.waiting.discard(row.row_index)
        self.answered.add(row.row_index)


class Poller:
    """Claims and settles for one endpoint; used by one thread at a time."""

    def __init__(
        self,
        *,
        endpoint: StoreEndpoint,
        run: RunId,
        claims: RowClaims,
        batches: Batches,
        dispatching: Dispatching,
        held: SqlHeldDestinations,
        routes: Routes,
        clock: Clock,
        rules: PollRules,
        conversion: Rules,
        fault: FaultPoint,
        read_due_times: Callable[[StoreEndpoint], DueTimeReading],
    ) -> None:
        """Look for rows of *endpoint*.

        *read_due_times* is asked before the first claim, and now and then after that.
        """
        self._endpoint = endpoint
        self._run = run
        self._claims = claims
        self._batches = batches
        self._dispatching = dispatching
        self.routes = routes
        self._clock = clock
        self._rules = rules
        self._conversion = conversion
        self._fault = fault
        self._read_due_times = read_due_times
        self._due_times_at_s = float("-inf")
        self.held = HeldDestinations(held, endpoint)

    def limit_frames(self, frame_max_bytes: int) -> None:
        """Convert for a connection that negotiated this frame size; 0: no limit."""
        self._conversion = replace(self._conversion, frame_max_bytes=frame_max_bytes)

    # ── claiming ────────────────────────────────────────────────────────────────────────────

    def left_open(
        self,
        lease: Lease,
        *,
        answered: Mapping[BatchId, Collection[int]],
        but_for: Collection[BatchId] = (),
    ) -> Sequence[Claimed]:
        """Return what is claimed and not settled, ready to be sent but for rows *answered*.

        Batches *but_for* are in somebody's hands already.
        """
        self.held.load()
        return [
            self._prepared(batch, lease, skip=answered.get(batch.id, ()))
            for batch in self._batches.open_batches(lease)
            if batch.id not in but_for
        ]

    def claim_due(self, lease: Lease) -> Sequence[Claimed]:
        """Claim the soonest due rows; empty when none is due within the look-ahead.

        What is due already never shares a batch with what is not: the batch would stay open for
        as long, and a crash would send all of it again.
        """
        self._try_held()
        now = self._clock.now()
        not_for = self.held.not_now(now)
        found = []
        for until in (now, now + self._rules.look_ahead):
            claimed = self._claim(lease, until=until, only=None, not_for=not_for)
            if claimed is not None:
                found.append(claimed)
                if claimed.was_full:
                    break
        return found

    def claim_these(self, ids: Collection[TimeoutId], lease: Lease) -> Claimed | None:
        """Claim exactly these rows, as far as they exist and are due; None when there is none."""
        until = self._clock.now() + self._rules.look_ahead
        return self._claim(lease, until=until, only=ids, not_for=())

    def _check_due_times(self) -> None:
        """Refuse to claim while due times are of another zone than they are read in."""
        now_s = self._clock.monotonic_s()
        if now_s < self._due_times_at_s:
            return
        reading = self._read_due_times(self._endpoint)
        if reading.is_refused:
            raise PreflightRefused(f"time_zone: {reading.text}; {reading.remedy}")
        if reading.comparable:
            self._due_times_at_s = now_s + _DUE_TIMES_AGAIN_S

    def _claim(
        self,
        lease: Lease,
        *,
        until: datetime,
        only: Collection[TimeoutId] | None,
        not_for: Collection[str],
    ) -> Claimed | None:
        self._check_due_times()
        request = ClaimRequest(
            run=self._run,
            endpoint=self._endpoint,
            lease=lease,
            mode=Mode.DISPATCH,
            due_after=None,
            due_until=until,
            max_rows=self._rules.max_rows,
            max_bytes=self._rules.max_bytes,
            cursor=None,
            only=only,
            not_for=not_for,
        )
        claim = self._claims.claim(request)
        if claim is None:
            return None
        self._fault("dispatch.claimed")
        return self._prepared(claim.batch, lease)

    def _prepared(self, batch: Batch, lease: Lease, *, skip: Collection[int] = ()) -> Claimed:
        was_full = batch.size >= self._rules.max_rows or batch.body_bytes >= self._rules.max_bytes
        rows = [row for row in self._batches.rows(batch) if row.row_index not in skip]
        converted = {row.row_index: self._convert(row) for row in rows}
        unfit = [found for found in converted.values() if isinstance(found, Quarantine)]
        fit = {n: found for n, found in converted.items() if isinstance(found, NativeMessage)}
        routes = self.routes.routes({message.destination for message in fit.values()})
        ready: list[StoredRow] = []
        lost: dict[int, tuple[StoredTimeout, Unreachable]] = {}
        for row in rows:
            message = fit.get(row.row_index)
            if message is None:
                continue
            route = routes[message.destination]
            if isinstance(route, Unreachable):
                lost[row.row_index] = (row, route)
            else:
                ready.append(_stored_row(batch, row, message, route))
        batch = self._put_aside(batch, unfit, list(lost.values()), lease)
        batch = self._batches.advance(batch, Event.BEGIN_PUBLISHING, lease)
        self._fault("dispatch.begun")
        return Claimed(batch=batch, rows=ready, was_full=was_full)

    def _put_aside(
        self,
        batch: Batch,
        unfit: Sequence[Quarantine],
        lost: Sequence[tuple[StoredTimeout, Unreachable]],
        lease: Lease,
    ) -> Batch:
        """Give back rows for destinations nobody can reach now, quarantine those nobody can send.

        A destination is held by the text of its column; a row without one could only be claimed
        again at once, so it goes to quarantine.
        """
        nameless = [
            Quarantine(row_index=r.row_index, timeout_id=r.id, reason=w.reason, detail=w.detail)
            for r, w in lost
            if not r.destination
        ]
        if unfit or nameless:
            self._batches.quarantine(batch, [*unfit, *nameless], lease)
        waiting = {r.row_index: (r.destination, w) for r, w in lost if r.destination}
        for column, why in dict(waiting.values()).items():
            self._hold(column, why)
        return self._claims.give_back(batch, waiting.keys(), lease) if waiting else batch

    def _convert(self, row: StoredTimeout) -> NativeMessage | Quarantine:
        return to_dispatch(row, rules=self._conversion)

    def _try_held(self) -> None:
        """Ask whether held destinations can be reached again; wait longer where they cannot."""
        now = self._clock.now()
        to_try = {held: self._queue_of(held.destination) for held in self.held.to_try(now)}
        if not to_try:
            return
        routes = self.routes.routes(set(to_try.values()))
        for held, name in to_try.items():
            if isinstance(why := routes[name], Unreachable):
                self._hold(held.destination, why)
            elif is_over(held, now=now):
                self.held.free([held.destination])

    def _queue_of(self, column: str) -> QueueName:
        return destination_of(column, {}, self._conversion.destination_map)

    def _hold(self, column: str, why: Unreachable) -> None:
        if self.held.is_held(column, now=self._clock.now()):
            return  # a row fetched before, or one a control message asked for: not the next try
        held = self.held.hold(column, why, now=self._clock.now())
        _log.warning(
            "a destination cannot be reached; its timeouts wait in the store",
            extra={
                "action": "destination_held",
                "endpoint": self._endpoint.name,
                "destination": column,
                "reason": held.reason,
                "detail": held.detail,
                "tries": held.tries,
                "next_try_at": held.next_try_at,
            },
        )

    # ── settling ────────────────────────────────────────────────────────────────────────────

    def settle(self, sending: Sending, lease: Lease) -> None:
        """Record that every row of a batch was answered; what the broker returned goes back."""
        self._fault("dispatch.confirmed")
        batch = self._put_aside(sending.batch, sending.unfit, sending.returned, lease)
        self.routes.forget({self._queue_of(row.destination or "") for row, _ in sending.returned})
        self.held.free(sending.reached)
        self._batches.advance(batch, Event.ALL_DISPATCHED, lease)
        self._fault("dispatch.settled")

    def fold(self, lease: Lease) -> int:
        """Forget some of what was dispatched long ago; return how many rows."""
        return self._dispatching.fold(lease, older_than=self._rules.remember)


def _stored_row(
    batch: Batch, row: StoredTimeout, message: NativeMessage, route: Route
) -> StoredRow:
    return StoredRow(batch=batch.id, message=message, route=route, row=row)
