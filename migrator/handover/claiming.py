"""Which rows a lane claims next, and how many: overdue rows first, then the soonest due.

While the level of the soonest rows has no room (``pacing``), the lane claims rows of the level that
has room first, so that all levels fill side by side. High levels, whose rows are due in 18 hours
or more, are claimed by quarters: rows with neighbouring due times share their upper bits, and so
pass the same few levels. As time passes, rows move into lower ranges at their upper end, where
claims from below find them. A store that may have to be listed whole for a range (``can_seek`` is
false) is asked for its soonest rows only.

A claim that finds nothing still writes (a batch, rolled back). So a lane first asks, with one
read for all endpoints, which sources have claimable rows.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from operator import attrgetter
from typing import Final

from migrator.delays.releases import RANGES, range_from_s, range_level, range_of
from migrator.errors import StoreError
from migrator.handover.holding import Holding
from migrator.handover.pacing import Pacer
from migrator.handover.sources import FailingSources
from migrator.ledger.parking import Wanted
from migrator.ledger.states import Mode
from migrator.ledger.work import Batch, Clock, FaultPoint, Lease, StoreEndpoint, no_fault
from migrator.nservicebus.timeouts import EndpointName, RunId
from migrator.nservicebus.wiretime import seconds_up
from migrator.stores.endpoints import Selection
from migrator.stores.ports import Claims
from migrator.stores.requests import Claim, ClaimRequest, Cursor
from migrator.throttle.guard import ClaimGuard

_FEWEST_ROWS: Final = 50
_LONGEST_S: Final = 1.5
"""From an attempt's first publish to its receipt; above it, batches are halved."""
_SHORT_S: Final = 1.0
"""Below it, they grow again."""
_REWIND_S: Final = 30.0
"""Cursors go back so often, for rows that were written behind them."""
_EMPTY_S: Final = 5.0
"""An empty range is not read again for so long."""
_NONE_OVERDUE_S: Final = 0.5
"""After a claim of overdue rows that found none."""
_CHECK_EVERY_S: Final = 0.5
"""For so long a lane believes which sources have rows, and all lanes that none has."""
_SHARED_CHECK_S: Final = 0.3
"""A lane waits so long for an answer that another lane has asked for."""
_LONGEST_PAUSE_S: Final = 1.5
"""Between checks that find nothing; each pause doubles. Only a row that another program writes due
at once is late by it: less than the two seconds of docs/promise.md, with the time to send it."""
_LONGEST_PAUSE_BEFORE_CUTOFF_S: Final = 10.0
"""While the timeout manager handles rows due soon: no row is late by this pause."""


@dataclass(slots=True)
class _Progress:
    endpoint: StoreEndpoint
    run: RunId
    cursor: Cursor | None = None
    rewound_s: float = 0.0
    reached: datetime | None = None
    """Due time of the last row claimed from the soonest on; kept when the cursor is rewound."""
    above: dict[int, Cursor] = field(default_factory=dict)
    """By range of delays: the cursor of claims that began in it, above the soonest rows."""
    empty_until_s: dict[int, float] = field(default_factory=dict)
    """By range, monotonic."""
    turns: int = 0
    last_turn: dict[int, int] = field(default_factory=dict)
    """By range: the number of the last batch that came from it."""


class ClaimableCache:
    """Which sources have claimable rows; all lanes share an answer that there are none."""

    def __init__(self, claims: Claims, clock: Clock, *, rest_s: float = _CHECK_EVERY_S) -> None:
        self.failing = FailingSources(clock)
        """Neither checked nor claimed from."""
        self._claims = claims
        self._clock = clock
        self._shortest_rest_s = rest_s
        self._change = threading.Condition()
        """Guards the fields below; never locked during a statement."""
        self._is_asking = False
        self._asked: object = None
        self._pause_s = 0.0
        self._none_until_s = float("-inf")
        self.none_overdue_until_s: dict[str, float] = {}
        """By source, monotonic."""

    def sources_with_rows(self, requests: Sequence[ClaimRequest]) -> set[str]:
        """Return the sources whose request may find rows; *requests* has one per source."""
        asked = [(each.endpoint.source, each.due_after is None) for each in requests]
        with self._change:
            # another lane's answer is there soon, and spares the database the same question
            self._change.wait_for(lambda: not self._is_asking, _SHARED_CHECK_S)
            now_s = self._clock.monotonic_s()
            if now_s < self._none_until_s and asked == self._asked:
                return set()
            self._is_asking = True
        try:
            found = self._ask(requests)
        finally:
            with self._change:
                self._is_asking = False
                self._change.notify_all()
        takes_overdue = any(each.due_after is None for each in requests)
        longest_s = _LONGEST_PAUSE_S if takes_overdue else _LONGEST_PAUSE_BEFORE_CUTOFF_S
        with self._change:
            is_again = not found and asked == self._asked
            self._pause_s = min(self._pause_s * 2, longest_s) if is_again else _CHECK_EVERY_S
            self._asked = asked
            self._none_until_s = float("-inf") if found else now_s + self._pause_s
        return found

    def _ask(self, requests: Sequence[ClaimRequest]) -> set[str]:
        sources = {each.endpoint.source for each in requests}
        try:
            found = {each.endpoint.source for each in self._claims.promising(requests)}
        except StoreError as exc:
            if not exc.is_of_source:
                raise
            if len(requests) == 1:
                self.failing.note_failed(requests[0].endpoint, exc)
                return set()
            return set().union(*(self._ask([each]) for each in requests))
        for source in sources - found:
            self.failing.note_claimed(source)
        return found

    @property
    def rest_s(self) -> float:
        return max(self._none_until_s - self._clock.monotonic_s(), self._shortest_rest_s)

    def forget(self) -> None:
        """Ask the database at the next check: rows may have become claimable."""
        with self._change:
            self._asked = None


@dataclass(kw_only=True, eq=False)
class Claimer:
    """Claims batch after batch for one lane; nothing in it has to survive a restart."""

    claims: Claims
    clock: Clock
    selection: Callable[[], Selection]
    endpoints: Sequence[tuple[StoreEndpoint, RunId]]
    mode: Mode
    max_bytes: int
    claimable: ClaimableCache
    """Shared by all lanes, as is the pacer."""
    pacer: Pacer
    guard: ClaimGuard | None = None
    """Asked before every claim; None: nothing keeps rows from being claimed."""
    holding: Holding | None = None
    fault: FaultPoint = no_fault

    def __post_init__(self) -> None:
        self._checked_s = float("-inf")
        self._with_rows = set[str]()
        """Sources with claimable rows, by the last check."""
        self._turns = deque(_Progress(endpoint=e, run=r) for e, r in self.endpoints)
        self._is_parked_turn = False
        """Parked rows have every other turn; neither kind waits for the other."""

    def claim(self, lease: Lease, *, max_rows: int, only_overdue: bool = False) -> Batch | None:
        """Claim a batch of the next endpoint that has rows.

        An error of one table leaves that source out; for all others see ``Claims.claim``.
        """
        self._is_parked_turn = not self._is_parked_turn and not only_overdue
        if self._is_parked_turn and (unparked := self._unpark(lease, max_rows)) is not None:
            return unparked
        is_check_due = self.clock.monotonic_s() - self._checked_s >= _CHECK_EVERY_S
        if is_check_due:
            self._check_sources(lease)
        claimed = self._claim_in_turn(lease, max_rows, only_overdue=only_overdue)
        if claimed is None and not is_check_due and not only_overdue:
            self._check_sources(lease)
            claimed = self._claim_in_turn(lease, max_rows, only_overdue=only_overdue)
        if claimed is None and not only_overdue and not self._is_parked_turn:
            return self._unpark(lease, max_rows)
        return claimed

    def _unpark(self, lease: Lease, max_rows: int) -> Batch | None:
        if self.holding is None or not self.holding.has_ready:
            return None
        for progress in [*self._turns]:
            try:
                if self.guard and not self.guard.admit(progress.endpoint.name):
                    continue
            except StoreError:
                continue
            wanted = Wanted(run=progress.run, mode=self.mode, lease=lease, most_rows=max_rows)
            batch = self.holding.next_batch(progress.endpoint, wanted)
            if batch is not None:
                return batch
        return None

    def _check_sources(self, lease: Lease) -> None:
        if not any(self._admit(each.endpoint) for each in self._turns):
            return
        failing = self.claimable.failing
        asked = [each for each in self._turns if not failing.is_left_out(each.endpoint.source)]
        selection, now = self.selection(), self.clock.now()
        after, until = selection.future(now)
        due_after = None if selection.takes_overdue else after
        # the same order in all lanes: they share the answer
        ordered = sorted(asked, key=attrgetter("endpoint.source"))
        self._checked_s = self.clock.monotonic_s()
        self._with_rows = self.claimable.sources_with_rows(
            [self._request(each, lease, self.mode, due_after, until, None, 1) for each in ordered]
        )

    def _admit(self, endpoint: StoreEndpoint) -> bool:
        if self.claimable.failing.is_left_out(endpoint.source):
            return False
        try:
            return self.guard is None or self.guard.admit(endpoint.name)
        except StoreError as exc:
            self._leave_out(endpoint, exc)
            return False

    def _leave_out(self, endpoint: StoreEndpoint, error: StoreError) -> None:
        """Note that *endpoint* fails; raise an *error* that is not of its table alone."""
        if not error.is_of_source or not self.claims.is_atomic:
            raise error
        self.claimable.failing.note_failed(endpoint, error)

    def _claim_in_turn(self, lease: Lease, max_rows: int, *, only_overdue: bool) -> Batch | None:
        for _ in range(len(self._turns)):
            progress = self._turns[0]
            self._turns.rotate(-1)
            source = progress.endpoint.source
            if source not in self._with_rows or not self._admit(progress.endpoint):
                continue
            try:
                batch = self._claim_of(progress, lease, max_rows, only_overdue=only_overdue)
            except StoreError as exc:
                self._leave_out(progress.endpoint, exc)
                continue
            if batch is not None or not only_overdue:
                self.claimable.failing.note_claimed(source)
            if batch is not None:
                return batch
            if not only_overdue:
                self._with_rows.discard(source)
        return None

    def _claim_of(
        self, progress: _Progress, lease: Lease, max_rows: int, *, only_overdue: bool
    ) -> Batch | None:
        for delay_range, request in self._requests(progress, lease, max_rows):
            if only_overdue and request.due_after is not None:
                break
            claim = self.claims.claim(request)
            if claim is not None:
                self.fault("claim.done")
                if request.mode is self.mode and request.due_after is not None:
                    self._note(progress, delay_range, claim)
                return claim.batch
        return None

    def unclaimed(self, lease: Lease) -> Mapping[EndpointName, int]:
        """After claims that found none: count the rows, by endpoint, that other programs locked."""
        selection, now = self.selection(), self.clock.now()
        after, until = selection.future(now)
        due_after = None if selection.takes_overdue else after
        found: dict[EndpointName, int] = {}
        for each in self._turns:
            if not self._admit(each.endpoint):
                continue
            request = self._request(each, lease, self.mode, due_after, until, None, 1)
            try:
                rows = self.claims.unclaimed(request)
            except StoreError as exc:
                self._leave_out(each.endpoint, exc)
            else:
                found |= {each.endpoint.name: rows} if rows else {}
        return found

    def resume(self, batch: Batch, lease: Lease) -> Batch | None:
        return self.claims.resume(batch, lease)

    def _note(self, progress: _Progress, began: int | None, claim: Claim) -> None:
        """*began* is the range of *claim*; None: it began at the soonest rows."""
        now, at_s = self.clock.now(), self.clock.monotonic_s()
        reached = _range(claim.cursor.due_at, now)
        self.pacer.plan(reached, claim.batch.size, now_s=at_s)
        if began is not None:
            reached = max(reached, began)  # they may have come down while they were claimed
        progress.turns += 1
        progress.last_turn[reached] = progress.turns
        if began is None:
            progress.cursor, progress.reached = claim.cursor, claim.cursor.due_at
            return
        progress.above[reached] = claim.cursor
        for passed in range(began, reached):
            progress.empty_until_s[passed] = at_s + _EMPTY_S

    def _requests(
        self, progress: _Progress, lease: Lease, max_rows: int
    ) -> Iterator[tuple[int | None, ClaimRequest]]:
        """Yield requests to try in turn, each with the range it begins at; None: the soonest."""
        now, at_s = self.clock.now(), self.clock.monotonic_s()
        selection = self.selection()
        source = progress.endpoint.source
        overdue_is_stale = at_s >= self.claimable.none_overdue_until_s.get(source, at_s)
        if selection.takes_overdue and overdue_is_stale:
            yield None, self._request(progress, lease, Mode.DIRECT, None, now, None, max_rows)
            # only reached when there was none
            at_s = self.clock.monotonic_s()
            self.claimable.none_overdue_until_s[source] = at_s + _NONE_OVERDUE_S
        if at_s - progress.rewound_s >= _REWIND_S:
            progress.cursor, progress.rewound_s = None, at_s
            progress.above.clear()
        after, until = selection.future(now)
        soonest = _range(max(progress.reached or after, after), now)
        if (chosen := self._range_with_room(progress, soonest, now, until)) != soonest:
            since = now + timedelta(seconds=range_from_s(chosen))
            cursor = progress.above.get(chosen)
            if cursor is not None and _range(cursor.due_at, now) != chosen:
                cursor = None  # its rows have come down
            rows = self._rows(chosen, max_rows)
            yield chosen, self._request(progress, lease, self.mode, since, until, cursor, rows)
            # only reached when there was none
            until_s = self.clock.monotonic_s() + _EMPTY_S
            progress.empty_until_s |= dict.fromkeys(range(chosen, RANGES), until_s)
        cursor, rows = progress.cursor, self._rows(soonest, max_rows)
        yield None, self._request(progress, lease, self.mode, after, until, cursor, rows)
        if cursor is not None:
            progress.cursor, progress.rewound_s = None, at_s
            yield None, self._request(progress, lease, self.mode, after, until, None, rows)

    def _range_with_room(
        self, progress: _Progress, soonest: int, now: datetime, until: datetime
    ) -> int:
        """Choose the level with room first, then its quarter least recently claimed from."""
        at_s, level, last = self.clock.monotonic_s(), range_level(soonest), _range(until, now)
        if not self.claims.can_seek or self.pacer.free_s(level, now_s=at_s) <= at_s:
            return soonest
        levels = range(level, range_level(max(soonest, last)) + 1)
        free_s = {each: self.pacer.free_s(each, now_s=at_s) for each in levels}
        above = (
            each
            for each in range(soonest + 1, last + 1)
            if progress.empty_until_s.get(each, at_s) <= at_s
        )
        return min(
            (soonest, *above),
            key=lambda each: (
                free_s[range_level(each)],
                range_level(each),
                progress.last_turn.get(each, 0),
            ),
        )

    def _rows(self, delay_range: int, max_rows: int) -> int:
        return int(min(max_rows, self.pacer.rows_at_once(delay_range)))

    def _request(
        self,
        progress: _Progress,
        lease: Lease,
        mode: Mode,
        after: datetime | None,
        until: datetime,
        cursor: Cursor | None,
        max_rows: int,
    ) -> ClaimRequest:
        return ClaimRequest(
            run=progress.run,
            endpoint=progress.endpoint,
            lease=lease,
            mode=mode,
            due_after=after,
            due_until=until,
            max_rows=max_rows,
            max_bytes=self.max_bytes,
            cursor=cursor,
        )


def _range(due_at: datetime, now: datetime) -> int:
    return range_of(max(seconds_up(due_at - now), 0))


class PassSize:
    """The number of rows that a lane claims at a time: fewer when attempts take too long.

    The time from publishing a message, when its delay is computed, until it reaches a level makes
    its row late, and each row of an attempt waits for all of them (docs/adr/0003).
    """

    def __init__(self, wished: Callable[[], int]) -> None:
        self._wished = wished
        self._most: int | None = None

    @property
    def rows(self) -> int:
        return self._wished() if self._most is None else min(self._wished(), self._most)

    def halve(self, rows: int) -> bool:
        before = self.rows
        self._most = min(before, max(rows // 2, _FEWEST_ROWS))
        return self.rows < before

    def resize(self, rows: int, seconds: float) -> bool:
        """Adapt to the *seconds* from first publish to receipt; return whether to claim fewer."""
        if seconds > _LONGEST_S:
            return self.halve(rows)
        if seconds < _SHORT_S and self._most is not None:
            self._most += self._most // 4 + 1
            if self._most >= self._wished():
                self._most = None
        return False
