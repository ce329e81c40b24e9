"""When levels let go of a delayed message, and what that costs the broker; pure.

A level lets go of a message when its time there is over: the message is routed through the topic
exchange of each lower level until one has its bit set, or through all of them and the delivery
exchange. Those exchanges are the cost, some 0.1 ms each in the process of the level that lets go,
so that one level is bound by one core, and all of them by the machine.
Source: docs/adr/0010-pacing.md, which has the measurements.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

from migrator.delays.routing import entry_level

EXCHANGE_COST_S: Final = 0.0001
"""A broker's time for one exchange, where nobody has measured it."""
BROKER_CORES: Final = 1.5
"""As many levels let go at full speed side by side on two cores; levels are not all it does."""
HORIZON_S: Final = 4096
"""Releases that are further away are not counted one by one: 2¹² s, twelve levels."""


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
    """What messages that are handed over together cost the broker, in exchanges passed."""

    rows: float
    """Messages with a delay."""
    entering: dict[int, float]
    """By entry level: what passes when that level lets go of them."""
    busiest: dict[int, float]
    """By entry level: what passes in whichever level has most to do with those that enter there.

    A stream of messages with about the same delay goes through all its levels at the same rate, and
    the entry level need not be the narrowest: 96 s is 1 exchange, and 6 when level 5 lets go."""
    after: dict[int, float]
    """By seconds after they entered: what passes in all levels together, up to ``HORIZON_S``."""

    @property
    def busiest_per_row(self) -> float:
        """Exchanges of the busiest level for each message; 0: none has a delay."""
        return max(self.busiest.values()) / self.rows if self.rows else 0.0


def load(delays_s: Iterable[int], *, weight: float = 1.0) -> Load:
    """Return what messages of these delays cost, each standing for *weight* messages.

    Those without a delay cost nothing: they enter no level.
    """
    rows = 0
    by_level: dict[int, dict[int, int]] = {}
    after: dict[int, float] = {}
    for delay_s in delays_s:
        if delay_s <= 0:
            continue
        rows += 1
        passed = by_level.setdefault(entry_level(delay_s), {})
        for level, after_s, exchanges in releases(delay_s):
            passed[level] = passed.get(level, 0) + exchanges
            if after_s <= HORIZON_S:
                after[after_s] = after.get(after_s, 0.0) + exchanges * weight
    return Load(
        rows=rows * weight,
        entering={level: passed[level] * weight for level, passed in by_level.items()},
        busiest={level: max(passed.values()) * weight for level, passed in by_level.items()},
        after=after,
    )


def lets_go_per_s(delays_s: Iterable[int], *, exchange_cost_s: float) -> float:
    """Return how many messages a second, of such a mix, the levels let go of for ever.

    Raises:
        ValueError: None of them has a delay.
    """
    delays = [each for each in delays_s if each > 0]
    if not delays:
        raise ValueError("messages without a delay pass no level")
    narrowest: dict[int, int] = {}
    for delay_s in delays:
        for level, _, exchanges in releases(delay_s):
            narrowest[level] = narrowest.get(level, 0) + exchanges
    most = max(max(narrowest.values()), sum(narrowest.values()) / BROKER_CORES)
    return len(delays) / (most * exchange_cost_s)
