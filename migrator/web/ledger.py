"""The ledger as ``migrator status`` shows it, read by the daemon that is asked, or by the verb."""

from __future__ import annotations

import math
import threading
import time
from typing import Final

from migrator.app import App
from migrator.delays.routing import PROBED
from migrator.ledger.report import Progress
from migrator.recall.queries import forecast
from migrator.recall.rules import MARGIN, RecallForecast, RecallScope
from migrator.reports import Document
from migrator.web.status import progress_document

_EXACT_ROWS: Final = 100_000
"""Rows of half-due batches that one look may read; that takes a tenth of a second."""
_WAY_BACK_EVERY_S: Final = 10.0
"""How often the way back is looked at: only minutes matter there."""


class LedgerReader:
    """Reads the ledger each time it is asked; what takes long, no oftener than needed."""

    def __init__(self, app: App) -> None:
        """Have read nothing."""
        self._app = app
        self._lock = threading.Lock()
        self._asked_s = -math.inf
        self._found: RecallForecast | None = None

    def document(self, *, told_by: str) -> Document:
        """Return the fields of ``migrator/status/1``, as of now; *told_by*: daemon or ledger.

        Raises:
            LedgerError, StoreUnavailable: The ledger cannot be read.
        """
        app, probe = self._app, None
        progress = app.books.progress()
        rollback = self._way_back(progress)
        if app.settings.probe.every is not None:
            probe = app.books.latest_event(PROBED)
        return {
            "told_by": told_by,
            **progress_document(progress),
            "rollback": rollback and rollback.document,
            "probe": probe and {**probe.detail, "at": probe.at},
        }

    def _way_back(self, progress: Progress) -> RecallForecast | None:
        """Return how much of what was handed over could be rolled back; None: nothing was."""
        if not any(endpoint.handed_over for endpoint in progress.endpoints):
            return None
        with self._lock:
            if time.monotonic() - self._asked_s >= _WAY_BACK_EVERY_S:
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
