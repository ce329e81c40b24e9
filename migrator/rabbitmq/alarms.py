"""Whether the broker holds publishers back: memory or disk alarm.

The broker tells ``connection.blocked`` to connections that publish while an alarm is in force, and
to no other: one that published before, and is idle, hears nothing (measured, 3.10). So a connection
of its own publishes an empty message now and then, to a queue of its own that has room for none.

The message must be routed, or an alternate exchange that somebody set for all exchanges keeps it;
and it must be rejected, not dropped from the head, or a dead-letter exchange set for all queues
does. Nothing asks for a confirm, so the rejection goes to nobody. A policy changes neither: an
argument of a classic queue wins, and of two lengths the smaller counts.
"""

from __future__ import annotations

import logging
import secrets
from typing import Any, Final

from migrator.errors import AccessRefused
from migrator.rabbitmq.connection import ConnectionSettings
from migrator.rabbitmq.event_loop import Connection, EventLoop
from migrator.rabbitmq.names import PREFIX

_log = logging.getLogger(__name__)

_NO_ROOM: Final = {"x-max-length": 0, "x-overflow": "reject-publish", "x-queue-type": "classic"}
_ANSWER_S: Final = 0.15
"""The broker tells at once; when it is slow, the next look hears it."""
_ANSWER_IN_ALARM_S: Final = 1.0
"""So long a connection that replaces a blocked one waits, before it calls the alarm over."""


class AlarmWatch:
    """One connection; one thread at a time may look."""

    def __init__(self, settings: ConnectionSettings, owner: str) -> None:
        """Connect when first asked, as *owner* for the broker's list of connections."""
        self._settings = settings
        self._name = f"migrator {owner} alarms"
        self._loop: EventLoop | None = None
        self._connection: Connection | None = None
        self._channel: Any = None
        self._exchange = ""
        self._is_refused = False
        self._was_blocked = False

    def look(self) -> str | None:
        """Return why publishers are held back, in the broker's words; None: they are not.

        Raises:
            TargetUnavailable: The broker cannot be asked; nobody knows.
        """
        if self._is_refused:
            return None
        try:
            return self._look()
        except AccessRefused as exc:
            self.close()
            self._is_refused = True
            _log.warning(
                "alarms of the broker are only seen while something is published: "
                "the broker user may not have an exchange of ours",
                extra={"action": "alarm_watch_refused", "error": str(exc)},
            )
            return None
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """End the connection; never raises."""
        if self._loop is not None:
            self._loop.close()
        self._loop = self._connection = self._channel = None

    def _look(self) -> str | None:
        connection = self._connection or self._open()
        before = connection.blocked_reason
        if before is None:
            connection.send(self._channel.basic_publish, self._exchange, "", b"")
        is_new_after_alarm = self._was_blocked and before is None
        patience_s = _ANSWER_IN_ALARM_S if is_new_after_alarm else _ANSWER_S
        connection.loop.run(lambda: connection.blocked_reason != before, patience_s)
        self._was_blocked = connection.blocked_reason is not None
        return connection.blocked_reason

    def _open(self) -> Connection:
        """Connect, and make an exchange that goes away with the connection."""
        self._loop = EventLoop()
        connection = Connection(self._loop, self._settings, self._name)
        channel = connection.channel()
        name = f"{PREFIX}alarms.{secrets.token_hex(6)}"
        connection.call(
            f"declaring {name}",
            lambda done: channel.exchange_declare(
                name, "direct", durable=False, auto_delete=True, callback=done
            ),
        )
        connection.call(
            f"declaring {name}",
            lambda done: channel.queue_declare(
                name,
                durable=False,
                exclusive=True,
                auto_delete=True,
                arguments=_NO_ROOM,
                callback=done,
            ),
        )
        connection.call(
            f"binding {name}",
            # its removal removes the exchange
            lambda done: channel.queue_bind(name, name, "", callback=done),
        )
        self._exchange, self._channel, self._connection = name, channel, connection
        return connection
