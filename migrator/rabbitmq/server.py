"""What a broker tells without its management API: version, queues by name, a capability."""

from __future__ import annotations

import secrets
from collections.abc import Collection, Mapping
from typing import Any, Final

from migrator.errors import AccessRefused, TargetError, TargetUnavailable
from migrator.rabbitmq.admin import AdminSession, admin_session
from migrator.rabbitmq.connection import ConnectionSettings
from migrator.rabbitmq.entities import QueueFacts, ServerFacts
from migrator.rabbitmq.names import PREFIX

STREAMS_ALWAYS_SINCE: Final = (3, 12)
"""From this release on the feature flag ``stream_queue`` cannot be off."""


def server_facts(settings: ConnectionSettings) -> ServerFacts:
    """Return what the broker says about itself.

    Raises:
        AccessRefused, TargetUnavailable: It cannot be asked.
    """
    with admin_session(settings, purpose="look") as admin:
        return _facts(admin)


def find_queues(
    settings: ConnectionSettings, names: Collection[str]
) -> Mapping[str, QueueFacts | None]:
    """Return message and consumer counts by name, None for queues that do not exist.

    Creates nothing. Raises ``EntityLocked`` for a queue that is exclusive to somebody.
    """
    with admin_session(settings, purpose="look") as admin:
        return {name: admin.queue(name) for name in names}


def find_forbidden(settings: ConnectionSettings, names: Collection[str]) -> Mapping[str, str]:
    """Return those of *names* that may not be configured, with the broker's words.

    Creates nothing: it deletes a queue of almost that name, which nobody has. The broker looks
    at the permission first, and deleting what does not exist is no error.
    """
    forbidden = {}
    with admin_session(settings, purpose="look") as admin:
        for name in names:
            try:
                admin.delete_queue(f"{name}.probe-{secrets.token_hex(6)}", if_empty=True)
            except AccessRefused as exc:
                forbidden[name] = str(exc)
    return forbidden


def has_stream_queues(settings: ConnectionSettings) -> bool:
    """Return whether ``stream_queue`` is enabled, which at-least-once dead-lettering needs.

    Without it the broker dead-letters at most once, and says so only in its own log. A broker
    that may have it off is asked by declaring a stream for a moment.

    Raises:
        AccessRefused: The probe may not be declared; nobody knows.
    """
    with admin_session(settings, purpose="probe") as admin:
        if _facts(admin).release >= STREAMS_ALWAYS_SINCE:
            return True
        name = f"{PREFIX}probe.{secrets.token_hex(6)}"
        try:
            admin.declare_queue(name, {"x-queue-type": "stream", "x-max-length-bytes": 1_000_000})
        except (AccessRefused, TargetUnavailable):
            raise
        except TargetError:
            return False
        admin.delete_queue(name, if_empty=False)
        return True


def _facts(admin: AdminSession) -> ServerFacts:
    properties = admin.server_properties
    return ServerFacts(
        product=_text(properties.get("product")),
        version=_text(properties.get("version")),
        cluster_name=_text(properties.get("cluster_name")),
        frame_max_bytes=admin.frame_max_bytes,
    )


def _text(value: Any) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes) else str(value or "")
