"""Strays, messages in a lane's queues that are not the lane's: moved whole, and logged.

Any sender may put a message into a lane's queues. Rules of this file:

* a stray is acked only after the poison queue has confirmed a copy of it, byte for byte;
* a lane reads only the tag of a message, so a stray is requeued once and read whole when it is
  delivered again;
* that also gives it a higher delivery tag, so that no nack of an attempt covers it;
* bodies in memory are bounded in bytes: a stray for which there is no room is requeued again.
"""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from typing import Any, Final

from migrator.delays.routing import has_delay
from migrator.errors import TargetError, TargetUnavailable
from migrator.nservicebus.tags import Attempt
from migrator.nservicebus.timeouts import BatchId
from migrator.rabbitmq.admin import admin_session
from migrator.rabbitmq.connection import ConnectionSettings
from migrator.rabbitmq.event_loop import Connection, open_link
from migrator.rabbitmq.frames import Keep, RawMessage
from migrator.rabbitmq.messages import EncodedMessage, PublishResult
from migrator.rabbitmq.names import poison_queue
from migrator.rabbitmq.publisher import Publisher, WindowLimits, encoded_bytes, in_chunks

_log = logging.getLogger(__name__)

_NO_ATTEMPT: Final = Attempt(batch=BatchId(0), number=0)
_WHOLE_AT_A_TIME: Final = 500
"""Strays whose bodies are in memory."""
_TRY_AGAIN_S: Final = 10.0
_LOG_EVERY_S: Final = 60.0
_SHOWN: Final = 5
_ARGUMENTS: Final = {
    "x-queue-type": "quorum",
    "x-overflow": "reject-publish",
    "x-delivery-limit": 100_000,
}


class StraysOfQueue:
    """The strays that one consumer received; callbacks of the connection only note them."""

    def __init__(self, connection: Connection, channel: Any, queue: str) -> None:
        self.queue = queue
        self.wanted: set[str | None] = set()
        """Application ids of messages to be read whole."""
        self._connection = connection
        self._channel = channel
        self._seen: list[tuple[int, str | None]] = []
        self._whole: list[RawMessage] = []
        """Delivered whole, and unacked."""
        self._whole_bytes = 0
        """Of those, and of the one that is being read."""
        self._at_a_time = _WHOLE_AT_A_TIME

    def __bool__(self) -> bool:
        return bool(self._seen or self._whole)

    def note(self, tag: int, app_id: str | None) -> None:
        self._seen.append((tag, app_id))

    def choose(self, properties: bytes, body_bytes: int) -> Keep:
        """Keep a stray whole if there is room; else it counts as delivered for the first time."""
        if self._whole_bytes >= self._connection.prefetch_bytes:
            self._at_a_time = 1  # the others may be as large
            return Keep.COUNT
        self._whole_bytes += len(properties) + body_bytes
        return Keep.ALL

    def note_whole(self, found: RawMessage) -> None:
        self._whole.append(found)

    def ask_for_whole(self) -> None:
        """Requeue strays, so that they are delivered again and read whole."""
        room = max(self._at_a_time - len(self._whole), 0)
        asked, self._seen = self._seen[:room], self._seen[room:]
        for tag, app_id in asked:
            self._give_back(tag, app_id)

    def clear_below(self, tag: int) -> None:
        """Requeue every stray with a delivery tag below *tag*."""
        for seen_tag, app_id in self._seen:
            if seen_tag < tag:
                self._give_back(seen_tag, app_id)
        self._seen = [each for each in self._seen if each[0] > tag]
        for each in self._whole:
            if each.tag < tag:
                self._give_back(each.tag, each.properties.app_id)
        self._keep([each for each in self._whole if each.tag > tag])

    def whole(self) -> Sequence[RawMessage]:
        return tuple(self._whole)

    def ack(self, strays: Collection[RawMessage]) -> None:
        for each in strays:
            self._connection.send(self._channel.basic_ack, each.tag)
        tags = {each.tag for each in strays}
        self._keep([each for each in self._whole if each.tag not in tags])
        if not self:
            self.wanted.clear()
            self._at_a_time = _WHOLE_AT_A_TIME

    def _keep(self, strays: list[RawMessage]) -> None:
        kept_bytes = sum(map(_kept_bytes, self._whole))
        self._whole = strays
        self._whole_bytes += sum(map(_kept_bytes, strays)) - kept_bytes

    def _give_back(self, tag: int, app_id: str | None) -> None:
        self.wanted.add(app_id)
        self._connection.send(self._channel.basic_reject, tag, requeue=True)


class PoisonQueue:
    def __init__(
        self, settings: ConnectionSettings, ledger_id: str, guard: Callable[[], None]
    ) -> None:
        self.name = poison_queue(ledger_id)
        self._settings = settings
        self._guard = guard
        self._again_s = float("-inf")
        """Monotonic time of the next try, after a failed one."""
        self._log_again_s = float("-inf")

    def move(self, strays: StraysOfQueue) -> None:
        """Move the strays that were read whole; log it. A failed move is repeated later."""
        found = strays.whole()
        if not found or time.monotonic() < self._again_s:
            return
        try:
            self._put(found)
        except TargetError as exc:
            self._note_failure(strays, exc)
            return
        strays.ack(found)
        _log.error(
            "moved messages that are not migrator's out of its queue; find out who sent them, and "
            "empty the queue they are in now",
            extra={
                "action": "strays_moved",
                "queue": strays.queue,
                "moved_to": self.name,
                "messages": len(found),
                "app_ids": _most(str(each.properties.app_id) for each in found),
                "routing_keys": _most(each.routing_key for each in found),
            },
        )

    def _put(self, strays: Sequence[RawMessage]) -> None:
        with admin_session(self._settings, purpose="declare poison queue") as admin:
            admin.declare_queue(self.name, _ARGUMENTS)
        result = PublishResult()
        with open_link(self._settings, publish="migrator poison queue", guard=self._guard) as link:
            publisher = Publisher(
                link.publishing,
                WindowLimits(confirm_deadline_s=_TRY_AGAIN_S),
                has_delay=has_delay,
                identity_of_returned=_any_of_them,
            )
            chunks = in_chunks(self._copies(strays), bytes_of=encoded_bytes)
            publisher.publish(_NO_ATTEMPT, chunks, result)
        if result.returned or len(result.confirmed) < len(strays):
            raise TargetUnavailable(f"{self.name} does not accept messages")

    def _copies(self, strays: Sequence[RawMessage]) -> Iterator[EncodedMessage]:
        for number, each in enumerate(strays):
            yield EncodedMessage(
                number, "", self.name, each.properties.raw, each.body, _any_of_them(None, None)
            )

    def _note_failure(self, strays: StraysOfQueue, error: TargetError) -> None:
        now_s = time.monotonic()
        self._again_s = now_s + _TRY_AGAIN_S
        if now_s < self._log_again_s:
            return
        self._log_again_s = now_s + _LOG_EVERY_S
        _log.error(
            "messages that are not migrator's are in its queue and cannot be moved; retrying",
            extra={
                "action": "strays_not_moved",
                "queue": strays.queue,
                "moved_to": self.name,
                "error": str(error),
            },
        )


def _kept_bytes(stray: RawMessage) -> int:
    return len(stray.properties.raw) + len(stray.body)


def _most(texts: Iterable[str]) -> dict[str, int]:
    return dict(Counter(texts).most_common(_SHOWN))


def _any_of_them(_method: Any, _properties: Any) -> str:
    return "stray"
