"""What ``migrator status`` shows, read by the daemon that is asked, or by the verb.

What takes long is read no oftener than needed.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Final, Literal

from sqlalchemy import Engine

from migrator.delays.routing import PROBED
from migrator.errors import MigratorError, StoreLocked
from migrator.ledger.queries import LatestRun, LedgerQueries
from migrator.ledger.report import Progress
from migrator.ledger.tables import LedgerTables
from migrator.nservicebus.timeouts import EndpointName
from migrator.recall.queries import forecast
from migrator.recall.rules import MARGIN, RecallForecast, Scope
from migrator.status.document import StatusDocument, status_document
from migrator.status.remaining import (
    DISPATCH,
    MIGRATE,
    Phase,
    Remaining,
    RemainingReader,
    is_finished,
    kept_text,
    phase_of,
)
from migrator.status.snapshot import EndpointView
from migrator.stores.endpoints import Selection
from migrator.throttle.reasons import PauseReason

_EXACT_ROWS: Final = 100_000
"""Rows of half-due batches that one poll may read; that takes a tenth of a second."""
_SELDOM_S: Final = 10.0
"""How often the way back is polled, and tables are counted: only minutes matter there."""
_RATE_SPAN: Final = timedelta(minutes=1)


@dataclass(kw_only=True, eq=False)
class LedgerReader:
    """Reads the ledger each time it is asked."""

    engine: Engine
    tables: LedgerTables
    queries: LedgerQueries
    purge_after: timedelta | None
    """How long the ledger keeps the content of what was moved; None: for good."""
    shows_probe: bool

    def __post_init__(self) -> None:
        self._lock = threading.Lock()
        self._asked_s = -math.inf
        self._found: RecallForecast | None = None

    def document(
        self,
        progress: Progress,
        views: Sequence[EndpointView],
        *,
        told_by: Literal["daemon", "ledger"],
        holds: Sequence[PauseReason] = (),
        not_counted: Mapping[EndpointName, str],
    ) -> StatusDocument:
        """Return ``migrator/status/1``.

        Args:
            progress: What the ledger has.
            views: How far each endpoint is.
            told_by: ``daemon`` or ``ledger``.
            holds: Why nothing is claimed, as a daemon knows it.
            not_counted: Why tables could not be read.

        Raises:
            LedgerError, StoreUnavailable: The ledger cannot be read.
        """
        probe = self.queries.latest_event(PROBED) if self.shows_probe else None
        finished = {view.endpoint for view in views if view.phase is Phase.FINISHED}
        moved = any(e.handed_over for e in progress.endpoints if e.endpoint in finished)
        return status_document(
            progress,
            views,
            holds,
            told_by=told_by,
            content_kept=kept_text(self.purge_after) if moved else None,
            not_counted=not_counted,
            rollback=self._way_back(progress),
            probe=None if probe is None else {**probe.detail, "at": probe.at},
        )

    def _way_back(self, progress: Progress) -> RecallForecast | None:
        """Return how much of what was handed over could be rolled back; None: nothing was."""
        if not any(endpoint.handed_over for endpoint in progress.endpoints):
            return None
        with self._lock:
            if time.monotonic() - self._asked_s >= _SELDOM_S:
                now, until = progress.taken_at, progress.taken_at + MARGIN
                self._found = forecast(
                    self.engine,
                    self.tables,
                    Scope(),
                    now=now,
                    not_before=until,
                    exact_rows=_EXACT_ROWS,
                )
                self._asked_s = time.monotonic()
            return self._found


@dataclass(kw_only=True, eq=False)
class StoreReader:
    """Sees how far endpoints are without a daemon: by the ledger and the stores."""

    queries: LedgerQueries
    remaining: RemainingReader
    modes: Mapping[str, str]
    """The mode of endpoints by name; all others are migrated."""

    def __post_init__(self) -> None:
        self._counted_s = -math.inf
        self._counted: Mapping[EndpointName, Remaining] = {}
        self.not_counted: Mapping[EndpointName, str] = {}
        """Why tables could not be read."""

    def read(self, runs: Sequence[LatestRun]) -> tuple[Progress, Sequence[EndpointView]]:
        """Return what the ledger has, and how far the endpoints of *runs* are.

        Raises:
            LedgerError, StoreUnavailable: The ledger cannot be read.
        """
        counted = self._counts(runs)  # first, so that no row is between the two
        progress = self.queries.progress()
        return progress, self._views(runs, counted, progress)

    def _counts(self, runs: Sequence[LatestRun]) -> Mapping[EndpointName, Remaining]:
        """Return what is in the stores; what cannot be counted is left out."""
        if time.monotonic() - self._counted_s >= _SELDOM_S:
            found: dict[EndpointName, Remaining] = {}
            locked: dict[EndpointName, str] = {}
            for run in runs:
                try:
                    found[run.endpoint.name] = self.remaining.read(run.endpoint, _selection(run))
                except StoreLocked as exc:
                    locked[run.endpoint.name] = str(exc)
                except MigratorError:  # a table may be gone for good
                    continue
            self._counted, self.not_counted = found, locked
            self._counted_s = time.monotonic()
        return self._counted

    def _views(
        self,
        runs: Sequence[LatestRun],
        counted: Mapping[EndpointName, Remaining],
        progress: Progress,
    ) -> Sequence[EndpointView]:
        settled = self.queries.settled_since(progress.taken_at - _RATE_SPAN)
        by_name = {each.endpoint: each for each in progress.endpoints}
        is_worked_on = any(lane.is_alive for lane in progress.lanes)
        parked = {each.endpoint for each in progress.held}
        views = []
        for name in (run.endpoint.name for run in runs):
            mode = self.modes.get(name, MIGRATE)
            found, remaining = by_name.get(name), counted.get(name)
            phase = phase_of(
                found,
                is_finished=is_finished(found, remaining),
                has_parked=name in parked,
                is_worked_on=is_worked_on,
            )
            views.append(
                EndpointView(
                    endpoint=name,
                    mode=mode,
                    phase=None if mode == DISPATCH else phase,
                    remaining=remaining,
                    rate_per_s=settled.get(name, 0) / _RATE_SPAN.total_seconds(),
                    holds=(),
                )
            )
        return views


def _selection(run: LatestRun) -> Selection:
    """Return which rows *run* took; an option may be missing or empty."""
    horizon_s = run.options.get("horizon_s")
    return Selection(
        cutoff=timedelta(seconds=int(run.options.get("cutoff_s") or 0)),
        horizon=timedelta(seconds=int(horizon_s)) if horizon_s else None,
    )
