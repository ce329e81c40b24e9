"""A broker, a store and a ledger whose answers a test sets."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from datetime import UTC, datetime, timedelta
from typing import Any

from migrator.delays.depths import LevelDepth, LevelDepths, build_level_depths
from migrator.delays.destinations import DestinationBinding
from migrator.delays.routing import DelaysVersion
from migrator.errors import MigratorError, NotChecked, UnknownEndpoint
from migrator.ledger.queries import HandedOver, SqlHandOvers
from migrator.ledger.states import Mode
from migrator.ledger.work import StoreEndpoint
from migrator.nservicebus.timeouts import EndpointName, QueueName
from migrator.preflight.broker import BrokerFacts, BrokerServer, DelayEntities, Policy
from migrator.preflight.context import Choices, Context, DelaysContext, Satellites, Watch
from migrator.preflight.findings import Finding, Level
from migrator.preflight.queries import LedgerFacts
from migrator.preflight.registry import CHECKS, DELAY_CHECKS
from migrator.rabbitmq.entities import QueueFacts, Room
from migrator.stores.endpoints import EndpointPreview
from migrator.stores.ports import DueTime, StoreRemark, SurveyedRow, TableCount

NOW = datetime(2026, 3, 10, 9, 30, tzinfo=UTC)
SALES = StoreEndpoint(name=EndpointName("Sales"), source="public.Sales_TimeoutData")
NO_API = NotChecked(reason="no management API")
COMPLETE = DelayEntities(missing=(), different={}, not_checked=())
RETRY = "migrator.retry.Sales.Timeouts.10"
SATELLITES = Satellites(endpoint="Sales", queue="Sales", error_queue="error", retry_queues=(RETRY,))

OWN_QUEUES = ("migrator.staging.a1.0", "migrator.receipts.a1.0")
CHOICES = {each.name for each in fields(Choices)}


def queue(consumers: int = 0, *, ready: int = 0) -> QueueFacts:
    """Return a queue that exists."""
    return QueueFacts(name="q", ready=ready, consumers=consumers)


def binding(
    name: str,
    *,
    has_queue: bool = True,
    has_exchange: bool = True,
    is_bound: bool = True,
    leads_on: bool = True,
) -> DestinationBinding:
    """Return a way that is open unless told otherwise."""
    return DestinationBinding(
        version=DelaysVersion.V2,
        destination=QueueName(name),
        has_queue=has_queue,
        has_exchange=has_exchange,
        is_bound=is_bound,
        leads_on=leads_on,
    )


def no_binding(name: str) -> DestinationBinding:
    """Return the way to a destination of which nothing is left."""
    return binding(name, has_queue=False, has_exchange=False, is_bound=False, leads_on=False)


def level_depths(*changed: LevelDepth, gap: str = "") -> LevelDepths:
    """Return levels in which nothing waits, but for those *changed*."""
    empty = [LevelDepth(level=n, ready=0, unacknowledged=0, held=0, consumers=0) for n in range(28)]
    return build_level_depths(DelaysVersion.V2, [*empty, *changed], gap=gap)


@dataclass
class FakeBroker(BrokerFacts):
    """Healthy unless told otherwise."""

    version: tuple[int, int, int] = (3, 12, 4)
    flags: Mapping[str, bool] | NotChecked = field(
        default_factory=lambda: {"stream_queue": True, "quorum_queue": True}
    )
    probes: dict[str, QueueFacts] = field(default_factory=dict)
    forbidden: Mapping[str, str] = field(default_factory=dict)
    unbindable: Mapping[QueueName, str] = field(default_factory=dict)
    entities: DelayEntities = COMPLETE
    rules: Mapping[str, Sequence[Policy]] | NotChecked = field(default_factory=dict)
    bound: frozenset[QueueName] | NotChecked = frozenset()
    closed: Sequence[DestinationBinding] = ()
    later: list[Mapping[int, int]] = field(default_factory=list)
    """What hangs at the second look, the third …; ``hanging`` again after the last."""
    hanging: Mapping[int, int] | NotChecked = field(default_factory=dict)
    steps: LevelDepths = field(default_factory=lambda: level_depths())
    alarm_texts: Sequence[str] | NotChecked = ()
    left: Room | NotChecked = field(
        default_factory=lambda: Room(disk_free_bytes=10**12, disk_limit_bytes=0)
    )
    failure: MigratorError | None = None
    policies_asked: list[str] = field(default_factory=list)
    alternates: Mapping[str, Sequence[str]] | NotChecked = field(default_factory=dict)
    diverting_asked: list[str] = field(default_factory=list)

    def _answer(self) -> None:
        if self.failure is not None:
            raise self.failure

    def server(self) -> BrokerServer:
        self._answer()
        text = ".".join(map(str, self.version))
        return BrokerServer(
            product="RabbitMQ", version=self.version, version_text=text, flags=self.flags
        )

    def queues(self, names: Collection[str]) -> Mapping[str, QueueFacts | None]:
        self._answer()
        return {name: self.probes.get(name) for name in names}

    def not_configurable(self, names: Collection[str]) -> Mapping[str, str]:
        self._answer()
        return {name: self.forbidden[name] for name in names if name in self.forbidden}

    def not_bindable(
        self, version: DelaysVersion, names: Collection[QueueName]
    ) -> Mapping[QueueName, str]:
        self._answer()
        return {name: self.unbindable[name] for name in names if name in self.unbindable}

    def delay_entities(self, version: DelaysVersion) -> DelayEntities:
        self._answer()
        return self.entities

    def policies(self, names: Collection[str]) -> Mapping[str, Sequence[Policy]] | NotChecked:
        self._answer()
        self.policies_asked += names
        return self.rules

    def diverting(self, names: Collection[str]) -> Mapping[str, Sequence[str]] | NotChecked:
        self._answer()
        self.diverting_asked += names
        return self.alternates

    def bound_names(self, version: DelaysVersion) -> frozenset[QueueName] | NotChecked:
        self._answer()
        return self.bound

    def stuck(self, version: DelaysVersion) -> Mapping[int, int] | NotChecked:
        self._answer()
        found, self.hanging = self.hanging, self.later.pop(0) if self.later else self.hanging
        return found

    def destination_bindings(
        self, version: DelaysVersion, names: Collection[QueueName]
    ) -> Mapping[QueueName, DestinationBinding] | NotChecked:
        self._answer()
        if isinstance(self.bound, NotChecked):
            return self.bound
        closed = {each.destination: each for each in self.closed}
        return {name: closed.get(name) or binding(name) for name in names}

    def level_depths(self, version: DelaysVersion) -> LevelDepths:
        self._answer()
        return replace(self.steps, version=version)

    def alarms(self) -> Sequence[str] | NotChecked:
        self._answer()
        return self.alarm_texts

    def room(self) -> Room | NotChecked:
        self._answer()
        return self.left


@dataclass
class FakeStore:
    """Implements ``Store``; has the endpoint Sales unless told otherwise."""

    kind: str = "memory"
    found: Sequence[StoreEndpoint] = (SALES,)
    failure: MigratorError | None = None
    claim_failure: MigratorError | None = None
    vendor_runs: Sequence[str] = ()
    remarked: Sequence[StoreRemark] = ()
    due: Sequence[DueTime] = ()

    def endpoints(self) -> Sequence[StoreEndpoint]:
        if self.failure is not None:
            raise self.failure
        return self.found

    def find(self, name: str) -> StoreEndpoint:
        for endpoint in self.endpoints():
            if endpoint.name == name:
                return endpoint
        raise UnknownEndpoint(name, tuple(endpoint.name for endpoint in self.found))

    def survey(self, endpoint: StoreEndpoint) -> Iterator[Sequence[SurveyedRow]]:
        return iter(())

    def due_times(self, endpoint: StoreEndpoint, now: datetime) -> Sequence[DueTime]:
        del endpoint, now
        return self.due

    def trial_claim(self, endpoint: StoreEndpoint) -> None:
        if self.claim_failure is not None:
            raise self.claim_failure

    def count(self, source: str, now: datetime) -> TableCount:
        raise NotImplementedError

    def answer_s(self, source: str, *, patience: timedelta) -> float:
        raise NotImplementedError

    def unfinished_vendor_runs(self) -> Sequence[str]:
        if self.failure is not None:
            raise self.failure
        return self.vendor_runs

    def remarks(self) -> Sequence[StoreRemark]:
        if self.failure is not None:
            raise self.failure
        return self.remarked


@dataclass
class FakeLedger(LedgerFacts):
    """Fit for use unless told otherwise."""

    failure: MigratorError | None = None
    forgetting: str | None = None
    behind: Sequence[str] | NotChecked = ()

    def verify(self) -> str:
        if self.failure is not None:
            raise self.failure
        return "ledger a1, version 0001"

    def forgets(self) -> str | None:
        return self.forgetting

    def standbys_behind(self) -> Sequence[str] | NotChecked:
        return self.behind


@dataclass
class FakeHandOvers(SqlHandOvers):
    """Knows ten timeouts, due now, for each name."""

    names: Sequence[str] = ()
    failure: MigratorError | None = None
    asked: list[tuple[datetime, datetime | None]] = field(default_factory=list)
    since: list[datetime | None] = field(default_factory=list)

    def handed_over(
        self,
        *,
        due_from: datetime,
        due_until: datetime | None = None,
        handed_over_from: datetime | None = None,
    ) -> Sequence[HandedOver]:
        if self.failure is not None:
            raise self.failure
        self.asked.append((due_from, due_until))
        self.since.append(handed_over_from)
        return [
            HandedOver(destination=QueueName(name), rows=10, first_due=NOW, last_due=NOW)
            for name in self.names
        ]


@dataclass
class FakeClock:
    """Implements ``Clock``; stands still."""

    at: datetime = NOW

    def now(self) -> datetime:
        return self.at

    def monotonic_s(self) -> float:
        return 0.0


def preview(
    *,
    destinations: Mapping[str, int] | None = None,
    left: int = 0,
    size: int = 0,
    endpoint: str = "Sales",
    is_complete: bool = True,
    reply_queues: Mapping[str, int] | None = None,
) -> EndpointPreview:
    """Return a preview with what checks look at."""
    names = {QueueName(name): count for name, count in (destinations or {}).items()}
    count = sum(names.values())
    return EndpointPreview(
        endpoint=EndpointName(endpoint),
        source=SALES.source,
        is_complete=is_complete,
        stored=count + left,
        in_ledger=0,
        without_due_time=0,
        left=left,
        beyond_horizon=0,
        to_migrate=count,
        overdue=0,
        quarantine={},
        destinations=names,
        due={},
        zone_offsets={},
        bytes=size,
        entry_levels={},
        reply_queues=reply_queues or {},
    )


def choices(**changed: Any) -> Choices:
    """Return an operator's choices: mode staged, without a cutoff, but for what is *changed*."""
    usual = Choices(
        mode=Mode.STAGED,
        cutoff=timedelta(0),
        may_bind=True,
        own_queues=OWN_QUEUES,
        own_exchanges=("migrator.router.v2",),
        modes={},
        queues={name: name for name in changed.get("modes", {})},
        satellites=(),
        sends_near_due=False,
    )
    return replace(usual, **changed)


def context(**changed: Any) -> Context:
    """Return a context in which all is well, but for what is *changed*, choices included."""
    chosen = {name: changed.pop(name) for name in CHOICES & changed.keys()}
    usual = Context(
        store=FakeStore(),
        ledger=FakeLedger(),
        clock=FakeClock(),
        wall_clock=lambda: NOW,
        broker=FakeBroker(),
        version=DelaysVersion.V2,
        accepts_suffix_collisions=False,
        endpoint_names=(),
        previews=(),
        choices=choices(**chosen),
    )
    return replace(usual, **changed)


def delays_context(broker: FakeBroker | None = None, **changed: Any) -> DelaysContext:
    """Return a context with a ledger that knows nothing, but for what is *changed*."""
    usual = DelaysContext(
        broker=broker or FakeBroker(),
        version=DelaysVersion.V2,
        accepts_suffix_collisions=False,
        hand_overs=FakeHandOvers(),
        wall_clock=lambda: NOW,
        watch=Watch(span_s=1, wait=lambda _s: None),
    )
    return replace(usual, **changed)


def found(check: str, broker: FakeBroker | None = None, **changed: Any) -> list[Finding]:
    """Return what one check of ``migrator check`` finds."""
    return list(CHECKS[check](context(broker=broker or FakeBroker(), **changed)))


def found_of_delays(check: str, broker: FakeBroker, **changed: Any) -> list[Finding]:
    """Return what one check of ``migrator delays verify`` finds."""
    return list(DELAY_CHECKS[check](delays_context(broker, **changed)))


def levels(findings: Sequence[Finding]) -> list[Level]:
    """Return the level of each finding."""
    return [finding.level for finding in findings]
