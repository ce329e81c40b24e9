"""Which throttles a process has, from the settings."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from typing import Final

from migrator.app import App
from migrator.config import Throttle as Given
from migrator.database.replicas import ReplicaLag
from migrator.ledger.pause_reasons import Signal
from migrator.ledger.work import StoreEndpoint
from migrator.rabbitmq.alarms import AlarmWatch
from migrator.rabbitmq.clocks import is_our_clock
from migrator.service.gate import Gate
from migrator.service.throttles.alarm import judge_alarm
from migrator.service.throttles.base import Bounds, Judged, Measure, Measured, Rhythm, Throttle
from migrator.service.throttles.clock import LOOK_EVERY_S, ClockJudge
from migrator.service.throttles.database import measure_lag, measure_latency, seconds
from migrator.service.throttles.depths import measure_destinations, measure_levels
from migrator.service.throttles.touch_file import judge_file
from migrator.service.throttles.veto import Veto
from migrator.service.throttles.windows import judge_window
from migrator.service.worker import WorkerThread

_SOON_S: Final = 0.5
"""How often what costs nothing, and the broker's alarm, is looked at."""
_PATIENCE: Final = 1.5
"""Of the highest limit that is set: so long a locked table is waited for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Watched:
    """What throttles look at, and what they act on."""

    app: App
    endpoints: Sequence[StoreEndpoint]
    """Those whose rows are handed over."""
    gate: Gate
    workers: Iterable[WorkerThread]
    owner: str
    panic: Callable[[str], None]


def build_throttles(given: Given, watched: Watched) -> Sequence[Throttle]:
    """Return the throttles that *given* wants, none of them running; without hand-over the clock's.

    Dispatchers, which no hold concerns, heed the clock by themselves.
    """
    clock = _clock(given, watched)
    if not watched.endpoints:
        return [clock]
    return [clock, *_judged(given, watched), *_measured(given, watched)]


def _clock(given: Given, watched: Watched) -> Throttle:
    app = watched.app
    rhythm = Rhythm(every_s=LOOK_EVERY_S, stale_after_s=given.stale_after.total_seconds())
    judge = ClockJudge(app.clock, lambda now: is_our_clock(app.connection, now)).judge
    return Judged(Signal.CLOCK, watched.gate, rhythm, judge)


def _judged(given: Given, watched: Watched) -> Iterator[Throttle]:
    gate, stale_s = watched.gate, given.stale_after.total_seconds()
    soon = Rhythm(every_s=_SOON_S, stale_after_s=stale_s)
    alarms = AlarmWatch(watched.app.connection, watched.owner.split("/")[0])
    yield Judged(
        Signal.ALARM,
        gate,
        soon,
        partial(judge_alarm, watched.workers, alarms.look),
        close=alarms.close,
    )
    if given.windows:
        judge = partial(judge_window, given.open_windows, given.zone)
        yield Judged(Signal.WINDOW, gate, soon, judge)
    if given.touch_file is not None:
        yield Judged(Signal.TOUCH_FILE, gate, soon, partial(judge_file, given.touch_file))
    if given.veto_url is not None:
        veto = Veto(given.veto_url)
        yield Judged(Signal.VETO, gate, _rhythm(given), veto.judge, close=veto.close)


def _measured(given: Given, watched: Watched) -> Iterator[Throttle]:
    app = watched.app
    if bounds := _counts(given.max_level_depth, given.panic_level_depth):
        yield _new(Signal.LEVEL_DEPTH, given, watched, bounds, partial(measure_levels, app))
    if bounds := _counts(given.max_destination_depth, given.panic_destination_depth):
        measure = partial(measure_destinations, app)
        yield _new(Signal.DESTINATION_DEPTH, given, watched, bounds, measure)
    if bounds := _spans(given.max_database_latency, given.panic_database_latency):
        patience = timedelta(seconds=_PATIENCE * max(bounds.most, bounds.panic_above))
        store = app.store
        latency = partial(measure_latency, store, watched.endpoints, patience)
        yield _new(Signal.LATENCY, given, watched, bounds, latency)
    if bounds := _spans(given.max_replica_lag, given.panic_replica_lag):
        lag = partial(measure_lag, ReplicaLag(app.engine))
        yield _new(Signal.REPLICA_LAG, given, watched, bounds, lag)


def _new(
    signal: Signal, given: Given, watched: Watched, bounds: Bounds, measure: Measure
) -> Throttle:
    return Measured(
        signal,
        watched.gate,
        _rhythm(given),
        bounds=bounds,
        measure=measure,
        panic=watched.panic,
    )


def _rhythm(given: Given) -> Rhythm:
    return Rhythm(
        every_s=given.every.total_seconds(), stale_after_s=given.stale_after.total_seconds()
    )


def _counts(most: int, panic_above: int) -> Bounds | None:
    return Bounds(most=most, panic_above=panic_above) if most or panic_above else None


def _spans(most: timedelta | None, panic_above: timedelta | None) -> Bounds | None:
    if most is None and panic_above is None:
        return None
    return Bounds(
        most=most.total_seconds() if most else 0.0,
        panic_above=panic_above.total_seconds() if panic_above else 0.0,
        show=seconds,
    )
