"""Probes through the delay levels: what came back, and how late.

A probe of level *n* waits exactly 2ⁿ seconds, in that level alone, and then passes all levels
below it. It must reach nobody but us: see ``catching_keys``.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from migrator.delays.routing import DelaysVersion

_CLOCK_STEP_S: Final = 0.01
"""The broker counts milliseconds and may cut them; less than this is no earliness."""

EVENT: Final = "canary"
"""As the audit log and the schedule name a look at the delays by probes."""


class Arrival(StrEnum):
    """How a probe came back."""

    ON_TIME = "on_time"
    """When its time was over; how late says the probe."""
    EARLY = "early"
    LOST = "lost"
    """Not within our patience; it may still come."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Probe:
    """One probe after its flight."""

    level: int
    late_s: float | None
    """Seconds after its time, negative: before; None: it did not come."""

    @property
    def delay_s(self) -> int:
        """Seconds that it had to wait."""
        return probe_delay_s(self.level)

    @property
    def arrival(self) -> Arrival:
        """How it came back."""
        if self.late_s is None:
            return Arrival.LOST
        return Arrival.EARLY if self.late_s < -_CLOCK_STEP_S else Arrival.ON_TIME


@dataclass(frozen=True, slots=True, kw_only=True)
class Flight:
    """All probes of one call, lowest level first."""

    version: DelaysVersion
    probes: tuple[Probe, ...]
    left_queue: str = ""
    """Our queue, which waits for probes that are lost; empty: it was removed."""

    @property
    def is_fine(self) -> bool:
        """Whether every probe came back, and none too early."""
        return all(probe.arrival is Arrival.ON_TIME for probe in self.probes)

    def late_levels(self, *, after_s: float) -> Sequence[int]:
        """Return the levels whose probe is lost, was early, or came more than *after_s* late."""
        return [
            probe.level
            for probe in self.probes
            if probe.arrival is not Arrival.ON_TIME or (probe.late_s or 0.0) > after_s
        ]

    @property
    def lost(self) -> int:
        """How many probes did not come back."""
        return sum(probe.arrival is Arrival.LOST for probe in self.probes)


def probe_document(probe: Probe) -> dict[str, object]:
    """Return *probe* as plain values."""
    return {
        "level": probe.level,
        "delay_s": probe.delay_s,
        "late_s": None if probe.late_s is None else round(probe.late_s, 4),
        "arrival": str(probe.arrival),
    }


def flight_text(flight: Flight, late_levels: Collection[int]) -> str:
    """Return in a line what came of *flight*: ``levels 0, 1 in time, 0.004 s late at most``."""
    if late_levels:
        return f"levels late, early or lost: {_listed(late_levels)}"
    worst_s = max((probe.late_s or 0.0 for probe in flight.probes), default=0.0)
    levels = [probe.level for probe in flight.probes]
    return f"levels {_listed(levels)} in time, {max(worst_s, 0.0):.3f} s late at most"


def _listed(levels: Iterable[int]) -> str:
    return ", ".join(str(level) for level in levels)


def probe_delay_s(level: int) -> int:
    """Return the delay, in seconds, whose message waits in *level* alone."""
    return int(2**level)


def catching_keys(binding_keys: Iterable[str], routing_key: str) -> Sequence[str]:
    """Return those of *binding_keys* of a topic exchange that match *routing_key*; sorted."""
    words = routing_key.split(".")
    return sorted(key for key in binding_keys if _matches(key.split("."), words))


def _matches(pattern: Sequence[str], words: Sequence[str]) -> bool:
    """Match as a topic exchange does: ``*`` is one word, ``#`` any number of words."""
    reached = {0}  # how many words may be used up by the pattern so far
    for part in pattern:
        if part == "#":
            reached = set(range(min(reached), len(words) + 1)) if reached else set()
        else:
            reached = {n + 1 for n in reached if n < len(words) and part in ("*", words[n])}
    return len(words) in reached
