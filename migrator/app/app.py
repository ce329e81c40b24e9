"""Settings go in, an assembled application comes out.

Nothing connects before it is used, so that `db upgrade` works without a broker and
`delays create` without a database. Each part is imported when it is made, so that a verb waits for
no other; whose parts a daemon may make later, ``service.launch`` imports at its start.
"""

from __future__ import annotations

import getpass
import os
import signal
import socket
import time
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Final

from pydantic import SecretStr

from migrator import __version__
from migrator.config import required_secret
from migrator.config.sources import LEDGER_PLACE, ledger_place
from migrator.config.work import MAX_BATCH_ROWS
from migrator.database.engine import open_engine
from migrator.delays.routing import CAPACITY_MEASURED, JUST_DUE
from migrator.errors import PreflightRefused
from migrator.ledger.clock import DatabaseClock
from migrator.ledger.failover import Continuity
from migrator.ledger.identity import check_identity
from migrator.ledger.queries import LedgerQueries, SqlHandOvers
from migrator.ledger.tables import LedgerTables, build_tables, names_for
from migrator.nservicebus.timeouts import EndpointName, Lane, QueueName
from migrator.preflight.queries import LedgerFacts

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

    from sqlalchemy import Engine

    from migrator.app.stores import DocumentBackend, SqlBackend, StoreBackend
    from migrator.config import Settings
    from migrator.delays.broker import BrokerFacts
    from migrator.delays.capacity import MeasuredCapacity
    from migrator.delays.destinations import BoundNames, Destinations
    from migrator.handover.direct import DirectHandOver
    from migrator.handover.holding import Holding
    from migrator.handover.link import RabbitLink
    from migrator.handover.prepare import Preparer
    from migrator.handover.runs import HandOver
    from migrator.ledger.batches import SqlBatches, SqlRuns
    from migrator.ledger.held_destinations import SqlHeldDestinations
    from migrator.ledger.leases import SqlLeases
    from migrator.ledger.parking import SqlParking
    from migrator.ledger.purge import SettledRows
    from migrator.ledger.run_terms import BrokerPlace, RunTerms
    from migrator.ledger.work import FaultPoint, Lease, StoreEndpoint
    from migrator.nservicebus.conversion import BrokerLimits
    from migrator.quarantine.rows import SqlQuarantine
    from migrator.rabbitmq.connection import ConnectionSettings
    from migrator.rabbitmq.management import ManagementApi
    from migrator.rabbitmq.publisher import WindowLimits
    from migrator.recovery.unresolved import OperatorActions
    from migrator.stores.due_times import DueTimeReading, DueTimeRules
    from migrator.stores.endpoints import Selection
    from migrator.stores.ports import Claims, Store

FAULT_VARIABLE: Final = "MIGRATOR_FAULT_POINT"
"""``name:hit``: for crash tests, the process kills itself at that step; inert when unset."""
_BESIDE_LANES: Final = 4
"""Connections for all that is no lane."""
_PREFETCH: Final = 3 * (MAX_BATCH_ROWS + 1)
"""Whatever batch comes into a lane must fit, with two commits that may come back next to it."""


class App:
    """Everything assembled, each part made when it is first asked for."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.fault = fault_point(os.environ.get(FAULT_VARIABLE, ""))
        self._lane_connections: dict[Lane, ConnectionSettings] = {}

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
        from migrator.nservicebus.conversion import BrokerLimits

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
    def window_limits(self) -> WindowLimits:
        """How much may be published and not answered yet."""
        from migrator.rabbitmq.publisher import WindowLimits

        given = self.settings.handover
        return WindowLimits(
            messages=given.window,
            body_bytes=given.window_bytes,
            confirm_deadline_s=self.settings.broker.confirm_deadline.total_seconds(),
        )

    # ── the broker ──────────────────────────────────────────────────────────────────────────

    @cached_property
    def connection(self) -> ConnectionSettings:
        """How the broker is reached.

        Raises:
            ConfigError: The address is missing or wrong.
        """
        from migrator.rabbitmq.addresses import parse_addresses
        from migrator.rabbitmq.connection import ConnectionSettings, TlsFiles

        given = self.settings.broker
        url = required_secret(given.url, key="broker.url", option="--broker-url")
        return ConnectionSettings(
            nodes=parse_addresses(url),
            tls=TlsFiles(**dict(given.tls)),
            blocked_deadline_s=given.blocked_deadline.total_seconds(),
            prefetch_bytes=given.prefetch_bytes,
        )

    def lane_connection(self, lane: Lane) -> ConnectionSettings:
        """Return how a lane reaches the broker: lanes begin with different nodes.

        So their connections spread over a cluster, and with them the leaders of their queues.
        Which node a lane used last is remembered for its next link.
        """
        return self._lane_connections.setdefault(lane, self.connection.beginning_with(lane))

    def open_lane(self, lease: Lease, guard: Callable[[], None]) -> RabbitLink:
        """Return a link for the lane of *lease*; see ``open_link``, which says what it raises."""
        from migrator.handover.link import LinkSettings, open_link

        settings = LinkSettings(
            connection=self.lane_connection(lease.lane),
            version=self.settings.broker.delays,
            ledger_id=self.ledger_id,
            limits=self.window_limits,
            use_entries=self.settings.handover.use_entries,
        )
        owner = lease.owner.split("/")[0]
        return open_link(settings, lane=lease.lane, owner=owner, prefetch=_PREFETCH, guard=guard)

    @property
    def named_place(self) -> BrokerPlace:
        """Where this process sends timeouts, as far as that is known without asking the broker."""
        from migrator.ledger.run_terms import BrokerPlace

        has_broker = self.settings.broker.url is not None
        return BrokerPlace(
            cluster=None,
            vhost=self.connection.address.vhost if has_broker else None,
            delays=str(self.settings.broker.delays),
        )

    @cached_property
    def broker_place(self) -> BrokerPlace:
        """Where this process sends timeouts, by what the broker calls itself.

        Raises:
            ConfigError: The address is missing or wrong.
            TargetError: The broker does not say who it is.
        """
        from migrator.rabbitmq.server import server_facts

        cluster = server_facts(self.connection).cluster_name
        return replace(self.named_place, cluster=cluster or None)

    @cached_property
    def management(self) -> ManagementApi | None:
        """The broker's management API, where one is named."""
        url = self.settings.broker.management_url
        if url is None:
            return None
        from migrator.rabbitmq.management import ManagementApi, management_settings

        address, tls = self.connection.nodes[0], self.connection.tls
        urls = url.get_secret_value().split("\n")
        return ManagementApi(*(management_settings(address, each, tls) for each in urls))

    @cached_property
    def broker_facts(self) -> BrokerFacts:
        """What checks ask the broker."""
        from migrator.delays.broker import BrokerFacts

        return BrokerFacts(self.connection, self.management)

    @cached_property
    def destinations(self) -> Destinations:
        """Binds destinations, or says why not; all lanes share what it remembers."""
        return self.new_destinations()

    def new_destinations(self, terms: RunTerms | None = None) -> Destinations:
        """Return one that remembers nothing, and that nobody else waits for.

        It binds them as the *terms* of a run say, else as the settings do.
        """
        from migrator.delays.destinations import Destinations
        from migrator.delays.routing import Topology

        given = self.settings.broker
        binds = not given.all_endpoints_support_delayed_delivery
        return Destinations(
            self.connection,
            given.delays,
            topology=Topology(terms.topology) if terms else given.topology,
            bind=terms.may_bind if terms else binds,
            find_bindings=self.management.bindings_from if self.management else None,
            management=self.management,
            bound=None if self.settings.handover.accept_suffix_collisions else self._bound_names,
        )

    @cached_property
    def _bound_names(self) -> BoundNames:
        """What is known to be bound to the delays, where no management API shows all of it."""
        from migrator.delays.destinations import BoundNames

        def handed_over() -> Collection[QueueName]:
            found = self.hand_overs.handed_over(due_from=self.clock.now() - JUST_DUE)
            return [each.destination for each in found]

        return BoundNames(handed_over)

    # ── the store ───────────────────────────────────────────────────────────────────────────

    @cached_property
    def side(self) -> StoreBackend:
        """All that the kind of legacy store brings."""
        from migrator.app.stores import open_backend

        return open_backend(self)

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

    def read_due_times(self, endpoint: StoreEndpoint) -> DueTimeReading:
        """Return whether due times of *endpoint* are read in the zone they were written in."""
        from migrator.stores.due_times import read_due_times

        return read_due_times(self.store, endpoint, self.clock, self.due_times)

    # ── handing over ────────────────────────────────────────────────────────────────────────

    def new_holding(self, renamed: Mapping[str, str]) -> Holding:
        """Return what parks rows whose destination takes no messages.

        *renamed* are the destinations that have other names.
        """
        from migrator.handover.holding import Holding

        return Holding(
            ledger=self.held_destinations,
            parking=self.parking,
            look_for=lambda names: self.new_destinations().unreachable(names),
            forget=self.destinations.forget,
            clock=self.clock,
            renamed=renamed,
            fault=self.fault,
        )

    def new_preparer(self, holding: Holding) -> Preparer:
        """Return what makes messages of rows; *holding* gets those that have no destination."""
        from migrator.handover.prepare import Preparer

        return Preparer(
            batches=self.batches,
            destinations=self.destinations,
            holding=holding,
            clock=self.clock,
            rules=replace(self.rules, destination_map=holding.renamed),
            own_queue_of=self.own_queue_of,
        )

    def new_direct(self, holding: Holding) -> DirectHandOver:
        """Return what publishes batches straight into the levels; *holding* as above."""
        from migrator.handover.direct import DirectHandOver

        return DirectHandOver(
            batches=self.batches, holding=holding, clock=self.clock, fault=self.fault
        )

    def terms_of(self, endpoint: EndpointName) -> RunTerms:
        """Return where a run of *endpoint* sends its timeouts, and as what, by the settings.

        Raises:
            TargetError: The broker does not say who it is.
        """
        from migrator.ledger.run_terms import RunTerms

        broker = self.settings.broker
        return RunTerms(
            place=self.broker_place,
            renamed=self.settings.handover.destination_map,
            own_queue=self.own_queue_of(endpoint),
            topology=str(broker.topology),
            may_bind=not broker.all_endpoints_support_delayed_delivery,
            body_max_bytes=broker.max_message_bytes,
        )

    def new_hand_over(self, terms: RunTerms) -> HandOver:
        """Return what hands over batches of a run with these *terms*."""
        from migrator.handover.prepare import Preparer
        from migrator.handover.runs import HandOver
        from migrator.nservicebus.conversion import BrokerLimits

        holding = self.new_holding(terms.renamed)
        preparer = Preparer(
            batches=self.batches,
            destinations=self.new_destinations(terms),
            holding=holding,
            clock=self.clock,
            rules=BrokerLimits(body_max_bytes=terms.body_max_bytes, destination_map=terms.renamed),
            own_queue_of=lambda _endpoint: QueueName(terms.own_queue),
        )
        return HandOver(preparer=preparer, direct=self.new_direct(holding))

    # ── the ledger ──────────────────────────────────────────────────────────────────────────

    @cached_property
    def engine(self) -> Engine:
        """The ledger's database; a SQL store's tables are in it, too."""
        # each lane claims, converts and records side by side, none of it for long
        return self._open_engine(kept_open=self.settings.handover.lanes + _BESIDE_LANES)

    @cached_property
    def lease_engine(self) -> Engine:
        """The same database for the leases alone: no renewal waits until lanes are done with it."""
        return self._open_engine()

    def _open_engine(self, *, kept_open: int | None = None) -> Engine:
        given = self.settings
        if given.store.kind.has_own_ledger:
            url = required_secret(given.ledger.url, key="ledger.url")
        else:
            url = required_secret(given.store.url, key="store.url", option="--store-url")
        return open_engine(url, kept_open=kept_open)

    @cached_property
    def tables(self) -> LedgerTables:
        """The ledger's tables, whether they exist or not."""
        return build_tables(names_for(self.engine, self.settings.store.ledger_schema))

    @cached_property
    def ledger_facts(self) -> LedgerFacts:
        """What checks ask the ledger."""
        return LedgerFacts(self.engine, self.tables)

    @cached_property
    def hand_overs(self) -> SqlHandOvers:
        """Where timeouts were handed over to."""
        renamed = self.settings.handover.destination_map
        return SqlHandOvers(self.engine, self.tables, renamed)

    @property
    def ledger_place(self) -> str:
        """Where the ledger is, without telling the address; see ``config.sources``."""
        store, url = self.settings.store, self.settings.ledger.url
        given = (store.kind, store.url, store.ledger_schema, url)
        texts = (each.get_secret_value() if isinstance(each, SecretStr) else each for each in given)
        return ledger_place(dict(zip(LEDGER_PLACE, texts, strict=True)))

    @cached_property
    def ledger_id(self) -> str:
        """The id that names our queues.

        Raises:
            LedgerMissing, LedgerCloned, DatabaseFailedOver: The ledger cannot be used.
        """
        ledger_id = check_identity(self.engine, self.tables)
        self.continuity.begin()
        return ledger_id

    def accept_failover(self) -> None:
        """Work with the ledger although another server has taken over: to settle that.

        Raises:
            LedgerMissing, LedgerCloned: The ledger cannot be used.
        """
        self.__dict__["ledger_id"] = check_identity(
            self.engine, self.tables, may_have_failed_over=True
        )

    @cached_property
    def continuity(self) -> Continuity:
        """Whether the database is still the server it was."""
        return Continuity(self.engine, self.tables, self.lease_engine)

    @cached_property
    def leases(self) -> SqlLeases:
        """The lanes."""
        from migrator.ledger.leases import SqlLeases

        return SqlLeases(self.lease_engine, self.tables, self.ledger_id, self.continuity)

    @cached_property
    def batches(self) -> SqlBatches:
        """The batches."""
        from migrator.ledger.batches import SqlBatches

        return SqlBatches(self.engine, self.tables, self.continuity.note)

    @cached_property
    def parking(self) -> SqlParking:
        """Rows that wait in the ledger for their destinations."""
        from migrator.ledger.parking import SqlParking

        return SqlParking(self.engine, self.tables)

    @cached_property
    def held_destinations(self) -> SqlHeldDestinations:
        """Destinations that could not be reached."""
        from migrator.ledger.held_destinations import SqlHeldDestinations

        return SqlHeldDestinations(self.engine, self.tables)

    @cached_property
    def runs(self) -> SqlRuns:
        """Runs and the audit trail."""
        from migrator.ledger.batches import SqlRuns

        return SqlRuns(self.engine, self.tables, actor=_actor(), version=__version__)

    @cached_property
    def clock(self) -> DatabaseClock:
        """The database's time."""
        return DatabaseClock(self.engine, monotonic=_seconds_since_boot)

    @cached_property
    def queries(self) -> LedgerQueries:
        """Progress, lanes and history."""
        return LedgerQueries(self.engine, self.tables)

    def kept_capacity(self) -> MeasuredCapacity | None:
        """Return what was measured last; None: never on this broker as it is now.

        Raises:
            LedgerError: The ledger cannot be read.
            TargetError: The broker does not say who it is; only asked where there is a figure.
        """
        from migrator.delays.capacity import find_broker, read_capacity

        event = self.queries.latest_event(CAPACITY_MEASURED)
        found = None if event is None else read_capacity(event.detail)
        if found is None or found.broker != find_broker(
            self.connection, self.settings.broker.delays
        ):
            return None
        return found

    @cached_property
    def quarantine(self) -> SqlQuarantine:
        """Rows kept aside with a reason."""
        from migrator.quarantine.rows import SqlQuarantine

        return SqlQuarantine(self.engine, self.tables)

    @cached_property
    def operator_actions(self) -> OperatorActions:
        """What only an operator may change."""
        from migrator.recovery.unresolved import OperatorActions

        return OperatorActions(self.engine, self.tables)

    @cached_property
    def settled_rows(self) -> SettledRows:
        """Rows of which nothing more is to be done."""
        from migrator.ledger.purge import SettledRows

        return SettledRows(self.engine, self.tables)

    def close(self) -> None:
        """Close what was opened."""
        opened = self.__dict__
        if (side := opened.get("side")) is not None:
            side.close()
        for name in ("engine", "lease_engine"):
            if name in opened:
                opened[name].dispose()
        if (management := opened.get("management")) is not None:
            management.close()


def _seconds_since_boot() -> float:
    """Return monotonic seconds that go on while the machine is suspended, where it tells them."""
    clock = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
    return time.clock_gettime(clock)


def _actor() -> str:
    try:
        user = getpass.getuser()
    except (KeyError, OSError):
        user = str(os.getuid())
    return f"{user}@{socket.gethostname()}"


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
