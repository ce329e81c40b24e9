"""The signals that make hand-over wait: how each is looked at, and which a process has."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta, tzinfo
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Final

import httpx

from migrator.app import App
from migrator.config import Throttle as Given
from migrator.config.values import DAYS, Window
from migrator.database.replicas import ReplicaLag
from migrator.errors import StoreError, StoreUnavailable, TargetError
from migrator.ledger.clock import DatabaseClock, Doubt
from migrator.ledger.pause_reasons import Signal
from migrator.ledger.work import StoreEndpoint
from migrator.rabbitmq.server import AlarmWatch, is_our_clock
from migrator.service.throttle import (
    BooleanThrottle,
    Limits,
    PollInterval,
    Sample,
    SignalThrottle,
    ThresholdThrottle,
    Throttle,
    Verdict,
    Whom,
)
from migrator.service.worker import WorkerThread
from migrator.stores.ports import Store

_log = logging.getLogger(__name__)

_SOON_S: Final = 0.5
"""How often what costs nothing, and the broker's alarm, is looked at."""
_PATIENCE: Final = 1.5
"""Of the highest limit that is set: so long a locked table is waited for."""


def build_throttles(
    given: Given,
    app: App,
    endpoints: Sequence[StoreEndpoint],
    throttle: Throttle,
    *,
    workers: Iterable[WorkerThread],
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
    stale_s = given.stale_after.total_seconds()
    usual = PollInterval(every_s=given.every.total_seconds(), stale_after_s=stale_s)
    soon = PollInterval(every_s=_SOON_S, stale_after_s=stale_s)
    rarely = PollInterval(every_s=CLOCK_EVERY_S, stale_after_s=stale_s)
    clock = ClockCheck(app.clock, lambda now: is_our_clock(app.connection, now))
    yield BooleanThrottle(Signal.CLOCK, throttle, rarely, clock)
    if not endpoints:
        return
    alarms = AlarmWatch(app.connection, owner.split("/")[0])
    check = partial(check_alarm, workers, alarms.look)
    yield BooleanThrottle(Signal.ALARM, throttle, soon, check, close=alarms.close)
    if given.windows:
        check = partial(check_window, given.open_windows, given.zone)
        yield BooleanThrottle(Signal.WINDOW, throttle, soon, check)
    if given.touch_file is not None:
        check = partial(check_flag_file, given.touch_file)
        yield BooleanThrottle(Signal.TOUCH_FILE, throttle, soon, check)
    if given.veto_url is not None:
        http = HttpCheck(given.veto_url)
        yield BooleanThrottle(Signal.VETO, throttle, usual, http, close=http.close)

    def threshold(
        signal: Signal, limits: Limits, measure: Callable[[], Mapping[Whom, Sample]]
    ) -> SignalThrottle:
        return ThresholdThrottle(
            signal, throttle, usual, limits=limits, measure=measure, critical=critical
        )

    limits = Limits(most=given.max_level_depth, critical_above=given.panic_level_depth)
    if limits.are_set:
        yield threshold(Signal.LEVEL_DEPTH, limits, partial(measure_levels, app))
    limits = Limits(most=given.max_destination_depth, critical_above=given.panic_destination_depth)
    if limits.are_set:
        yield threshold(Signal.DESTINATION_DEPTH, limits, partial(measure_destinations, app))
    limits = _spans(given.max_database_latency, given.panic_database_latency)
    if limits.are_set:
        patience = timedelta(seconds=_PATIENCE * max(limits.most, limits.critical_above))
        latency = partial(measure_latency, app.store, endpoints, patience)
        yield threshold(Signal.LATENCY, limits, latency)
    limits = _spans(given.max_replica_lag, given.panic_replica_lag)
    if limits.are_set:
        yield threshold(Signal.REPLICA_LAG, limits, partial(measure_lag, ReplicaLag(app.engine)))


def _spans(most: timedelta | None, critical_above: timedelta | None) -> Limits:
    return Limits(
        most=most.total_seconds() if most else 0.0,
        critical_above=critical_above.total_seconds() if critical_above else 0.0,
        show=seconds,
    )


# ── yes or no ───────────────────────────────────────────────────────────────────────────────────


def check_alarm(workers: Iterable[WorkerThread], look: Callable[[], str | None]) -> Verdict | None:
    """Return the broker's memory or disk alarm, from any connection that hears of it."""
    heard = next(filter(None, (worker.blocked_reason for worker in workers)), None)
    try:
        reason = look() or heard  # it looks in any case: a connection that nobody serves is lost
    except TargetError:
        if heard is None:
            raise
        reason = heard
    if reason is None:
        return None
    return Verdict(observed=reason, limit="until the broker takes messages again")


def check_window(
    windows: Sequence[Window],
    zone: tzinfo,
    now: Callable[[], datetime] = lambda: datetime.now(UTC),
) -> Verdict | None:
    """Return that no maintenance window is open; None: one is."""
    local = now().astimezone(zone)
    if any(window.is_open(local) for window in windows):
        return None
    where = getattr(zone, "key", None) or local.tzname()
    return Verdict(
        observed=f"it is {DAYS[local.weekday()]} {local:%H:%M} {where}",
        limit=f"only {', '.join(window.text for window in windows)}",
    )


def check_flag_file(path: Path) -> Verdict | None:
    """Return that *path* exists, and since when; None: it does not.

    A file nobody lets us look at might be there.
    """
    try:
        found = path.stat()
    except FileNotFoundError:
        return None
    except OSError as exc:
        return Verdict(observed=f"{path} cannot be looked at: {exc.strerror or exc}")
    changed = datetime.fromtimestamp(found.st_mtime, UTC)
    observed = f"{path} exists, of {changed:%Y-%m-%d %H:%M} UTC"
    return Verdict(observed=observed, limit="until it is removed")


class HttpCheck:
    """Asks one address; anything but 2xx is a no, and so is no answer."""

    _PATIENCE_S: Final = 3.0
    _SHOWN_CHARS: Final = 120
    _READ_BYTES: Final = 4096

    def __init__(self, url: str) -> None:
        """Connect when first asked."""
        self._url = url
        self._client = httpx.Client(timeout=self._PATIENCE_S, headers={"User-Agent": "migrator"})

    def __call__(self) -> Verdict | None:
        """Return what it said against it; None: nothing."""
        limit = "until it answers 2xx"
        try:
            with self._client.stream("GET", self._url) as answer:
                if answer.is_success:
                    return None
                said = self._first_line(next(answer.iter_bytes(self._READ_BYTES), b""))
        except (httpx.HTTPError, httpx.InvalidURL) as exc:
            said = str(exc) or type(exc).__name__
            return Verdict(observed=f"{self._url} did not answer: {said}", limit=limit)
        what = f"{self._url} says {answer.status_code}"
        return Verdict(observed=f"{what}: {said}" if said else what, limit=limit)

    def close(self) -> None:
        """Close its connection."""
        self._client.close()

    def _first_line(self, body: bytes) -> str:
        lines = body.decode(errors="replace").strip().splitlines()
        line = lines[0].strip() if lines else ""
        shown = "".join(each if each.isprintable() else " " for each in line)
        return shown[: self._SHOWN_CHARS]


# ── the database's clock ────────────────────────────────────────────────────────────────────────

CLOCK_EVERY_S: Final = 2.0
_SAMPLE_AFTER_S: Final = 3.0
_AGREES_S: Final = 1.0
_ASK_BROKER_EVERY_S: Final = 10.0


class ClockCheck:
    """Whether the database's clock can be believed, and who is asked when it jumped.

    A witness is this machine's clock, unless it jumped as well, or else the broker's. Only one
    that agrees with what the database says now makes us believe it.
    """

    def __init__(
        self,
        clock: DatabaseClock,
        ask_broker: Callable[[Callable[[], datetime]], bool | None],
        wall_clock: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        """Check *clock*.

        *ask_broker* is called in doubt only, and returns whether the broker's time is that of what
        it is given; None: not known.
        """
        self._clock = clock
        self._ask_broker = ask_broker
        self._wall_clock = wall_clock
        self._offset_s: float | None = None
        self._wall_jumped_s = float("-inf")
        self._asked_s = float("-inf")

    def __call__(self) -> Verdict | None:
        """Return why the clock is not believed; None: it is."""
        self._look_at_wall()
        self._clock.sample(older_than_s=_SAMPLE_AFTER_S)
        self._look_at_wall()  # both may have jumped between two looks
        doubt = self._clock.doubt
        if doubt is None:
            return None
        witness = self._witness(doubt)
        if witness is not None and _believe(self._clock, doubt, witness=witness):
            return None
        return Verdict(
            observed=doubt.text,
            limit="until it is back, or this machine's or the broker's clock agrees with it; "
            "`migrator resume` believes it",
        )

    def _look_at_wall(self) -> None:
        now_s = self._clock.monotonic_s()
        offset_s = self._wall_clock().timestamp() - now_s
        if self._offset_s is not None and abs(offset_s - self._offset_s) > _AGREES_S:
            self._wall_jumped_s = now_s
        self._offset_s = offset_s

    def _witness(self, doubt: Doubt) -> str | None:
        """Return who says the same as the database; None: nobody does."""
        reading = doubt.reading(self._clock.monotonic_s())
        off_s = abs((self._wall_clock() - reading).total_seconds())
        if self._wall_jumped_s < doubt.believed_s and off_s <= _AGREES_S:
            return "this machine"
        if time.monotonic() - self._asked_s < _ASK_BROKER_EVERY_S:
            return None
        self._asked_s = time.monotonic()
        try:
            agrees = self._ask_broker(lambda: doubt.reading(self._clock.monotonic_s()))
        except TargetError:
            return None
        return "the broker" if agrees else None


def believe_as_told(clock: DatabaseClock) -> str | None:
    """Believe what *clock* says now, because an operator says so; None: it is not in doubt."""
    doubt = clock.doubt
    if doubt is None or not _believe(clock, doubt, witness="an operator"):
        return None
    return f"{doubt.text}, and is believed from now on"


def _believe(clock: DatabaseClock, doubt: Doubt, *, witness: str) -> bool:
    """Believe what *clock* says now, because *witness* says the same; was it still the same?"""
    if not clock.trust(doubt):
        return False
    _log.warning(
        "the database's clock jumped, and is believed",
        extra={"action": "clock_believed", "jump_s": round(doubt.off_s, 1), "witness": witness},
    )
    return True


# ── how much ────────────────────────────────────────────────────────────────────────────────────

_MOST_QUEUES: Final = 500
"""Destinations whose queues are looked at."""


def measure_levels(app: App) -> Mapping[Whom, Sample]:
    """Return the messages in all levels together, as far as they are known."""
    ladder = app.broker_facts.level_depths(app.plan.delays)
    count = sum(step.known for step in ladder.steps)
    return {None: Sample(value=count, text=f"{count} messages in the delay levels")}


def measure_destinations(app: App) -> Mapping[Whom, Sample]:
    """Return the messages that wait for the busiest destination of this process."""
    names = list(islice(app.destinations.known(), _MOST_QUEUES))
    found = app.broker_facts.queues(names) if names else {}
    depths = [(queue.ready, name) for name, queue in found.items() if queue is not None]
    count, name = max(depths, default=(0, "no destination"))
    return {None: Sample(value=count, text=f"{name}: {count} messages")}


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
    return Sample(value=took_s, text=f"{source} keeps us waiting for {more}{seconds(took_s)}")


def measure_lag(replicas: ReplicaLag) -> Mapping[Whom, Sample]:
    """Return how far the slowest replica is behind."""
    lag_s, name = replicas.worst_s()
    return {None: Sample(value=lag_s, text=f"replica {name} is {seconds(lag_s)} behind")}


def seconds(value: float) -> str:
    """Return a number of seconds as people read it."""
    return f"{value * 1000:.0f} ms" if value < 1 else f"{value:.1f} s"
