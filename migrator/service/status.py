"""The daemon as others see it: what is shown is read at intervals, never by those who ask.

Rules of this file: what is read often is cheap; what is not (levels, rows in the tables) is only
read while somebody looks, and takes a small share of the time at most. What cannot be read is
said, and what was read before stays, with its age.
"""

from __future__ import annotations

import time
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any, Final

from migrator import __version__
from migrator.app import App
from migrator.app.remaining import Phase, Remaining, RemainingReader
from migrator.delays.depths import LevelDepths
from migrator.delays.routing import PROBED
from migrator.errors import MigratorError, StoreError
from migrator.ledger.report import AuditEvent, Progress, QuarantinedTimeout, QuarantineFilter
from migrator.ledger.work import StoreEndpoint
from migrator.nservicebus.timeouts import EndpointName
from migrator.reports import Document
from migrator.service.control import PAUSE, Control, Served
from migrator.service.finished import FinishWatch
from migrator.service.schedule import Job
from migrator.service.systemd import Supervision
from migrator.stores.endpoints import Selection
from migrator.stores.ports import DUE_SPANS, LATER, Claims
from migrator.text import counted
from migrator.throttle.reasons import PauseReason, Signal
from migrator.web.control import Answer, Command
from migrator.web.ledger import LedgerReader
from migrator.web.status import EndpointView, Liveness, QuarantinePage, Readiness, Snapshot

POLL_EVERY: Final = timedelta(seconds=2)
_REST_S: Final = 29.5
"""Between two looks while nothing changes and nobody asks: one of fifteen."""
POLL_DETAILS_EVERY: Final = timedelta(seconds=5)
_WANTED_S: Final = 120.0
"""After nobody asked for so long, only what is cheap is read."""
_SHARE: Final = 20
"""Whatever took a second is not done again within so many."""
_RATE_SPAN_S: Final = 60.0
_SHORTEST_SPAN_S: Final = 5.0
_EVENTS: Final = 50
MINUTES: Final = 60
"""Of which the throughput is remembered."""
_MINUTE: Final = timedelta(minutes=1)
_LATEST_BATCHES: Final = 20_000
"""That are looked at for what was done before the start: of an hour at 5000 rows/s."""
_NOT_TOLD: Final = (PROBED, PAUSE)
"""Kinds of events that have a place of their own, or come with a command."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StatusSnapshot:
    """Everything as it was read last."""

    progress: Progress
    at_s: float
    """Monotonic; when the progress was read."""
    events: Sequence[AuditEvent] = ()
    levels: LevelDepths | None = None
    counts: Mapping[EndpointName, Remaining] = field(default_factory=dict)
    gaps: Mapping[str, str] = field(default_factory=dict)
    """What → why it could not be read the last time."""
    not_counted: Mapping[EndpointName, str] = field(default_factory=dict)
    """The same of the rows of endpoints."""


class StatusPoller:
    """Reads, remembers, and says how fast it goes."""

    def __init__(
        self,
        app: App,
        endpoints: Sequence[StoreEndpoint],
        reader: RemainingReader,
        *,
        selection: Callable[[], Selection],
        polled: Sequence[Callable[[Progress], None]] = (),
    ) -> None:
        self._app = app
        self._endpoints = endpoints
        self._reader = reader
        self._selection = selection
        self._polled = polled
        nothing = Progress(
            taken_at=datetime.now(UTC),
            endpoints=(),
            quarantine=(),
            doubtful=(),
            oldest_open_age=None,
            lanes=(),
        )
        self._seen = StatusSnapshot(progress=nothing, at_s=time.monotonic())
        self._gaps: dict[str, str] = {
            "levels": "not asked yet",
            "rows in the tables": "not asked yet",
        }
        self._done: deque[tuple[float, Mapping[EndpointName, int]]] = deque()
        self._minutes: deque[tuple[int, int]] = deque(maxlen=MINUTES + 1)
        """Of each of the last minutes, by a monotonic clock, what was done when it began."""
        self._asked_s = float("-inf")
        self._not_before_s: dict[str, float] = {}
        self._details = Job("scan", POLL_DETAILS_EVERY, self.poll_details, may_lag=True)
        # a slow answer is no miss: the status tells how old it is
        self._look = Job("look", POLL_EVERY, self.look, may_lag=True)
        self.jobs = [self._look, self._details]

    def ask(self) -> StatusSnapshot:
        """Return what was seen last; have more read from now on, because somebody looks."""
        is_first = not self._is_wanted
        self._asked_s = time.monotonic()
        if is_first:
            self._look.run_soon()
            self._details.run_soon()
        return replace(self._seen, gaps=dict(self._gaps))

    @property
    def store_error(self) -> str | None:
        """Why the ledger could not be read the last time; None: it could."""
        return self._gaps.get("progress")

    def look(self) -> None:
        """Read what is cheap, less often while nothing changes and nobody asks."""
        if self._is_wanted or not self._rests or time.monotonic() - self._seen.at_s > _REST_S:
            self.poll()

    @property
    def _rests(self) -> bool:
        """Whether the last two looks found the same, and nothing under way."""
        if len(self._done) < 2 or self._gaps.get("progress"):
            return False
        is_same = self._done[-1][1] == self._done[-2][1]
        return is_same and not any(each.in_flight for each in self._seen.progress.endpoints)

    def poll(self) -> None:
        """Read what is cheap."""
        queries = self._app.queries
        self._read("progress", self._progress)
        latest = partial(queries.latest_events, limit=_EVENTS, without=_NOT_TOLD)
        self._read("events", lambda: {"events": latest()})

    def poll_details(self) -> None:
        """Read the rest, if anybody looks."""
        if self._is_wanted:
            facts, delays = self._app.broker_facts, self._app.settings.broker.delays
            self._read("levels", lambda: {"levels": facts.level_depths(delays)})
            self._read("rows in the tables", self._counts)

    def _progress(self) -> Mapping[str, object]:
        progress, now_s = self._app.queries.progress(), time.monotonic()
        for tell in self._polled:
            tell(progress)
        done = {each.endpoint: each.handed_over + each.dispatched for each in progress.endpoints}
        self._done.append((now_s, done))
        while now_s - self._done[0][0] > _RATE_SPAN_S:
            self._done.popleft()
        if not self._minutes:
            self._minutes.extend(self._minutes_before(progress.taken_at, now_s, sum(done.values())))
        if not self._minutes or self._minutes[-1][0] != now_s // 60:
            self._minutes.append((int(now_s // 60), sum(done.values())))
        return {"progress": progress, "at_s": now_s}

    def _minutes_before(self, now: datetime, now_s: float, done: int) -> Sequence[tuple[int, int]]:
        """Return what was done when each of the last minutes began, by the batches of the ledger.

        Empty where it does not tell; a row that was set aside counts with its batch.
        """
        this = int(now_s // 60)
        began = now - timedelta(seconds=now_s - this * 60)
        try:
            batches = self._app.queries.settled_lately(
                began - MINUTES * _MINUTE, at_most=_LATEST_BATCHES
            )
        except MigratorError:
            return ()
        rows = Counter[int]()
        for at, size in batches:
            if at <= now:  # *done* knows of no later ones
                rows[this + (at - began) // _MINUTE] += size
        # of more batches than were looked at, those of the first minute are not complete
        first = min(rows, default=this) + 1 if len(batches) == _LATEST_BATCHES else this - MINUTES
        found = list[tuple[int, int]]()
        for minute in range(this, first - 1, -1):
            done -= rows[minute]
            found.insert(0, (minute, done))
        return found

    def _counts(self) -> Mapping[str, object]:
        """Count each table that can be; of another, what was counted last stays, and why."""
        chosen, found = self._selection(), dict(self._seen.counts)
        failed: dict[EndpointName, str] = {}
        for each in self._endpoints:
            try:
                found[each.name] = self._reader.read(each, chosen)
            except StoreError as exc:
                if not exc.is_of_source:
                    raise
                failed[each.name] = str(exc)
        return {"counts": found, "not_counted": failed}

    def _read(self, what: str, read: Callable[[], Mapping[str, Any]]) -> None:
        """Read *what* if it is time; note what goes wrong, and how long it took."""
        began_s = time.monotonic()
        if began_s < self._not_before_s.get(what, began_s):
            return
        try:
            found = read()
            self._seen = replace(self._seen, **found)
        except MigratorError as exc:
            self._gaps[what] = str(exc)
        else:
            self._gaps.pop(what, None)
        self._not_before_s[what] = began_s + (time.monotonic() - began_s) * _SHARE

    def rate_per_s(self, endpoint: EndpointName) -> float | None:
        """Return rows done per second over the last minute; None: too soon to tell."""
        done = list(self._done)
        if not done or done[-1][0] - done[0][0] < _SHORTEST_SPAN_S:
            return None
        (began_s, before), (ended_s, after) = done[0], done[-1]
        return max(after.get(endpoint, 0) - before.get(endpoint, 0), 0) / (ended_s - began_s)

    def throughput(self) -> Sequence[float | None]:
        """Return rows per second of each of the last minutes, oldest first; None: not known."""
        began = dict(self._minutes)
        last = max(began, default=0)
        return [
            max(began[each + 1] - began[each], 0) / 60
            if each in began and each + 1 in began
            else None
            for each in range(last - MINUTES, last)
        ]

    @property
    def _is_wanted(self) -> bool:
        return time.monotonic() - self._asked_s < _WANTED_S


@dataclass(frozen=True, slots=True, kw_only=True)
class DaemonStatus:
    """Implements ``web.control.StatusService`` over what is known; any thread may ask."""

    owner: str
    ledger_place: str
    reader: LedgerReader
    control: Control
    supervision: Supervision
    poller: StatusPoller
    finish: FinishWatch
    jobs: Sequence[Job]
    """Empty before the work begins."""
    title: str = ""
    system: Mapping[str, str] = field(default_factory=dict)
    began_s: float = field(default_factory=time.monotonic)

    def snapshot(self) -> Snapshot:
        """Return the latest look at everything; holds and settings are those of this moment."""
        seen = self.poller.ask()
        return Snapshot(
            taken_at=seen.progress.taken_at,
            age_s=max(time.monotonic() - seen.at_s, 0.0),
            version=__version__,
            owner=self.owner,
            progress=seen.progress,
            endpoints=[self._view(served, seen) for served in self.control.served.values()],
            holds=self.control.throttle.reasons(),
            settings=self.control.runtime.texts(),
            levels=seen.levels,
            due=_together(seen),
            events=seen.events,
            jobs=[job.view() for job in self.jobs],
            gaps=[*_gaps(seen), *_unclaimable(self.control.app.claims)],
            title=self.title,
            system=self.system,
            uptime_s=time.monotonic() - self.began_s,
            throughput=self.poller.throughput(),
        )

    def live(self) -> Liveness:
        """Return whether the loops go on."""
        silent_s = {worker.name: worker.silent_s for worker in self.control.workers}
        limit_s = self.supervision.silence_limit_s
        is_alive = all(each < limit_s for each in silent_s.values())
        return Liveness(silent_s=silent_s, is_alive=is_alive)

    def ready(self) -> Readiness:
        """Return whether the daemon works; a hold is no reason why not."""
        reasons = list(self._reasons())
        return Readiness(is_ready=not reasons, reasons=reasons)

    def ledger(self) -> Document | None:
        """Return what the ledger says now; None: it cannot be read."""
        try:
            seen = self.poller.ask()
            return self.reader.document(
                told_by="daemon",
                views=[self._view(served, seen) for served in self.control.served.values()],
                holds=self.control.throttle.reasons(),
                not_counted=seen.not_counted,
            )
        except MigratorError:
            return None

    def quarantine(self, which: QuarantineFilter, *, after: int, limit: int) -> QuarantinePage:
        """Return rows in quarantine whose key is above *after*."""
        try:
            rows = self.control.app.quarantine.page(which, after=after, limit=limit + 1)
        except MigratorError as exc:
            return QuarantinePage(trouble=str(exc))
        return QuarantinePage(rows=rows[:limit], has_more=len(rows) > limit)

    def quarantined(self, which: QuarantineFilter) -> Sequence[QuarantinedTimeout]:
        """Return rows in quarantine with their content; empty: none, or they cannot be read."""
        try:
            return self.control.app.quarantine.full(which)
        except MigratorError:
            return ()

    def execute(self, command: Command, *, who: str) -> Answer:
        """Do what *command* says."""
        return self.control.execute(command, who=who)

    def _view(self, served: Served, seen: StatusSnapshot) -> EndpointView:
        known = [seen.counts.get(served.name), self.finish.remaining(served.name)]
        found = max((e for e in known if e), key=lambda each: each.counted_at, default=None)
        holds = [
            each
            for each in self.control.throttle.reasons_for(served.name)
            if served.moves or each.signal is Signal.REFUSED
        ]
        return EndpointView(
            endpoint=served.name,
            mode=served.mode,
            phase=self._phase(served, seen, holds) if served.moves else None,
            remaining=found,
            rate_per_s=self.poller.rate_per_s(served.name),
            holds=holds,
        )

    def _phase(self, served: Served, seen: StatusSnapshot, holds: Sequence[PauseReason]) -> Phase:
        if self.finish.is_finished(served.name, as_of=seen.progress.taken_at):
            return Phase.FINISHED
        if any(each.signal is Signal.REFUSED for each in holds):
            return Phase.REFUSED
        mine = [each for each in seen.progress.endpoints if each.endpoint == served.name]
        is_held = any(each.endpoint == served.name for each in seen.progress.held)
        waits = bool(holds) or (is_held and not any(each.in_flight for each in mine))
        return Phase.WAITING if waits else Phase.MOVING

    def _reasons(self) -> Iterator[str]:
        if not self.supervision.has_begun:
            yield "starting"
        if self.control.stop.draining.is_set():
            yield "ending"
        if (error := self.poller.store_error) is not None:
            yield f"the ledger cannot be read: {error}"
        for worker in self.control.workers:
            if worker.crash is not None or worker.failure is not None:
                yield f"{worker.name} has ended: {worker.failure or worker.crash}"
            elif worker.trouble is not None:
                yield f"{worker.name}: {worker.trouble}"
            elif worker.silent_s >= self.supervision.silence_limit_s:
                yield f"{worker.name} hangs"


def _gaps(seen: StatusSnapshot) -> Iterator[str]:
    """Yield what could not be read, and what is not exact."""
    for what, why in sorted(seen.gaps.items()):
        yield f"{what}: {why}"
    for name, why in sorted(seen.not_counted.items()):
        yield f"rows of {name}: {why}"
    for name, count in sorted(seen.counts.items()):
        if not count.is_exact:
            yield f"rows of {name}: too many to be counted; estimated"


def _unclaimable(claims: Claims) -> Iterator[str]:
    """Yield how many rows of each table cannot be claimed, with one of them and its error."""
    for source, rows in sorted(claims.unclaimable().items()):
        for row, why in [*rows.items()][:1]:
            rows_text = counted(len(rows), "row")
            yield f"{source}: {rows_text} cannot be claimed, tried again later; {row}: {why}"


def _together(seen: StatusSnapshot) -> Sequence[tuple[str, int]]:
    """Return the rows of all tables by how soon they are due, soonest first."""
    sums: Counter[str] = Counter()
    for count in seen.counts.values():
        sums.update(dict(count.due))
    return [(span, sums[span]) for span in (*(name for name, _ in DUE_SPANS), LATER) if sums[span]]
