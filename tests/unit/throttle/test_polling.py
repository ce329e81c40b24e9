"""Tests of ``migrator.throttle.polling``, with real threads."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Mapping
from typing import ClassVar

import pytest

from migrator.errors import StoreUnavailable
from migrator.nservicebus.timeouts import EndpointName
from migrator.throttle.polling import SignalPolls
from migrator.throttle.reasons import Signal, Throttle
from migrator.throttle.signals import Affected, Observation, PolledSignal
from tests.unit.service.conftest import WaitFor

SALES, SHOP = EndpointName("Sales"), EndpointName("Shop")
NO: Mapping[Affected, Observation] = {None: Observation("no", "yes")}


class Scripted(PolledSignal):
    """A signal that says what the test wants."""

    signal: ClassVar[Signal] = Signal.HTTP
    every_s = 0.01

    def __init__(self) -> None:
        self.found: Mapping[Affected, Observation] = {}
        self.failure: StoreUnavailable | None = None
        self.answered_s = 0.0
        self.go_on = threading.Event()
        self.go_on.set()
        self.closed = False

    def poll(self) -> Mapping[Affected, Observation]:
        self.go_on.wait(20)
        if self.failure is not None:
            raise self.failure
        self.answered_s = time.monotonic()
        return self.found

    def close(self) -> None:
        self.closed = True


class Another(Scripted):
    """One more."""

    signal = Signal.FLAG_FILE


class Bench:
    """Signals that are polled as the schedule does."""

    def __init__(self) -> None:
        self.throttle, self.http, self.critical = Throttle(), Scripted(), list[str]()
        self.polls = SignalPolls(self.throttle, self.critical.append)
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._tick)

    def _tick(self) -> None:
        while not self._over.wait(0.01):
            self.polls.tick()

    def begin(self, *more: PolledSignal, stale_after_s: float = 60) -> None:
        self.polls.replace([self.http, *more], every_s=60, stale_after_s=stale_after_s)
        self._thread.start()

    def end(self) -> None:
        self.http.go_on.set()
        self._over.set()
        self._thread.join(10)
        self.polls.end()

    @property
    def texts(self) -> list[str]:
        return [reason.text for reason in self.throttle.reasons()]

    @property
    def signals(self) -> list[Signal]:
        return [reason.signal for reason in self.throttle.reasons()]


@pytest.fixture
def bench() -> Iterator[Bench]:
    """One in which nothing is paused."""
    made = Bench()
    yield made
    made.end()


def test_a_signal_is_polled_before_anything_is_claimed(bench: Bench, wait_for: WaitFor) -> None:
    """Its first no pauses those it names, and its first yes resumes them."""
    bench.http.found = NO
    bench.begin()
    assert bench.texts == ["throttle_http: no (yes)"]
    bench.http.found = {SALES: Observation("slow")}
    wait_for(lambda: bench.texts == ["throttle_http: slow"])
    assert bench.throttle.reason_for(SHOP) is None
    bench.http.found = {}
    wait_for(lambda: not bench.texts)


def test_what_cannot_be_polled_is_believed_for_a_while_only(
    bench: Bench, wait_for: WaitFor
) -> None:
    """Then hand-over waits, because its state is unknown; the reason is named."""
    bench.begin(stale_after_s=0.3)
    bench.http.failure = StoreUnavailable("no line")
    wait_for(lambda: any("no line" in text for text in bench.texts))
    assert time.monotonic() - bench.http.answered_s > 0.3
    assert "must not be older than 0.3 s" in bench.texts[0]
    bench.http.failure = None
    wait_for(lambda: not bench.texts)


def test_a_poll_that_hangs_delays_no_other(bench: Bench, wait_for: WaitFor) -> None:
    """It counts as one that cannot be polled, while the others are."""
    another = Another()
    bench.begin(another, stale_after_s=0.3)
    bench.http.go_on.clear()
    wait_for(lambda: bench.signals == [Signal.HTTP])
    another.found = {None: Observation("there")}
    wait_for(lambda: len(bench.signals) == 2)
    bench.http.go_on.set()
    wait_for(lambda: bench.signals == [Signal.FLAG_FILE])


def test_a_signal_that_is_replaced_pauses_nothing_any_more(bench: Bench) -> None:
    """Its thread is over, and what it needed is closed."""
    bench.http.found = NO
    bench.begin()
    assert len(bench.texts) == 1
    bench.polls.replace([], every_s=60, stale_after_s=60)
    assert (bench.texts, bench.http.closed) == ([], True)


def test_a_critical_value_is_reported(bench: Bench, wait_for: WaitFor) -> None:
    """Whether or not it pauses anything."""
    bench.http.critical = "far too much"
    bench.begin()
    wait_for(lambda: "far too much" in bench.critical)
    assert bench.texts == []
