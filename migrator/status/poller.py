"""What is shown of a running daemon: read at intervals, never by those who ask.

Rules of this file: what is read often is cheap; what is not (levels, rows in the tables) is only
read while a client asks, and takes a small share of the time at most. What cannot be read is
said, and what was read before stays, with its age.
"""

from __future__ import annotations

import time
from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from migrator.delays.broker import BrokerFacts
from migrator.delays.depths import LevelDepths
from migrator.delays.routing import PROBED, DelaysVersion
from migrator.errors import MigratorError, StoreError
from migrator.ledger.queries import LedgerQueries
from migrator.ledger.report import AuditEvent, Progress
from migrator.ledger.work import StoreEndpoint
from migrator.nservicebus.timeouts import EndpointName
from migrator.status.finished import FinishWatch
from migrator.status.remaining import Remaining, RemainingReader
from migrator.stores.endpoints import Selection
from migrator.throttle.reasons import PAUSE

POLL_EVERY: Final = timedelta(seconds=2)
_REST_S: Final = 29.5
"""Between two polls while nothing changes and the status is not asked for: one of fifteen."""
POLL_DETAILS_EVERY: Final = timedelta(seconds=5)
_WANTED_S: Final = 120.0
"""After so long without a request, only what is cheap is read."""
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
        queries: LedgerQueries,
        broker: BrokerFacts,
        version: DelaysVersion,
        reader: RemainingReader,
        finish: FinishWatch,
        endpoints: Sequence[StoreEndpoint],
        *,
        selection: Callable[[], Selection],
    ) -> None:
        self._queries = queries
        self._broker = broker
        self._version = version
        self._reader = reader
        self._finish = finish
        self._endpoints = endpoints
        self._selection = selection
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

    def ask(self) -> StatusSnapshot:
        """Return what was seen last; read more from now on."""
        self._asked_s = time.monotonic()
        return replace(self._seen, gaps=dict(self._gaps))

    @property
    def store_error(self) -> str | None:
        """Why the ledger could not be read the last time; None: it could."""
        return self._gaps.get("progress")

    def poll_if_due(self) -> Progress | None:
        """Read what is cheap; less often while nothing changes and no client asks."""
        if self.is_wanted or not self._rests or time.monotonic() - self._seen.at_s > _REST_S:
            return self.poll()
        return None

    @property
    def _rests(self) -> bool:
        """Whether the last two looks found the same, and nothing under way."""
        if len(self._done) < 2 or self._gaps.get("progress"):
            return False
        is_same = self._done[-1][1] == self._done[-2][1]
        return is_same and not any(each.in_flight for each in self._seen.progress.endpoints)

    def poll(self) -> Progress | None:
        """Read what is cheap; return what the ledger has, None: it cannot be read now."""
        is_read = self._read("progress", self._progress)
        self._read("events", self._events)
        return self._seen.progress if is_read else None

    def poll_details(self) -> None:
        """Read the rest, if anybody looks."""
        if self.is_wanted:
            self._read("levels", self._levels)
            self._read("rows in the tables", self._counts)

    def _events(self) -> Mapping[str, object]:
        return {"events": self._queries.latest_events(limit=_EVENTS, without=_NOT_TOLD)}

    def _levels(self) -> Mapping[str, object]:
        return {"levels": self._broker.level_depths(self._version)}

    def _progress(self) -> Mapping[str, object]:
        progress, now_s = self._queries.progress(), time.monotonic()
        self._finish.note(progress)
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
            batches = self._queries.settled_lately(
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

    def _read(self, what: str, read: Callable[[], Mapping[str, Any]]) -> bool:
        """Read *what* if it is time; note what goes wrong, and how long it took; was it read?"""
        began_s = time.monotonic()
        if began_s < self._not_before_s.get(what, began_s):
            return False
        try:
            self._seen = replace(self._seen, **read())
        except MigratorError as exc:
            self._gaps[what] = str(exc)
        else:
            self._gaps.pop(what, None)
        self._not_before_s[what] = began_s + (time.monotonic() - began_s) * _SHARE
        return what not in self._gaps

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
    def is_wanted(self) -> bool:
        """Whether anybody asked lately."""
        return time.monotonic() - self._asked_s < _WANTED_S
