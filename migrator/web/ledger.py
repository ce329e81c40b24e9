"""What ``migrator status`` shows, read by the daemon that is asked, or by the verb."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Final

from migrator.app import App
from migrator.app.remaining import Phase, Remaining, RemainingReader, is_finished, kept_text
from migrator.config.work import EndpointMode
from migrator.delays.routing import PROBED
from migrator.errors import MigratorError, StoreLocked
from migrator.ledger.queries import LatestRun
from migrator.ledger.report import Progress
from migrator.nservicebus.timeouts import EndpointName
from migrator.recall.queries import forecast
from migrator.recall.rules import MARGIN, RecallForecast, RecallScope
from migrator.reports import Document
from migrator.stores.endpoints import Selection
from migrator.throttle.reasons import PauseReason
from migrator.web.status import EndpointView, status_document

_EXACT_ROWS: Final = 100_000
"""Rows of half-due batches that one look may read; that takes a tenth of a second."""
_SELDOM_S: Final = 10.0
"""How often the way back is looked at, and tables are counted: only minutes matter there."""
_RATE_SPAN: Final = timedelta(minutes=1)


class LedgerReader:
    """Reads the ledger each time it is asked; what takes long, no oftener than needed."""

    def __init__(self, app: App) -> None:
        self._app = app
        self._lock = threading.Lock()
        self._asked_s = -math.inf
        self._found: RecallForecast | None = None
        self._remaining = RemainingReader(app)
        self._counted_s = -math.inf
        self._counted: Mapping[EndpointName, Remaining] = {}
        self._not_counted: Mapping[EndpointName, str] = {}

    def document(
        self,
        *,
        told_by: str,
        views: Sequence[EndpointView] | None = None,
        holds: Sequence[PauseReason] = (),
        not_counted: Mapping[EndpointName, str] | None = None,
    ) -> Document:
        """Return the fields of ``migrator/status/1``, as of now.

        Args:
            told_by: ``daemon`` or ``ledger``.
            views: How far each endpoint is, as a daemon knows it; None: the store is asked.
            holds: Why nothing is claimed, as a daemon knows it.
            not_counted: Why tables could not be read; None: the store is asked.

        Raises:
            LedgerError, StoreUnavailable: The ledger cannot be read.
        """
        app, probe = self._app, None
        runs = app.queries.latest_runs() if views is None else ()
        counted = self._counts(runs)  # first, so that no row is between the two
        progress = app.queries.progress()
        if views is None:
            views = self._views(runs, counted, progress)
        rollback = self._way_back(progress)
        if app.settings.probe.every is not None:
            probe = app.queries.latest_event(PROBED)
        finished = {view.endpoint for view in views if view.phase is Phase.FINISHED}
        moved = any(e.handed_over for e in progress.endpoints if e.endpoint in finished)
        return {
            "told_by": told_by,
            **status_document(progress, views, holds),
            "content_kept": kept_text(app.settings.ledger.purge_after) if moved else None,
            "not_counted": [
                {"endpoint": name, "text": text}
                for name, text in sorted((self._not_counted or not_counted or {}).items())
            ],
            "rollback": rollback and rollback.document,
            "probe": probe and {**probe.detail, "at": probe.at},
        }

    def _counts(self, runs: Sequence[LatestRun]) -> Mapping[EndpointName, Remaining]:
        """Return what is in the stores; what cannot be counted is left out."""
        with self._lock:
            if time.monotonic() - self._counted_s >= _SELDOM_S:
                found: dict[EndpointName, Remaining] = {}
                locked: dict[EndpointName, str] = {}
                for run in runs:
                    try:
                        found[run.endpoint.name] = self._remaining.read(
                            run.endpoint, _selection(run)
                        )
                    except StoreLocked as exc:
                        locked[run.endpoint.name] = str(exc)
                    except MigratorError:  # a table may be gone for good
                        continue
                self._counted, self._not_counted = found, locked
                self._counted_s = time.monotonic()
            return self._counted

    def _views(
        self,
        runs: Sequence[LatestRun],
        counted: Mapping[EndpointName, Remaining],
        progress: Progress,
    ) -> Sequence[EndpointView]:
        """Return how far the endpoints of *runs* are, by what the ledger knows."""
        settled = self._app.queries.settled_since(progress.taken_at - _RATE_SPAN)
        by_name = {each.endpoint: each for each in progress.endpoints}
        is_at_work = any(lane.is_alive for lane in progress.lanes)
        held = {each.endpoint for each in progress.held}
        views = []
        for name in (run.endpoint.name for run in runs):
            mode = self._app.settings.endpoint(name).mode
            found, remaining = by_name.get(name), counted.get(name)
            is_waiting = not is_at_work or (name in held and not (found and found.in_flight))
            phase: Phase | None = Phase.WAITING if is_waiting else Phase.MOVING
            if is_finished(found, remaining):
                phase = Phase.FINISHED
            views.append(
                EndpointView(
                    endpoint=name,
                    mode=str(mode),
                    phase=None if mode is EndpointMode.DISPATCH else phase,
                    remaining=remaining,
                    rate_per_s=settled.get(name, 0) / _RATE_SPAN.total_seconds(),
                    holds=(),
                )
            )
        return views

    def _way_back(self, progress: Progress) -> RecallForecast | None:
        """Return how much of what was handed over could be rolled back; None: nothing was."""
        if not any(endpoint.handed_over for endpoint in progress.endpoints):
            return None
        with self._lock:
            if time.monotonic() - self._asked_s >= _SELDOM_S:
                now, until = progress.taken_at, progress.taken_at + MARGIN
                self._found = forecast(
                    self._app.engine,
                    self._app.tables,
                    RecallScope(),
                    now=now,
                    not_before=until,
                    exact_rows=_EXACT_ROWS,
                )
                self._asked_s = time.monotonic()
            return self._found


def _selection(run: LatestRun) -> Selection:
    """Return which rows *run* took; an option may be missing or empty."""
    horizon_s = run.options.get("horizon_s")
    return Selection(
        cutoff=timedelta(seconds=int(run.options.get("cutoff_s") or 0)),
        horizon=timedelta(seconds=int(horizon_s)) if horizon_s else None,
    )
