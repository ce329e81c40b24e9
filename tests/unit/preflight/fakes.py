"""A broker, a store and a ledger whose answers a test sets; an error in place of one is raised."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any, TypeVar, cast

from migrator.delays.broker import BrokerFacts
from migrator.delays.depths import LevelDepth, LevelDepths, build_level_depths
from migrator.delays.destination_bindings import DestinationBinding
from migrator.delays.routing import DelaysVersion
from migrator.delays.topology import DelayEntities
from migrator.errors import MigratorError, NotChecked, UnknownEndpoint
from migrator.ledger.queries import HandedOver, SqlHandOvers
from migrator.ledger.states import Mode
from migrator.ledger.work import Clock, StoreEndpoint
from migrator.nservicebus.timeouts import EndpointName, QueueName
from migrator.preflight.context import Context, DelaysContext, Finding, Satellites
from migrator.preflight.queries import LedgerFacts
from migrator.preflight.registry import CHECKS, DELAY_CHECKS, _found
from migrator.rabbitmq.entities import (
    PolicyRule,
    QueueFacts,
    QueueMembers,
    RejectLimit,
    ServerFacts,
)
from migrator.stores.endpoints import EndpointPreview
from migrator.stores.ports import Store

T = TypeVar("T")
NOW = datetime(2026, 3, 10, 9, 30, tzinfo=UTC)
SALES = StoreEndpoint(name=EndpointName("Sales"), source="public.Sales_TimeoutData")
NO_API = NotChecked("no management API")
COMPLETE = DelayEntities(missing=(), different={}, not_checked=())
RETRY = "migrator.retry.Sales.Timeouts.10"
SATELLITES = Satellites(endpoint="Sales", queue="Sales", error_queue="error", retry_queues=(RETRY,))
PLENTY = 10**12
OWN_QUEUES = ("migrator.staging.a1.0", "migrator.receipts.a1.0")


def queue(consumers: int = 0, *, ready: int = 0) -> QueueFacts:
    """Return a queue that exists."""
    return QueueFacts(name="q", ready=ready, consumers=consumers)


def binding(name: str, *, is_gone: bool = False) -> DestinationBinding:
    """Return a way that is open, or one of which nothing is left."""
    return DestinationBinding(
        version=DelaysVersion.V2,
        destination=QueueName(name),
        has_queue=not is_gone,
        has_exchange=not is_gone,
        is_bound=not is_gone,
        leads_on=not is_gone,
    )


def level_depths(*changed: LevelDepth, gap: str = "") -> LevelDepths:
    """Return levels in which nothing waits, but for those *changed*."""
    empty = [LevelDepth(level=n, ready=0, unacknowledged=0, held=0, consumers=0) for n in range(28)]
    return build_level_depths(DelaysVersion.V2, [*empty, *changed], gap=gap)


def members(queue: str, leader: str, online: str, *, of: str = "abc") -> QueueMembers:
    """Return where a queue is kept; each letter is a node."""
    return QueueMembers(queue=queue, vhost="/", leader=leader, members=[*of], online=[*online])


def _said(answer: T | NotChecked, failure: MigratorError | None = None) -> T:
    """Return *answer*, unless one of the two is an error."""
    if failure is not None:
        raise failure
    if isinstance(answer, NotChecked):
        raise answer
    return answer


@dataclass
class FakeBroker(BrokerFacts):
    """Healthy unless told otherwise."""

    version: str = "4.3.6"
    enabled: Mapping[str, bool] | NotChecked = field(
        default_factory=lambda: {"stream_queue": True, "quorum_queue": True}
    )
    probes: dict[str, QueueFacts] = field(default_factory=dict)
    forbidden: Collection[str] = ()
    """Queues that may not be made, or bound."""
    entities: DelayEntities = COMPLETE
    rules: Mapping[str, Sequence[PolicyRule]] | NotChecked = field(default_factory=dict)
    bound: Collection[str] | NotChecked = ()
    gone: Collection[str] = ()
    later: Sequence[Mapping[int, int] | NotChecked] = ()
    """What hangs at the second look, the third …; the last one from then on."""
    hanging: Mapping[int, int] | NotChecked = field(default_factory=dict)
    steps: LevelDepths = field(default_factory=level_depths)
    kept: Sequence[QueueMembers] | NotChecked = ()
    """Where the levels are, at each look."""
    alarm_texts: Sequence[str] | NotChecked = ()
    left: int | NotChecked = PLENTY
    failure: MigratorError | None = None
    alternates: Mapping[str, Sequence[str]] | NotChecked = field(default_factory=dict)
    limits: Sequence[RejectLimit] | NotChecked = ()
    kinds: Mapping[QueueName, str] | NotChecked = field(default_factory=dict)
    """Types of the exchanges of destinations."""
    asked: list[str] = field(default_factory=list)
    """Of which queues policies were asked for, and of which exchanges."""

    def server(self) -> ServerFacts:
        facts = ServerFacts(
            product="RabbitMQ", version=self.version, cluster_name="", frame_max_bytes=1
        )
        return _said(facts, self.failure)

    def flags(self, server: ServerFacts) -> Mapping[str, bool]:
        return _said(self.enabled, self.failure)

    def queues(self, names: Collection[str]) -> Mapping[str, QueueFacts | None]:
        return _said({name: self.probes.get(name) for name in names}, self.failure)

    def not_configurable(self, names: Collection[str]) -> Mapping[str, str]:
        return _said({name: "no" for name in names if name in self.forbidden}, self.failure)

    def not_bindable(
        self, version: DelaysVersion, names: Collection[QueueName]
    ) -> Mapping[QueueName, str]:
        return _said({name: "no" for name in names if name in self.forbidden}, self.failure)

    def delay_entities(self, version: DelaysVersion) -> DelayEntities:
        return _said(self.entities, self.failure)

    def policies(self, names: Collection[str]) -> Mapping[str, Sequence[PolicyRule]]:
        self.asked += names
        return _said(self.rules, self.failure)

    def diverting(self, names: Collection[str]) -> Mapping[str, Sequence[str]]:
        self.asked += names
        return _said(self.alternates, self.failure)

    def reject_limits(self, names: Collection[QueueName]) -> Sequence[RejectLimit]:
        return _said(self.limits, self.failure)

    def exchange_kinds(self, names: Collection[QueueName]) -> Mapping[QueueName, str]:
        return _said(self.kinds, self.failure)

    def bound_names(self, version: DelaysVersion) -> frozenset[QueueName]:
        return frozenset(map(QueueName, _said(self.bound, self.failure)))

    def stuck(self, version: DelaysVersion) -> Mapping[int, int]:
        found = _said(self.hanging, self.failure)
        if self.later:
            self.hanging, *self.later = self.later
        return found

    def destination_bindings(
        self, version: DelaysVersion, names: Collection[QueueName]
    ) -> Mapping[QueueName, DestinationBinding]:
        ways = {name: binding(name, is_gone=name in self.gone) for name in names}
        _said(self.bound, self.failure)
        return ways

    def level_depths(self, version: DelaysVersion) -> LevelDepths:
        return _said(replace(self.steps, version=version), self.failure)

    def level_members(self, version: DelaysVersion) -> Sequence[QueueMembers]:
        return _said(self.kept, self.failure)

    def alarms(self) -> Sequence[str]:
        return _said(self.alarm_texts, self.failure)

    def bytes_left(self) -> int:
        return _said(self.left, self.failure)


class Fake:
    """Answers each question by what was given under its name; an error is raised."""

    def __init__(self, **answers: object) -> None:
        self.answers = answers

    def __getattr__(self, name: str) -> Any:
        answer = self.answers.get(name)
        failure = answer if isinstance(answer, MigratorError) else None
        return lambda *_, **__: _said(answer, failure)


class FakeStore(Fake):
    """Stands in for ``Store``; has the endpoint Sales unless told otherwise."""

    kind = "memory"

    def __init__(self, *, failure: MigratorError | None = None, **answers: object) -> None:
        questions = ("endpoints", "unfinished_vendor_runs", "remarks")
        usual = {
            "due_times": (),
            "unfinished_vendor_runs": (),
            "remarks": (),
            "endpoints": (SALES,),
        }
        super().__init__(**usual | answers | dict.fromkeys(questions if failure else (), failure))

    def find(self, name: str) -> StoreEndpoint:
        endpoints: dict[str, StoreEndpoint] = {each.name: each for each in self.endpoints()}
        if name not in endpoints:
            raise UnknownEndpoint(name, tuple(endpoints))
        return endpoints[name]


def ledger(**answers: object) -> Fake:
    """Return a ledger that is fit for use, but for *answers*."""
    usual = {"verify": "ledger a1, version 0001", "standbys_behind": ()}
    return Fake(**usual | answers)


@dataclass
class FakeHandOvers(SqlHandOvers):
    """Knows ten timeouts, due now, for each name."""

    names: Sequence[str] = ()
    failure: MigratorError | None = None
    asked: list[Mapping[str, datetime | None]] = field(default_factory=list)

    def handed_over(self, **asked: datetime | None) -> Sequence[HandedOver]:
        _said(None, self.failure)
        self.asked.append(asked)
        return [
            HandedOver(destination=QueueName(name), rows=10, first_due=NOW, last_due=NOW)
            for name in self.names
        ]


def preview(
    destinations: Mapping[str, int] | None = None, *, endpoint: str = "Sales", **changed: Any
) -> EndpointPreview:
    """Return a preview with what checks look at."""
    names = Counter({QueueName(name): count for name, count in (destinations or {}).items()})
    usual = EndpointPreview(
        endpoint=EndpointName(endpoint),
        source=SALES.source,
        to_migrate=names.total(),
        destinations=names,
    )
    return replace(usual, **changed)


def context(**changed: Any) -> Context:
    """Return a context in which all is well, but for what is *changed*, choices included.

    Mode staged without a cutoff is chosen.
    """
    usual = Context(
        chosen_mode=Mode.STAGED,
        cutoff=timedelta(0),
        may_bind=True,
        own_queues=OWN_QUEUES,
        poison_queue="migrator.poison.a",
        own_exchanges=("migrator.router.v2",),
        modes={},
        queues={name: name for name in changed.get("modes", {})},
        satellites=(),
        sends_near_due=False,
        store=cast(Store, FakeStore()),
        ledger=cast(LedgerFacts, ledger()),
        clock=cast(Clock, Fake(now=NOW)),
        wall_clock=lambda: NOW,
        broker=FakeBroker(),
        version=DelaysVersion.V2,
        accepts_suffix_collisions=False,
        endpoint_names=(),
        previews=(),
    )
    return replace(usual, **changed)


def delays_context(**changed: Any) -> DelaysContext:
    """Return a context with a ledger that knows nothing, but for what is *changed*."""
    usual = DelaysContext(
        broker=FakeBroker(),
        version=DelaysVersion.V2,
        accepts_suffix_collisions=False,
        hand_overs=FakeHandOvers(),
        wall_clock=lambda: NOW,
        watch_s=10,
        wait=lambda _s: None,
    )
    return replace(usual, **changed)


def found(check: str, **changed: Any) -> list[Finding]:
    """Return what one check of ``migrator preview`` finds."""
    return list(_found(check, partial(CHECKS[check], context(**changed))))


def found_of_delays(check: str, **changed: Any) -> list[Finding]:
    """Return what one check of ``migrator delays show`` finds."""
    return list(_found(check, partial(DELAY_CHECKS[check], delays_context(**changed))))
