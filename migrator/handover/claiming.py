"""Which rows a lane claims next, and how many: overdue ones first, then the soonest due.

While the level of the soonest rows has no room (``pace``), those of the level that has some first
are claimed, so that all levels fill side by side. Of high levels, whose rows are due in 18 hours at
least, that is done by quarters: rows due one after the other have their upper bits in common, and
would all go through the same few levels. As time passes rows come down into lower ranges, at the
upper end, where claims from below find them. A store that has to list everything for rows that are
not its soonest is asked for those alone.

A claim that finds nothing has written all the same (a batch, rolled back), so a lane first looks
where there is anything, at all endpoints at once and without a trace.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final

from migrator.delays.releases import RANGES, range_from_s, range_level, range_of
from migrator.errors import StoreError
from migrator.handover.holding import Holding
from migrator.handover.pace import Pacer
from migrator.handover.sources import FailingSources
from migrator.ledger.parking import Wanted
from migrator.ledger.states import Mode
from migrator.ledger.work import Batch, Clock, FaultPoint, Lease, StoreEndpoint
from migrator.nservicebus.timeouts import EndpointName, RunId
from migrator.nservicebus.wiretime import seconds_up
from migrator.stores.endpoints import Selection
from migrator.stores.ports import Claim, ClaimRequest, Claims, Cursor

_FEWEST_ROWS: Final = 50
_LONGEST_S: Final = 1.5
"""From an attempt's first publish to its receipt; above it, the next ones are half as large."""
_SHORT_S: Final = 1.0
"""Below it, they may grow again."""
_REWIND_S: Final = 30.0
"""The cursors go back so often, for rows that were written behind them."""
_EMPTY_S: Final = 5.0
"""A range in which there were no rows is not looked at again for so long."""
_NOTHING_OVERDUE_S: Final = 0.5
"""Where no row was overdue, none is looked for again for so long."""
_LOOK_EVERY_S: Final = 0.5
"""What a look found is believed for so long; what it did not find, by all lanes of the process."""
_OTHERS_LOOK_S: Final = 0.3
"""So long a lane waits for the answer that another one has asked for."""
_LONGEST_PAUSE_S: Final = 1.5
"""Between two looks that find nothing, each twice as long after the one before. Rows that were
there are claimed long before they are due, so only one that another program writes meanwhile, due
at once, is late by that: less than the two seconds of docs/promise.md, with the time to send it."""
_LONGEST_PAUSE_BEFORE_CUTOFF_S: Final = 10.0
"""While what is due soon is left to somebody else: nothing gets late by waiting here."""


@dataclass(slots=True)
class _Progress:
    """How far this lane has come in one endpoint's future rows."""

    endpoint: StoreEndpoint
    run: RunId
    cursor: Cursor | None = None
    rewound_s: float = 0.0
    reached: datetime | None = None
    """When the last of the soonest rows was due; stays when the cursor is rewound."""
    above: dict[int, Cursor] = field(default_factory=dict)
    """By range of delays: how far claims have come in it that passed over those below."""
    empty_until_s: dict[int, float] = field(default_factory=dict)
    """By range: until when it is believed to have no rows."""
    turns: int = 0
    """Batches of future rows that were claimed so far."""
    last_turn: dict[int, int] = field(default_factory=dict)
    """By range: which of them was the last one there."""


class Look:
    """Tells which sources have rows to claim; lanes share it, and an answer that there are none.

    No lane waits for the statement of another for longer than moments.
    """

    def __init__(self, claims: Claims, clock: Clock, *, rest_s: float = _LOOK_EVERY_S) -> None:
        self.failing = FailingSources(clock)
        """Nothing is asked of them, neither by looks nor by claims."""
        self._claims = claims
        self._clock = clock
        self._shortest_rest_s = rest_s
        self._change = threading.Condition()
        """Held to change what follows, and never over a statement."""
        self._is_asking = False
        self._asked: object = None
        self._pause_s = 0.0
        """How long the last look is believed, if it found nothing."""
        self._nothing_until_s = float("-inf")
        self.nothing_overdue_until_s: dict[str, float] = {}
        """By source: until when a claim of overdue rows that found none is believed."""

    def sources(self, requests: Sequence[ClaimRequest]) -> set[str]:
        """Return the sources of those of *requests* that may find something; one per source."""
        asked = [(each.endpoint.source, each.due_after is None) for each in requests]
        with self._change:
            # another lane's answer is soon there, and spares the database the same question
            self._change.wait_for(lambda: not self._is_asking, _OTHERS_LOOK_S)
            now_s = self._clock.monotonic_s()
            if now_s < self._nothing_until_s and asked == self._asked:
                return set()
            self._is_asking = True
        try:
            found = self._found(requests)
        finally:
            with self._change:
                self._is_asking = False
                self._change.notify_all()
        takes_overdue = any(each.due_after is None for each in requests)
        longest_s = _LONGEST_PAUSE_S if takes_overdue else _LONGEST_PAUSE_BEFORE_CUTOFF_S
        with self._change:
            is_again = not found and asked == self._asked
            self._pause_s = min(self._pause_s * 2, longest_s) if is_again else _LOOK_EVERY_S
            self._asked = asked
            self._nothing_until_s = float("-inf") if found else now_s + self._pause_s
        return found

    def _found(self, requests: Sequence[ClaimRequest]) -> set[str]:
        """Ask for all at once; where that fails, each alone, so that the others are answered."""
        sources = {each.endpoint.source for each in requests}
        try:
            found = {each.endpoint.source for each in self._claims.promising(requests)}
        except StoreError as exc:
            if not exc.is_of_source:
                raise
            if len(requests) == 1:
                self.failing.note_failed(requests[0].endpoint, exc)
                return set()
            return set().union(*(self._found([each]) for each in requests))
        for source in sources - found:
            self.failing.note_claimed(source)
        return found

    @property
    def rest_s(self) -> float:
        """How long a lane that found nothing may rest."""
        return max(self._nothing_until_s - self._clock.monotonic_s(), self._shortest_rest_s)

    def forget(self) -> None:
        """Look anew the next time: somebody acted, and what was seen may be of before that."""
        with self._change:
            self._asked = None


@dataclass(kw_only=True, eq=False)
class Claimer:
    """Claims batch after batch for one lane; all its memory may be lost at any time."""

    claims: Claims
    clock: Clock
    selection: Callable[[], Selection]
    """Asked before every claim."""
    endpoints: Sequence[tuple[StoreEndpoint, RunId]]
    """Whose rows, each with the run that its batches belong to; they have their turns."""
    mode: Mode
    max_bytes: int
    look: Look
    """Shared with other lanes."""
    pacer: Pacer
    """The same."""
    admit: Callable[[EndpointName], bool] = lambda _endpoint: True
    """Called before every claim: pauses an endpoint that has to wait, and says whether to claim."""
    holding: Holding | None = None
    """Has parked rows that go on again; None: nothing is parked."""
    fault: FaultPoint = lambda _name: None

    def __post_init__(self) -> None:
        self._looked_s = float("-inf")
        self._worth = set[str]()
        """Sources in which there may be something."""
        self._turns = deque(_Progress(endpoint=e, run=r) for e, r in self.endpoints)
        self._is_parked_turn = False
        """Parked rows have every other turn, so that they and fresh ones go side by side."""

    def claim(self, lease: Lease, *, max_rows: int, only_overdue: bool = False) -> Batch | None:
        """Claim the next batch of whichever endpoint is next and has one; None: nothing to do.

        With *only_overdue*, of rows that are due already.

        Raises:
            LeaseLost: The lane is somebody else's.
            StoreUnavailable: See ``Claims.claim``. What one table answers keeps that one out alone.
        """
        self._is_parked_turn = not self._is_parked_turn and not only_overdue
        if self._is_parked_turn and (unparked := self._unpark(lease, max_rows)) is not None:
            return unparked
        is_fresh = self.clock.monotonic_s() - self._looked_s >= _LOOK_EVERY_S
        if is_fresh:
            self._look_again(lease)
        claimed = self._claim_in_turn(lease, max_rows, only_overdue=only_overdue)
        if claimed is None and not is_fresh and not only_overdue:
            self._look_again(lease)
            claimed = self._claim_in_turn(lease, max_rows, only_overdue=only_overdue)
        if claimed is None and not only_overdue and not self._is_parked_turn:
            return self._unpark(lease, max_rows)
        return claimed

    def _unpark(self, lease: Lease, max_rows: int) -> Batch | None:
        """Claim parked rows of whichever endpoint is next and has some that may go on."""
        if self.holding is None or not self.holding.has_ready:
            return None
        for progress in [*self._turns]:
            try:
                if not self.admit(progress.endpoint.name):
                    continue
            except StoreError:  # whether it may be claimed from is not known
                continue
            wanted = Wanted(run=progress.run, mode=self.mode, lease=lease, most_rows=max_rows)
            batch = self.holding.next_batch(progress.endpoint, wanted)
            if batch is not None:
                return batch
        return None

    def _look_again(self, lease: Lease) -> None:
        if not any(self._admit(each.endpoint) for each in self._turns):
            return
        failing = self.look.failing
        asked = [each for each in self._turns if not failing.is_left_out(each.endpoint.source)]
        selection, now = self.selection(), self.clock.now()
        after, until = selection.future(now)
        floor = None if selection.takes_overdue else after
        # in the same order for each lane, whoever's turn it is
        ordered = sorted(asked, key=lambda progress: progress.endpoint.source)
        self._looked_s = self.clock.monotonic_s()
        self._worth = self.look.sources(
            [self._request(each, lease, self.mode, floor, until, None, 1) for each in ordered]
        )

    def _admit(self, endpoint: StoreEndpoint) -> bool:
        """Check *endpoint* before a claim; note what its table answers; return whether to claim."""
        if self.look.failing.is_left_out(endpoint.source):
            return False
        try:
            return self.admit(endpoint.name)
        except StoreError as exc:
            self._leave_out(endpoint, exc)
            return False

    def _leave_out(self, endpoint: StoreEndpoint, error: StoreError) -> None:
        """Note that *endpoint* fails; raise *error* where it says more than that."""
        if not error.is_of_source or not self.claims.is_atomic:
            raise error
        self.look.failing.note_failed(endpoint, error)

    def _claim_in_turn(self, lease: Lease, max_rows: int, *, only_overdue: bool) -> Batch | None:
        for _ in range(len(self._turns)):
            progress = self._turns[0]
            self._turns.rotate(-1)
            source = progress.endpoint.source
            if source not in self._worth or not self._admit(progress.endpoint):
                continue
            try:
                batch = self._claim_of(progress, lease, max_rows, only_overdue=only_overdue)
            except StoreError as exc:
                self._leave_out(progress.endpoint, exc)
                continue
            if batch is not None or not only_overdue:
                self.look.failing.note_claimed(source)
            if batch is not None:
                return batch
            if not only_overdue:
                self._worth.discard(source)
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
        """Return how many rows each endpoint has that should be claimed, and were not.

        After claims that found none: others have locked them. What belongs to an endpoint that
        waits is not counted.
        """
        selection, now = self.selection(), self.clock.now()
        after, until = selection.future(now)
        floor = None if selection.takes_overdue else after
        found: dict[EndpointName, int] = {}
        for each in self._turns:
            if not self._admit(each.endpoint):
                continue
            request = self._request(each, lease, self.mode, floor, until, None, 1)
            try:
                rows = self.claims.unclaimed(request)
            except StoreError as exc:
                self._leave_out(each.endpoint, exc)
            else:
                found |= {each.endpoint.name: rows} if rows else {}
        return found

    def resume(self, batch: Batch, lease: Lease) -> Batch | None:
        """Finish a claim, or a release, that is half-done; see ``Claims.resume``."""
        return self.claims.resume(batch, lease)

    def _note(self, progress: _Progress, began: int | None, claim: Claim) -> None:
        """Remember how far *claim* came; it *began* with that range, or with the soonest rows."""
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
        """Yield what to try in turn, each with the range above the soonest rows' it begins at."""
        now, at_s = self.clock.now(), self.clock.monotonic_s()
        selection = self.selection()
        source = progress.endpoint.source
        overdue_is_stale = at_s >= self.look.nothing_overdue_until_s.get(source, at_s)
        if selection.takes_overdue and overdue_is_stale:
            yield None, self._request(progress, lease, Mode.DIRECT, None, now, None, max_rows)
            # only reached when there was none
            at_s = self.clock.monotonic_s()
            self.look.nothing_overdue_until_s[source] = at_s + _NOTHING_OVERDUE_S
        if at_s - progress.rewound_s >= _REWIND_S:
            progress.cursor, progress.rewound_s = None, at_s
            progress.above.clear()
        after, until = selection.future(now)
        soonest = _range(max(progress.reached or after, after), now)
        if (chosen := self._free_first(progress, soonest, now, until)) != soonest:
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

    def _free_first(self, progress: _Progress, soonest: int, now: datetime, until: datetime) -> int:
        """Return the range whose level has room first, from that of the *soonest* rows on.

        Where several levels have, the lowest; of its quarters, that of the longest ago.
        """
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
    """Return in which range of delays a row is that is due then."""
    return range_of(max(seconds_up(due_at - now), 0))


class PassSize:
    """The rows that a lane claims at a time: fewer when attempts take too long.

    A delay counts from the moment its message reaches a level, and was fixed when the message was
    published. What passes between the two makes a row late, beside the second by which delays are
    rounded up (docs/adr/0003), and each row of an attempt waits for all.
    """

    def __init__(self, wished: Callable[[], int]) -> None:
        self._wished = wished
        self._most: int | None = None

    @property
    def rows(self) -> int:
        """Rows in the next batch."""
        return self._wished() if self._most is None else min(self._wished(), self._most)

    def halve(self, rows: int) -> bool:
        """Claim half of *rows*, which took too long, or fewer already; is that a change?"""
        before = self.rows
        self._most = min(before, max(rows // 2, _FEWEST_ROWS))
        return self.rows < before

    def resize(self, rows: int, seconds: float) -> bool:
        """Fit the next batch to how long an attempt took; return whether it is smaller now.

        *seconds* passed from its first publish to its receipt.

        Between the two limits nothing changes. Growth is a quarter at a time.
        """
        if seconds > _LONGEST_S:
            return self.halve(rows)
        if seconds < _SHORT_S and self._most is not None:
            self._most += self._most // 4 + 1
            if self._most >= self._wished():
                self._most = None
        return False
