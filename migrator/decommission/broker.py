"""What the broker has of entities that are to go; and cutting, binding and deleting them.

Rules of this file: only what the management API tells counts as known; what AMQP tells is newer,
so ready messages, consumers and whether a queue is there at all come from there; a queue is
deleted empty or not at all.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from migrator.decommission.rules import BrokerSnapshot, satellite_names
from migrator.errors import TargetError
from migrator.nservicebus.timeouts import QueueName
from migrator.rabbitmq.admin import AdminSession, admin_session
from migrator.rabbitmq.connection import ConnectionSettings, EntityAbsent, EntityLocked
from migrator.rabbitmq.entities import (
    Binding,
    Entity,
    Kind,
    QueueState,
    exchange_entity,
    queue_entity,
)
from migrator.rabbitmq.names import PREFIX, poison_queue
from migrator.text import counted

if TYPE_CHECKING:  # not every broker has the API, and its client is slow to import
    from migrator.rabbitmq.management import ManagementApi

_PURPOSE: Final = "decommission"
_CLIENT: Final = f"migrator {_PURPOSE}"
_OURS: Final = f"^{re.escape(PREFIX)}"
_LANE_KINDS: Final = (f"{PREFIX}staging.", f"{PREFIX}receipts.")
_SHARED_KINDS: Final = (f"{PREFIX}entry.", f"{PREFIX}router.")
_RETRY: Final = f"{PREFIX}retry."


class DecommissionBroker:
    """Looks at entities, and hands out an editor for them."""

    def __init__(
        self, settings: ConnectionSettings, management: ManagementApi | None, *, ledger_id: str
    ) -> None:
        self._settings = settings
        self._management = management
        self._poison = poison_queue(ledger_id)
        self._lanes = tuple(f"{kind}{ledger_id}." for kind in _LANE_KINDS)

    def look(self, queue: QueueName) -> BrokerSnapshot | None:
        """Return what there is now for the endpoint whose input queue is *queue*.

        None: there is no management API to ask.

        Raises:
            TargetError: The broker, or its management API, did not answer or refused.
        """
        api = self._management
        if api is None:
            return None
        names = satellite_names(queue)
        told = {name: state for name in names if (state := api.queue(name)) is not None}
        ours, exchanges = list(api.queues(_OURS)), list(api.exchanges(_OURS))
        retries = [  # a long name is cut in the queue's own, not in its arguments
            state
            for state in ours
            if state.name.startswith(_RETRY)
            and state.arguments.get("x-dead-letter-routing-key") in names
        ]
        lanes = [state for state in ours if state.name.startswith(self._lanes)]
        lane_exchanges = [name for name in exchanges if name.startswith(self._lanes)]
        shared = [name for name in exchanges if name.startswith(_SHARED_KINDS)]
        entities = [queue_entity(state.name) for state in (*told.values(), *retries, *lanes)]
        entities += [exchange_entity(name) for name in (*names, *lane_exchanges, *shared)]
        bindings = (binding for entity in entities for binding in api.bindings_at(entity))
        found = list(dict.fromkeys(bindings))
        clients = [name for name in api.clients() if name != _CLIENT]
        with admin_session(self._settings, purpose=_PURPOSE) as admin:  # beats only when asked
            return BrokerSnapshot(
                satellites=_as_now(admin, [told.get(name, _untold(name)) for name in names]),
                satellite_exchanges=[name for name in names if admin.find_exchange(name)],
                retries=_as_now(admin, retries),
                lanes=_as_now(admin, lanes),
                poison=_as_now(admin, [each for each in ours if each.name == self._poison]),
                lane_exchanges=lane_exchanges,
                shared=shared,
                others=[
                    each.name
                    for each in ours
                    if each.name.startswith(_LANE_KINDS) and each not in lanes
                ],
                clients=clients,
                bindings=found,
            )

    @contextmanager
    def editor(self) -> Iterator[TopologyEditor]:
        """Open a connection, closed at the end."""
        with admin_session(self._settings, purpose=_PURPOSE) as admin:
            yield TopologyEditor(admin, self._management)


@dataclass
class TopologyEditor:
    """Changes entities of the broker over one connection; each call may be repeated."""

    _admin: AdminSession
    _management: ManagementApi | None
    """Asked about queues as well."""

    def unbind(self, binding: Binding) -> None:
        """Cut *binding*; nothing happens when it, or an end of it, is not there."""
        with suppress(EntityAbsent):
            self._admin.unbind(binding)

    def bind(self, binding: Binding) -> bool:
        """Make *binding* as it was; return whether it is there now: not when an end is gone."""
        try:
            self._admin.bind(binding)
        except EntityAbsent:
            return False
        return True

    def delete(self, entity: Entity, *, if_unused: bool = True) -> str | None:
        """Delete an empty, unused entity; return why it is still there, or None: it is gone.

        A classic queue is deleted only if it is empty and unused, in one step of the broker. A
        quorum queue cannot be: it is looked at once more, and deleted a moment later. *if_unused*
        is for exchanges: whether one from which something is bound stays.

        Raises:
            AccessRefused: A permission is missing. It is still there.
            TargetUnavailable: It may be gone.
        """
        try:
            if entity.kind is Kind.EXCHANGE:
                self._admin.delete_exchange(entity.name, if_unused=if_unused)
                return None
            return self._delete_queue(entity.name)
        except TargetError as exc:
            if type(exc) is not TargetError:  # a refusal of any other kind is no answer to us
                raise
            return str(exc)

    def _delete_queue(self, name: str) -> str | None:
        state = self._management.queue(name) if self._management else None
        found = _as_now(self._admin, [state or _untold(name)])
        if not found:
            return None
        if state is None:
            return "the management API does not know it"
        (queue,) = found
        if not queue.is_told:
            return "the broker has no counts of it yet; try again in 10 seconds"
        if not queue.is_calm:
            held = counted(queue.messages, "message")
            return f"it now has {held} and {counted(queue.consumers, 'consumer')}"
        is_classic = state.kind == "classic"
        self._admin.delete_queue(name, if_empty=is_classic, if_unused=is_classic)
        return None


def _untold(name: str) -> QueueState:
    """Return a queue that the management API does not know; it may be there all the same."""
    return QueueState(name=name, kind="", is_told=False)


def _as_now(admin: AdminSession, states: Iterable[QueueState]) -> list[QueueState]:
    """Return queues with what AMQP knows better, without those that are gone meanwhile."""
    now = []
    for state in states:
        ready, consumers = state.ready, max(state.consumers, 1)
        with suppress(EntityLocked):  # exclusive to its one consumer
            facts = admin.queue(state.name)
            if facts is None:
                continue
            ready, consumers = facts.ready, facts.consumers
        now.append(replace(state, ready=ready, consumers=consumers, total=0))
    return now
