"""A signal that is looked at again and again, and what follows from it.

Rules of this file: whoever looks may take long, or never return, because a thread of its own
waits for it; what was seen is believed for a while, and after that hand-over waits, because nobody
knows. A limit holds above it, and until the value is a good deal lower.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Protocol

from migrator.errors import MigratorError
from migrator.ledger.pause_reasons import Gauge, Hold, Signal, limit_of
from migrator.nservicebus.timeouts import EndpointName
from migrator.service.errand import Errand
from migrator.service.gate import Gate

Whom = EndpointName | None
"""One endpoint; None: all of them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """A no, with what was seen."""

    observed: str
    limit: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """A measured value."""

    value: float
    """Infinite: it cannot be measured for this one endpoint, which is no reason to panic."""
    text: str
    """As people read it: ``Billing: 120000 messages``."""


Measure = Callable[[], Mapping[Whom, Sample]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Rhythm:
    """How often it is looked, and how long that is believed."""

    every_s: float
    stale_after_s: float


class Throttle(Protocol):
    """One signal at work."""

    errand: Errand

    def tick(self, now_s: float) -> None:
        """Do what is to be done at monotonic second *now_s*; returns at once."""
        ...

    def end(self) -> None:
        """Stop looking; what is held stays held."""
        ...

    def lift(self) -> None:
        """Hold nothing any more."""
        ...


class _Looking:
    """What all throttles share: an errand at intervals, and the age of its last success."""

    def __init__(self, signal: Signal, gate: Gate, rhythm: Rhythm) -> None:
        self._signal = signal
        self._gate = gate
        self._rhythm = rhythm
        self._next_s = float("-inf")
        self._seen_s = time.monotonic()
        self._error = "no answer yet"
        self._is_over = False
        self.errand = Errand(f"throttle-{signal}", self._look)

    def tick(self, now_s: float) -> None:
        """Look again when it is time; hold when what is known is too old."""
        if now_s >= self._next_s and self.errand.ask():
            self._next_s = now_s + self._rhythm.every_s
        age_s = now_s - self._seen_s
        if age_s > self._rhythm.stale_after_s:
            limit = f"not to be older than {self._rhythm.stale_after_s:g} s"
            self._hold(None, f"not known for {age_s:.0f} s: {self._error}", limit)

    def end(self) -> None:
        """Stop looking; what is held stays held."""
        self._is_over = True
        self.errand.end()

    def lift(self) -> None:
        """Hold nothing any more."""
        self._gate.lift_all(self._signal)

    def _look(self) -> None:
        try:
            self._see()
        except MigratorError as exc:
            self._error = str(exc)
        else:
            self._seen_s = time.monotonic()

    def _see(self) -> None:
        """Look once, and hold or lift accordingly."""
        raise NotImplementedError

    def _hold(self, whom: Whom, observed: str, limit: str) -> None:
        if self._is_over:
            return
        since = datetime.now(UTC)
        self._gate.hold(
            Hold(signal=self._signal, endpoint=whom, observed=observed, limit=limit, since=since)
        )


class Judged(_Looking):
    """A signal that is a yes or a no; it holds and lifts by the first answer."""

    def __init__(
        self,
        signal: Signal,
        gate: Gate,
        rhythm: Rhythm,
        judge: Callable[[], Verdict | None],
        *,
        close: Callable[[], None] = lambda: None,
    ) -> None:
        """Ask *judge*; None: go on. *close* ends what it needs."""
        super().__init__(signal, gate, rhythm)
        self._judge = judge
        self._close = close

    def end(self) -> None:
        """Stop looking, and close what was needed for it."""
        super().end()
        if self.errand.has_ended:  # who still waits for an answer keeps what it waits on
            self._close()

    def _see(self) -> None:
        verdict = self._judge()
        if verdict is None:
            self._gate.lift(self._signal)
        else:
            self._hold(None, verdict.observed, verdict.limit)


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """What a measured value may be; 0: any."""

    most: float = 0.0
    panic_above: float = 0.0
    show: Callable[[float], str] = "{:.0f}".format
    """A bound as people read it."""


class Measured(_Looking):
    """Values against a limit, of single endpoints or of all."""

    def __init__(
        self,
        signal: Signal,
        gate: Gate,
        rhythm: Rhythm,
        *,
        bounds: Bounds,
        measure: Measure,
        panic: Callable[[str], None],
    ) -> None:
        """Hold while a value of *measure* is out of *bounds*; *panic* when it is far out."""
        super().__init__(signal, gate, rhythm)
        self._bounds = bounds
        self._measure = measure
        self._panic = panic
        self._gauges: dict[Whom, Gauge] = {}

    def _see(self) -> None:
        found = self._measure()
        now_s = time.monotonic()
        for whom, sample in found.items():
            self._take(whom, sample, now_s)
        for whom in set(self._gauges) - set(found):
            del self._gauges[whom]
            self._gate.lift(self._signal, whom)
        if None not in found:
            self._gate.lift(self._signal)  # it was only there because nobody knew

    def _take(self, whom: Whom, sample: Sample, now_s: float) -> None:
        bounds = self._bounds
        if bounds.panic_above and bounds.panic_above < sample.value < math.inf:
            bound = bounds.show(bounds.panic_above)
            self._panic(f"{self._signal}: {sample.text}, and {bound} is where the daemon gives up")
        if not bounds.most:
            return
        gauge = self._gauges.get(whom)
        if gauge is None:
            limit = limit_of(bounds.most, stale_after_s=self._rhythm.stale_after_s)
            gauge = self._gauges[whom] = Gauge(limit, began_s=now_s)
        gauge.take(sample.value, at_s=now_s)
        if gauge.holds(now_s=now_s):
            self._hold(whom, sample.text, f"at most {bounds.show(bounds.most)}")
        else:
            self._gate.lift(self._signal, whom)
