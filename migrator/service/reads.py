"""Where a lookout reads: ledger, tables and broker of one process."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime

from migrator.app import App
from migrator.delays.depths import LevelDepths
from migrator.ledger.report import AuditEvent, Progress
from migrator.ledger.work import StoreEndpoint
from migrator.nservicebus.timeouts import EndpointName
from migrator.service.lookout import Counted


class AppReads:
    """Implements ``lookout.Reads``."""

    def __init__(self, app: App, endpoints: Sequence[StoreEndpoint]) -> None:
        """Read what *app* reaches; count the rows of *endpoints*."""
        self._app = app
        self._endpoints = endpoints
        self._store = app.store

    def progress(self) -> Progress:
        """Return what the ledger has."""
        return self._app.books.progress()

    def events(self, limit: int) -> Sequence[AuditEvent]:
        """Return the latest events, newest first."""
        return self._app.books.latest_events(limit=limit)

    def ladder(self) -> LevelDepths:
        """Return the delay levels."""
        return self._app.broker_facts.ladder(self._app.plan.delays)

    def counts(self, now: datetime) -> Mapping[EndpointName, Counted]:
        """Return how many rows are in the table of each endpoint."""
        found: dict[EndpointName, Counted] = {}
        for endpoint in self._endpoints:
            table = self._store.count(endpoint.source, now)
            found[endpoint.name] = Counted(rows=table.rows, is_all=table.is_all, due=table.due)
        return found
