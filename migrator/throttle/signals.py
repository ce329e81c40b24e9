"""The signals that make hand-over wait: how each is polled.

A new one is a member of ``Signal`` with its words, a setting in ``config/work.py``, a line in
``app/throttle.py``, and here a function: ``check_…`` says yes or no, ``measure_…`` returns a value
that ``threshold`` compares with limits. A value above its limit is a reason until it is a good
deal lower. A poll may take long, or never return: it has a thread of its own; see ``polling``.

Source: docs/throttling.md.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence, Set
from datetime import UTC, datetime, timedelta, tzinfo
from itertools import islice
from pathlib import Path
from typing import Final, NamedTuple

import httpx

from migrator.database.replicas import ReplicaLag
from migrator.delays.broker import BrokerFacts
from migrator.delays.destinations import Destinations
from migrator.delays.routing import DelaysVersion
from migrator.errors import StoreError, StoreUnavailable, TargetError
from migrator.ledger.work import StoreEndpoint
from migrator.nservicebus.timeouts import EndpointName
from migrator.stores.ports import Store
from migrator.text import counted
from migrator.throttle.reasons import Signal
from migrator.throttle.windows import DAYS, Window

RESUME_SHARE: Final = 0.8
"""Of a limit: what is at most so much of it is no reason any more."""
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


# ── yes or no ───────────────────────────────────────────────────────────────────────────────────


def check_alarm(
    heard: Callable[[], str | None], look: Callable[[], str | None]
) -> Mapping[Whom, Verdict]:
    """Return the broker's memory or disk alarm, from any connection that hears of it."""
    known = heard()
    try:
        reason = look() or known  # it looks in any case: a connection that nobody serves is lost
    except TargetError:
        if known is None:
            raise
        reason = known
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


HTTP_TIMEOUT_S: Final = 3.0
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


def measure_levels(broker: BrokerFacts, version: DelaysVersion) -> Mapping[Whom, Sample]:
    """Return the messages in all levels together, as far as they are known."""
    depths = broker.level_depths(version)
    count = sum(step.known for step in depths.steps)
    return {None: Sample(value=count, text=f"{counted(count, 'message')} in the delay levels")}


def measure_destinations(broker: BrokerFacts, destinations: Destinations) -> Mapping[Whom, Sample]:
    """Return the messages that wait for the busiest destination of this process."""
    names = list(islice(destinations.known(), _MOST_QUEUES))
    found = broker.queues(names) if names else {}
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
