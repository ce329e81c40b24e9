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
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass

from migrator.delays.link_ports import Unreachable
from migrator.delays.routing import DelaysVersion, Topology, delivery_binding_key, delivery_exchange
from migrator.delays.topology import FindBindings
from migrator.errors import AccessRefused, TargetError
from migrator.nservicebus.conversion import Reason
from migrator.nservicebus.timeouts import QueueName
from migrator.rabbitmq.admin import AdminSession, admin_session, can_exist
from migrator.rabbitmq.connection import ConnectionSettings, EntityAbsent, EntityLocked
from migrator.rabbitmq.entities import Binding, exchange_entity, queue_entity

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


class RabbitDestinations:
    """Implements ``ports.Destinations``; may be asked by several threads."""

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
        """Return those of *names* that messages would not reach; see ``ports.Destinations``."""
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
            if not name or (admin.queue(name) is None and not admin.has_exchange(name)):
                return unknown(name)
            if self._is_conventional(admin, name):
                return self._conventional(admin, name)
            return self._direct(admin, name)
        except EntityLocked as exc:
            return unbound(name, f"its queue is exclusive to another connection ({exc})")

    def _is_conventional(self, admin: AdminSession, name: QueueName) -> bool:
        if self._rules.topology is Topology.AUTO:
            return admin.has_exchange(name)
        return self._rules.topology is Topology.CONVENTIONAL

    def _conventional(self, admin: AdminSession, name: QueueName) -> Unreachable | None:
        if not admin.has_exchange(name):
            return unbound(name, "the queue exists, but the exchange that leads to it does not")
        if admin.queue(name) is None:
            return unbound(name, "the exchange exists, but no queue of that name")
        if leads_nowhere(self._find_bindings, name):
            return unbound(name, "its exchange does not lead to its queue")
        return self._bound(admin, name, to_queue=False)

    def _direct(self, admin: AdminSession, name: QueueName) -> Unreachable | None:
        if admin.queue(name) is None:
            return unknown(name)
        return self._bound(admin, name, to_queue=True)

    def _bound(self, admin: AdminSession, name: QueueName, *, to_queue: bool) -> Unreachable | None:
        binding = Binding(
            source=delivery_exchange(self._rules.version),
            target=queue_entity(name) if to_queue else exchange_entity(name),
            key=delivery_binding_key(name),
        )
        if not self._rules.bind:
            missing = self._is_missing(binding)
            return unbound(name, "nothing binds it to the delays") if missing else None
        try:
            admin.bind(binding)
        except AccessRefused as exc:  # a right that we miss is no fault of the rows
            raise AccessRefused(
                f"destination {name!r} may not be bound to the delays: {exc}; its timeouts wait: "
                "grant what `migrator broker grants` prints"
            ) from exc
        except EntityAbsent:
            return unknown(name)  # deleted since we looked
        return None

    def _is_missing(self, wanted: Binding) -> bool:
        """Return whether the management API knows that a binding does not exist.

        When the API is there but does not answer, that is raised: the operator said that we
        bind nothing, so a missing binding is what must be noticed.
        """
        return self._find_bindings is not None and wanted not in self._find_bindings(wanted.source)


def leads_nowhere(find_bindings: FindBindings | None, exchange: QueueName) -> bool:
    """Return whether the API knows that an endpoint's exchange misses its queue.

    A courtesy that no other tool offers, so an API that does not answer changes nothing.
    """
    if find_bindings is None:
        return False
    try:
        found = tuple(find_bindings(exchange))
    except TargetError as exc:
        _log.info(
            "the management API did not tell where an exchange leads",
            extra={"action": "bindings_unknown", "destination": exchange, "detail": str(exc)},
        )
        return False
    return not any(b.target == queue_entity(exchange) for b in found)


def unknown(name: QueueName) -> Unreachable:
    """Return that the broker has no such queue."""
    return Unreachable(
        reason=Reason.DESTINATION_UNKNOWN, detail=f"the broker has no queue {name!r}"
    )


def unbound(name: QueueName, detail: str) -> Unreachable:
    """Return that messages for *name* would not find its queue."""
    return Unreachable(reason=Reason.DESTINATION_UNBOUND, detail=f"{name!r}: {detail}")


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
