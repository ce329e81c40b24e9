"""What hands rows over: destinations, conversion, parking, and the links of lanes."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Final

from migrator.app.values import broker_limits, own_queue
from migrator.config.work import MAX_BATCH_ROWS
from migrator.delays.destinations import BoundNames, Destinations
from migrator.delays.routing import JUST_DUE, Topology, Unreachable
from migrator.handover.direct import DirectHandOver
from migrator.handover.holding import Holding
from migrator.handover.link import LaneLinks, LinkSettings
from migrator.handover.prepare import Preparer
from migrator.handover.runs import HandOver
from migrator.ledger.held_destinations import SqlHeldDestinations
from migrator.ledger.parking import SqlParking
from migrator.ledger.run_terms import RunTerms
from migrator.nservicebus.conversion import BrokerLimits
from migrator.nservicebus.timeouts import EndpointName, QueueName

if TYPE_CHECKING:
    from migrator.app.broker import Broker
    from migrator.app.ledger import Ledger
    from migrator.config import Settings
    from migrator.ledger.work import FaultPoint

_PREFETCH: Final = 3 * (MAX_BATCH_ROWS + 1)
"""Whatever batch comes into a lane must fit, with two commits that may come back next to it."""


class HandOverParts:
    """Makes the parts of hand-over as the settings say, or as the terms of another run do."""

    def __init__(
        self, settings: Settings, ledger: Ledger, broker: Broker, fault: FaultPoint
    ) -> None:
        self._settings = settings
        self._ledger = ledger
        self._broker = broker
        self._fault = fault
        self.parking = SqlParking(ledger.engine, ledger.tables)
        self.held_destinations = SqlHeldDestinations(ledger.engine, ledger.tables)

    # ── destinations ────────────────────────────────────────────────────────────────────────

    @cached_property
    def destinations(self) -> Destinations:
        """Binds destinations, or says why not; all lanes share what it remembers."""
        return self.new_destinations()

    def new_destinations(self, terms: RunTerms | None = None) -> Destinations:
        """Return one that remembers nothing, and that no other thread waits for.

        It binds them as the *terms* of a run say, else as the settings do.
        """
        given = self._settings.broker
        binds = not given.all_endpoints_support_delayed_delivery
        return Destinations(
            self._broker.connection,
            given.delays,
            topology=Topology(terms.topology) if terms else given.topology,
            bind=terms.may_bind if terms else binds,
            find_bindings=self._broker.find_bindings,
            management=self._broker.management,
            bound=None if self._settings.handover.accept_suffix_collisions else self._bound_names,
        )

    @cached_property
    def _bound_names(self) -> BoundNames:
        """What is known to be bound to the delays, where no management API shows all of it."""
        ledger = self._ledger

        def handed_over() -> Collection[QueueName]:
            found = ledger.hand_overs.handed_over(due_from=ledger.clock.now() - JUST_DUE)
            return [each.destination for each in found]

        return BoundNames(handed_over)

    # ── batches ─────────────────────────────────────────────────────────────────────────────

    def new_holding(self, renamed: Mapping[str, str]) -> Holding:
        """Return what parks rows whose destination takes no messages.

        *renamed* are the destinations that have other names.
        """
        return Holding(
            ledger=self.held_destinations,
            parking=self.parking,
            look_for=self.unreachable_now,
            forget=self.destinations.forget,
            clock=self._ledger.clock,
            renamed=renamed,
            fault=self._fault,
        )

    def unreachable_now(self, names: Collection[QueueName]) -> Mapping[QueueName, Unreachable]:
        """Bind *names*, whatever was found before; return those that cannot be reached.

        Raises:
            TargetUnavailable, AccessRefused: The broker cannot be asked.
        """
        return self.new_destinations().unreachable(names)

    def new_preparer(self, holding: Holding) -> Preparer:
        """Return what makes messages of rows; *holding* gets those that have no destination."""
        return Preparer(
            batches=self._ledger.batches,
            destinations=self.destinations,
            holding=holding,
            clock=self._ledger.clock,
            rules=replace(broker_limits(self._settings), destination_map=holding.renamed),
            own_queue_of=self._own_queue,
        )

    def _own_queue(self, endpoint: EndpointName) -> QueueName:
        return own_queue(self._settings, endpoint)

    def new_direct(self, holding: Holding) -> DirectHandOver:
        """Return what publishes batches straight into the levels; *holding* as above."""
        return DirectHandOver(
            batches=self._ledger.batches,
            holding=holding,
            clock=self._ledger.clock,
            fault=self._fault,
        )

    def terms_of(self, endpoint: EndpointName) -> RunTerms:
        """Return where a run of *endpoint* sends its timeouts, and as what, by the settings.

        Raises:
            TargetError: The broker does not say who it is.
        """
        broker = self._settings.broker
        return RunTerms(
            place=self._broker.place,
            renamed=self._settings.handover.destination_map,
            own_queue=self._own_queue(endpoint),
            topology=str(broker.topology),
            may_bind=not broker.all_endpoints_support_delayed_delivery,
            body_max_bytes=broker.max_message_bytes,
        )

    def new_hand_over(self, terms: RunTerms) -> HandOver:
        """Return what hands over batches of a run with these *terms*."""
        holding = self.new_holding(terms.renamed)
        preparer = Preparer(
            batches=self._ledger.batches,
            destinations=self.new_destinations(terms),
            holding=holding,
            clock=self._ledger.clock,
            rules=BrokerLimits(body_max_bytes=terms.body_max_bytes, destination_map=terms.renamed),
            own_queue_of=lambda _endpoint: QueueName(terms.own_queue),
        )
        return HandOver(preparer=preparer, direct=self.new_direct(holding))

    @cached_property
    def links(self) -> LaneLinks:
        """Opens the links of lanes; raises what ``Ledger.id`` does."""
        return LaneLinks(
            LinkSettings(
                connection=self._broker.connection,
                version=self._broker.version,
                ledger_id=self._ledger.id,
                limits=self._broker.window,
                use_entries=self._settings.handover.use_entries,
            ),
            prefetch=_PREFETCH,
        )
