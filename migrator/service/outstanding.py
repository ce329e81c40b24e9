"""What is left when a process ends: in quarantine, in doubt, or waiting in the store."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Sequence

from migrator.app import App
from migrator.errors import MigratorError
from migrator.handover.holding import Holding
from migrator.ledger.report import HeldRows
from migrator.ledger.work import StoreEndpoint

_log = logging.getLogger(__name__)


class Outstanding:
    """Implements ``service.Outstanding`` over the ledger, and over what is held."""

    def __init__(
        self,
        app: App,
        holding: Holding,
        endpoints: Collection[StoreEndpoint],
        *,
        tell: Callable[[Sequence[HeldRows]], None],
    ) -> None:
        """Look for rows of *endpoints* that are held, and *tell* whoever shows them."""
        self._app = app
        self._holding = holding
        self._endpoints = endpoints
        self._tell = tell

    def quarantined(self, endpoints: Sequence[StoreEndpoint]) -> int:
        """Return how many rows of *endpoints* are in quarantine."""
        return self._app.books.quarantined(endpoints)

    def doubtful(self, endpoints: Sequence[StoreEndpoint]) -> int:
        """Return how many batches of *endpoints* are doubtful."""
        return self._app.books.doubtful(endpoints)

    def held(self) -> int:
        """Return how many rows wait in the store; 1 when nobody can count them now."""
        try:
            found = self._holding.rows(self._app.store, self._endpoints)
        except MigratorError as exc:
            _log.warning(
                "what waits in the store could not be counted",
                extra={"action": "held_not_counted", "error": str(exc)},
            )
            return 1
        for each in found:
            _log.warning(
                "timeouts wait in the store: their destination cannot be reached",
                extra={
                    "action": "rows_held",
                    "endpoint": each.endpoint,
                    "destination": each.destination,
                    "reason": each.reason,
                    "rows": each.rows,
                },
            )
        self._tell(found)
        return sum(each.rows for each in found)
