"""Which signals a process polls, as the settings want it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from datetime import timedelta
from functools import partial

from migrator.app.servers import Servers
from migrator.config import ThrottleSettings
from migrator.database.replicas import ReplicaLag
from migrator.delays.destinations import Destinations
from migrator.ledger.work import StoreEndpoint
from migrator.rabbitmq.server import AlarmWatch
from migrator.throttle.clock import BrokerClock, ClockSignal
from migrator.throttle.polling import SignalPolls
from migrator.throttle.reasons import Throttle
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


class ConfiguredPolls(SignalPolls):
    """Polls the signals that the settings want."""

    def __init__(
        self,
        throttle: Throttle,
        critical: Callable[[str], None],
        *,
        servers: Servers,
        destinations: Destinations,
        endpoints: Sequence[StoreEndpoint],
        heard_alarm: Callable[[], str | None],
        owner: str,
    ) -> None:
        super().__init__(throttle, critical)
        self._signals_of = partial(
            polled_signals,
            servers=servers,
            destinations=destinations,
            endpoints=endpoints,
            heard_alarm=heard_alarm,
            owner=owner,
        )

    def use(self, given: ThrottleSettings) -> None:
        """Poll what *given* wants from now on, and nothing else."""
        self.replace(
            [*self._signals_of(given)],
            every_s=given.every.total_seconds(),
            stale_after_s=given.stale_after.total_seconds(),
        )


def polled_signals(
    given: ThrottleSettings,
    servers: Servers,
    destinations: Destinations,
    endpoints: Sequence[StoreEndpoint],
    *,
    heard_alarm: Callable[[], str | None],
    owner: str,
) -> Iterator[PolledSignal]:
    """Yield the signals that *given* wants to be polled.

    Args:
        given: The settings.
        servers: What is polled.
        destinations: Knows where timeouts were sent.
        endpoints: Those whose rows are handed over; without any, only the clock is polled:
            dispatchers, which no reason concerns, heed it by themselves.
        heard_alarm: Returns the alarm that the connection of a lane or a dispatcher heard of.
        owner: Of this process.
    """
    yield ClockSignal(servers.ledger.clock, BrokerClock(servers.broker.connection))
    if not endpoints:
        return
    yield BrokerAlarm(heard_alarm, AlarmWatch(servers.broker.connection, owner.split("/")[0]))
    if given.windows:
        yield MaintenanceWindow(given.open_windows, given.zone)
    if given.flag_file is not None:
        yield FlagFile(given.flag_file)
    if given.http_url is not None:
        yield ThrottleUrl(given.http_url)
    yield from _thresholds(given, servers, destinations, endpoints)


def _thresholds(
    given: ThrottleSettings,
    servers: Servers,
    destinations: Destinations,
    endpoints: Sequence[StoreEndpoint],
) -> Iterator[Threshold]:
    """Yield what is measured and compared with limits, of which the settings have any."""
    if any(limits := Limits(given.max_level_depth, given.critical_level_depth)):
        yield LevelBacklog(limits, servers.broker.facts, servers.broker.version)
    if any(limits := Limits(given.max_destination_depth, given.critical_destination_depth)):
        yield DestinationBacklog(limits, servers.broker.facts, destinations)
    if any(limits := _limits(given.max_database_latency, given.critical_database_latency)):
        yield DatabaseLatency(limits, servers.backend.store, endpoints)
    if any(limits := _limits(given.max_replica_lag, given.critical_replica_lag)):
        yield SlowestReplica(limits, ReplicaLag(servers.ledger.engine))


def _limits(most: timedelta | None, critical: timedelta | None) -> Limits:
    return Limits(*(each.total_seconds() if each else 0.0 for each in (most, critical)))
