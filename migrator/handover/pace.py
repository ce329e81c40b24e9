"""Never hand over faster than the levels let go: when the next batch may go, and how many rows.

What enters level k at t leaves it at t + 2ᵏ, so a level lets go at the rate at which it was filled.
Each level is filled at half of what it lets go of, those through which the same stream goes next as
well as the one it enters, and no second gets releases, of whichever level, beyond half of what the
broker can do in it. Bookings are in memory: after a restart they are forgotten, which harms no
level, because what enters it later leaves it later.

Shared by all lanes of a process, from any thread; several processes divide what there is.
Source: docs/adr/0010-pacing.md.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from migrator.delays.releases import BROKER_CORES, EXCHANGE_COST_S, FRACTION, Load, range_level

BEHIND_S: Final = 0.2
"""A level below may be behind by so much: a run of rows with the same bits is over soon."""
BURST_S: Final = 0.06
"""A batch goes through its levels at once: it may take the narrowest of them so long. A level that
stood empty for a moment makes up for so much of it: one batch is through when the next one comes.
"""
LATE_S: Final = 1.0
"""A probe that is later than this tells that the levels have too much to do."""
_SLOWEST: Final = 8.0
_USUAL_EXCHANGES: Final = 2.0
"""Passed by each message when its entry level lets go of it, on average over random delays."""
_SECONDS_AHEAD: Final = 30
"""A batch is put off by so many full seconds of the broker at most; then the burst is not ours."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Booking:
    """When a batch may go to the broker."""

    start_s: float
    """Monotonic."""
    reason: str
    """What it waits for, if it does: ``level 07 lets go of 2100/s``."""


class Pacer:
    """Books releases of the delay levels, batch after batch.

    Args:
        exchange_cost_s: Returns the broker's time for one exchange; may change at any time.
        receiving: What taking a message in costs a level, in exchanges.
        is_on: Whether to keep to the levels at all; asked each time.
    """

    def __init__(
        self,
        *,
        exchange_cost_s: Callable[[], float] = lambda: EXCHANGE_COST_S,
        receiving: float = 0.0,
        is_on: Callable[[], bool] = lambda: True,
    ) -> None:
        self._exchange_cost_s = exchange_cost_s
        self.receiving = receiving
        self.is_on = is_on
        self.processes = 1
        """How many hand over into these levels, this one included; each takes its share."""
        self.slowness = 1.0
        """By how much the levels are slower now than what was measured."""
        self._lock = threading.Lock()
        self._free_s: dict[int, dict[int, float]] = {}
        """By entry level, by level: when that one has room for more of what enters there."""
        self._planned_s: dict[int, float] = {}
        """The same with what is claimed; estimated, it only serves to choose what to claim."""
        self._per_row: dict[int, float] = {}
        """By range: what a row of the last batch cost its narrowest level, in exchanges."""
        self._booked: dict[int, float] = {}
        """By second: the broker's time for what all levels let go of in it."""
        self._trimmed_s = 0

    def book(self, load: Load, *, now_s: float, latest_s: float) -> Booking:
        """Book *load* for the soonest moment at which there is room, and return that.

        Args:
            load: What has no delay needs no room.
            now_s: Monotonic.
            latest_s: It goes then, room or not: it would be late by waiting. Monotonic.
        """
        if not load.passing or not self.is_on():
            return Booking(start_s=now_s, reason="")
        with self._lock:
            cost_s = self._cost_s
            self._forget_before(int(now_s))
            start_s, level, exchanges = max(
                (self._begins_s(entry, level, now_s), level, exchanges)
                for entry, passed in load.passing.items()
                for level, exchanges in passed.items()
            )
            per_s = load.rows / (exchanges * cost_s)
            reason = f"level {level:02d} lets go of {per_s:.0f}/s"
            in_room_s = self._with_room(load, start_s, cost_s)
            if in_room_s > start_s:
                reason = "all levels together let go as fast as the broker can"
            start_s = max(min(in_room_s, latest_s), now_s)
            for entry, passed in load.passing.items():
                free_s = self._free_s.setdefault(entry, {})
                for level, exchanges in passed.items():
                    begins_s = max(free_s.get(level, start_s), start_s - BURST_S)
                    free_s[level] = begins_s + exchanges * cost_s / FRACTION
            self._per_row |= load.narrowest
            for after_s, exchanges in load.after.items():
                second = int(start_s + after_s)
                self._booked[second] = self._booked.get(second, 0.0) + exchanges * cost_s
        return Booking(start_s=start_s, reason=reason)

    def free_s(self, level: int, *, now_s: float) -> float:
        """Return when rows that enter *level* would go if they were claimed now; monotonic."""
        if not self.is_on():
            return now_s
        with self._lock:
            known = self._free_s.get(level, {})
            begins_s = [self._begins_s(level, each, now_s) for each in known]
            return max(self._planned_s.get(level, now_s), *begins_s, now_s)

    def rows_at_once(self, delay_range: int) -> float:
        """Return how many rows of a range of delays one batch may have, at least 1."""
        if not self.is_on():
            return float("inf")
        with self._lock:
            return max(BURST_S / (self._row_cost(delay_range) * self._cost_s), 1.0)

    def plan(self, delay_range: int, rows: int, *, now_s: float) -> None:
        """Note that so many rows of a range of delays are claimed, about."""
        if not self.is_on():
            return
        with self._lock:
            level = range_level(delay_range)
            exchanges = rows * self._row_cost(delay_range)
            begins_s = max(self._planned_s.get(level, now_s), now_s)
            self._planned_s[level] = begins_s + exchanges * self._cost_s / FRACTION

    def probed(self, late_s: float | None) -> None:
        """Fill the levels half as fast, or again faster, by how late probes came; None: lost."""
        is_late = late_s is None or late_s > LATE_S
        self.slowness = min(max(self.slowness * (2.0 if is_late else 0.5), 1.0), _SLOWEST)

    @property
    def _cost_s(self) -> float:
        """An exchange, for us: what others use of the broker makes it dearer."""
        return self._exchange_cost_s() * self.processes * self.slowness

    def _row_cost(self, delay_range: int) -> float:
        return self._per_row.get(delay_range, _USUAL_EXCHANGES + self.receiving)

    def _begins_s(self, entry: int, level: int, now_s: float) -> float:
        """Return when *level* has room for more of what enters at *entry*; not before *now_s*."""
        free_s = self._free_s.get(entry, {}).get(level, now_s)
        return max(free_s if level == entry else free_s - BEHIND_S, now_s)

    def _with_room(self, load: Load, start_s: float, cost_s: float) -> float:
        """Return when, from *start_s* on, all entry levels may let go of what enters them then.

        What leaves the levels below is booked, and not waited for: its second hardly depends on
        when it is handed over, and its last one, when it is due, not at all.
        """
        room_s = BROKER_CORES * FRACTION
        for _ in range(_SECONDS_AHEAD):
            full = [
                level
                for level, exchanges in load.entering.items()
                if (booked_s := self._booked.get(int(start_s + 2**level), 0.0))
                and booked_s + exchanges * cost_s > room_s
            ]
            if not full:
                break
            start_s = float(int(start_s + 1))  # 2ᵏ is whole: all their seconds end with this one
        return start_s

    def _forget_before(self, second: int) -> None:
        if second > self._trimmed_s:
            self._trimmed_s = second
            self._booked = {each: s for each, s in self._booked.items() if each >= second}
