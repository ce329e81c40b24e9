"""How far the way from the delays to a destination is there; looks, and makes nothing."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence

from migrator.delays.routing import DelaysVersion, delivery_binding_key, delivery_exchange
from migrator.delays.topology import FindBindings
from migrator.delays.ways import Way
from migrator.nservicebus.timeouts import QueueName
from migrator.rabbitmq.admin import AdminSession, admin_session
from migrator.rabbitmq.connection import ConnectionSettings, EntityLocked
from migrator.rabbitmq.entities import Binding


def find_ways(
    settings: ConnectionSettings,
    version: DelaysVersion,
    names: Collection[QueueName],
    find_bindings: FindBindings,
) -> Mapping[QueueName, Way]:
    """Return the way to each of *names*.

    Raises:
        TargetError: The broker, or its management API, cannot be asked.
    """
    bound: defaultdict[str, list[Binding]] = defaultdict(list)
    for binding in find_bindings(delivery_exchange(version)):
        bound[binding.key].append(binding)
    with admin_session(settings, purpose="look for destinations") as admin:
        return {
            name: _way(admin, version, name, bound[delivery_binding_key(name)], find_bindings)
            for name in names
        }


def _way(
    admin: AdminSession,
    version: DelaysVersion,
    name: QueueName,
    bound: Sequence[Binding],
    find_bindings: FindBindings,
) -> Way:
    return Way(
        version=version,
        destination=name,
        has_queue=_has_queue(admin, name),
        has_exchange=admin.has_exchange(name),
        is_bound=bool(bound),
        leads=_leads(bound, find_bindings),
    )


def _has_queue(admin: AdminSession, name: QueueName) -> bool:
    try:
        return admin.queue(name) is not None
    except EntityLocked:  # exclusive to somebody, so it is there
        return True


def _leads(bound: Iterable[Binding], find_bindings: FindBindings) -> bool:
    return any(b.target_is_queue or any(True for _ in find_bindings(b.target.name)) for b in bound)
