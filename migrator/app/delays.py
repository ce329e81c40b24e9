"""What the verbs of ``migrator delays`` work with: a broker, and for some of it the ledger."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING

from migrator.app.broker import Broker, open_broker
from migrator.app.ledger import open_ledger
from migrator.app.values import fault_point
from migrator.decommission.levels import DelaysRemoval
from migrator.delays.capacity import MeasuredCapacity, capacity_document, measure_capacity
from migrator.delays.probe import ProbeRun, send_probes
from migrator.delays.routing import CAPACITY_MEASURED
from migrator.delays.topology import create_delays
from migrator.errors import MigratorError, PreflightRefused
from migrator.preflight.context import DelaysContext, Finding
from migrator.preflight.registry import check_delays
from migrator.transfer.move import Outcome, Transfer, TransferSettings, open_transfer
from migrator.transfer.rules import TransferRequest

if TYPE_CHECKING:
    from migrator.config import Settings
    from migrator.delays.depths import LevelDepths


@dataclass(frozen=True, slots=True, kw_only=True)
class CapacityRun:
    """A measured capacity, and whether the ledger has it."""

    measured: MeasuredCapacity
    document: dict[str, object]
    problem: MigratorError | None
    """Why the ledger does not have it."""


class Delays:
    """The delay levels of the broker that the settings name."""

    def __init__(self, settings: Settings, broker: Broker) -> None:
        self._settings = settings
        self._broker = broker
        self.version = broker.version

    def create(self) -> int:
        """Create what does not exist; return how many exchanges and queues were created."""
        return create_delays(self._broker.connection, self.version)

    def check(self, *, watch_s: float) -> Sequence[Finding]:
        """Return what the checks of the delays find; a level that holds messages is watched."""
        context = partial(
            DelaysContext,
            broker=self._broker.facts,
            version=self.version,
            accepts_suffix_collisions=self._settings.handover.accept_suffix_collisions,
            wall_clock=partial(datetime.now, UTC),
            watch_s=watch_s,
            wait=time.sleep,
        )
        url = self._settings.store.url
        if url is None or not url.get_secret_value():
            return check_delays(context(hand_overs=None))
        with open_ledger(self._settings, must_exist=False) as ledger:
            return check_delays(context(hand_overs=ledger.hand_overs))

    def depths(self) -> LevelDepths:
        """Return how many messages are in each level."""
        return self._broker.facts.level_depths(self.version)

    def probe(self, levels: Sequence[int], *, timeout_s: float) -> ProbeRun:
        """Send a probe through each of *levels*."""
        return send_probes(
            self._broker.connection,
            self.version,
            levels,
            timeout_s=timeout_s,
            find_bindings=self._broker.find_bindings,
        )

    def measure_capacity(self) -> CapacityRun:
        """Measure the release rate of the levels, and record it in the ledger if there is one."""
        measured = measure_capacity(
            self._broker.connection, self.version, find_bindings=self._broker.find_bindings
        )
        document = capacity_document(measured)
        problem: MigratorError | None = None
        try:
            with open_ledger(self._settings) as ledger:
                ledger.runs.record(CAPACITY_MEASURED, detail=document, batch=None)
        except MigratorError as exc:
            problem = exc
        return CapacityRun(measured=measured, document=document, problem=problem)

    def removal(self, *, settle_s: float) -> DelaysRemoval:
        """Return what deletes the delays.

        Raises:
            PreflightRefused: There is no management API to show what is in them.
        """
        if self._broker.management is None:
            raise PreflightRefused(
                "only the management API shows whether anything is held in the levels; set "
                "broker.management_url. Nothing was changed"
            )
        return DelaysRemoval(
            self._broker.connection,
            self._broker.management,
            self.version,
            settle=partial(time.sleep, settle_s),
            fault=fault_point(),
        )

    def transfer(
        self, request: TransferRequest, *, on_progress: Callable[[Outcome], None]
    ) -> AbstractContextManager[Transfer]:
        """Open what moves messages from these delays into others."""
        given = self._settings
        settings = TransferSettings(
            connection=self._broker.connection,
            management=self._broker.management,
            topology=given.broker.topology,
            may_bind=not given.broker.all_endpoints_support_delayed_delivery,
            use_entries=given.handover.use_entries,
            limits=self._broker.window,
            body_max_bytes=given.broker.max_message_bytes,
        )
        return open_transfer(request, settings, on_progress=on_progress)


@contextmanager
def open_delays(settings: Settings) -> Iterator[Delays]:
    """Open the delays of the broker that *settings* name; nothing connects before it is used."""
    with open_broker(settings) as broker:
        yield Delays(settings, broker)
