"""The way from the delays to a destination: how far it is there, and what mends it.

A message leaves the delays by a binding ``#.<destination>`` of the delivery exchange, either
straight to the queue or to an exchange of its name that leads there.
Source: reference ``native-delays.md`` section 2.
"""

from __future__ import annotations

from dataclasses import dataclass

from migrator.delays.routing import DelaysVersion, delivery_binding_key, delivery_exchange
from migrator.nservicebus.timeouts import QueueName
from migrator.rabbitmq.entities import Binding, exchange_entity, queue_entity


@dataclass(frozen=True, slots=True, kw_only=True)
class Way:
    """What there is of the way to one destination."""

    version: DelaysVersion
    destination: QueueName
    has_queue: bool
    has_exchange: bool
    """Of the destination's name."""
    is_bound: bool
    """Something is bound to the delivery exchange for it."""
    leads: bool
    """What is bound for it is a queue, or an exchange that leads on."""

    @property
    def is_open(self) -> bool:
        """Whether its messages leave the delays."""
        return self.is_bound and self.leads

    @property
    def gap(self) -> str:
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
        needed = [] if self.leads and self.has_queue else [last]
        return (*needed, *([] if self.is_bound else [first]))

    @property
    def fix(self) -> str:
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
