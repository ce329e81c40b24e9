"""Assembling a verification: the levels on one side, store and ledger on the other."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from migrator.app.app import App
from migrator.app.recall import RecallWiring
from migrator.delays.depths import LevelDepths
from migrator.delays.routing import DelaysVersion
from migrator.delays.scan import RabbitLevels, delivery_limit
from migrator.rabbitmq.wire import Pump, Wire
from migrator.verify.evidence_port import Evidence
from migrator.verify.plan import Parts, VerifyPlan
from migrator.verify.verifier import Verifier


class VerificationWiring:
    """Makes the parts of a verification."""

    def __init__(self, app: App) -> None:
        """Assemble from what *app* has."""
        self._app = app

    def new_verifier(
        self,
        plan: VerifyPlan,
        *,
        evidence: Evidence | None,
        progress: Callable[[str, int], None],
    ) -> Verifier:
        """Return a verifier for one verification."""
        app = self._app
        parts = Parts(
            books=app.side.verifications,
            ledger_id=app.ledger_id,
            ladders=self._ladders,
            open_levels=self._open_levels,
            still_staged=RecallWiring(app).still_staged,
            doubtful=lambda: app.books.progress().doubtful,
            clock=app.clock,
            wait=time.sleep,
            evidence=evidence,
            fault=app.fault,
            progress=progress,
        )
        return Verifier(parts, plan)

    def _ladders(self) -> Sequence[LevelDepths]:
        return [self._app.broker_facts.ladder(delays) for delays in DelaysVersion]

    @contextmanager
    def _open_levels(self, delays: DelaysVersion) -> Iterator[RabbitLevels]:
        """Connect to the levels of *delays*, on the broker that the settings name.

        Raises:
            TargetUnavailable, AccessRefused: As connections do.
        """
        app = self._app
        limit = delivery_limit(app.connection, app.management, delays)
        pump = Pump()
        try:
            wire = Wire(pump, app.connection, "migrator verify", reads_properties=True)
            yield RabbitLevels(wire, delays, limit=limit, now=app.clock.now)
        finally:
            pump.close()
