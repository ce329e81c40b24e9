"""Which timeouts are due so many at once that the broker is late with them, however they are sent.

A delayed message costs the broker a little at each exchange that it passes, and passes the last of
them in its last quarter of an hour; so a broker releases so many messages a second, and what is
due faster waits in line: ``docs/levels.md``.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Final

from migrator.delays.releases import BROKER_CORES, EXCHANGE_COST_S
from migrator.ledger.work import StoreEndpoint
from migrator.nservicebus.timeouts import Count
from migrator.stores.ports import Store
from migrator.stores.requests import SummaryRequest

_LAST_EXCHANGES: Final = 11
"""Passed in the last quarter of an hour: those of the levels 09 to 00, and the delivery's."""
LATE_S: Final = 1.0
"""Less is not told: the promise leaves two seconds, of which one goes to rounding up."""
_MOST_MINUTES: Final = 100
"""That are looked into; the fullest."""
_MINUTE: Final = timedelta(minutes=1)
_SECOND: Final = timedelta(seconds=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Burst:
    """Timeouts that are due faster than the broker releases them."""

    due_from: datetime
    """The first second; aware, UTC."""
    due_until: datetime
    """The last second in which more come."""
    rows: Count
    late_s: float
    """How late the one comes that comes latest."""

    def joined(self, second: datetime, rows: int, *, late_s: float) -> Burst:
        """Return this burst with *rows* more, the last of which comes *late_s* late."""
        return replace(
            self, due_until=second, rows=self.rows + rows, late_s=max(self.late_s, late_s)
        )


def dues_per_s(exchange_cost_s: float = EXCHANGE_COST_S) -> float:
    """Return how many timeouts may be due in each second without being late."""
    return BROKER_CORES / (_LAST_EXCHANGES * exchange_cost_s)


def forecast(
    store: Store, endpoints: Sequence[StoreEndpoint], *, now: datetime, rate_per_s: float
) -> Sequence[Burst] | None:
    """Return what comes late of the timeouts of *endpoints* that are due after *now*.

    Args:
        store: Where they are; it is only read.
        endpoints: Those whose timeouts are moved into the delays: they share the broker.
        now: Database time; what is due already is not delayed.
        rate_per_s: Messages that the broker releases.

    Returns:
        The latest first; None: the store cannot count.

    Raises:
        StoreUnavailable: The database cannot be reached.
    """
    all_rows = SummaryRequest(
        due_after=now, due_until=now, headers_max_bytes=None, body_max_bytes=0
    )
    # if no endpoint has that many in a minute, all of them together have no second too full
    at_least = math.ceil(rate_per_s * LATE_S / max(len(endpoints), 1))
    minutes = Counter[datetime]()
    for endpoint in endpoints:
        opened = store.summary(endpoint, all_rows)
        if opened is None:
            return None
        with opened as summary:
            minutes += summary.dues_per_minute(now, at_least)
    ranges = _ranges([minute for minute, _ in minutes.most_common(_MOST_MINUTES)])
    seconds = Counter[datetime]()
    for endpoint in endpoints if ranges else ():
        opened = store.summary(endpoint, all_rows)
        if opened is not None:
            with opened as summary:
                seconds += summary.dues_per_second(ranges)
    return bursts(seconds, rate_per_s)


def bursts(dues: Mapping[datetime, int], rate_per_s: float) -> Sequence[Burst]:
    """Return what comes late when so many timeouts as *dues* says are due in each second.

    They wait in one line, of which the broker takes *rate_per_s*. The latest first.
    """
    found: list[Burst] = []
    line, last = 0.0, None
    for second, rows in sorted(dues.items()):
        line -= rate_per_s * (second - last).total_seconds() if last else line
        if line > 0:
            found[-1] = found[-1].joined(second, rows, late_s=(line + rows) / rate_per_s)
        else:  # everything before has been delivered
            line = 0.0
            late_s = rows / rate_per_s
            found.append(Burst(due_from=second, due_until=second, rows=rows, late_s=late_s))
        line, last = line + rows, second
    late = (each for each in found if each.late_s >= LATE_S)
    return sorted(late, key=lambda each: (-each.late_s, each.due_from))


def _ranges(minutes: Sequence[datetime]) -> list[tuple[datetime, datetime]]:
    """Return *minutes* as ranges (exclusive, inclusive), as few as possible; a second too long."""
    found: list[tuple[datetime, datetime]] = []
    for minute in sorted(minutes):
        after, until = minute - _SECOND, minute + _MINUTE
        if found and found[-1][1] >= after:
            found[-1] = found[-1][0], until
        else:
            found.append((after, until))
    return found
