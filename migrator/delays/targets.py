"""What takes messages for a destination: the exchange of its name or its queue; or why nothing.

Nothing here changes anything on the broker.
"""

from __future__ import annotations

import logging
from typing import Final

from migrator.delays.routing import Topology, Unreachable, no_answer
from migrator.delays.topology import FindBindings
from migrator.errors import AccessRefused, TargetError
from migrator.nservicebus.conversion import Reason
from migrator.nservicebus.timeouts import QueueName
from migrator.rabbitmq.admin import ANSWER_S, AdminSession
from migrator.rabbitmq.connection import EntityLocked, NoAnswer
from migrator.rabbitmq.entities import Entity, exchange_entity, queue_entity
from migrator.rabbitmq.names import exactly

UNFIT_KINDS: Final = frozenset({"direct", "topic", "headers"})
"""Exchanges that do not lead on whatever the key; plugins have others, which may well do so."""
_log = logging.getLogger(__name__)


def find_target(
    admin: AdminSession, name: QueueName, topology: Topology, find_bindings: FindBindings | None
) -> Entity | Unreachable:
    """Return the entity that takes messages for *name*: its exchange, or its queue; or why none.

    Without *find_bindings*, an exchange is taken to lead to its queue. Creates nothing.
    """
    try:
        has_queue = bool(name) and admin.queue(name, answer_s=ANSWER_S) is not None
        by_exchange = bool(name) and topology is not Topology.DIRECT and admin.find_exchange(name)
    except EntityLocked as exc:
        return locked(name, exc)
    except NoAnswer:
        return no_answer(name)
    except AccessRefused as exc:
        return hidden(name, exc)
    if not has_queue and by_exchange:
        return unbound(name, "the exchange exists, but no queue of that name")
    if not has_queue:
        return unknown(name)
    if by_exchange:
        if _look_for_dead_end(find_bindings, name):
            return unbound(name, "its exchange does not lead to its queue")
        return exchange_entity(name)
    if topology is Topology.CONVENTIONAL:
        return unbound(name, "the queue exists, but the exchange that leads to it does not")
    return queue_entity(name)


def _look_for_dead_end(find_bindings: FindBindings | None, exchange: QueueName) -> bool:
    """Return whether the API knows that an endpoint's exchange misses its queue.

    A courtesy that no other tool offers, so an API that does not answer changes nothing.
    """
    if find_bindings is None:
        return False
    try:
        return all(binding.target != queue_entity(exchange) for binding in find_bindings(exchange))
    except TargetError as exc:
        _log.info(
            "the management API did not say where an exchange leads",
            extra={"action": "bindings_unknown", "destination": exchange, "detail": str(exc)},
        )
        return False


def unknown(name: QueueName) -> Unreachable:
    """Return that there is no such queue."""
    detail = f"the broker has no queue {name!r}"
    return Unreachable(reason=Reason.DESTINATION_UNKNOWN, detail=detail)


def hidden(name: QueueName, error: AccessRefused) -> Unreachable:
    """Return that we may not look at it, which says nothing of whether it exists."""
    return Unreachable(
        reason=Reason.NO_PERMISSION,
        detail=(
            f"{name!r}: whether it exists is unknown, for this user may not look at it: add "
            f"{exactly(name)} to the pattern for write; `migrator db grants --broker` prints all "
            f"three ({error})"
        ),
    )


def unbound(name: QueueName, detail: str) -> Unreachable:
    """Return that messages would not arrive, with what is missing."""
    return Unreachable(reason=Reason.DESTINATION_UNBOUND, detail=f"{name!r}: {detail}")


def refused(name: QueueName, error: TargetError) -> Unreachable:
    """Return what the broker said of it."""
    return Unreachable(reason=Reason.REFUSED, detail=f"{name!r}: {error}")


def locked(name: QueueName, error: EntityLocked) -> Unreachable:
    """Return that its queue belongs to one connection."""
    return unbound(name, f"its queue is exclusive to another connection ({error})")
