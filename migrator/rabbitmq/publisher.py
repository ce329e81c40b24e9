"""Publishing with confirms, a bounded window, and every answer matched to its row.

Rules:

* every message is mandatory and confirmed; a row is *confirmed* when the broker acknowledged it,
  *returned* when the broker gave it back before, and in neither set in every other case;
* only a message without a delay can be returned for want of a destination. When one with a delay
  is, an exchange has lost its level or staging queue: that ends the link, and opening the next
  one binds it again. Its acknowledgement follows all the same, so from then on none counts;
* messages are drawn from the caller in small chunks, only when there is room, and a chunk is sent
  at once, so that their delays are computed just before they are sent;
* nothing is sent while the broker blocks us; window and output buffer hold no more than they are
  allowed and one chunk;
* an answer is kept with the attempt it belongs to: what an abandoned one is still owed can never
  be counted for a later one;
* the guard of the connection is asked before anything is sent, however much room there is: an
  owner that lost its lane, or is to stop, sends nothing more.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from migrator.errors import MigratorError, TargetUnavailable
from migrator.nservicebus.tags import Attempt, UnknownTag, parse_tag
from migrator.rabbitmq.connection import PIKA_FAILURES
from migrator.rabbitmq.event_loop import Connection
from migrator.rabbitmq.messages import EncodedMessage, PublishResult, encode_publish
from migrator.text import counted

IdentityOfReturned = Callable[[Any, Any], Hashable]
"""From method and properties of a returned message to what its message is known by."""

M = TypeVar("M")

RECEIPT_INDEX: Final = -1
"""Stands for the receipt among the row indexes of an attempt."""
CHUNK_MESSAGES: Final = 100
_CHUNK_BYTES: Final = 128 * 1024
_BUFFER_BYTES: Final = 1024 * 1024
_CHECK_S: Final = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class WindowLimits:
    """How much may be without an answer at a time, and for how long."""

    messages: int = 2000
    body_bytes: int = 32 * 2**20
    confirm_deadline_s: float = 60.0
    """Longest time without any progress while the broker does not block us."""


@dataclass(slots=True, eq=False)
class _Target:
    """The attempt an answer belongs to."""

    attempt: Attempt
    result: PublishResult
    unanswered: int = 0


class Publisher:
    """The publishing channel of one lane."""

    def __init__(
        self,
        connection: Connection,
        limits: WindowLimits,
        *,
        has_delay: Callable[[str], bool],
        identity_of_returned: IdentityOfReturned | None = None,
    ) -> None:
        """Open a channel with confirms on *connection*.

        *has_delay* tells from a routing key that only a lost exchange can return the message.
        *identity_of_returned* reads a returned message's identity where messages carry one of
        their own; else it is the tag's.
        """
        self._connection = connection
        self._identity_of_returned = identity_of_returned or _by_tag
        self._limits = limits
        self._has_delay = has_delay
        self._channel = connection.channel()
        self._channel.add_on_return_callback(self._on_return)
        connection.confirm(self._channel, self._on_ack, self._on_nack)
        self._frame_max_bytes = connection.frame_max_bytes
        self._sent_tag = 0
        self._lowest_tag = 1
        self._waiting: dict[int, tuple[_Target, int, int, Hashable]] = {}
        self._waiting_bytes = 0
        self._returned: Counter[Hashable] = Counter()
        self._is_trusted = True
        self._answers = 0
        self._bytes_out = 0

    def publish(
        self, attempt: Attempt, chunks: Iterable[Sequence[EncodedMessage]], result: PublishResult
    ) -> None:
        """Publish *chunks* of messages and return once each was answered; see ``Link.publish``.

        An error of *chunks* is raised when all that was sent before it is answered.
        """
        target = _Target(attempt, result)
        source = iter(chunks)
        while True:
            self._wait(self._has_room)
            try:
                chunk = next(source, None)
            except MigratorError:  # there is no time now, say; what is sent is not sent again
                self._wait(lambda: not target.unanswered)
                raise
            if chunk is None:
                break
            self._connection.loop.guard()
            self._send(target, chunk)
            self._connection.loop.step(0)
        self._wait(lambda: not target.unanswered)

    # ── sending ─────────────────────────────────────────────────────────────────────────────

    def _has_room(self) -> bool:
        return (
            self._connection.blocked_reason is None
            and len(self._waiting) < self._limits.messages
            and self._waiting_bytes < self._limits.body_bytes
            and self._connection.buffered_bytes < _BUFFER_BYTES
        )

    def _send(self, target: _Target, chunk: Sequence[EncodedMessage]) -> None:
        pieces: list[bytes] = []
        channel, frame_max_bytes = self._channel.channel_number, self._frame_max_bytes
        for message in chunk:
            pieces += encode_publish(
                channel,
                message.exchange,
                message.routing_key,
                message.properties,
                message.body,
                frame_max_bytes=frame_max_bytes,
            )
        frames = _joined(pieces)
        self._connection.send_frames(frames)
        self._bytes_out += sum(map(len, frames))
        for message in chunk:
            self._sent_tag += 1
            body_bytes = len(message.body)
            self._waiting[self._sent_tag] = (
                target,
                message.row_index,
                body_bytes,
                message.identity,
            )
            self._waiting_bytes += body_bytes
        target.unanswered += len(chunk)
        if target.result.refused:
            target.result.refused.difference_update(message.row_index for message in chunk)

    # ── waiting ─────────────────────────────────────────────────────────────────────────────

    def _wait(self, is_done: Any) -> None:
        """Serve the connections until *is_done*; an endless silence ends the link."""
        loop = self._connection.loop
        progress, since_s = self._progress(), time.monotonic()
        while not loop.run(is_done, _CHECK_S):
            latest = self._progress()
            if latest != progress or self._connection.blocked_reason is not None:
                progress, since_s = latest, time.monotonic()
            elif time.monotonic() - since_s > self._limits.confirm_deadline_s:
                unanswered = counted(len(self._waiting), "message is", "messages are")
                loop.fail(
                    TargetUnavailable(
                        f"the broker has not answered for {self._limits.confirm_deadline_s:g} s; "
                        f"{unanswered} without an answer"
                    )
                )

    def _progress(self) -> tuple[int, int]:
        return self._answers, self._bytes_out - self._connection.buffered_bytes

    # ── what pika calls ─────────────────────────────────────────────────────────────────────

    def _on_nack(self, frame: Any) -> None:
        self._on_answer(frame.method.delivery_tag, frame.method.multiple, is_ack=False)

    def _on_ack(self, tag: int, is_multiple: bool) -> None:
        self._on_answer(tag, is_multiple, is_ack=True)

    def _on_answer(self, tag: int, is_multiple: bool, *, is_ack: bool) -> None:
        if not self._is_trusted:
            return
        self._answers += 1
        if not is_multiple:
            self._settle(tag, is_ack=is_ack)
            return
        last = tag or self._sent_tag  # 0 stands for everything so far
        for each in range(self._lowest_tag, last + 1):
            self._settle(each, is_ack=is_ack)
        self._lowest_tag = max(self._lowest_tag, last + 1)

    def _settle(self, tag: int, *, is_ack: bool) -> None:
        found = self._waiting.pop(tag, None)
        if found is None:
            return
        target, row_index, size, identity = found
        self._waiting_bytes -= size
        target.unanswered -= 1
        if self._returned and self._was_returned(identity or (target.attempt, row_index)):
            target.result.returned.add(row_index)
        elif is_ack:
            target.result.confirmed.add(row_index)
        else:
            target.result.refused.add(row_index)

    def _on_return(self, _channel: Any, method: Any, properties: Any, _body: bytes) -> None:
        """Note a returned message; its acknowledgement follows on the same channel."""
        if self._has_delay(method.routing_key):
            self._distrust(f"exchange {method.exchange} no longer leads to a queue")
            return
        try:
            identity = self._identity_of_returned(method, properties)
        except (UnknownTag, *PIKA_FAILURES) as exc:
            self._distrust(f"the broker returned a message that was never sent: {exc}")
            return
        self._returned[identity] += 1

    def _was_returned(self, identity: Hashable) -> bool:
        """Take one returned message of that identity off the list, if there is one."""
        if identity not in self._returned:
            return False
        self._returned[identity] -= 1
        if not self._returned[identity]:
            del self._returned[identity]
        return True

    def _distrust(self, reason: str) -> None:
        self._is_trusted = False
        self._connection.loop.fail(TargetUnavailable(reason))


def _by_tag(_method: Any, properties: Any) -> Hashable:
    tag = parse_tag(properties.app_id)
    return tag.attempt, RECEIPT_INDEX if tag.row_index is None else tag.row_index


def in_chunks(messages: Iterable[M], *, bytes_of: Callable[[M], int]) -> Iterator[list[M]]:
    """Yield *messages* in lists that are small enough to be sent at once; none is empty.

    None is drawn before its list is asked for. One that is larger than a chunk is alone in its own,
    or the last.
    """
    chunk: list[M] = []
    size = 0
    for message in messages:
        chunk.append(message)
        size += bytes_of(message)
        if len(chunk) == CHUNK_MESSAGES or size >= _CHUNK_BYTES:
            yield chunk
            chunk, size = [], 0
    if chunk:
        yield chunk


def encoded_bytes(message: EncodedMessage) -> int:
    """Return about how many bytes *message* has on the wire."""
    return len(message.properties) + len(message.body)


def _joined(pieces: list[bytes]) -> list[bytes]:
    """Join pieces, so that one call of the system sends many; not to copy large bodies."""
    if sum(map(len, pieces)) < 2 * _CHUNK_BYTES:
        return [b"".join(pieces)]
    joined: list[bytes] = []
    small: list[bytes] = []
    for piece in pieces:
        if len(piece) < _CHUNK_BYTES // 2:
            small.append(piece)
            continue
        joined += (b"".join(small), piece)
        small = []
    joined.append(b"".join(small))
    return joined
