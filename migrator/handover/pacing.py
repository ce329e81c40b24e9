"""Pacing: never hand over faster than the levels release; when a batch may go, and how many rows.

A message that enters level k at t leaves it at t + 2ᵏ, so a level releases at the rate at which it
was filled. Each level is filled at half of its release rate: the level that a stream enters, and
those it passes next. No second gets more releases, from all levels together, than half of what the
broker can do in it. Bookings are in memory; a restart forgets them, which harms no level, because
a message that enters later leaves later.

All lanes of a process share a pacer, from any thread; several processes divide the rate.
Source: docs/adr/0010-pacing.md.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from migrator.delays.releases import BROKER_CORES, EXCHANGE_COST_S, FRACTION, Load, range_level

BEHIND_S: Final = 0.2
"""A lower level may be behind by so much: a run of rows with the same bits is over soon."""
BURST_S: Final = 0.06
"""The longest time that one batch may take its narrowest level. A level that was empty makes up
for as much of it, so that one batch is through when the next one comes."""
LATE_S: Final = 1.0
"""A later probe means that the levels are overloaded."""
_SLOWEST: Final = 8.0
_USUAL_EXCHANGES: Final = 2.0
"""Passed by a message when its entry level releases it, on average over random delays."""
_SECONDS_AHEAD: Final = 30
"""A batch waits for at most so many full seconds; then the burst is not migrator's."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Booking:
    start_s: float
    """Monotonic."""
    reason: str


@dataclass(slots=True)
class ExchangeCost:
    """What an exchange costs a level of this broker; who measures it writes, pacers read."""

    seconds: float = EXCHANGE_COST_S


class Pacer:
    """Books releases of the delay levels, batch after batch.

    Args:
        cost: The broker's time for one exchange; may change at any time.
        receiving: What a level pays to receive a message, in exchanges.
        is_on: Whether pacing is on; read at each call.
    """

    def __init__(
        self,
        *,
        cost: ExchangeCost | None = None,
        receiving: float = 0.0,
        is_on: Callable[[], bool] = lambda: True,
    ) -> None:
        self._cost = cost or ExchangeCost()
        self.receiving = receiving
        self.is_on = is_on
        self.processes = 1
        """Processes that hand over into these levels, this one included."""
        self.slowness = 1.0
        """Factor by which the levels are slower now than measured."""
        self._lock = threading.Lock()
        self._free_s: dict[int, dict[int, float]] = {}
        """By entry level, by level: when it has room for more messages of that entry."""
        self._planned_s: dict[int, float] = {}
        """By entry level, with claimed rows, estimated; only to choose what to claim."""
        self._per_row: dict[int, float] = {}
        """By range: cost of a row of the last batch at its narrowest level, in exchanges."""
        self._booked: dict[int, float] = {}
        """By second: the broker's time for the releases of all levels in it."""
        self._trimmed_s = 0

    def book(self, load: Load, *, now_s: float, latest_s: float) -> Booking:
        """Book *load* for the first moment with room.

        Args:
            load: Of messages with a delay; others need no room.
            now_s: Monotonic.
            latest_s: Monotonic; the batch goes then, room or not, or its rows would be late.
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
            reason = f"level {level:02d} releases {per_s:.0f}/s"
            in_room_s = self._with_room(load, start_s, cost_s)
            if in_room_s > start_s:
                reason = "all levels together release as fast as the broker can"
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
        if not self.is_on():
            return now_s
        with self._lock:
            known = self._free_s.get(level, {})
            begins_s = [self._begins_s(level, each, now_s) for each in known]
            return max(self._planned_s.get(level, now_s), *begins_s, now_s)

    def rows_at_once(self, delay_range: int) -> float:
        if not self.is_on():
            return float("inf")
        with self._lock:
            return max(BURST_S / (self._row_cost(delay_range) * self._cost_s), 1.0)

    def plan(self, delay_range: int, rows: int, *, now_s: float) -> None:
        if not self.is_on():
            return
        with self._lock:
            level = range_level(delay_range)
            exchanges = rows * self._row_cost(delay_range)
            begins_s = max(self._planned_s.get(level, now_s), now_s)
            self._planned_s[level] = begins_s + exchanges * self._cost_s / FRACTION

    def probed(self, late_s: float | None) -> None:
        """Halve or restore the rate by the lateness of the last probe; None: the probe was lost."""
        is_late = late_s is None or late_s > LATE_S
        self.slowness = min(max(self.slowness * (2.0 if is_late else 0.5), 1.0), _SLOWEST)

    @property
    def _cost_s(self) -> float:
        return self._cost.seconds * self.processes * self.slowness

    def _row_cost(self, delay_range: int) -> float:
        return self._per_row.get(delay_range, _USUAL_EXCHANGES + self.receiving)

    def _begins_s(self, entry: int, level: int, now_s: float) -> float:
        free_s = self._free_s.get(entry, {}).get(level, now_s)
        return max(free_s if level == entry else free_s - BEHIND_S, now_s)

    def _with_room(self, load: Load, start_s: float, cost_s: float) -> float:
        """Return when, from *start_s* on, each entry level has room for the releases of *load*.

        Those of lower levels are booked but not waited for: the wait would hardly move them.
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
            start_s = float(int(start_s + 1))  # 2ᵏ is whole: the release seconds end with this one
        return start_s

    def _forget_before(self, second: int) -> None:
        if second > self._trimmed_s:
            self._trimmed_s = second
            self._booked = {each: s for each, s in self._booked.items() if each >= second}
