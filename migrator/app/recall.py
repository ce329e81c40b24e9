"""Assembling a recall: the levels on one side, store and ledger on the other."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from migrator.app.app import App
from migrator.nservicebus.timeouts import Lane
from migrator.recall.ports import Recalls

if TYPE_CHECKING:  # most verbs only ask what could be recalled
    from migrator.delays.scan import RabbitLevels


class RecallWiring:
    """Makes the parts of a recall."""

    def __init__(self, app: App) -> None:
        """Assemble from what *app* has."""
        self._app = app

    @property
    def recalls(self) -> Recalls:
        """The store's and the ledger's side."""
        return self._app.side.recalls

    @contextmanager
    def open_levels(self) -> Iterator[RabbitLevels]:
        """Connect to the broker whose levels the settings name.

        Raises:
            TargetUnavailable, AccessRefused: As connections do.
        """
        from migrator.delays.scan import RabbitLevels, delivery_limit
        from migrator.rabbitmq.wire import Pump, Wire

        app, version = self._app, self._app.plan.delays
        limit = delivery_limit(app.connection, app.management, version)
        pump = Pump()
        try:
            wire = Wire(pump, app.connection, "migrator recall", reads_properties=True)
            yield RabbitLevels(wire, version, limit=limit)
        finally:
            pump.close()

    def still_staged(self) -> int | None:
        """Return how many messages are on their way out of our staging queues; None: unknown.

        A receipt proves a commit, not that each message has reached its level already. What
        was staged and never committed stays where it is until its lane has an owner again; it is
        what the broker counts as ready at once, while the management API's count lags.
        """
        from migrator.rabbitmq.names import staging_name
        from migrator.rabbitmq.server import find_queues

        app = self._app
        if app.management is None:
            return None
        lanes = {status.lane for status in app.books.progress().lanes}
        lanes |= {Lane(number) for number in range(app.settings.handover.lanes)}
        names = [staging_name(app.plan.delays, app.ledger_id, Lane(lane)) for lane in lanes]
        told = [app.management.queue(name) for name in names]
        counted = find_queues(app.connection, names)
        return sum(
            state.held_back + abs(state.total - (facts.ready if facts else 0))
            for state, facts in zip(told, counted.values(), strict=True)
            if state is not None
        )
