"""The signals that make hand-over wait: which a process has, and how each is looked at.

A new one is a member of ``Signal`` with its words, a setting in ``config/work.py``, and here a line
in ``build_throttles`` with a function: ``check_…`` says yes or no, ``measure_…`` returns a value
that ``threshold`` compares with limits. Rules of this file:

* a look may take long, or never return, because it has a thread of its own; what it saw is
  believed for a while, and after that hand-over waits, because nobody knows;
* a value above its limit is a reason until it is a good deal lower.

Source: docs/throttling.md.
"""

from __future__ import annotations

import logging
import math
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, tzinfo
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Final, NamedTuple

import httpx

from migrator.app import App
from migrator.config import Throttle as Given
from migrator.config.values import DAYS, Window
from migrator.database.replicas import ReplicaLag
from migrator.errors import MigratorError, StoreError, StoreUnavailable, TargetError
from migrator.ledger.clock import DatabaseClock, Doubt
from migrator.ledger.report import Signal
from migrator.ledger.work import StoreEndpoint
from migrator.nservicebus.timeouts import EndpointName
from migrator.preflight.checks_store import SKEW_TOLERATED
from migrator.rabbitmq.server import AlarmWatch, is_our_clock
from migrator.service.schedule import BackgroundTask, Job
from migrator.service.throttle import Throttle
from migrator.service.worker import Worker
from migrator.stores.ports import Store
from migrator.text import counted

_log = logging.getLogger(__name__)

_SOON_S: Final = 0.5
"""How often what costs nothing, and the broker's alarm, is looked at."""
_PATIENCE: Final = 1.5
"""Of the highest limit that is set: so long a locked table is waited for."""
RESUME_SHARE: Final = 0.8
"""Of a limit: what is at most so much of it is no reason any more."""
_TICK: Final = timedelta(milliseconds=500)
_FIRST_S: Final = 3.0
"""How long the start waits for the first look at each signal; a slower one pauses later."""

Whom = EndpointName | None
"""One endpoint; None: all of them."""


class Verdict(NamedTuple):
    """A no, with what was seen."""

    observed: str
    limit: str = ""


Look = Callable[[], Mapping[Whom, Verdict]]
"""Looks once, however long that takes, and says who has to wait; nobody: empty."""


class Sample(NamedTuple):
    """A measured value."""

    value: float
    """Infinite: it cannot be measured for this one endpoint, which is no critical load."""
    text: str
    """As people read it: ``Billing: 120000 messages``."""


def build_throttles(
    given: Given,
    app: App,
    endpoints: Sequence[StoreEndpoint],
    throttle: Throttle,
    *,
    workers: Iterable[Worker],
    owner: str,
    critical: Callable[[str], None],
) -> Iterator[SignalThrottle]:
    """Yield the throttles that *given* wants, none of them running.

    Args:
        given: The settings.
        app: What is looked at.
        endpoints: Those whose rows are handed over; without any, only the clock is looked at:
            dispatchers, which no reason concerns, heed it by themselves.
        throttle: Is given the reasons.
        workers: Hear of alarms on their connections.
        owner: Of this process.
        critical: Called when a critical limit is passed.
    """
    stale_s, usual_s = given.stale_after.total_seconds(), given.every.total_seconds()

    def new(
        signal: Signal, look: Look, every_s: float = _SOON_S, close: Callable[[], None] = _nothing
    ) -> SignalThrottle:
        return SignalThrottle(
            signal, throttle, look, every_s=every_s, stale_after_s=stale_s, close=close
        )

    clock = ClockCheck(app.clock, lambda now: is_our_clock(app.connection, now))
    yield new(Signal.CLOCK, clock, CLOCK_EVERY_S)
    if not endpoints:
        return
    alarms = AlarmWatch(app.connection, owner.split("/")[0])
    yield new(Signal.ALARM, partial(check_alarm, workers, alarms.look), close=alarms.close)
    if given.windows:
        yield new(Signal.WINDOW, partial(check_window, given.open_windows, given.zone))
    if given.flag_file is not None:
        yield new(Signal.FLAG_FILE, partial(check_flag_file, given.flag_file))
    if given.http_url is not None:
        client = httpx.Client(timeout=_HTTP_PATIENCE_S, headers={"User-Agent": "migrator"})
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
    for signal, limits, show, measure in (
        (Signal.LEVEL_DEPTH, levels, str, lambda: measure_levels(app)),
        (Signal.DESTINATION_DEPTH, depths, str, lambda: measure_destinations(app)),
        (
            Signal.LATENCY,
            latencies,
            seconds,
            lambda: measure_latency(app.store, endpoints, patience),
        ),
        (Signal.REPLICA_LAG, lags, seconds, lambda: measure_lag(replicas)),
    ):
        if any(limits):
            yield signal, threshold(signal, measure, limits, critical, show=show)


def _seconds_of(most: timedelta | None, critical: timedelta | None) -> tuple[float, float]:
    return most.total_seconds() if most else 0.0, critical.total_seconds() if critical else 0.0


def _nothing() -> None:
    pass


# ── yes or no ───────────────────────────────────────────────────────────────────────────────────


def check_alarm(
    workers: Iterable[Worker], look: Callable[[], str | None]
) -> Mapping[Whom, Verdict]:
    """Return the broker's memory or disk alarm, from any connection that hears of it."""
    heard = next(filter(None, (worker.blocked_reason for worker in workers)), None)
    try:
        reason = look() or heard  # it looks in any case: a connection that nobody serves is lost
    except TargetError:
        if heard is None:
            raise
        reason = heard
    if reason is None:
        return {}
    return {None: Verdict(reason, "until the broker takes messages again")}


def check_window(
    windows: Sequence[Window],
    zone: tzinfo,
    now: Callable[[], datetime] = lambda: datetime.now(UTC),
) -> Mapping[Whom, Verdict]:
    """Return that no maintenance window is open; empty: one is."""
    local = now().astimezone(zone)
    if any(window.is_open(local) for window in windows):
        return {}
    where = getattr(zone, "key", None) or local.tzname()
    only = ", ".join(window.text for window in windows)
    return {None: Verdict(f"it is {DAYS[local.weekday()]} {local:%H:%M} {where}", f"only {only}")}


def check_flag_file(path: Path) -> Mapping[Whom, Verdict]:
    """Return that *path* exists, and since when; empty: it does not.

    A file nobody lets us look at might be there.
    """
    try:
        found = path.stat()
    except FileNotFoundError:
        return {}
    except OSError as exc:
        return {None: Verdict(f"{path} cannot be checked: {exc.strerror or exc}")}
    changed = datetime.fromtimestamp(found.st_mtime, UTC)
    observed = f"{path} exists, changed {changed:%Y-%m-%d %H:%M} UTC"
    return {None: Verdict(observed, "until it is removed")}


_HTTP_PATIENCE_S: Final = 3.0
_SHOWN_CHARS: Final = 120
_READ_BYTES: Final = 4096


def check_http(client: httpx.Client, url: str) -> Mapping[Whom, Verdict]:
    """Return what *url* says against it; anything but 2xx is a no, and so is no answer."""
    try:
        with client.stream("GET", url) as answer:
            if answer.is_success:
                return {}
            body = next(answer.iter_bytes(_READ_BYTES), b"").decode(errors="replace")
            first = next(iter(body.strip().splitlines()), "").strip()
            said = "".join(each if each.isprintable() else " " for each in first)[:_SHOWN_CHARS]
            observed = f"{url} answered {answer.status_code}{': ' if said else ''}{said}"
    except (httpx.HTTPError, httpx.InvalidURL) as exc:
        observed = f"{url} did not answer: {str(exc) or type(exc).__name__}"
    return {None: Verdict(observed, "until it answers 2xx")}


# ── the database's clock ────────────────────────────────────────────────────────────────────────

CLOCK_EVERY_S: Final = 2.0
_SAMPLE_AFTER_S: Final = 3.0
_AGREES_S: Final = 1.0
_ASK_BROKER_EVERY_S: Final = 10.0
AT_START: Final = "this machine's, and the broker's has not confirmed it"


def check_first_time(
    clock: DatabaseClock,
    ask_broker: Callable[[Callable[[], datetime]], bool | None],
    wall_clock: Callable[[], datetime] = lambda: datetime.now(UTC),
) -> None:
    """Doubt the database's clock at a start, unless this machine's or the broker's agrees with it.

    A process that runs holds its own time against a jump; one that starts has none. Nothing may be
    early, so two clocks against the database's hold as well, and so does one, while the broker
    cannot be asked. *ask_broker* is called only where this machine's clock disagrees.
    """
    if abs(clock.now() - wall_clock()) <= SKEW_TOLERATED:
        return
    try:
        agrees = ask_broker(clock.now)
    except TargetError:
        agrees = None
    if not agrees:
        clock.doubt_start(wall_clock(), AT_START)


@dataclass(eq=False)
class ClockCheck:
    """Whether the database's clock can be believed, and who is asked when it jumped.

    A witness is this machine's clock, unless it jumped as well, or else the broker's. Only one
    that agrees with what the database says now makes us believe it.
    """

    clock: DatabaseClock
    ask_broker: Callable[[Callable[[], datetime]], bool | None]
    """Called in doubt only; returns whether the broker's time is that of what it is given; None:
    not known."""
    wall_clock: Callable[[], datetime] = lambda: datetime.now(UTC)

    def __post_init__(self) -> None:
        self._offset_s: float | None = None
        self._wall_jumped_s = float("-inf")
        self._asked_s = float("-inf")

    def __call__(self) -> Mapping[Whom, Verdict]:
        """Return why the clock is not believed; empty: it is."""
        self._look_at_wall()
        self.clock.sample(older_than_s=_SAMPLE_AFTER_S)
        self._look_at_wall()  # both may have jumped between two looks
        doubt = self.clock.doubt
        if doubt is None:
            return {}
        witness = self._witness(doubt)
        if witness is not None and _believe(self.clock, doubt, witness=witness):
            return {}
        limit = (
            "until it is back, or this machine's or the broker's clock agrees with it; `migrator "
            "resume` trusts it as it is"
        )
        return {None: Verdict(doubt.text, limit)}

    def _look_at_wall(self) -> None:
        now_s = self.clock.monotonic_s()
        offset_s = self.wall_clock().timestamp() - now_s
        if self._offset_s is not None and abs(offset_s - self._offset_s) > _AGREES_S:
            self._wall_jumped_s = now_s
        self._offset_s = offset_s

    def _witness(self, doubt: Doubt) -> str | None:
        """Return who says the same as the database; None: nobody does."""
        reading = doubt.reading(self.clock.monotonic_s())
        off_s = abs((self.wall_clock() - reading).total_seconds())
        if self._wall_jumped_s < doubt.believed_s and off_s <= _AGREES_S:
            return "this machine"
        if time.monotonic() - self._asked_s < _ASK_BROKER_EVERY_S:
            return None
        self._asked_s = time.monotonic()
        try:
            agrees = self.ask_broker(lambda: doubt.reading(self.clock.monotonic_s()))
        except TargetError:
            return None
        return "the broker" if agrees else None


def believe_as_told(clock: DatabaseClock) -> str | None:
    """Believe what *clock* says now, because an operator says so; None: it is not in doubt."""
    doubt = clock.doubt
    if doubt is None or not _believe(clock, doubt, witness="an operator"):
        return None
    return f"{doubt.text}, and is trusted from now on"


def _believe(clock: DatabaseClock, doubt: Doubt, *, witness: str) -> bool:
    """Believe what *clock* says now, because *witness* says the same; was it still the same?"""
    if not clock.trust(doubt):
        return False
    _log.warning(
        "the database's clock jumped, and its new time is trusted",
        extra={"action": "clock_believed", "jump_s": round(doubt.off_s, 1), "witness": witness},
    )
    return True


# ── how much ────────────────────────────────────────────────────────────────────────────────────


def threshold(
    signal: Signal,
    measure: Callable[[], Mapping[Whom, Sample]],
    limits: tuple[float, float],
    critical: Callable[[str], None],
    *,
    show: Callable[[float], str] = "{:.0f}".format,
) -> Look:
    """Return a look at values, of single endpoints or of all, and at two limits; 0: there is none.

    One that is over the first limit counts until it is a good deal lower, so that hand-over does
    not start and stop all the time. Over the second, *critical* is called.
    """
    most, critical_above = limits
    over: Set[Whom] = frozenset()

    def look() -> Mapping[Whom, Verdict]:
        nonlocal over
        found = measure()
        for sample in found.values():
            if critical_above and critical_above < sample.value < math.inf:
                limit = show(critical_above)
                critical(
                    f"{signal}: {sample.text}, above the limit of {limit} at which the daemon ends"
                )
        if not most:
            return {}
        limits = {whom: most * (RESUME_SHARE if whom in over else 1) for whom in found}
        over = {whom for whom, sample in found.items() if sample.value > limits[whom]}
        return {whom: Verdict(found[whom].text, f"at most {show(most)}") for whom in over}

    return look


_MOST_QUEUES: Final = 500
"""Destinations whose queues are looked at."""


def measure_levels(app: App) -> Mapping[Whom, Sample]:
    """Return the messages in all levels together, as far as they are known."""
    depths = app.broker_facts.level_depths(app.settings.broker.delays)
    count = sum(step.known for step in depths.steps)
    return {None: Sample(value=count, text=f"{counted(count, 'message')} in the delay levels")}


def measure_destinations(app: App) -> Mapping[Whom, Sample]:
    """Return the messages that wait for the busiest destination of this process."""
    names = list(islice(app.destinations.known(), _MOST_QUEUES))
    found = app.broker_facts.queues(names) if names else {}
    depths = [(queue.ready, name) for name, queue in found.items() if queue is not None]
    count, name = max(depths, default=(0, "no destination"))
    return {None: Sample(value=count, text=f"{name}: {counted(count, 'message')}")}


def measure_latency(
    store: Store, endpoints: Sequence[StoreEndpoint], patience: timedelta
) -> Mapping[Whom, Sample]:
    """Return for each endpoint how long its table keeps us waiting; *patience* at most.

    A table that refuses us keeps nobody else waiting.

    Raises:
        StoreUnavailable: The database cannot be reached.
    """
    return {each.name: _latency(store, each.source, patience) for each in endpoints}


def _latency(store: Store, source: str, patience: timedelta) -> Sample:
    try:
        took_s = store.answer_s(source, patience=patience)
    except StoreUnavailable:
        raise
    except StoreError as exc:
        return Sample(value=math.inf, text=str(exc))
    more = "more than " if took_s >= patience.total_seconds() else ""
    return Sample(value=took_s, text=f"{source} took {more}{seconds(took_s)} to answer")


def measure_lag(replicas: ReplicaLag) -> Mapping[Whom, Sample]:
    """Return how far the slowest replica is behind."""
    lag_s, name = replicas.worst_s()
    return {None: Sample(value=lag_s, text=f"replica {name} is {seconds(lag_s)} behind")}


def seconds(value: float) -> str:
    """Return a number of seconds as people read it."""
    return f"{value * 1000:.0f} ms" if value < 1 else f"{value:.1f} s"


# ── looked at again and again ───────────────────────────────────────────────────────────────────


@dataclass(eq=False)
class SignalThrottle:
    """Looks at one signal at intervals, and pauses when the last success is too old."""

    signal: Signal
    throttle: Throttle
    look: Look
    every_s: float
    stale_after_s: float
    close: Callable[[], None] = lambda: None
    """Ends what *look* needs."""

    def __post_init__(self) -> None:
        self._next_s = float("-inf")
        self._seen_s = time.monotonic()
        self._error = "no answer yet"
        self._is_over = False
        self.task = BackgroundTask(f"throttle-{self.signal}", self._look)

    def tick(self, now_s: float) -> None:
        """Look again when it is time, at monotonic second *now_s*; returns at once."""
        if now_s >= self._next_s and self.task.run_soon():
            self._next_s = now_s + self.every_s - _TICK.total_seconds() / 2  # the tick before
        age_s = now_s - self._seen_s
        if age_s > self.stale_after_s:
            limit = f"must not be older than {self.stale_after_s:g} s"
            self._pause(None, Verdict(f"not known for {age_s:.0f} s: {self._error}", limit))

    def end(self) -> None:
        """Stop looking, and close what was needed for it; what is paused stays so."""
        self._is_over = True
        if self.task.end():  # one that still waits for an answer keeps what it waits on
            self.close()

    def resume(self) -> None:
        """Be a reason for nothing any more."""
        self.throttle.resume_all(self.signal)

    def _look(self) -> None:
        try:
            verdicts = self.look()
        except MigratorError as exc:
            self._error = str(exc)
            return
        self._seen_s = time.monotonic()
        for whom, verdict in verdicts.items():
            self._pause(whom, verdict)
        for reason in self.throttle.reasons():
            if reason.signal is self.signal and reason.endpoint not in verdicts:
                self.throttle.resume(self.signal, reason.endpoint)

    def _pause(self, whom: Whom, verdict: Verdict) -> None:
        if not self._is_over:
            self.throttle.pause(self.signal, whom, verdict.observed, verdict.limit)


class SignalThrottles:
    """Runs the throttles of one process, and changes them when settings are read anew."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._throttles: Sequence[SignalThrottle] = ()
        self.job = Job("throttle", _TICK, self._tick)

    def replace(self, throttles: Sequence[SignalThrottle]) -> None:
        """Look at *throttles* from now on; those before are no reason for anything any more.

        Each is looked at once before this returns, or waited for for moments at most.
        """
        with self._lock:
            for before in self._throttles:
                before.end()
                before.resume()
            self._throttles = throttles
            for throttle in throttles:
                throttle.tick(time.monotonic())
            deadline_s = time.monotonic() + _FIRST_S
            while any(each.task.is_busy for each in throttles) and time.monotonic() < deadline_s:
                time.sleep(0.01)

    def end(self) -> None:
        """Look at nothing any more; what is paused stays so, for the process is at its end."""
        with self._lock:
            for throttle in self._throttles:
                throttle.end()
            self._throttles = ()

    def _tick(self) -> None:
        if self._lock.acquire(blocking=False):  # else they are being replaced
            try:
                for throttle in self._throttles:
                    throttle.tick(time.monotonic())
            finally:
                self._lock.release()
