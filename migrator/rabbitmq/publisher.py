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
* a queue that answers nothing makes the broker stop reading its channel, and then the connection
  (measured, 3.10: 400 messages to a hanging classic queue, or 32 to a quorum queue without a
  majority, and 200 to 400 others behind them). So of messages that go straight to such queues,
  fewer than 200 are without an answer at a time; when none of them is answered for a while, and
  the opening of another channel is, that one takes over, and the silent one only listens;
* the guard of the connection is asked before anything is sent, however much room there is: an
  owner that lost its lane, or is to stop, sends nothing more.
"""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
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
SLOW_S: Final = 0.2
"""Messages for others do not wait for a queue that has not answered by then."""
SILENCE_S: Final = 0.8
"""A queue that has not answered a message by then is silent."""
LISTEN_S: Final = 0.05
"""Between two looks at whether a slow queue has answered."""
_STRAIGHT_MESSAGES: Final = 200 - CHUNK_MESSAGES
"""So many straight to queues may be without an answer before the next chunk, and no more."""
_CHECK_SILENCE_S: Final = 0.05
_QUIET_FRACTION: Final = 0.3
"""Of the time after which the oldest message is silent: so old the latest one must be, too."""
_MOST_SILENT_CHANNELS: Final = 100


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


_Sent = tuple[_Target, int, int, Hashable, float]
"""Row index, its bytes, what it is known by when it is returned, and when it was sent."""


@dataclass(slots=True, eq=False)
class _Outgoing:
    """A channel with confirms, and what was sent on it and has no answer yet."""

    channel: Any
    sent_tag: int = 0
    lowest_tag: int = 1
    waiting: dict[int, _Sent] = field(default_factory=dict)
    """By tag, the oldest first."""
    waiting_bytes: int = 0
    returned: Counter[Hashable] = field(default_factory=Counter)


class Publisher:
    """The publishing channel of one lane.

    *has_delay* tells from a routing key that only a lost exchange can return the message.
    *identity_of_returned* reads a returned message's identity where messages carry one of
    their own; else it is the tag's.
    """

    def __init__(
        self,
        connection: Connection,
        limits: WindowLimits,
        *,
        has_delay: Callable[[str], bool],
        identity_of_returned: IdentityOfReturned | None = None,
    ) -> None:
        self._connection = connection
        self._identity_of_returned = identity_of_returned or _by_tag
        self._limits = limits
        self._has_delay = has_delay
        self._current = self._with_confirms(connection.channel())
        self._silent: list[_Outgoing] = []
        """Channels whose messages wait for queues that answer nothing; they only listen."""
        self._question: tuple[float, list[Any]] | None = None
        """When the opening of another channel was asked for, and that, once it is answered."""
        self._blocked_s = float("-inf")
        """When the broker was last seen to block us."""
        self._frame_max_bytes = connection.frame_max_bytes
        self._is_trusted = True
        self._answers = 0
        self._bytes_out = 0
        self._progress = 0, 0
        """Answers, and bytes that went out, as last seen."""
        self._progress_s = 0.0
        """When they were other than before, or a wait began."""

    def _with_confirms(self, channel: Any) -> _Outgoing:
        outgoing = _Outgoing(channel)
        channel.add_on_return_callback(partial(self._on_return, outgoing))
        on_ack, on_nack = partial(self._on_answer, outgoing), partial(self._on_nack, outgoing)
        self._connection.confirm(channel, on_ack, on_nack)
        return outgoing

    def publish(
        self,
        attempt: Attempt,
        chunks: Iterable[Sequence[EncodedMessage]],
        result: PublishResult,
        *,
        silence_s: float = math.inf,
    ) -> Collection[int]:
        """Publish *chunks* of messages and return once each was answered; see ``Link.publish``.

        With *silence_s*, which messages that go straight to queues must have, those that were not
        answered for so long are returned; *result* still gets answers that are late.

        An error of *chunks* is raised when all that was sent before it is answered.
        """
        self._close_answered()
        target = _Target(attempt, result)
        source = iter(chunks)
        silent: set[int] = set()
        self._progress_s = time.monotonic()
        while True:
            while not self._has_room(silence_s):
                silent |= self._wait(target, silence_s)
            try:
                chunk = next(source, None)
            except MigratorError:  # there is no time now, say; what is sent is not sent again
                self._wait_for_answers(target, silence_s)
                raise
            if chunk is None:
                return silent | self._wait_for_answers(target, silence_s)
            self._connection.loop.guard()
            self._send(target, chunk)
            self._connection.loop.serve()

    def end_listening(self) -> None:
        """Give up on answers that are late: the connection goes."""
        for outgoing in self._silent:
            for target, row_index, *_ in outgoing.waiting.values():
                target.result.unknown.add(row_index)
        self._silent.clear()

    # ── sending ─────────────────────────────────────────────────────────────────────────────

    def _has_room(self, silence_s: float) -> bool:
        outgoing = self._current
        waiting = len(outgoing.waiting)
        if silence_s < math.inf and waiting:
            (*_, sent_s) = next(iter(outgoing.waiting.values()))
            if waiting >= _STRAIGHT_MESSAGES or time.monotonic() - sent_s >= silence_s:
                return False
        return (
            self._connection.blocked_reason is None
            and waiting < self._limits.messages
            and outgoing.waiting_bytes < self._limits.body_bytes
            and self._connection.buffered_bytes < _BUFFER_BYTES
        )

    def _send(self, target: _Target, chunk: Sequence[EncodedMessage]) -> None:
        pieces: list[bytes | memoryview] = []
        outgoing, frame_max_bytes = self._current, self._frame_max_bytes
        channel, now_s = outgoing.channel.channel_number, time.monotonic()
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
            outgoing.sent_tag += 1
            size = encoded_bytes(message)
            outgoing.waiting[outgoing.sent_tag] = (
                target,
                message.row_index,
                size,
                message.identity,
                now_s,
            )
            outgoing.waiting_bytes += size
        self._progress_s = now_s
        target.unanswered += len(chunk)
        if target.result.refused:
            target.result.refused.difference_update(message.row_index for message in chunk)

    # ── waiting ─────────────────────────────────────────────────────────────────────────────

    def _wait_for_answers(self, target: _Target, silence_s: float) -> set[int]:
        """Wait until all rows of *target* are answered; return those that were silent."""
        silent: set[int] = set()
        self._progress_s = time.monotonic()
        while target.unanswered:
            silent |= self._wait(target, silence_s)
        return silent

    def _wait(self, target: _Target, silence_s: float) -> set[int]:
        """Serve the connections once something arrives; an endless silence ends the link.

        Returns the rows of *target* that were silent for *silence_s*.
        """
        loop, deadline_s = self._connection.loop, self._limits.confirm_deadline_s
        loop.wait_for_event(_CHECK_S if silence_s == math.inf else _CHECK_SILENCE_S)
        now_s = time.monotonic()
        is_blocked = self._connection.blocked_reason is not None
        if is_blocked:
            self._blocked_s = now_s
        elif silence_s < math.inf and (channels := self._beside_silent(silence_s)):
            return self._set_silent_apart(target, channels[0])
        progress = self._answers, self._bytes_out - self._connection.buffered_bytes
        if progress != self._progress or is_blocked:
            self._progress, self._progress_s = progress, now_s
        elif now_s - self._progress_s > deadline_s:
            unanswered = counted(len(self._current.waiting), "message is", "messages are")
            loop.fail(
                TargetUnavailable(
                    f"the broker has not answered for {deadline_s:g} s; "
                    f"{unanswered} without an answer"
                )
            )
            loop.check()
        return set()

    def _beside_silent(self, silence_s: float) -> Sequence[Any]:
        """Return a channel that was opened while queues answered nothing; empty: there is none yet.

        That it was shows that the broker answers, and still reads this connection.
        """
        waiting, now_s = self._current.waiting, time.monotonic()
        if not waiting:
            return ()
        (*_, oldest_s), (*_, latest_s) = (
            next(iter(waiting.values())),
            waiting[next(reversed(waiting))],
        )
        is_old = now_s - max(oldest_s, self._blocked_s) >= silence_s
        if not is_old or now_s - latest_s < silence_s * _QUIET_FRACTION:
            return ()
        if self._question is not None and self._question[0] < max(latest_s, self._blocked_s):
            _, opened = self._question  # older than what it is to tell of
            for channel in opened:
                self._connection.send(channel.close)
            self._question = None
        if self._question is None:
            self._question = now_s, self._connection.begin_channel()
        return self._question[1]

    def _set_silent_apart(self, target: _Target, channel: Any) -> set[int]:
        """Have *channel* take over; return the rows of *target* without an answer."""
        outgoing = self._current
        if len(self._silent) >= _MOST_SILENT_CHANNELS:
            self._connection.loop.fail(TargetUnavailable("too many queues answer nothing"))
            self._connection.loop.check()
        rows: set[int] = set()
        for tag, (of, row_index, *rest) in outgoing.waiting.items():
            late = _Target(of.attempt, of.result)
            outgoing.waiting[tag] = late, row_index, *rest  # type: ignore[assignment]
            if of is target:
                rows.add(row_index)
                of.unanswered -= 1
        self._silent.append(outgoing)
        self._question = None
        self._current = self._with_confirms(channel)
        return rows

    def _close_answered(self) -> None:
        """Close channels that have heard all they waited for."""
        if not self._silent:
            return
        for outgoing in [each for each in self._silent if not each.waiting]:
            self._silent.remove(outgoing)
            self._connection.send(outgoing.channel.close)

    # ── what pika calls ─────────────────────────────────────────────────────────────────────

    def _on_nack(self, outgoing: _Outgoing, frame: Any) -> None:
        method = frame.method
        self._on_answer(outgoing, method.delivery_tag, method.multiple, is_ack=False)

    def _on_answer(
        self, outgoing: _Outgoing, tag: int, is_multiple: bool, *, is_ack: bool = True
    ) -> None:
        if not self._is_trusted:
            return
        self._answers += 1
        if not is_multiple:
            self._settle(outgoing, tag, is_ack=is_ack)
            return
        last = tag or outgoing.sent_tag  # 0 stands for everything so far
        for each in range(outgoing.lowest_tag, last + 1):
            self._settle(outgoing, each, is_ack=is_ack)
        outgoing.lowest_tag = max(outgoing.lowest_tag, last + 1)

    def _settle(self, outgoing: _Outgoing, tag: int, *, is_ack: bool) -> None:
        found = outgoing.waiting.pop(tag, None)
        if found is None:
            return
        target, row_index, size, identity, _ = found
        outgoing.waiting_bytes -= size
        target.unanswered -= 1
        if outgoing.returned and _was_returned(outgoing, identity or (target.attempt, row_index)):
            target.result.returned.add(row_index)
        elif is_ack:
            target.result.confirmed.add(row_index)
        else:
            target.result.refused.add(row_index)

    def _on_return(
        self, outgoing: _Outgoing, _channel: Any, method: Any, properties: Any, _body: bytes
    ) -> None:
        """Note a returned message; its acknowledgement follows on the same channel."""
        if self._has_delay(method.routing_key):
            self._distrust(f"exchange {method.exchange} no longer leads to a queue")
            return
        try:
            identity = self._identity_of_returned(method, properties)
        except (UnknownTag, *PIKA_FAILURES) as exc:
            self._distrust(f"the broker returned a message that was never sent: {exc}")
            return
        outgoing.returned[identity] += 1

    def _distrust(self, reason: str) -> None:
        self._is_trusted = False
        self._connection.loop.fail(TargetUnavailable(reason))


def _was_returned(outgoing: _Outgoing, identity: Hashable) -> bool:
    """Take one returned message of that identity off the list, if there is one."""
    returned = outgoing.returned
    if identity not in returned:
        return False
    returned[identity] -= 1
    if not returned[identity]:
        del returned[identity]
    return True


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


def _joined(pieces: list[bytes | memoryview]) -> list[bytes | memoryview]:
    """Join pieces, so that one call of the system sends many; not to copy large bodies."""
    if sum(map(len, pieces)) < 2 * _CHUNK_BYTES:
        return [b"".join(pieces)]
    joined: list[bytes | memoryview] = []
    small: list[bytes | memoryview] = []
    for piece in pieces:
        if len(piece) < _CHUNK_BYTES // 2:
            small.append(piece)
            continue
        joined += (b"".join(small), piece)
        small = []
    joined.append(b"".join(small))
    return joined
