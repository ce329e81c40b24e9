"""Which signals a process polls, as the settings want it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from datetime import timedelta
from functools import partial
from typing import Final

import httpx

from migrator.app.app import App
from migrator.config import Throttle as Given
from migrator.database.replicas import ReplicaLag
from migrator.ledger.work import StoreEndpoint
from migrator.rabbitmq.server import AlarmWatch, is_our_clock
from migrator.throttle.clock import CLOCK_EVERY_S, ClockCheck
from migrator.throttle.polling import SignalPoll
from migrator.throttle.reasons import Signal, Throttle
from migrator.throttle.signals import (
    HTTP_TIMEOUT_S,
    Look,
    check_alarm,
    check_flag_file,
    check_http,
    check_window,
    measure_destinations,
    measure_lag,
    measure_latency,
    measure_levels,
    seconds,
    threshold,
)

_SOON_S: Final = 0.5
"""How often what costs nothing, and the broker's alarm, is polled."""
_PATIENCE: Final = 1.5
"""Of the highest limit that is set: so long a locked table is waited for."""


def build_polls(
    given: Given,
    app: App,
    endpoints: Sequence[StoreEndpoint],
    throttle: Throttle,
    *,
    heard_alarm: Callable[[], str | None],
    owner: str,
    critical: Callable[[str], None],
) -> Iterator[SignalPoll]:
    """Yield the throttles that *given* wants, none of them running.

    Args:
        given: The settings.
        app: What is looked at.
        endpoints: Those whose rows are handed over; without any, only the clock is looked at:
            dispatchers, which no reason concerns, heed it by themselves.
        throttle: Is given the reasons.
        heard_alarm: Returns the alarm that the connection of a lane or a dispatcher heard of.
        owner: Of this process.
        critical: Called when a critical limit is passed.
    """
    stale_s, usual_s = given.stale_after.total_seconds(), given.every.total_seconds()

    def new(
        signal: Signal, look: Look, every_s: float = _SOON_S, close: Callable[[], None] = _nothing
    ) -> SignalPoll:
        return SignalPoll(
            signal, throttle, look, every_s=every_s, stale_after_s=stale_s, close=close
        )

    clock = ClockCheck(app.clock, lambda now: is_our_clock(app.connection, now))
    yield new(Signal.CLOCK, clock, CLOCK_EVERY_S)
    if not endpoints:
        return
    alarms = AlarmWatch(app.connection, owner.split("/")[0])
    yield new(Signal.ALARM, partial(check_alarm, heard_alarm, alarms.look), close=alarms.close)
    if given.windows:
        yield new(Signal.WINDOW, partial(check_window, given.open_windows, given.zone))
    if given.flag_file is not None:
        yield new(Signal.FLAG_FILE, partial(check_flag_file, given.flag_file))
    if given.http_url is not None:
        client = httpx.Client(timeout=HTTP_TIMEOUT_S, headers={"User-Agent": "migrator"})
        yield new(Signal.HTTP, partial(check_http, client, given.http_url), usual_s, client.close)
    for signal, look in _thresholds(given, app, endpoints, critical):
        yield new(signal, look, usual_s)


def _thresholds(
    given: Given, app: App, endpoints: Sequence[StoreEndpoint], critical: Callable[[str], None]
) -> Iterator[tuple[Signal, Look]]:
    """Yield what is measured and compared with limits, of which the settings have any."""
    levels = (given.max_level_depth, given.critical_level_depth)
    depths = (given.max_destination_depth, given.critical_destination_depth)
    latencies = _seconds_of(given.max_database_latency, given.critical_database_latency)
    lags = _seconds_of(given.max_replica_lag, given.critical_replica_lag)
    patience, replicas = timedelta(seconds=_PATIENCE * max(latencies)), ReplicaLag(app.engine)
    facts, version = app.broker_facts, app.settings.broker.delays
    for signal, limits, show, measure in (
        (Signal.LEVEL_DEPTH, levels, str, partial(measure_levels, facts, version)),
        (
            Signal.DESTINATION_DEPTH,
            depths,
            str,
            partial(measure_destinations, facts, app.destinations),
        ),
        (
            Signal.LATENCY,
            latencies,
            seconds,
            partial(measure_latency, app.store, endpoints, patience),
        ),
        (Signal.REPLICA_LAG, lags, seconds, partial(measure_lag, replicas)),
    ):
        if any(limits):
            yield signal, threshold(signal, measure, limits, critical, show=show)


def _seconds_of(most: timedelta | None, critical: timedelta | None) -> tuple[float, float]:
    return most.total_seconds() if most else 0.0, critical.total_seconds() if critical else 0.0


def _nothing() -> None:
    pass
