"""How a message reaches its destination at once: by the topology the endpoint uses.

Source: reference ``timeout-manager.md`` sections 3 and 14. Nothing is declared or bound here.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass

from migrator.delays.destinations import find_target
from migrator.delays.routing import Topology, Unreachable
from migrator.delays.topology import FindBindings
from migrator.nservicebus.timeouts import QueueName
from migrator.rabbitmq.admin import AdminSession, admin_session
from migrator.rabbitmq.connection import ConnectionSettings
from migrator.rabbitmq.entities import Kind


@dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    """Where a message is published: by the topology the endpoint uses, or by the delays."""

    exchange: str
    routing_key: str


@dataclass
class RabbitRoutes:
    """How destinations are reached without a delay; may be asked by several threads."""

    settings: ConnectionSettings
    topology: Topology = Topology.AUTO
    find_bindings: FindBindings | None = None
    """From the management API; None: an exchange is taken to lead to its queue."""
    remembered_s: float = 60.0
    refusal_remembered_s: float = 3.0
    monotonic_s: Callable[[], float] = time.monotonic

    def __post_init__(self) -> None:
        """Know nothing yet."""
        self._lock = threading.Lock()
        self._remembered: dict[QueueName, tuple[float, Route | Unreachable]] = {}

    def routes(self, names: Collection[QueueName]) -> Mapping[QueueName, Route | Unreachable]:
        """Return for each of *names* how it is reached, or why it is not.

        Answers are remembered for a while, refusals much shorter.

        Raises:
            TargetUnavailable: The broker cannot be asked now.
        """
        with self._lock:
            known = {name: self._remembered[name][1] for name in names if self._is_fresh(name)}
        asked = [name for name in dict.fromkeys(names) if name not in known]
        if asked:  # without the lock: who only forgets a name must not wait for the broker
            known |= self._ask(asked)
        return known

    def _ask(self, names: Collection[QueueName]) -> Mapping[QueueName, Route | Unreachable]:
        with admin_session(self.settings, purpose="look for destinations") as admin:
            found = {name: self._look(admin, name) for name in names}
        with self._lock:
            asked_s = self.monotonic_s()
            self._remembered |= {name: (asked_s, answer) for name, answer in found.items()}
        return found

    def forget(self, names: Collection[QueueName]) -> None:
        """Ask again for *names* at the next call."""
        with self._lock:
            for name in names:
                self._remembered.pop(name, None)

    def _is_fresh(self, name: QueueName) -> bool:
        if name not in self._remembered:
            return False
        asked_s, answer = self._remembered[name]
        is_refusal = isinstance(answer, Unreachable)
        limit_s = self.refusal_remembered_s if is_refusal else self.remembered_s
        return self.monotonic_s() - asked_s <= limit_s

    def _look(self, admin: AdminSession, name: QueueName) -> Route | Unreachable:
        found = find_target(admin, name, self.topology, self.find_bindings)
        if isinstance(found, Unreachable):
            return found
        is_queue = found.kind is Kind.QUEUE
        return Route(exchange="" if is_queue else name, routing_key=name if is_queue else "")
