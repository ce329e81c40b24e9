"""What preflight asks the broker: AMQP for what everybody may know, the management API for more.

Without the management API, or where it refuses, the answer is ``NotChecked``: the API is
optional, so its absence never raises. What AMQP itself refuses does raise.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeVar

from migrator.delays.depths import LevelDepths
from migrator.delays.destinations import (
    DestinationBinding,
    find_destination_bindings,
    find_unbindable,
)
from migrator.delays.routing import (
    DelaysVersion,
    delivery_binding_key,
    delivery_exchange,
    level_name,
)
from migrator.delays.topology import (
    DelaysInspection,
    Presence,
    inspect_delays,
    level_queues,
    read_level_depths,
)
from migrator.errors import NotChecked, TargetError
from migrator.nservicebus.timeouts import BITS, QueueName
from migrator.rabbitmq.connection import ConnectionSettings, EntityLocked
from migrator.rabbitmq.entities import Binding, NodeAlarms, PolicyRule, QueueFacts, Room
from migrator.rabbitmq.server import STREAMS_ALWAYS_SINCE, find_forbidden, find_queues, server_facts

if TYPE_CHECKING:  # not every broker has the API, and its client is slow to import
    from migrator.rabbitmq.management import ManagementApi

T = TypeVar("T")

_NO_API: Final = NotChecked(
    reason="only the management API tells; set broker.management_url to have it checked"
)
_CLASSIC_PREFIX: Final = "nsb.delay-"
_ALTERNATE: Final = "alternate-exchange"
_EXCHANGES_IN_USE: Final = r"^(nsb|migrator)\."


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerServer:
    """What the broker says about itself."""

    product: str
    version: tuple[int, int, int]
    """All zeros when it cannot be read."""
    version_text: str
    flags: Mapping[str, bool] | NotChecked
    """Feature flags, by name: whether enabled."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DelayEntities:
    """How far the native delays of one generation are there."""

    missing: Sequence[str]
    """Exchanges, queues and bindings that do not exist, each as a short text."""
    different: Mapping[str, str]
    """Entities that exist with other arguments: name to what differs."""
    not_checked: Sequence[NotChecked]
    """What could not be looked at (bindings, without the management API)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """A policy, or an operator policy, that applies to a queue."""

    name: str
    definition: Mapping[str, object]


class BrokerFacts:
    """What checks ask the broker.

    Each method raises ``TargetUnavailable`` when the broker cannot be reached, and
    ``AccessRefused`` when it refuses. Absence is an answer, not an error; so is ``NotChecked``.
    """

    def __init__(self, settings: ConnectionSettings, management: ManagementApi | None) -> None:
        """Ask the broker of *settings*, and its *management* API where there is one."""
        self._settings = settings
        self._management = management

    def server(self) -> BrokerServer:
        """Connect as the daemon would, and return what the broker says about itself."""
        found = server_facts(self._settings)
        major, minor, patch = (*found.release, 0, 0, 0)[:3]
        return BrokerServer(
            product=found.product,
            version=(major, minor, patch),
            version_text=found.version,
            flags=self._flags((major, minor)),
        )

    def _flags(self, release: tuple[int, int]) -> Mapping[str, bool] | NotChecked:
        if release >= STREAMS_ALWAYS_SINCE:
            return {"stream_queue": True, "quorum_queue": True}
        found = self._asked(lambda api: api.feature_flags())
        if isinstance(found, NotChecked):
            return found
        return {name: state == "enabled" for name, state in found.items()}

    def queues(self, names: Collection[str]) -> Mapping[str, QueueFacts | None]:
        """Return each of *names*, with None for a queue that does not exist."""
        try:
            return find_queues(self._settings, names)
        except EntityLocked:
            return {name: self._queue(name) for name in names}

    def _queue(self, name: str) -> QueueFacts | None:
        try:
            return find_queues(self._settings, [name])[name]
        except EntityLocked:  # exclusive to its one consumer
            return QueueFacts(name=name, ready=0, consumers=1)

    def not_configurable(self, names: Collection[str]) -> Mapping[str, str]:
        """Return those of *names* that we may not declare as queues, with the broker's words."""
        return find_forbidden(self._settings, names)

    def not_bindable(
        self, version: DelaysVersion, names: Collection[QueueName]
    ) -> Mapping[QueueName, str]:
        """Return those of *names* that we may not bind to the delays, with the broker's words."""
        return find_unbindable(self._settings, version, names)

    def delay_entities(self, version: DelaysVersion) -> DelayEntities:
        """Compare the native delays of *version* with what they must be."""
        gaps: list[NotChecked] = []
        find = None if self._management is None else self._finder(self._management, gaps)
        found = inspect_delays(self._settings, version, find_bindings=find)
        return _compared(found, gaps)

    def _finder(
        self, api: ManagementApi, gaps: list[NotChecked]
    ) -> Callable[[str], Iterable[Binding]]:
        def find(exchange: str) -> Iterable[Binding]:
            if not gaps:
                try:
                    return api.bindings_from(exchange)
                except TargetError as exc:
                    gaps.append(NotChecked(reason=f"bindings: {exc}"))
            return ()

        return find

    def policies(self, names: Collection[str]) -> Mapping[str, Sequence[Policy]] | NotChecked:
        """Return the policies that apply to the queues *names*, or would once they exist."""
        rules = self._asked(lambda api: api.policies())
        if isinstance(rules, NotChecked):
            return rules
        return {name: effective_policies(rules, name) for name in names}

    def diverting(self, names: Collection[str]) -> Mapping[str, Sequence[str]] | NotChecked:
        """Return those of the exchanges *names* that give what they cannot route to another one.

        With what makes each do so: policies, also such as would apply once it exists, and its own
        argument.
        """
        found = self._asked(lambda api: (api.policies(), api.alternates(_EXCHANGES_IN_USE)))
        if isinstance(found, NotChecked):
            return found
        rules, alternates = found
        diverting = {name: _diverted_by(rules, name) for name in names}
        for name in alternates & diverting.keys():
            diverting[name].append("its own argument")
        return {name: why for name, why in diverting.items() if why}

    def bound_names(self, version: DelaysVersion) -> frozenset[QueueName] | NotChecked:
        """Return the names that are bound to the delivery exchange by ``#.<name>``."""
        found = self._asked(lambda api: api.bindings_from(delivery_exchange(version)))
        if isinstance(found, NotChecked):
            return found
        prefix = delivery_binding_key(QueueName(""))
        keys = [binding.key for binding in found if binding.key.startswith(prefix)]
        return frozenset(QueueName(key.removeprefix(prefix)) for key in keys if key != prefix)

    def destination_bindings(
        self, version: DelaysVersion, names: Collection[QueueName]
    ) -> Mapping[QueueName, DestinationBinding] | NotChecked:
        """Return how far the way from the delays to each of *names* is there."""
        return self._asked(
            lambda api: find_destination_bindings(self._settings, version, names, api.bindings_from)
        )

    def stuck(self, version: DelaysVersion) -> Mapping[int, int] | NotChecked:
        """Return how many expired messages wait in vain for a target, by level; no zeros."""
        levels = {level_name(version, level): level for level in range(BITS)}
        queues = self._asked(lambda api: level_queues(api, version))
        if isinstance(queues, NotChecked):
            return queues
        if not all(queue.is_told for queue in queues):
            return NotChecked(reason="the levels are so new that the broker has no counts yet")
        return {levels[queue.name]: queue.held_back for queue in queues if queue.held_back}

    def level_depths(self, version: DelaysVersion) -> LevelDepths:
        """Return every level of *version* with what waits in it, as far as it is known."""
        return read_level_depths(self._settings, self._management, version)

    def alarms(self) -> Sequence[str] | NotChecked:
        """Return the resource alarms in force, each as a short text."""
        nodes = self._asked(lambda api: api.alarms())
        if isinstance(nodes, NotChecked):
            return nodes
        return [text for node in nodes for text in _alarms(node)]

    def room(self) -> Room | NotChecked:
        """Return what the fullest node has left for messages."""
        nodes = self._asked(lambda api: api.room())
        if isinstance(nodes, NotChecked):
            return nodes
        if not nodes:
            return NotChecked(reason="no node tells how much disk is free")
        return min(nodes, key=lambda room: room.disk_free_bytes - room.disk_limit_bytes)

    def _asked(self, ask: Callable[[ManagementApi], T]) -> T | NotChecked:
        if self._management is None:
            return _NO_API
        try:
            return ask(self._management)
        except TargetError as exc:
            return NotChecked(reason=str(exc))


def effective_policies(rules: Collection[PolicyRule], queue: str) -> Sequence[Policy]:
    """Return the rules in force for *queue*: the strongest policy, and operator policy.

    Of several with the same priority the broker picks any, so all of them are returned.
    """
    kind = "classic_queues" if queue.startswith(_CLASSIC_PREFIX) else "quorum_queues"
    return _effective(rules, queue, kinds=("all", "queues", kind))


def _diverted_by(rules: Collection[PolicyRule], exchange: str) -> list[str]:
    in_force = _effective(rules, exchange, kinds=("all", "exchanges"))
    return [f"policy {each.name}" for each in in_force if _ALTERNATE in each.definition]


def _effective(
    rules: Collection[PolicyRule], name: str, *, kinds: Collection[str]
) -> Sequence[Policy]:
    matching = [rule for rule in rules if rule.apply_to in kinds and _matches(rule, name)]
    found = []
    for is_operator in (False, True):
        kind = [rule for rule in matching if rule.is_operator is is_operator]
        top = max((rule.priority for rule in kind), default=0)
        found += [rule for rule in kind if rule.priority == top]
    return [Policy(name=rule.name, definition=rule.definition) for rule in found]


def _matches(rule: PolicyRule, name: str) -> bool:
    try:
        return re.search(rule.pattern, name) is not None
    except re.error:  # the broker's dialect knows more; better one doubt too many
        return True


def _compared(found: DelaysInspection, gaps: list[NotChecked]) -> DelayEntities:
    missing = [f"{entity.kind} {entity.name}" for entity in found.having(Presence.ABSENT)]
    unknown = [
        NotChecked(reason=f"{entity.name}: {entity.detail}")
        for entity in found.having(Presence.UNKNOWN)
    ]
    bindings = found.bindings
    if bindings.not_checked:
        unknown.append(NotChecked(reason=bindings.not_checked))
    elif not gaps:
        missing += [f"binding {b.source} to {b.target.name} ({b.key})" for b in bindings.missing]
    return DelayEntities(
        missing=missing,
        different={entity.name: entity.detail for entity in found.having(Presence.WRONG)},
        not_checked=[*unknown, *gaps],
    )


def _alarms(node: NodeAlarms) -> Sequence[str]:
    texts = [] if node.is_running else [f"{node.node} is not running"]
    texts += [f"memory alarm on {node.node}"] if node.memory else []
    return [*texts, f"disk alarm on {node.node}"] if node.disk else texts
