"""Which signals a process polls, as the settings want it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from datetime import timedelta

from migrator.app.app import App
from migrator.config import ThrottleSettings
from migrator.database.replicas import ReplicaLag
from migrator.ledger.work import StoreEndpoint
from migrator.rabbitmq.server import AlarmWatch
from migrator.throttle.clock import BrokerClock, ClockSignal
from migrator.throttle.signals import (
    BrokerAlarm,
    DatabaseLatency,
    DestinationBacklog,
    FlagFile,
    LevelBacklog,
    Limits,
    MaintenanceWindow,
    PolledSignal,
    SlowestReplica,
    Threshold,
    ThrottleUrl,
)


def polled_signals(
    given: ThrottleSettings,
    app: App,
    endpoints: Sequence[StoreEndpoint],
    *,
    heard_alarm: Callable[[], str | None],
    owner: str,
) -> Iterator[PolledSignal]:
    """Yield the signals that *given* wants to be polled.

    Args:
        given: The settings.
        app: What is polled.
        endpoints: Those whose rows are handed over; without any, only the clock is polled:
            dispatchers, which no reason concerns, heed it by themselves.
        heard_alarm: Returns the alarm that the connection of a lane or a dispatcher heard of.
        owner: Of this process.
    """
    yield ClockSignal(app.clock, BrokerClock(app.connection))
    if not endpoints:
        return
    yield BrokerAlarm(heard_alarm, AlarmWatch(app.connection, owner.split("/")[0]))
    if given.windows:
        yield MaintenanceWindow(given.open_windows, given.zone)
    if given.flag_file is not None:
        yield FlagFile(given.flag_file)
    if given.http_url is not None:
        yield ThrottleUrl(given.http_url)
    yield from _thresholds(given, app, endpoints)


def _thresholds(
    given: ThrottleSettings, app: App, endpoints: Sequence[StoreEndpoint]
) -> Iterator[Threshold]:
    """Yield what is measured and compared with limits, of which the settings have any."""
    if any(limits := Limits(given.max_level_depth, given.critical_level_depth)):
        yield LevelBacklog(limits, app.broker_facts, app.settings.broker.delays)
    if any(limits := Limits(given.max_destination_depth, given.critical_destination_depth)):
        yield DestinationBacklog(limits, app.broker_facts, app.destinations)
    if any(limits := _limits(given.max_database_latency, given.critical_database_latency)):
        yield DatabaseLatency(limits, app.store, endpoints)
    if any(limits := _limits(given.max_replica_lag, given.critical_replica_lag)):
        yield SlowestReplica(limits, ReplicaLag(app.engine))


def _limits(most: timedelta | None, critical: timedelta | None) -> Limits:
    return Limits(*(each.total_seconds() if each else 0.0 for each in (most, critical)))
