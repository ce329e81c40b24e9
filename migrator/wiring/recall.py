"""Assembling a recall: the levels on one side, store and ledger on the other."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cached_property

from migrator.broker.names import staging_name
from migrator.broker.scan import RabbitLevels, delivery_limit
from migrator.broker.wire import Pump, Wire
from migrator.domain.timeouts import Lane
from migrator.stores.recall import SqlRecalls
from migrator.wiring.app import App


class RecallWiring:
    """Makes the parts of a recall."""

    def __init__(self, app: App) -> None:
        """Assemble from what *app* has."""
        self._app = app

    @cached_property
    def recalls(self) -> SqlRecalls:
        """The store's and the ledger's side."""
        app = self._app
        return SqlRecalls(app.engine, app.tables, app.store, app.claims)

    @contextmanager
    def open_levels(self) -> Iterator[RabbitLevels]:
        """Connect to the broker whose levels the settings name.

        Raises:
            TargetUnavailable, AccessRefused: As connections do.
        """
        app, version = self._app, self._app.plan.delays
        limit = delivery_limit(app.connection, app.management, version)
        pump = Pump()
        try:
            wire = Wire(pump, app.connection, "migrator recall", reads_properties=True)
            yield RabbitLevels(wire, version, limit=limit)
        finally:
            pump.close()

    def still_staged(self) -> int | None:
        """Return how many messages our staging queues still hold; None: nobody tells.

        A receipt proves a commit, not that each message has reached its level already.
        """
        app = self._app
        if app.management is None:
            return None
        lanes = {status.lane for status in app.books.progress().lanes}
        names = [staging_name(app.plan.delays, app.ledger_id, Lane(lane)) for lane in lanes]
        found = [app.management.queue(name) for name in names]
        return sum(state.total + state.held_back for state in found if state is not None)
