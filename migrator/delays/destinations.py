"""Destinations: whether a message would find its way out of the delays again.

With v2, messages for a name that nobody is bound to freeze a level for every endpoint (reference
``native-delays.md`` section 5.3), so each destination is bound, or refused, before its first
message is sent. Binding twice changes nothing; answers are remembered for a while. A right that
we miss is an error of ours, and never said of a destination.
"""

from __future__ import annotations

import logging
import secrets
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from migrator.delays.routing import (
    DelaysVersion,
    Topology,
    Unreachable,
    delivery_binding_key,
    delivery_exchange,
)
from migrator.delays.topology import FindBindings
from migrator.errors import AccessRefused, TargetError
from migrator.nservicebus.conversion import Reason
from migrator.nservicebus.timeouts import QueueName
from migrator.rabbitmq.admin import AdminSession, admin_session, can_exist
from migrator.rabbitmq.connection import ConnectionSettings, EntityAbsent, EntityLocked
from migrator.rabbitmq.entities import Binding, Entity, exchange_entity, queue_entity

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class DestinationRules:
    """How destinations are reached."""

    version: DelaysVersion
    topology: Topology = Topology.AUTO
    bind: bool = True
    """False: bind nothing (preview, or all endpoints support native delays); a binding that is
    known to be missing is refused."""
    remembered_s: float = 60.0
    refusal_remembered_s: float = 3.0
    """So that what an operator has just mended is seen at once."""


class Destinations:
    """Whether messages would find their way out of the delays; may be asked by several threads."""

    def __init__(
        self,
        settings: ConnectionSettings,
        rules: DestinationRules,
        *,
        find_bindings: FindBindings | None = None,
        monotonic_s: Callable[[], float] = time.monotonic,
    ) -> None:
        """Ask the broker that *settings* name.

        Args:
            settings: Where to ask.
            rules: How destinations are reached.
            find_bindings: Bindings by source exchange, from the management API; None: bindings
                that are not ours to make are taken for granted.
            monotonic_s: What answers age by.
        """
        self._settings = settings
        self._rules = rules
        self._find_bindings = find_bindings
        self._monotonic_s = monotonic_s
        self._lock = threading.Lock()
        self._remembered: dict[QueueName, tuple[float, Unreachable | None]] = {}

    def unreachable(self, names: Collection[QueueName]) -> Mapping[QueueName, Unreachable]:
        """Bind each of *names* to the delivery exchange; return those that cannot be.

        Raises:
            TargetUnavailable: The broker cannot be asked now.
            AccessRefused: We may not bind one of them, which says nothing about its rows.
        """
        with self._lock:
            unknown = [name for name in dict.fromkeys(names) if not self._is_fresh(name)]
            if unknown:
                self._ask(unknown)
            answers = {name: self._remembered[name][1] for name in names}
        return {name: found for name, found in answers.items() if found is not None}

    def _is_fresh(self, name: QueueName) -> bool:
        if name not in self._remembered:
            return False
        asked_s, refusal = self._remembered[name]
        rules = self._rules
        limit_s = rules.remembered_s if refusal is None else rules.refusal_remembered_s
        return self._monotonic_s() - asked_s <= limit_s

    def known(self) -> Collection[QueueName]:
        """Return the names that were asked for so far and can be reached."""
        with self._lock:
            answers = self._remembered.items()
            return [name for name, (_, refusal) in answers if refusal is None]

    def forget(self, names: Collection[QueueName]) -> None:
        """Ask again for *names* at the next call."""
        with self._lock:
            for name in names:
                self._remembered.pop(name, None)

    def _ask(self, names: list[QueueName]) -> None:
        with admin_session(self._settings, purpose="bind destinations") as admin:
            delivery = delivery_exchange(self._rules.version)
            if not admin.has_exchange(delivery):
                raise EntityAbsent(
                    f"{self._settings.address}: exchange {delivery} does not exist; "
                    "create the delays first: migrator delays create"
                )
            for name in names:
                self._remembered[name] = (self._monotonic_s(), self._look(admin, name))

    def _look(self, admin: AdminSession, name: QueueName) -> Unreachable | None:
        try:
            found = find_target(admin, name, self._rules.topology, self._find_bindings)
            return found if isinstance(found, Unreachable) else self._bind(admin, name, found)
        except EntityLocked as exc:
            return _locked(name, exc)

    def _bind(self, admin: AdminSession, name: QueueName, target: Entity) -> Unreachable | None:
        source, key = delivery_exchange(self._rules.version), delivery_binding_key(name)
        binding = Binding(source=source, target=target, key=key)
        if not self._rules.bind:
            missing = self._is_missing(binding)
            return _unbound(name, "nothing binds it to the delays") if missing else None
        try:
            admin.bind(binding)
        except AccessRefused as exc:  # a right that we miss is no fault of the rows
            raise AccessRefused(
                f"destination {name!r} may not be bound to the delays: {exc}; its timeouts wait: "
                "grant what `migrator broker grants` prints"
            ) from exc
        except EntityAbsent:
            return _unknown(name)  # deleted since we looked
        return None

    def _is_missing(self, wanted: Binding) -> bool:
        """Return whether the management API knows that a binding does not exist.

        When the API is there but does not answer, that is raised: the operator said that we
        bind nothing, so a missing binding is what must be noticed.
        """
        return self._find_bindings is not None and wanted not in self._find_bindings(wanted.source)


def find_target(
    admin: AdminSession, name: QueueName, topology: Topology, find_bindings: FindBindings | None
) -> Entity | Unreachable:
    """Return the entity that takes messages for *name*: its exchange, or its queue; or why none.

    Without *find_bindings*, an exchange is taken to lead to its queue. Creates nothing.
    """
    try:
        has_queue = bool(name) and admin.queue(name) is not None
        by_exchange = bool(name) and topology is not Topology.DIRECT and admin.has_exchange(name)
    except EntityLocked as exc:
        return _locked(name, exc)
    if not has_queue and by_exchange:
        return _unbound(name, "the exchange exists, but no queue of that name")
    if not has_queue:
        return _unknown(name)
    if by_exchange:
        if _leads_nowhere(find_bindings, name):
            return _unbound(name, "its exchange does not lead to its queue")
        return exchange_entity(name)
    if topology is Topology.CONVENTIONAL:
        return _unbound(name, "the queue exists, but the exchange that leads to it does not")
    return queue_entity(name)


def _leads_nowhere(find_bindings: FindBindings | None, exchange: QueueName) -> bool:
    """Return whether the API knows that an endpoint's exchange misses its queue.

    A courtesy that no other tool offers, so an API that does not answer changes nothing.
    """
    if find_bindings is None:
        return False
    try:
        return all(binding.target != queue_entity(exchange) for binding in find_bindings(exchange))
    except TargetError as exc:
        _log.info(
            "the management API did not tell where an exchange leads",
            extra={"action": "bindings_unknown", "destination": exchange, "detail": str(exc)},
        )
        return False


def _unknown(name: QueueName) -> Unreachable:
    detail = f"the broker has no queue {name!r}"
    return Unreachable(reason=Reason.DESTINATION_UNKNOWN, detail=detail)


def _unbound(name: QueueName, detail: str) -> Unreachable:
    return Unreachable(reason=Reason.DESTINATION_UNBOUND, detail=f"{name!r}: {detail}")


def _locked(name: QueueName, error: EntityLocked) -> Unreachable:
    return _unbound(name, f"its queue is exclusive to another connection ({error})")


def find_unbindable(
    settings: ConnectionSettings, version: DelaysVersion, names: Collection[QueueName]
) -> Mapping[QueueName, str]:
    """Return those of *names* that may not be bound to the delays, with the broker's words.

    Binds nothing: it removes a binding that nobody has, which is no error and needs the same
    rights. A queue and an exchange of one name need the same, too.
    """
    refused = {}
    delivery = delivery_exchange(version)
    with admin_session(settings, purpose="look") as admin:
        for name in filter(can_exist, names):
            key = f"{delivery_binding_key(name)}.probe-{secrets.token_hex(6)}"
            try:
                admin.unbind_queue(delivery, name, key)
            except AccessRefused as exc:
                refused[name] = str(exc)
            except EntityLocked:  # exclusive to somebody: the rights were looked at before
                continue
    return refused


# ── what is missing, for a person ────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True, kw_only=True)
class DestinationBinding:
    """How far the way from the delays to one destination is there.

    A message leaves by a binding ``#.<destination>`` of the delivery exchange, either straight to
    the queue or to an exchange of its name that leads there (``native-delays.md`` section 2).
    """

    version: DelaysVersion
    destination: QueueName
    has_queue: bool
    has_exchange: bool
    """Of the destination's name."""
    is_bound: bool
    """Something is bound to the delivery exchange for it."""
    leads_on: bool
    """What is bound for it is a queue, or an exchange that leads on."""

    @property
    def is_open(self) -> bool:
        """Whether its messages leave the delays."""
        return self.is_bound and self.leads_on

    @property
    def problem(self) -> str:
        """What is missing, in words; empty when nothing is."""
        if self.is_open:
            return ""
        if not self.has_queue:
            return "its queue does not exist"
        if not self.is_bound:
            return "nothing binds it to the delays"
        return "it is bound to the delays, but its exchange leads nowhere"

    @property
    def missing(self) -> tuple[Binding, ...]:
        """The bindings to be made, the last stretch first; empty when the way is open.

        Once they are made, messages that wait in the levels leave them.
        """
        if self.is_open:
            return ()
        last = self._binding(self.destination, "", to_queue=True)
        first = self._binding(
            delivery_exchange(self.version),
            delivery_binding_key(self.destination),
            to_queue=not self.has_exchange,
        )
        if not self.has_exchange:
            return (first,)
        needed = [] if self.leads_on and self.has_queue else [last]
        return (*needed, *([] if self.is_bound else [first]))

    @property
    def remedy(self) -> str:
        """What to do, in words; empty when the way is open."""
        if self.is_open:
            return ""
        steps = [] if self.has_queue else [f"create queue {self.destination}"]
        steps += [_sentence(binding) for binding in self.missing]
        return "start its endpoint once with its installers, or " + ", then ".join(steps)

    def _binding(self, source: str, key: str, *, to_queue: bool) -> Binding:
        entity = queue_entity if to_queue else exchange_entity
        return Binding(source=source, target=entity(self.destination), key=key)


def _sentence(binding: Binding) -> str:
    kind = "queue" if binding.target_is_queue else "exchange"
    key = f"with key {binding.key}" if binding.key else "without a key"
    return f"bind exchange {binding.source} to {kind} {binding.target.name} {key}"


def find_destination_bindings(
    settings: ConnectionSettings,
    version: DelaysVersion,
    names: Collection[QueueName],
    find_bindings: FindBindings,
) -> Mapping[QueueName, DestinationBinding]:
    """Return how far the way to each of *names* is there; makes nothing.

    Raises:
        TargetError: The broker, or its management API, cannot be asked.
    """
    bound: defaultdict[str, list[Binding]] = defaultdict(list)
    for binding in find_bindings(delivery_exchange(version)):
        bound[binding.key].append(binding)
    with admin_session(settings, purpose="look for destinations") as admin:
        return {
            name: _destination_binding(
                admin, version, name, bound[delivery_binding_key(name)], find_bindings
            )
            for name in names
        }


def _destination_binding(
    admin: AdminSession,
    version: DelaysVersion,
    name: QueueName,
    bound: Sequence[Binding],
    find_bindings: FindBindings,
) -> DestinationBinding:
    return DestinationBinding(
        version=version,
        destination=name,
        has_queue=_has_queue(admin, name),
        has_exchange=admin.has_exchange(name),
        is_bound=bool(bound),
        leads_on=_leads_on(bound, find_bindings),
    )


def _has_queue(admin: AdminSession, name: QueueName) -> bool:
    try:
        return admin.queue(name) is not None
    except EntityLocked:  # exclusive to somebody, so it is there
        return True


def _leads_on(bound: Iterable[Binding], find_bindings: FindBindings) -> bool:
    return any(b.target_is_queue or any(True for _ in find_bindings(b.target.name)) for b in bound)
