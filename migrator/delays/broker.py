"""What checks and throttle signals ask the broker: AMQP, and the management API for more.

What only the management API tells raises ``NotChecked`` where there is none, or it refuses: the API
is optional. What AMQP itself refuses raises ``AccessRefused`` or ``TargetUnavailable``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Final, TypeVar

from migrator.delays.depths import LevelDepths
from migrator.delays.destination_bindings import DestinationBinding, find_destination_bindings
from migrator.delays.destinations import find_unbindable, names_bound_by
from migrator.delays.routing import DelaysVersion, delivery_exchange
from migrator.delays.topology import (
    DelayEntities,
    held_levels,
    inspect_delays,
    level_members,
    read_level_depths,
)
from migrator.errors import NotChecked, TargetError
from migrator.nservicebus.satellites import dispatcher_queue
from migrator.nservicebus.timeouts import EndpointName, QueueName
from migrator.rabbitmq.admin import ANSWER_S
from migrator.rabbitmq.connection import ConnectionSettings, EntityLocked
from migrator.rabbitmq.entities import (
    Binding,
    NodeState,
    PolicyRule,
    QueueFacts,
    QueueMembers,
    RejectLimit,
    ServerFacts,
    reject_limits,
)
from migrator.rabbitmq.server import STREAMS_ALWAYS_SINCE, find_forbidden, find_queues, server_facts

if TYPE_CHECKING:  # not every broker has the API, and its client is slow to import
    from migrator.rabbitmq.management import ManagementApi

T = TypeVar("T")

_NO_API: Final = "only the management API shows this; set broker.management_url to have it checked"
_CLASSIC_PREFIX: Final = "nsb.delay-"
_ALTERNATE: Final = "alternate-exchange"
_EXCHANGES_IN_USE: Final = r"^(nsb|migrator)\."


class BrokerFacts:
    """What checks and throttle signals ask the broker.

    Each method raises ``TargetUnavailable`` when the broker cannot be reached, ``AccessRefused``
    when it refuses, and ``NotChecked`` when only the management API could tell. Absence is an
    answer, not an error.
    """

    def __init__(self, settings: ConnectionSettings, management: ManagementApi | None) -> None:
        self._settings = settings
        self._management = management

    def server(self) -> ServerFacts:
        """Connect as the daemon would, and return what the broker says about itself."""
        return server_facts(self._settings)

    def flags(self, server: ServerFacts) -> Mapping[str, bool]:
        """Return the feature flags by name: whether enabled."""
        if server.release >= STREAMS_ALWAYS_SINCE:
            return {"stream_queue": True, "quorum_queue": True}
        found = self._asked(lambda api: api.feature_flags())
        return {name: state == "enabled" for name, state in found.items()}

    def queues(self, names: Collection[str]) -> Mapping[str, QueueFacts | None]:
        """Return each of *names*, with None for a queue that does not exist.

        One that is exclusive to its consumer tells no count: 0 ready, one consumer. One that we may
        not look at is hidden: neither there nor absent.
        """
        try:
            return find_queues(self._settings, names, answer_s=ANSWER_S, may_be_hidden=True)
        except EntityLocked:
            return {name: self._queue(name) for name in names}

    def timeout_manager(
        self, input_queues: Mapping[str, str], endpoint: EndpointName
    ) -> tuple[QueueName, bool | None]:
        """Return the queue by which the timeout manager of *endpoint* sends, and whether it runs.

        None: a right is missing. *input_queues*: of the endpoints in the settings, by name.
        """
        # an endpoint that was merely discovered shows its dots as underscores
        known = input_queues.get(endpoint)
        inputs = [known] if known else sorted({endpoint, endpoint.replace("_", ".")})
        names = [dispatcher_queue(QueueName(name)) for name in inputs]
        found = [queue for queue in self.queues(names).values() if queue is not None]
        runs = any(queue.consumers for queue in found)
        return names[-1], None if not runs and any(queue.is_hidden for queue in found) else runs

    def _queue(self, name: str) -> QueueFacts | None:
        try:
            one = find_queues(self._settings, [name], answer_s=ANSWER_S, may_be_hidden=True)
            return one[name]
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
        return inspect_delays(self._settings, version, find_bindings=self._bindings)

    def _bindings(self, exchange: str) -> Iterable[Binding]:
        return self._asked(lambda api: api.bindings_from(exchange))

    def policies(self, names: Collection[str]) -> Mapping[str, Sequence[PolicyRule]]:
        """Return the policies that apply to the queues *names*, or would once they exist."""
        rules = self._asked(lambda api: api.policies())
        return {name: effective_policies(rules, name) for name in names}

    def diverting(self, names: Collection[str]) -> Mapping[str, Sequence[str]]:
        """Return those of the exchanges *names* that give what they cannot route to another one.

        With what makes each do so: policies, also such as would apply once it exists, and its own
        argument.
        """
        rules = self._asked(lambda api: api.policies())
        exchanges = self._asked(lambda api: api.exchanges(_EXCHANGES_IN_USE))
        diverting = {name: _diverted_by(rules, name) for name in names}
        for name in exchanges.keys() & diverting.keys():
            if _ALTERNATE in exchanges[name]:
                diverting[name].append("its own argument")
        return {name: why for name, why in diverting.items() if why}

    def bound_names(self, version: DelaysVersion) -> frozenset[QueueName]:
        """Return the names that are bound to the delivery exchange by ``#.<name>``."""
        return frozenset(names_bound_by([*self._bindings(delivery_exchange(version))]))

    def reject_limits(self, names: Collection[QueueName]) -> Sequence[RejectLimit]:
        """Return when the queues *names* begin to reject messages; those that never do not."""

        def limits(api: ManagementApi) -> Sequence[RejectLimit]:
            found = (api.queue(name) for name in names)
            return [limit for state in found if state for limit in reject_limits(state)]

        return self._asked(limits)

    def exchange_kinds(self, names: Collection[QueueName]) -> Mapping[QueueName, str]:
        """Return the types of those of the exchanges *names* that exist."""
        found = self._asked(lambda api: {name: api.exchange_kind(name) for name in names})
        return {name: kind for name, kind in found.items() if kind is not None}

    def destination_bindings(
        self, version: DelaysVersion, names: Collection[QueueName]
    ) -> Mapping[QueueName, DestinationBinding]:
        """Return how far the way from the delays to each of *names* is there."""
        return find_destination_bindings(self._settings, version, names, self._bindings)

    def stuck(self, version: DelaysVersion) -> Mapping[int, int]:
        """Return how many expired messages wait in vain for a target, by level; no zeros."""
        found = self._asked(lambda api: held_levels(api, version))
        if found is None:
            raise NotChecked("the levels are so new that the broker has no counts yet")
        return found

    def level_members(self, version: DelaysVersion) -> Sequence[QueueMembers]:
        """Return which nodes keep each level queue that exists; empty for classic queues."""
        return self._asked(lambda api: level_members(api, version))

    def level_depths(self, version: DelaysVersion) -> LevelDepths:
        """Return every level of *version* with what waits in it, as far as it is known."""
        return read_level_depths(self._settings, self._management, version)

    def alarms(self) -> Sequence[str]:
        """Return the resource alarms in force, each as a short text."""
        return [text for node in self._asked(lambda api: api.nodes()) for text in _alarms(node)]

    def bytes_left(self) -> int:
        """Return what the fullest node has left on disk for messages."""
        nodes = self._asked(lambda api: api.nodes())
        told = [each.left_bytes for each in nodes if each.is_running]
        left = [each for each in told if each is not None]
        if not left:
            raise NotChecked("no node reports how much disk is free")
        return min(left)

    def _asked(self, ask: Callable[[ManagementApi], T]) -> T:
        if self._management is None:
            raise NotChecked(_NO_API)
        try:
            return ask(self._management)
        except TargetError as exc:
            raise NotChecked(str(exc)) from exc


def effective_policies(rules: Collection[PolicyRule], queue: str) -> Sequence[PolicyRule]:
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
) -> Sequence[PolicyRule]:
    matching = [rule for rule in rules if rule.apply_to in kinds and _matches(rule, name)]
    found: list[PolicyRule] = []
    for is_operator in (False, True):
        kind = [rule for rule in matching if rule.is_operator is is_operator]
        top = max((rule.priority for rule in kind), default=0)
        found += [rule for rule in kind if rule.priority == top]
    return found


def _matches(rule: PolicyRule, name: str) -> bool:
    try:
        return re.search(rule.pattern, name) is not None
    except re.error:  # the broker's dialect knows more; better one doubt too many
        return True


def _alarms(node: NodeState) -> Sequence[str]:
    texts = [] if node.is_running else [f"{node.node} is not running"]
    texts += [f"memory alarm on {node.node}"] if node.memory else []
    return [*texts, f"disk alarm on {node.node}"] if node.disk else texts
