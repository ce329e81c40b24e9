"""What reads the status, for ``migrator status`` and for the daemon."""

from __future__ import annotations

from functools import cached_property

from migrator.app.app import App
from migrator.config.work import NearDue
from migrator.errors import ConfigError
from migrator.status.document import StatusDocument
from migrator.status.reader import LedgerReader, StoreReader
from migrator.status.remaining import RemainingReader


def new_remaining_reader(app: App) -> RemainingReader:
    """Return what counts rows in the stores, and asks the broker who sends what remains."""
    given = app.settings
    try:
        broker = app.broker_facts
    except ConfigError:  # the ledger alone can be read without one
        broker = None
    return RemainingReader(
        store=app.store,
        claims=app.claims,
        clock=app.clock,
        broker=broker,
        modes={each.name: str(each.mode) for each in given.endpoints},
        input_queues={each.name: each.input_queue for each in given.endpoints},
        sends_near_due=given.handover.near_due is NearDue.DISPATCH,
    )


def new_ledger_reader(app: App) -> LedgerReader:
    """Return what reads the ledger."""
    return LedgerReader(
        engine=app.engine,
        tables=app.tables,
        queries=app.queries,
        purge_after=app.settings.ledger.purge_after,
        shows_probe=app.settings.probe.every is not None,
    )


class StatusReader:
    """Reads ``migrator/status/1`` without a daemon; opens the store once there is a run."""

    def __init__(self, app: App) -> None:
        self._app = app
        self._ledger = new_ledger_reader(app)

    @cached_property
    def _stores(self) -> StoreReader:
        app = self._app
        return StoreReader(
            queries=app.queries,
            remaining=new_remaining_reader(app),
            modes={each.name: str(each.mode) for each in app.settings.endpoints},
        )

    def document(self) -> StatusDocument:
        """Return it as of now.

        Raises:
            LedgerError, StoreUnavailable: The ledger cannot be read.
        """
        runs = self._app.queries.latest_runs()
        if not runs:
            progress = self._app.queries.progress()
            return self._ledger.document(progress, (), told_by="ledger", not_counted={})
        progress, views = self._stores.read(runs)
        return self._ledger.document(
            progress, views, told_by="ledger", not_counted=self._stores.not_counted
        )
