"""What a broker tells without its management API: version, queues by name, alarms, its time."""

from __future__ import annotations

import logging
import math
import secrets
import time
from collections.abc import Callable, Collection, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from migrator.errors import AccessRefused
from migrator.rabbitmq.admin import AdminSession, admin_session
from migrator.rabbitmq.connection import (
    ConnectionSettings,
    NoAnswer,
)
from migrator.rabbitmq.entities import QueueFacts, ServerFacts
from migrator.rabbitmq.event_loop import Connection, ConnectionPair, open_link
from migrator.rabbitmq.names import PREFIX

_log = logging.getLogger(__name__)

STREAMS_ALWAYS_SINCE: Final = (3, 12)
"""From this release on the feature flag ``stream_queue`` cannot be off."""
_NO_ROOM: Final = {"x-max-length": 0, "x-overflow": "reject-publish", "x-queue-type": "classic"}
_ANSWER_S: Final = 0.15
"""The broker tells at once; when it is slow, the next look hears it."""
_ANSWER_IN_ALARM_S: Final = 1.0
"""So long a connection that replaces a blocked one waits, before it calls the alarm over."""
_TIMEOUT_S: Final = 5.0
_STEP_S: Final = 0.01
_SLACK: Final = timedelta(milliseconds=500)
_SECOND: Final = timedelta(seconds=1)


def server_facts(settings: ConnectionSettings) -> ServerFacts:
    """Return what the broker says about itself.

    Raises:
        AccessRefused, TargetUnavailable: It cannot be asked.
    """
    with admin_session(settings, purpose="look") as admin:
        return admin.server_facts()


def find_queues(
    settings: ConnectionSettings,
    names: Collection[str],
    *,
    answer_s: float = math.inf,
    may_be_hidden: bool = False,
) -> Mapping[str, QueueFacts | None]:
    """Return message and consumer counts by name, None for queues that do not exist.

    Creates nothing. Raises ``EntityLocked`` for a queue that another connection has exclusively.
    One that has not answered within *answer_s* is silent. One without a right to it raises
    ``AccessRefused``, whether or not it exists (RabbitMQ 4.2.6 and later),
    unless it *may_be_hidden*.
    """
    with admin_session(settings, purpose="look") as admin:
        return {name: _queue(admin, name, answer_s, may_be_hidden) for name in names}


def _queue(
    admin: AdminSession, name: str, answer_s: float, may_be_hidden: bool
) -> QueueFacts | None:
    try:
        return admin.queue(name, answer_s=answer_s)
    except AccessRefused:
        if not may_be_hidden:
            raise
        return QueueFacts(name=name, ready=0, consumers=0, is_hidden=True)
    except NoAnswer:
        return QueueFacts(name=name, ready=0, consumers=0, is_silent=True)


def find_forbidden(settings: ConnectionSettings, names: Collection[str]) -> Mapping[str, str]:
    """Return those of *names* that may not be configured, with the broker's words.

    Creates nothing: it deletes a queue of almost that name, which no program uses. The broker looks
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


# ── alarms ────────────────────────────────────────────────────────────────────────────────────


class AlarmWatch:
    """Whether the broker holds publishers back (memory or disk alarm); for one thread at a time.

    The broker tells ``connection.blocked`` to connections that publish while an alarm is in force,
    and to no other: one that published before, and is idle, hears nothing (measured, 3.10). So a
    connection of its own publishes an empty message now and then, to a queue of its own that has
    room for none.

    The message must be routed, or an alternate exchange that is set for all exchanges keeps
    it; and it must be rejected, not dropped from the head, or a dead-letter exchange set for all
    queues does. Nothing asks for a confirm, so the rejection reaches no one. A policy changes
    neither: an argument of a classic queue wins, and of two lengths the smaller counts.
    """

    def __init__(self, settings: ConnectionSettings, owner: str) -> None:
        self._settings = settings
        self._name = f"migrator {owner} alarms"
        self._link: ConnectionPair | None = None
        self._channel: Any = None
        self._exchange = ""
        self._is_refused = False
        self._was_blocked = False

    def look(self) -> str | None:
        """Return why publishers are held back, in the broker's words; None: they are not.

        Raises:
            TargetUnavailable: The broker cannot be asked.
        """
        if self._is_refused:
            return None
        try:
            return self._look()
        except AccessRefused as exc:
            self.close()
            self._is_refused = True
            _log.warning(
                "alarms of the broker are seen only while something is published: the broker user "
                "may not declare migrator's exchange",
                extra={"action": "alarm_watch_refused", "error": str(exc)},
            )
            return None
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """End the connection; never raises."""
        if self._link is not None:
            self._link.close()
        self._link = self._channel = None

    def _look(self) -> str | None:
        connection = self._open()
        before = connection.blocked_reason
        if before is None:
            connection.send(self._channel.basic_publish, self._exchange, "", b"")
        is_new_after_alarm = self._was_blocked and before is None
        timeout_s = _ANSWER_IN_ALARM_S if is_new_after_alarm else _ANSWER_S
        for _ in connection.loop.events(timeout_s):
            if connection.blocked_reason != before:
                break
        self._was_blocked = connection.blocked_reason is not None
        return connection.blocked_reason

    def _open(self) -> Connection:
        """Connect unless it is done, and make an exchange that goes away with the connection."""
        if self._channel is not None and self._link is not None:
            return self._link.publishing
        self._link = open_link(self._settings, publish=self._name)
        connection = self._link.publishing
        channel = connection.channel()
        name = f"{PREFIX}alarms.{secrets.token_hex(6)}"
        call = connection.call
        call(channel.exchange_declare, name, "direct", durable=False, auto_delete=True)
        once = {"durable": False, "exclusive": True, "auto_delete": True}
        call(channel.queue_declare, name, **once, arguments=_NO_ROOM)
        call(channel.queue_bind, name, name, "")  # its removal removes the exchange
        self._exchange, self._channel = name, channel
        return connection


# ── the time ──────────────────────────────────────────────────────────────────────────────────


def is_our_clock(settings: ConnectionSettings, now: Callable[[], datetime]) -> bool | None:
    """Return whether the broker's time is that of *now*, to about a second; None: not known.

    A message that expires at once on its way between two queues of a moment comes with the
    broker's time. In a cluster it is that of the node we are connected to.

    Raises:
        TargetUnavailable, AccessRefused: The broker cannot be asked.
    """
    with admin_session(settings, purpose="clock") as admin:
        before = now()
        death = admin.call(_death)
        after = now()
    if death is None:
        return None
    # whole seconds, cut off: it was within the second that began then
    return before - _SECOND - _SLACK <= death <= after + _SLACK


def _death(channel: Any) -> datetime | None:
    """Return the time that the broker writes for a message that expires now."""
    name = f"{PREFIX}clock.{secrets.token_hex(6)}"
    caught, expiring = f"{name}.caught", f"{name}.expiring"
    channel.exchange_declare(name, "direct", auto_delete=True)
    arguments = {
        "x-message-ttl": 0,
        "x-dead-letter-exchange": name,
        "x-dead-letter-routing-key": caught,
    }
    for queue, more in ((caught, {}), (expiring, arguments)):
        channel.queue_declare(queue, exclusive=True, arguments=more)
        channel.queue_bind(queue, name, queue)  # its removal removes the exchange
    channel.basic_publish(name, expiring, b"")
    deadline_s = time.monotonic() + _TIMEOUT_S
    while time.monotonic() < deadline_s:
        method, properties, _ = channel.basic_get(caught, auto_ack=True)
        if method is not None:
            found = (properties.headers or {}).get("x-death") or [{}]
            moment = found[0].get("time")
            return moment.replace(tzinfo=UTC) if isinstance(moment, datetime) else None
        time.sleep(_STEP_S)
    return None
