"""How far the way from the delays to a destination is there, and what is missing; for people."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from migrator.delays.routing import DelaysVersion, delivery_binding_key, delivery_exchange
from migrator.delays.topology import FindBindings
from migrator.errors import AccessRefused
from migrator.nservicebus.timeouts import QueueName
from migrator.rabbitmq.admin import ANSWER_S, AdminSession, admin_session
from migrator.rabbitmq.connection import ConnectionSettings, EntityLocked, NoAnswer
from migrator.rabbitmq.entities import Binding, exchange_entity, queue_entity


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
        name, delivery = self.destination, delivery_exchange(self.version)
        target = exchange_entity(name) if self.has_exchange else queue_entity(name)
        first = Binding(source=delivery, target=target, key=delivery_binding_key(name))
        if not self.has_exchange:
            return (first,)
        last = Binding(source=name, target=queue_entity(name), key="")
        needed = () if self.leads_on and self.has_queue else (last,)
        return needed if self.is_bound else (*needed, first)

    @property
    def remedy(self) -> str:
        """What to do, in words; empty when the way is open."""
        if self.is_open:
            return ""
        steps = [] if self.has_queue else [f"create queue {self.destination}"]
        steps += [_sentence(binding) for binding in self.missing]
        return "start its endpoint once with installers enabled, or " + ", then ".join(steps)


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
            name: DestinationBinding(
                version=version,
                destination=name,
                has_queue=_find_queue(admin, name),
                has_exchange=_find_exchange(admin, name),
                is_bound=bool(to := bound[delivery_binding_key(name)]),
                leads_on=any(b.target_is_queue or [*find_bindings(b.target.name)] for b in to),
            )
            for name in names
        }


def _find_queue(admin: AdminSession, name: QueueName) -> bool:
    try:
        return admin.queue(name, answer_s=ANSWER_S) is not None
    except (EntityLocked, NoAnswer):  # exclusive to somebody, or it hangs: so it is there
        return True
    except AccessRefused:  # we may not look, which says nothing against it
        return True


def _find_exchange(admin: AdminSession, name: QueueName) -> bool:
    try:
        return admin.find_exchange(name)
    except AccessRefused:
        return True
