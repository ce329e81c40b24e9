"""Settings go in, an assembled application comes out.

Nothing connects before it is used, so that `db upgrade` works without a broker and
`delays create` without a database.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Final

from migrator.app.broker import BrokerParts
from migrator.app.ledger import LedgerParts
from migrator.config import Settings
from migrator.config.work import MAX_BATCH_ROWS
from migrator.errors import PreflightRefused
from migrator.handover.ports import Link
from migrator.ledger.work import FaultPoint, Lease, StoreEndpoint
from migrator.nservicebus.conversion import BrokerLimits
from migrator.nservicebus.timeouts import BITS, EndpointName, Lane, QueueName, RunId
from migrator.stores.ports import Claims, Store

if TYPE_CHECKING:  # each part is imported when it is made
    from migrator.app.stores import DocumentBackend, SqlBackend, StoreBackend
    from migrator.handover.claiming import Claimer, Look
    from migrator.handover.holding import Holding
    from migrator.handover.prepare import Preparer
    from migrator.rabbitmq.publisher import WindowLimits
    from migrator.stores.due_times import DueTimeReading, DueTimeRules
    from migrator.stores.endpoints import Selection

FAULT_VARIABLE: Final = "MIGRATOR_FAULT_POINT"
"""``name:hit``: for crash tests, the process kills itself at that step; inert when unset."""
_PREFETCH: Final = 3 * (MAX_BATCH_ROWS + 1)
"""Whatever batch comes into a lane must fit, with two commits that may come back beside it."""


class App(BrokerParts, LedgerParts):
    """Everything assembled, each part made when it is first asked for."""

    def __init__(self, settings: Settings) -> None:
        """Remember *settings*; nothing is opened."""
        super().__init__(settings)
        self.fault = fault_point(os.environ.get(FAULT_VARIABLE, ""))

    # ── plain values ────────────────────────────────────────────────────────────────────────

    @property
    def selection(self) -> Selection:
        """Which rows are to be migrated now."""
        from migrator.stores.endpoints import Selection

        given = self.settings.handover
        return Selection(cutoff=given.cutoff, horizon=given.horizon)

    @property
    def rules(self) -> BrokerLimits:
        """What conversion has to know."""
        return BrokerLimits(
            body_max_bytes=self.settings.broker.max_message_bytes,
            destination_map=self.settings.handover.destination_map,
        )

    def rules_of(self, endpoint: EndpointName) -> BrokerLimits:
        """What conversion has to know for rows and messages of *endpoint*."""
        return replace(self.rules, own_queue=self.own_queue_of(endpoint))

    def own_queue_of(self, endpoint: EndpointName) -> QueueName:
        """Return the input queue of *endpoint*."""
        return QueueName(self.settings.endpoint(endpoint).input_queue)

    @property
    def due_times(self) -> DueTimeRules:
        """What is said of the due column."""
        from migrator.stores.due_times import DueTimeRules

        given = self.settings.store
        return DueTimeRules(
            time_zone=given.time_zone, accepts_shifted=given.accept_shifted_due_times
        )

    @property
    def run_options(self) -> dict[str, str | int | bool]:
        """What a run records about itself; no secrets."""
        given = self.settings.handover
        return {
            "mode": str(given.mode),
            "delays": str(self.settings.broker.delays),
            "topology": str(self.settings.broker.topology),
            "cutoff_s": int(given.cutoff.total_seconds()),
            "horizon_s": int(given.horizon.total_seconds()) if given.horizon else "",
            "batch_size": given.batch_size,
            "lanes": given.lanes,
            "time_zone": self.settings.store.time_zone,
        }

    # ── the store ───────────────────────────────────────────────────────────────────────────

    @cached_property
    def side(self) -> StoreBackend:
        """All that the kind of legacy store brings."""
        from migrator.app.stores import StoreContext, open_backend

        context = StoreContext(
            settings=self.settings,
            engine=self.engine,
            tables=self.tables,
            ledger_id=lambda: self.ledger_id,
            fault=self.fault,
        )
        return open_backend(context)

    def sql_side(self, *, wanted_for: str) -> SqlBackend:
        """Return the side of a SQL store.

        Raises:
            PreflightRefused: The store is of another kind, which has nothing for *wanted_for*.
        """
        from migrator.app.stores import SqlBackend

        if isinstance(self.side, SqlBackend):
            return self.side
        raise PreflightRefused(
            f"{wanted_for} needs a SQL store; store.kind is {self.settings.store.kind}"
        )

    @property
    def document_side(self) -> DocumentBackend | None:
        """The side of a document store; None: the store is a SQL database."""
        from migrator.app.stores import DocumentBackend

        return self.side if isinstance(self.side, DocumentBackend) else None

    @property
    def store(self) -> Store:
        """The legacy store."""
        return self.side.store

    @property
    def claims(self) -> Claims:
        """Moves rows between store and ledger."""
        return self.side.claims

    @property
    def own_queues(self) -> Sequence[str]:
        """Our queues of the lanes this process may use, whether they exist or not."""
        from migrator.rabbitmq.names import receipts_queue, staging_name

        lanes = [Lane(number) for number in range(self.settings.handover.lanes)]
        staging = [
            staging_name(self.settings.broker.delays, self.ledger_id, lane) for lane in lanes
        ]
        return [*staging, *(receipts_queue(self.ledger_id, lane) for lane in lanes)]

    def read_due_times(self, endpoint: StoreEndpoint) -> DueTimeReading:
        """Return whether due times of *endpoint* are read in the zone they were written in."""
        from migrator.stores.due_times import read_due_times

        return read_due_times(self.store, endpoint, self.clock, self.due_times)

    @property
    def own_exchanges(self) -> Sequence[str]:
        """Our exchanges that lead into the levels, whether they exist or not."""
        from migrator.rabbitmq.names import entry_exchange, router_exchange

        version = self.settings.broker.delays
        return [router_exchange(version), *(entry_exchange(version, n) for n in range(BITS))]

    # ── the engine's parts ──────────────────────────────────────────────────────────────────

    def new_claimer(
        self,
        runs: Sequence[tuple[StoreEndpoint, RunId]],
        *,
        selection: Callable[[], Selection],
        is_held: Callable[[EndpointName], bool],
        holding: Holding,
    ) -> Claimer:
        """Return a claimer of its own for one lane; see ``Claimer`` for what it asks."""
        from migrator.handover.claiming import Claimer

        return Claimer(
            claims=self.claims,
            clock=self.clock,
            selection=selection,
            endpoints=runs,
            mode=self.settings.handover.mode,
            max_bytes=self.settings.handover.batch_bytes,
            look=self._look,
            is_held=is_held,
            not_for=holding.not_for,
            fault=self.fault,
        )

    @cached_property
    def _look(self) -> Look:
        """What all lanes look for rows with."""
        from migrator.handover.claiming import Look

        return Look(self.claims, self.clock)

    def new_holding(self) -> Holding:
        """Return what holds destinations that cannot be reached, for all lanes of a process."""
        from migrator.app.stores import SqlBackend
        from migrator.handover.holding import Holding
        from migrator.ledger.held_destinations import SqlHeldDestinations

        return Holding(
            books=SqlHeldDestinations(self.engine, self.tables),
            batches=self.batches,
            claims=self.side.claims if isinstance(self.side, SqlBackend) else None,
            look_for=lambda names: self.new_destinations().unreachable(names),
            forget=self.destinations.forget,
            clock=self.clock,
            renamed=self.rules.destination_map,
        )

    def new_preparer(self, holding: Holding) -> Preparer:
        """Return a preparer of its own for one lane."""
        from migrator.handover.prepare import Preparer

        return Preparer(
            batches=self.batches,
            destinations=self.destinations,
            holding=holding,
            clock=self.clock,
            rules=self.rules,
            own_queue_of=self.own_queue_of,
        )

    @property
    def window_limits(self) -> WindowLimits:
        """How much may be published and not answered yet."""
        from migrator.rabbitmq.publisher import WindowLimits

        given = self.settings.handover
        return WindowLimits(
            messages=given.window,
            body_bytes=given.window_bytes,
            confirm_deadline_s=self.settings.broker.confirm_deadline.total_seconds(),
        )

    def open_link(self, lease: Lease, guard: Callable[[], None]) -> Link:
        """Connect to the broker for the lane of *lease*; see ``handover.link.open_link``."""
        from migrator.handover.link import LinkSettings, open_link

        given = self.settings.handover
        settings = LinkSettings(
            connection=self.lane_connection(lease.lane),
            version=self.settings.broker.delays,
            ledger_id=self.ledger_id,
            limits=self.window_limits,
            use_entries=given.use_entries,
        )
        owner = lease.owner.split("/")[0]
        return open_link(settings, lane=lease.lane, owner=owner, prefetch=_PREFETCH, guard=guard)

    def close(self) -> None:
        """Close what was opened."""
        if (side := self.__dict__.get("side")) is not None:
            side.close()
        for name in ("engine", "lease_engine"):
            if name in self.__dict__:
                getattr(self, name).dispose()
        if (management := self.__dict__.get("management")) is not None:
            management.close()


def fault_point(setting: str) -> FaultPoint:
    """Return what to call at each step: nothing, unless *setting* names a step to be killed at.

    ``staged.nacked:3`` kills this process with SIGKILL when it reaches that step the third time.
    """
    name, _, hit = setting.partition(":")
    if not name:
        return lambda _reached: None
    left = int(hit or 1)

    def reached(step: str) -> None:
        nonlocal left
        if step == name:
            left -= 1
            if left == 0:
                os.kill(os.getpid(), signal.SIGKILL)

    return reached
