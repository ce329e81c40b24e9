"""Sources whose table fails or is locked: each is left out alone, and the others go on.

Rules of this file: a failure belongs to the source whose claim raised it. That source is left out
of every claim and check of the process for 1, 2, 4 ... 30 s, until its table answers again; no
lane asks it meanwhile. A database that does not answer at all is not a failure of one source.
"""

from __future__ import annotations

import threading
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from typing import Final

from migrator.errors import StoreError
from migrator.ledger.work import Clock, StoreEndpoint

LONGEST_WAIT_S: Final = 30.0
_AWAITED_S: Final = 30.0
"""With *once*, a run waits so long for a table that fails."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FailingSource:
    endpoint: StoreEndpoint
    error: StoreError
    since_s: float
    """Of the first failure; monotonic, as ``next_s``."""
    failures: int
    next_s: float
    is_left_out: bool = True
    """False: its table answers; the next claim decides."""


class FailingSources:
    """The failing sources of one process; any thread may ask."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._failing: dict[str, FailingSource] = {}
        self._refused = frozenset[str]()

    def all(self) -> Sequence[FailingSource]:
        with self._lock:
            return [each for _, each in sorted(self._failing.items())]

    def now_s(self) -> float:
        return self._clock.monotonic_s()

    def is_left_out(self, source: str) -> bool:
        failing = self._failing.get(source)
        return self.is_refused(source) or (failing is not None and failing.is_left_out)

    def is_refused(self, source: str) -> bool:
        return source in self._refused

    def refuse(self, sources: Collection[str]) -> None:
        self._refused = frozenset(sources)

    def is_any_awaited(self) -> bool:
        """Return whether, with *once*, the run still waits for a source that failed recently."""
        now_s = self._clock.monotonic_s()
        return any(now_s - each.since_s < _AWAITED_S for each in self.all())

    def note_failed(self, endpoint: StoreEndpoint, error: StoreError) -> None:
        now_s = self._clock.monotonic_s()
        with self._lock:
            known = self._failing.get(endpoint.source)
            if known is not None and known.is_left_out and now_s < known.next_s:
                return  # two lanes met the same failure
            failures = 1 if known is None else known.failures + 1
            self._failing[endpoint.source] = FailingSource(
                endpoint=endpoint,
                error=error,
                since_s=now_s if known is None else known.since_s,
                failures=failures,
                next_s=now_s + wait_s(failures),
            )

    def note_answered(self, source: str) -> None:
        with self._lock:
            if (known := self._failing.get(source)) is not None:
                self._failing[source] = replace(known, is_left_out=False)

    def note_claimed(self, source: str) -> None:
        """A claim of *source* succeeded, or it has nothing to claim: forget its failure."""
        if source in self._failing:
            with self._lock:
                known = self._failing.get(source)
                if known is not None and not known.is_left_out:
                    del self._failing[source]


def wait_s(failures: int) -> float:
    return float(min(2 ** min(failures - 1, 10), LONGEST_WAIT_S))
