"""When levels let go of a delayed message, and what that costs the broker; pure.

A level lets go of a message when its time there is over: the message is routed through the topic
exchange of each lower level until one has its bit set, or through all of them and the delivery
exchange. Those exchanges are the cost, some 0.1 ms each in the process of the level that lets go,
beside what it takes in meanwhile; so one level is bound by one core, and all by the machine.
Source: docs/adr/0010-pacing.md, which has the measurements.
"""

from __future__ import annotations

import heapq
import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from migrator.delays.routing import TOP_LEVEL, DelaysVersion, entry_level

EXCHANGE_COST_S: Final = 0.0001
"""A broker's time for one exchange, where nobody has measured it."""
RECEIVING: Final[Mapping[DelaysVersion, float]] = {DelaysVersion.V1: 1.0, DelaysVersion.V2: 0.0}
"""What taking a message in costs a level, in exchanges, while it lets go of others; the collecting
of garbage, which is of all that a classic queue holds, included."""
BROKER_CORES: Final = 1.5
"""As many levels let go at full speed side by side on two cores; levels are not all it does."""
FRACTION: Final = 0.5
"""Of its capacity, a level is used by us so much; the rest is for native messages and error."""
QUARTERED_FROM: Final = 16
"""From this level on, whose rows are due in 18 hours at least, each quarter of it is a range."""
RANGES: Final = QUARTERED_FROM + 4 * (TOP_LEVEL + 1 - QUARTERED_FROM)
"""Of delays: a level, or a quarter of one; numbered from the shortest delays on."""
_GROUPS: Final = 2000
"""Messages are looked at in so many groups; what one of them takes is the error of a forecast."""
HORIZON_S: Final = 4096
"""Releases that are further away are not counted one by one: 2¹² s, twelve levels."""


def range_of(delay_s: int) -> int:
    """Return the range that a delay is in.

    Those of one quarter of a level have its two next bits in common, and so the levels that they
    go through first.
    """
    level = entry_level(delay_s)
    if level < QUARTERED_FROM:
        return level
    return QUARTERED_FROM + 4 * (level - QUARTERED_FROM) + (delay_s >> level - 2) - 4


def range_level(delay_range: int) -> int:
    """Return the level that delays of a range enter."""
    return min(delay_range, QUARTERED_FROM) + max(delay_range - QUARTERED_FROM, 0) // 4


def range_from_s(delay_range: int) -> int:
    """Return the shortest delay of a range, in seconds."""
    level, quarter = range_level(delay_range), max(delay_range - QUARTERED_FROM, 0) % 4
    return (1 << level) + quarter * (1 << level) // 4


def releases(delay_s: int) -> Iterator[tuple[int, int, int]]:
    """Yield each release of a message: its level, seconds after it entered, exchanges passed.

    In order of time: from the level it enters down to the lowest, which lets go when its delay is
    over. Nothing for a delay of 0, which enters no level.
    """
    after_s, level = 0, entry_level(delay_s)
    while delay_s:
        after_s += 1 << level
        delay_s ^= 1 << level
        below = entry_level(delay_s)
        yield level, after_s, level - below if delay_s else level + 1
        level = below


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """What messages that are handed over together cost the broker, in exchanges."""

    rows: float
    """Messages with a delay."""
    passing: dict[int, dict[int, float]]
    """By entry level, by level: what it costs that level to let go of what entered there.

    A stream of messages with about the same delay goes through all its levels at the same rate, and
    the entry level need not be the narrowest: 96 s is 1 exchange, and 6 when level 5 lets go."""
    narrowest: dict[int, float]
    """By range of delays: what a message of it costs the narrowest level of its way."""
    after: dict[int, float]
    """By seconds after they entered: exchanges in all levels together, up to ``HORIZON_S``."""

    @property
    def entering(self) -> dict[int, float]:
        """By entry level: what it costs that level to let go of what entered it."""
        return {level: passed[level] for level, passed in self.passing.items()}


def load(delays_s: Iterable[int], *, receiving: float = 0.0, weight: float = 1.0) -> Load:
    """Return what messages of these delays cost, each standing for *weight* messages.

    Those without a delay cost nothing: they enter no level. A level that lets go of a stream takes
    the same stream in meanwhile: that is *receiving* exchanges for each message (``RECEIVING``). A
    second's burst of dues, which all levels let go of together, has no such stream.
    """
    rows = Counter[int]()
    by_range: dict[int, dict[int, float]] = {}
    after: dict[int, float] = {}
    for delay_s in delays_s:
        if delay_s <= 0:
            continue
        rows[range_of(delay_s)] += 1
        passed = by_range.setdefault(range_of(delay_s), {})
        for level, after_s, exchanges in releases(delay_s):
            passed[level] = passed.get(level, 0.0) + exchanges + receiving
            if after_s <= HORIZON_S:
                after[after_s] = after.get(after_s, 0.0) + exchanges * weight
    passing: dict[int, dict[int, float]] = {}
    for delay_range, passed in by_range.items():
        together = passing.setdefault(range_level(delay_range), {})
        for level, cost in passed.items():
            together[level] = together.get(level, 0.0) + cost * weight
    return Load(
        rows=rows.total() * weight,
        passing=passing,
        narrowest={each: max(passed.values()) / rows[each] for each, passed in by_range.items()},
        after=after,
    )


def paced_s(rows: Mapping[int, int], *, exchange_cost_s: float, receiving: float = 0.0) -> float:
    """Return how long it takes at least to hand over so many rows into each level, at the pace.

    By level, and with delays whose bits are random: two exchanges each, a little less low down.
    """
    works_s = [
        count * (2 - 0.5**level + receiving) * exchange_cost_s for level, count in rows.items()
    ]
    return max(max(works_s, default=0.0), sum(works_s) / BROKER_CORES) / FRACTION


def forecast_late_s(
    sent: Iterable[tuple[float, int, float, float]], *, exchange_cost_s: float = EXCHANGE_COST_S
) -> Sequence[float]:
    """Return how late messages come out of the levels, ascending; rounding up is not in it.

    Each level lets go of one message after the other, and all of them share the machine; one that
    comes out late enters the next level late.

    Args:
        sent: Groups of messages that enter together: when, in seconds from now; their delay in
            seconds, above 0; how many they are; and over how many seconds their dues are spread,
            so that they leave lower levels one after the other.
        exchange_cost_s: A broker's time for one exchange.
    """
    groups = list(sent)
    coming = [
        (at_s + (1 << entry_level(delay_s)), number, entry_level(delay_s), delay_s)
        for number, (at_s, delay_s, _, _) in enumerate(groups)
    ]
    heapq.heapify(coming)
    level_free_s: dict[int, float] = {}
    broker_free_s, late = 0.0, list[float]()
    while coming:
        at_s, number, level, left_s = heapq.heappop(coming)
        entered_s, delay_s, rows, spread_s = groups[number]
        together = rows if left_s == delay_s else rows / max(spread_s, 1.0)
        left_s ^= 1 << level
        below = entry_level(left_s)
        work_s = (level - below if left_s else level + 1) * together * exchange_cost_s
        broker_free_s = max(broker_free_s, at_s) + work_s / BROKER_CORES
        out_s = max(max(level_free_s.get(level, 0.0), at_s) + work_s, broker_free_s)
        level_free_s[level] = out_s
        if left_s:
            heapq.heappush(coming, (out_s + (1 << below), number, below, left_s))
        else:
            late.append(out_s - entered_s - delay_s)
    return sorted(late)


def late_at_full_speed_s(
    due: Sequence[tuple[float, float, int]],
    *,
    rows_per_s: float,
    exchange_cost_s: float = EXCHANGE_COST_S,
) -> float:
    """Return how late the last of these is when all are handed over as fast as it goes; seconds.

    Args:
        due: Messages that are due evenly within so many to so many seconds from now, and how many;
            the soonest first.
        rows_per_s: How fast they are handed over, one after the other.
        exchange_cost_s: A broker's time for one exchange.
    """
    in_group = max(sum(rows for _, _, rows in due) / _GROUPS, 1.0)
    sent, at_s = list[tuple[float, int, float, float]](), 0.0
    for from_s, to_s, rows in due:
        groups = math.ceil(rows / in_group)
        for n in range(groups):
            delay_s = math.ceil(from_s + (to_s - from_s) * n / groups - at_s)
            if delay_s > 0:  # else it enters no level
                sent.append((at_s, delay_s, rows / groups, (to_s - from_s) / groups))
            at_s += rows / groups / rows_per_s
    return max(forecast_late_s(sent, exchange_cost_s=exchange_cost_s), default=0.0)
