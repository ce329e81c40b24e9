"""What the panel shows, read at intervals by threads of their own; never by whoever asks.

Rules of this file: what is read often is cheap; what is not (levels, rows in the tables) is only
read while somebody looks, and takes a small share of the time at most. What cannot be read is
said, and what was read before stays, with its age.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Final, Protocol

from migrator.delays.depths import LevelDepths
from migrator.errors import MigratorError
from migrator.ledger.report import AuditEvent, Progress
from migrator.nservicebus.timeouts import EndpointName
from migrator.service.errand import Errand

LOOK_EVERY: Final = timedelta(seconds=2)
SURVEY_EVERY: Final = timedelta(seconds=5)
_WANTED_S: Final = 120.0
"""After nobody asked for so long, only what is cheap is read."""
_SHARE: Final = 20
"""Whatever took a second is not done again within so many."""
_RATE_SPAN_S: Final = 60.0
_SHORTEST_SPAN_S: Final = 5.0
_EVENTS: Final = 50


class Reads(Protocol):
    """Where everything is read; each may take its time, and raise ``MigratorError``."""

    def progress(self) -> Progress:
        """Return what the ledger has."""
        ...

    def events(self, limit: int) -> Sequence[AuditEvent]:
        """Return the latest events, newest first."""
        ...

    def ladder(self) -> LevelDepths:
        """Return the delay levels."""
        ...

    def counts(self, now: datetime) -> Mapping[EndpointName, Counted]:
        """Return how many rows are in the table of each endpoint."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Counted:
    """The rows in one table."""

    rows: int
    is_all: bool = True
    """False: there are more."""
    due: Sequence[tuple[str, int]] = ()
    """Those that were counted, by how soon they are due."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """Everything as it was read last."""

    progress: Progress
    at_s: float
    """Monotonic; when the progress was read."""
    events: Sequence[AuditEvent] = ()
    ladder: LevelDepths | None = None
    counts: Mapping[EndpointName, Counted] = field(default_factory=dict)
    gaps: Mapping[str, str] = field(default_factory=dict)
    """What → why it could not be read the last time."""


class Lookout:
    """Reads, remembers, and says how fast it goes."""

    def __init__(self, reads: Reads) -> None:
        """Prepare; both errands' threads are to be started."""
        self._reads = reads
        nothing = Progress(
            taken_at=datetime.now(UTC),
            endpoints=(),
            quarantine=(),
            doubtful=(),
            oldest_open_age=None,
            lanes=(),
        )
        self._seen = Seen(progress=nothing, at_s=time.monotonic())
        self._gaps: dict[str, str] = {
            "ladder": "nobody has asked yet",
            "rows in the tables": "nobody has asked yet",
        }
        self._done: deque[tuple[float, Mapping[EndpointName, int]]] = deque()
        self._asked_s = float("-inf")
        self._not_before_s: dict[str, float] = {}
        self.look_errand = Errand("look", self.look)
        self.survey_errand = Errand("survey", self.survey)

    def ask(self) -> Seen:
        """Return what was seen last; have more read from now on, because somebody looks."""
        is_first = not self._is_wanted
        self._asked_s = time.monotonic()
        if is_first:
            self.survey_errand.ask()
        return replace(self._seen, gaps=dict(self._gaps))

    @property
    def store_error(self) -> str | None:
        """Why the ledger could not be read the last time; None: it could."""
        return self._gaps.get("progress")

    def look(self) -> None:
        """Read what is cheap."""
        with self._reading("progress") as may:
            if may:
                progress = self._reads.progress()
                self._seen = replace(self._seen, progress=progress, at_s=time.monotonic())
                self._remember(progress)
        with self._reading("events") as may:
            if may:
                self._seen = replace(self._seen, events=self._reads.events(_EVENTS))

    def survey(self) -> None:
        """Read the rest, if anybody looks."""
        if not self._is_wanted:
            return
        with self._reading("ladder") as may:
            if may:
                self._seen = replace(self._seen, ladder=self._reads.ladder())
        with self._reading("rows in the tables") as may:
            if may:
                counts = self._reads.counts(self._seen.progress.taken_at)
                self._seen = replace(self._seen, counts=counts)

    def rate_per_s(self, endpoint: EndpointName) -> float | None:
        """Return rows done per second over the last minute; None: too soon to tell."""
        done = list(self._done)
        if not done or done[-1][0] - done[0][0] < _SHORTEST_SPAN_S:
            return None
        (began_s, before), (ended_s, after) = done[0], done[-1]
        return max(after.get(endpoint, 0) - before.get(endpoint, 0), 0) / (ended_s - began_s)

    @property
    def _is_wanted(self) -> bool:
        return time.monotonic() - self._asked_s < _WANTED_S

    def _remember(self, progress: Progress) -> None:
        now_s = time.monotonic()
        done = {each.endpoint: each.handed_over + each.dispatched for each in progress.endpoints}
        self._done.append((now_s, done))
        while now_s - self._done[0][0] > _RATE_SPAN_S:
            self._done.popleft()

    @contextmanager
    def _reading(self, what: str) -> Iterator[bool]:
        """Yield whether it is time; note what goes wrong, and how long it took."""
        began_s = time.monotonic()
        is_time = began_s >= self._not_before_s.get(what, began_s)
        try:
            yield is_time
        except MigratorError as exc:
            self._gaps[what] = str(exc)
        else:
            if is_time:
                self._gaps.pop(what, None)
        if is_time:
            took_s = time.monotonic() - began_s
            self._not_before_s[what] = began_s + took_s * _SHARE
