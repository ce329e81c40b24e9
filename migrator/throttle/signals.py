"""The signals that make hand-over wait: how each is polled.

A new one is a member of ``Signal`` with its words, a setting in ``config/work.py``, a class here
and a line in ``app/throttle.py``. A class says who has to wait and why, or is a ``Threshold``: it
measures, and what is above its limit is a reason until it is a good deal lower. A poll may take
long, or never return: it has a thread of its own; see ``polling``.

Source: docs/throttling.md.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence, Set
from datetime import UTC, datetime, timedelta, tzinfo
from itertools import islice
from pathlib import Path
from typing import ClassVar, Final, NamedTuple

import httpx

from migrator.database.replicas import ReplicaLag
from migrator.delays.broker import BrokerFacts
from migrator.delays.destinations import Destinations
from migrator.delays.routing import DelaysVersion
from migrator.errors import StoreError, StoreUnavailable, TargetError
from migrator.ledger.work import StoreEndpoint
from migrator.nservicebus.timeouts import EndpointName
from migrator.rabbitmq.server import AlarmWatch
from migrator.stores.ports import Store
from migrator.text import counted
from migrator.throttle.reasons import Signal
from migrator.throttle.windows import DAYS, Window

RESUME_SHARE: Final = 0.8
"""Of a limit: what is at most so much of it is no reason any more."""
_SOON_S: Final = 0.5
"""How often what costs nothing, and the broker's alarm, is polled."""
_LOCK_WAIT_SHARE: Final = 1.5
"""Of the highest limit that is set: so long a locked table is waited for."""
_MOST_QUEUES: Final = 500
"""Destinations whose queues are polled."""
_HTTP_TIMEOUT_S: Final = 3.0
_SHOWN_CHARS: Final = 120
_READ_BYTES: Final = 4096

Affected = EndpointName | None
"""One endpoint; None: all of them."""


class Observation(NamedTuple):
    """What was seen that makes endpoints wait, and what would be fine."""

    observed: str
    limit: str = ""


class PolledSignal(ABC):
    """One signal of a process; used by one thread at a time."""

    signal: ClassVar[Signal]
    every_s: ClassVar[float | None] = None
    """How often it is polled; None: as the settings say."""
    critical: str | None = None
    """Why the daemon has to end, by the last poll."""

    @abstractmethod
    def poll(self) -> Mapping[Affected, Observation]:
        """Return who has to wait; empty: no endpoint.

        Raises:
            MigratorError: It is not known now.
        """

    def close(self) -> None:  # noqa: B027 - most need nothing
        """Release what polling needs."""


# ── yes or no ───────────────────────────────────────────────────────────────────────────────────


class BrokerAlarm(PolledSignal):
    """The broker's memory or disk alarm, from any connection that hears of it.

    *heard* returns what the connections of lanes and dispatchers have heard of.
    """

    signal = Signal.ALARM
    every_s = _SOON_S

    def __init__(self, heard: Callable[[], str | None], watch: AlarmWatch) -> None:
        self._heard = heard
        self._watch = watch

    def poll(self) -> Mapping[Affected, Observation]:
        heard = self._heard()
        try:
            # asked in any case: a connection that is not served is lost
            reason = self._watch.look() or heard
        except TargetError:
            if heard is None:
                raise
            reason = heard
        if reason is None:
            return {}
        return {None: Observation(reason, "until the broker takes messages again")}

    def close(self) -> None:
        self._watch.close()


class MaintenanceWindow(PolledSignal):
    """No maintenance window is open."""

    signal = Signal.WINDOW
    every_s = _SOON_S

    def __init__(self, windows: Sequence[Window], zone: tzinfo) -> None:
        self._windows = windows
        self._zone = zone

    def poll(self) -> Mapping[Affected, Observation]:
        return self.poll_at(datetime.now(UTC))

    def poll_at(self, now: datetime) -> Mapping[Affected, Observation]:
        """Return the same as of *now*."""
        local = now.astimezone(self._zone)
        if any(window.is_open(local) for window in self._windows):
            return {}
        where = getattr(self._zone, "key", None) or local.tzname()
        only = ", ".join(window.text for window in self._windows)
        observed = f"it is {DAYS[local.weekday()]} {local:%H:%M} {where}"
        return {None: Observation(observed, f"only {only}")}


class FlagFile(PolledSignal):
    """A file exists, and since when; one that cannot be looked for might be there."""

    signal = Signal.FLAG_FILE
    every_s = _SOON_S

    def __init__(self, path: Path) -> None:
        self._path = path

    def poll(self) -> Mapping[Affected, Observation]:
        try:
            found = self._path.stat()
        except FileNotFoundError:
            return {}
        except OSError as exc:
            return {None: Observation(f"{self._path} cannot be checked: {exc.strerror or exc}")}
        changed = datetime.fromtimestamp(found.st_mtime, UTC)
        observed = f"{self._path} exists, changed {changed:%Y-%m-%d %H:%M} UTC"
        return {None: Observation(observed, "until it is removed")}


class ThrottleUrl(PolledSignal):
    """What a URL says against it; anything but 2xx is a no, and so is no answer."""

    signal = Signal.HTTP

    def __init__(self, url: str) -> None:
        self._url = url
        self._client = httpx.Client(timeout=_HTTP_TIMEOUT_S, headers={"User-Agent": "migrator"})

    def poll(self) -> Mapping[Affected, Observation]:
        try:
            with self._client.stream("GET", self._url) as answer:
                if answer.is_success:
                    return {}
                body = next(answer.iter_bytes(_READ_BYTES), b"").decode(errors="replace")
                first = next(iter(body.strip().splitlines()), "").strip()
                said = "".join(each if each.isprintable() else " " for each in first)
                text = f": {said[:_SHOWN_CHARS]}" if said else ""
                observed = f"{self._url} answered {answer.status_code}{text}"
        except (httpx.HTTPError, httpx.InvalidURL) as exc:
            observed = f"{self._url} did not answer: {str(exc) or type(exc).__name__}"
        return {None: Observation(observed, "until it answers 2xx")}

    def close(self) -> None:
        self._client.close()


# ── how much ────────────────────────────────────────────────────────────────────────────────────


class Measurement(NamedTuple):
    """A measured value."""

    value: float
    """Infinite: it cannot be measured for this one endpoint, which is no critical load."""
    text: str
    """As people read it: ``Billing: 120000 messages``."""


class Limits(NamedTuple):
    """Above the first, endpoints wait; above the second, the daemon ends; 0: there is none."""

    pause: float
    critical: float


class Threshold(PolledSignal):
    """Values of single endpoints, or of all, that are compared with limits.

    One above its first limit counts until it is a good deal lower, so that hand-over does not
    start and stop all the time.
    """

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._above: Set[Affected] = frozenset()

    @abstractmethod
    def measure(self) -> Mapping[Affected, Measurement]:
        """Return the values; raises as ``poll``."""

    def show(self, value: float) -> str:
        """Return a limit as people read it."""
        return f"{value:.0f}"

    def poll(self) -> Mapping[Affected, Observation]:
        found = self.measure()
        most, critical = self._limits
        ending = [each.text for each in found.values() if critical < each.value < math.inf]
        self.critical = None
        if critical and ending:
            limit = f"above the limit of {self.show(critical)} at which the daemon ends"
            self.critical = f"{self.signal}: {ending[0]}, {limit}"
        if not most:
            return {}
        limits = {whom: most * (RESUME_SHARE if whom in self._above else 1) for whom in found}
        self._above = {whom for whom, each in found.items() if each.value > limits[whom]}
        limit = f"at most {self.show(most)}"
        return {whom: Observation(found[whom].text, limit) for whom in self._above}


class LevelBacklog(Threshold):
    """The messages in all levels together, as far as they are known."""

    signal = Signal.LEVEL_DEPTH

    def __init__(self, limits: Limits, broker: BrokerFacts, version: DelaysVersion) -> None:
        super().__init__(limits)
        self._broker = broker
        self._version = version

    def measure(self) -> Mapping[Affected, Measurement]:
        depths = self._broker.level_depths(self._version)
        count = sum(step.known for step in depths.steps)
        text = f"{counted(count, 'message')} in the delay levels"
        return {None: Measurement(value=count, text=text)}


class DestinationBacklog(Threshold):
    """The messages that wait for the busiest destination of this process."""

    signal = Signal.DESTINATION_DEPTH

    def __init__(self, limits: Limits, broker: BrokerFacts, destinations: Destinations) -> None:
        super().__init__(limits)
        self._broker = broker
        self._destinations = destinations

    def measure(self) -> Mapping[Affected, Measurement]:
        names = list(islice(self._destinations.known(), _MOST_QUEUES))
        found = self._broker.queues(names) if names else {}
        depths = [(queue.ready, name) for name, queue in found.items() if queue is not None]
        count, name = max(depths, default=(0, "no destination"))
        return {None: Measurement(value=count, text=f"{name}: {counted(count, 'message')}")}


class DatabaseLatency(Threshold):
    """How long the table of each endpoint keeps us waiting, up to a share of the highest limit.

    A table that refuses us makes no other endpoint wait.
    """

    signal = Signal.LATENCY

    def __init__(self, limits: Limits, store: Store, endpoints: Sequence[StoreEndpoint]) -> None:
        super().__init__(limits)
        self._store = store
        self._endpoints = endpoints
        self._timeout = timedelta(seconds=_LOCK_WAIT_SHARE * max(limits))

    def measure(self) -> Mapping[Affected, Measurement]:
        return {each.name: self._latency(each.source) for each in self._endpoints}

    def _latency(self, source: str) -> Measurement:
        try:
            took_s = self._store.access_latency_s(source, timeout=self._timeout)
        except StoreUnavailable:
            raise
        except StoreError as exc:
            return Measurement(value=math.inf, text=str(exc))
        more = "more than " if took_s >= self._timeout.total_seconds() else ""
        return Measurement(value=took_s, text=f"{source} took {more}{seconds(took_s)} to answer")

    def show(self, value: float) -> str:
        return seconds(value)


class SlowestReplica(Threshold):
    """How far the slowest replica is behind."""

    signal = Signal.REPLICA_LAG

    def __init__(self, limits: Limits, replicas: ReplicaLag) -> None:
        super().__init__(limits)
        self._replicas = replicas

    def measure(self) -> Mapping[Affected, Measurement]:
        lag_s, name = self._replicas.worst_s()
        return {None: Measurement(value=lag_s, text=f"replica {name} is {seconds(lag_s)} behind")}

    def show(self, value: float) -> str:
        return seconds(value)


def seconds(value: float) -> str:
    """Return a number of seconds as people read it."""
    return f"{value * 1000:.0f} ms" if value < 1 else f"{value:.1f} s"
