"""Going through the queue of a delay level without disturbing it.

Rules of this file:

* one channel per scan; what is not acknowledged goes back when it is closed, with its original
  expiry (measured on classic and quorum queues);
* prefetch is bounded: it has 16 bits, and 0 means 2000 on a quorum queue (measured). When what
  stays held fills it, another consumer is added on the same channel;
* nothing left for us is not nothing left: whoever else consumes the queue may hold messages. When
  it has nothing ready, and no consumer but ours, all of it is with us;
* an answer that does not know our own consumers is none: a quorum queue that is too busy to answer
  within a quarter of a second is told to have no message and no consumer (so its source says, and
  so it was seen under load);
* an empty queue is asked for, never concluded from silence alone, and asked for twice: what was
  in it has reached us before the second answer;
* coming back counts on a quorum queue: near the delivery limit nothing is held any more;
* of a message no more is kept than its reader asks for. Where that is bodies, their bytes are
  bounded: what comes beyond is not kept, and ends the scan, so that it goes back.
"""

from __future__ import annotations

import contextlib
import struct
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from enum import Enum
from typing import TYPE_CHECKING, Any, Final

from migrator.delays.routing import DelaysVersion, level_name, parse_routing_key
from migrator.delays.tagged import TaggedMessage
from migrator.errors import DeliveryLimitNear, TargetError, TargetUnavailable
from migrator.nservicebus.headers import RELATED_TO_TIMEOUT_ID
from migrator.nservicebus.tags import TAG, find_tag
from migrator.nservicebus.timeouts import BITS, TimeoutId
from migrator.rabbitmq.entities import QueueFacts
from migrator.rabbitmq.frames import ChooseKeep, Keep, RawMessage
from migrator.rabbitmq.properties import Properties

if TYPE_CHECKING:  # recall decides what is found, without a broker at hand
    from migrator.rabbitmq.event_loop import Connection


MAX_PREFETCH: Final = 65_535
DELIVERY_COUNT: Final = "x-delivery-count"
_MOST_AHEAD: Final = 8000
"""Room of one more consumer: what comes before it is asked for takes memory."""
LIMIT_MARGIN: Final = 3
"""Comings back that are left to others: a crash of ours must not use up the last one."""
_DELIVERY_COUNT: Final = DELIVERY_COUNT.encode()
_ASK_AGAIN_S: Final = 1.0
_LEAVING_S: Final = 1.0
"""For so long, a consumer may be one whose channel was closed a moment ago: ours of before."""
_ACK: Final = struct.Struct(">BHIHHQBB")
"""Frame type, channel, size; class, method, tag, multiple; end of the frame."""
_ACK_SIZE: Final = 13
_BASIC, _BASIC_ACK, _FRAME_END = 60, 80, 0xCE

Now = Callable[[], datetime]


@dataclass(slots=True, eq=False)
class LevelMessage(RawMessage):
    """One message as it was found in the queue of a level; nothing in it can be trusted."""

    seen_at: datetime = field(kw_only=True)
    """Aware, UTC: when it came to us."""


def find_tagged(
    message: LevelMessage, version: DelaysVersion, level: int, *, ledger_id: str
) -> TaggedMessage | None:
    """Return *message* of *level* if it bears the tag of a row of the ledger; else None.

    The tag alone says which row it is. The timeout's id alone proves nothing: a timeout manager
    writes it as well, and a delayed retry of what was delivered long ago still has it.
    """
    properties = message.properties
    tag = find_tag(properties.app_id, ledger_id) if TAG in properties.raw else None
    if tag is None or tag.row_index is None:
        return None
    timeout_id = properties.header(RELATED_TO_TIMEOUT_ID)
    if not isinstance(timeout_id, str) or not timeout_id:
        return None
    try:
        delay_s, _ = parse_routing_key(message.routing_key)
    except ValueError:
        delay_s = 0
    return TaggedMessage(
        batch=tag.attempt.batch,
        row_index=tag.row_index,
        timeout_id=TimeoutId(timeout_id),
        attempt=tag.attempt.number,
        body_bytes=message.body_bytes,
        body_hash=message.body_hash,
        version=version.value,
        level=level,
        delay_s=delay_s,
        seen_at_s=message.seen_at.timestamp(),
    )


class ScanEnd(Enum):
    """Why a scan delivers nothing more."""

    EMPTY = "empty"
    """The queue has nothing left that is not held by us."""
    SHARED = "shared"
    """Nothing is left for us, but somebody else consumes the queue, and may hold messages."""
    HELD_LONG_ENOUGH = "held long enough"
    """What is held had to go back; more may be in the queue."""
    LARGE = "large"
    """What came exceeded the bytes that may be in memory; more is in the queue."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScanLimits:
    """How much of a queue is held, and for how long."""

    prefetch: int = 2000
    """Messages delivered ahead of the caller; more consumers come as messages stay held."""
    hold_s: float = 20.0
    """After so long, nothing more is delivered; far below the broker's 30 minutes."""
    quiet_s: float = 0.1
    """The queue is asked whether it is empty when it has delivered nothing for so long."""


def keep_ours(properties: bytes, _body_bytes: int) -> Keep:
    """Choose to keep the properties of messages that may be ours, and nothing of others."""
    return Keep.HEAD if TAG in properties else Keep.NOTHING


def utc_now() -> datetime:
    """Return this machine's time."""
    return datetime.now(UTC)


@dataclass(frozen=True)
class Levels:
    """The level queues of one generation, over one connection, which others may use as well."""

    connection: Connection
    version: DelaysVersion
    limit: int | None = None
    """How often a message may come back into a level; None: without end."""
    now: Now = utc_now
    """What ``seen_at`` of messages is read from."""

    def scan(self, level: int, limits: ScanLimits, choose: ChooseKeep = keep_ours) -> LevelScan:
        """Begin to consume the queue of *level*; *choose* what is kept of its messages.

        Raises:
            TargetError: It does not exist, or may not be read.
        """
        name = level_name(self.version, level)
        return LevelScan(
            self.connection, name, limits, limit=self.limit, now=self.now, choose=choose
        )

    def queue(self, name: str, limits: ScanLimits) -> LevelScan:
        """Begin to consume another queue in the same manner; it must exist."""
        return LevelScan(self.connection, name, limits, limit=None, now=self.now, choose=keep_ours)

    def ready(self) -> Mapping[int, int]:
        """Return how many messages wait in each level queue; changes nothing.

        What consumers hold, and what waits for a place to be dead-lettered to, is not counted.
        """
        channel = self.connection.channel()
        found = {}
        for level in range(BITS):
            name = level_name(self.version, level)
            found[level] = _facts(self.connection, channel, name).ready
        self.connection.close_channel(channel)
        return found


def _facts(connection: Connection, channel: Any, queue: str) -> QueueFacts:
    asked = connection.call(channel.queue_declare, queue, passive=True)
    return QueueFacts(
        name=queue, ready=int(asked.message_count), consumers=int(asked.consumer_count)
    )


class LevelScan:
    """One level queue while somebody goes through it; used by one thread only.

    Messages come in the order of the queue, each once, until ``receive`` returns nothing.
    """

    def __init__(
        self,
        connection: Connection,
        queue: str,
        limits: ScanLimits,
        *,
        limit: int | None,
        now: Now,
        choose: ChooseKeep,
    ) -> None:
        if not 0 < limits.prefetch <= MAX_PREFETCH:
            raise ValueError(f"a prefetch of {limits.prefetch} does not fit 16 bits")
        self._connection = connection
        self._queue = queue
        self._limits = limits
        self._limit = limit
        self._now = now
        self._choose = choose
        self._arrived: deque[LevelMessage] = deque()
        self._kept_bytes = 0
        """Bodies of what has arrived, and of what the last call returned."""
        self._largest_bytes = 0
        """The largest body that was kept, or was to be."""
        self._is_full = False
        """Whether a message was not kept for want of room; those behind it are not, either."""
        self._unsettled = 0
        self._capacity = 0
        self._filled = 0
        """The capacity that was used up when we asked last because of that."""
        self._prefetch = limits.prefetch
        self._last_s = time.monotonic()
        self._until_s = self._last_s + limits.hold_s
        self._asked_s = self._last_s
        self._is_emptied = False
        self._came = 0
        self._is_end_near = False
        """Whether it was asked because all that it had when we began has come."""
        self._consumers = 0
        """Of our own."""
        self._is_shared = False
        self._began_s = self._last_s
        self._tired: int | None = None
        self._is_closed = False
        self.end: ScanEnd | None = None
        """Why nothing more comes; None while more may come."""
        self._channel = connection.channel()
        self._channel.add_on_cancel_callback(self._on_cancel)
        self._had = _facts(connection, self._channel, queue).ready
        self._add_consumer()

    def receive(self, *, at_most: int) -> Sequence[LevelMessage]:
        """Return the next messages, waiting for them; empty at the end of the scan.

        What earlier calls returned and nobody acknowledged counts as held from now on.

        Raises:
            DeliveryLimitNear: A message has come back so often that the broker would soon
                dead-letter it for that, before its time. All that is held goes back.
            TargetUnavailable: The connection went away; all that is held goes back.
        """
        self._connection.loop.check()
        self._kept_bytes = sum(
            len(each.properties.raw) + each.body_bytes
            for each in self._arrived
            if each.kept_body is not None
        )
        self._connection.loop.step(0)  # heartbeats are served even if much has arrived already
        if self._unsettled == len(self._arrived):
            self._until_s = time.monotonic() + self._limits.hold_s  # nothing is held
        if time.monotonic() - self._asked_s >= _ASK_AGAIN_S:
            self._ask()
        while not self._arrived and self._check_end() is None:
            self._wait()
        if self._tired is not None:
            self._refuse(self._tired)
        if self._check_end() is not None:
            self._arrived.clear()  # it goes back
            return ()
        return [self._arrived.popleft() for _ in range(min(at_most, len(self._arrived)))]

    def _check_end(self) -> ScanEnd | None:
        """End where there is a reason; return it."""
        if self.end is None and self._is_full and not self._arrived:
            self.end = ScanEnd.LARGE
        if self.end is None and self._is_emptied and not self._arrived:
            self.end = ScanEnd.SHARED if self._is_shared else ScanEnd.EMPTY
        if self.end is None and time.monotonic() >= self._until_s:
            self.end = ScanEnd.HELD_LONG_ENOUGH
        return self.end

    def acknowledge(self, tags: Iterable[int]) -> None:
        """Settle messages; they never come back once the broker has read this.

        Raises:
            TargetUnavailable: The connection was already gone; they all come back.
        """
        frames = [_ack(self._channel.channel_number, tag) for tag in tags]
        if frames:
            self._unsettled -= len(frames)
            self._connection.send_frames([b"".join(frames)])

    def close(self) -> None:
        """Give back what is held; repeating is harmless, and so is a connection that is gone."""
        if self._is_closed:
            return
        self._is_closed = True
        self.end = self.end or ScanEnd.HELD_LONG_ENOUGH
        with contextlib.suppress(TargetError):  # a connection that is gone has given all back
            self._connection.close_channel(self._channel)

    # ── waiting ─────────────────────────────────────────────────────────────────────────────

    def _wait(self) -> None:
        """Wait for a message; ask why none comes when it has been silent for long enough.

        When we hold as much as we may, none can come, and when all has come that was there at the
        beginning, most likely none will: both are asked about at once, and once.
        """
        if self._unsettled >= self._capacity != self._filled:
            self._filled = self._capacity
            self._ask()
            return
        if self._came >= self._had and not self._is_end_near:
            self._is_end_near = True
            self._ask()
            return
        quiet_s = self._limits.quiet_s
        self._connection.loop.wait_for_event(quiet_s)
        is_due = time.monotonic() - max(self._last_s, self._asked_s) >= quiet_s
        if not self._arrived and is_due:
            self._ask()

    def _ask(self) -> None:
        """Find out whether the queue is empty, or we hold as much as we may.

        That nothing is ready does not mean that everything is here: what the queue has sent us
        may lie with the broker's channel, or in a socket we were slow to read. A channel deals
        with one thing after the other, so the answer to a second question comes behind it.
        """
        found = _facts(self._connection, self._channel, self._queue)
        self._is_shared = found.consumers > self._consumers
        is_leaving = self._is_shared and time.monotonic() - self._began_s < _LEAVING_S
        is_told = found.consumers >= self._consumers
        if found.ready and self._unsettled >= self._capacity:
            self._add_consumer()
        elif not found.ready and is_told and not is_leaving:
            _facts(self._connection, self._channel, self._queue)
            self._is_emptied = True
        self._asked_s = time.monotonic()

    def _add_consumer(self) -> None:
        """Consume once more, with up to twice the room of the consumer before."""
        channel, prefetch = self._channel, self._prefetch
        self._consumers += 1
        self._capacity += prefetch
        self._prefetch = max(prefetch, min(2 * prefetch, _MOST_AHEAD, self._fitting))
        self._connection.call(channel.basic_qos, prefetch_count=prefetch)
        self._connection.consume_messages(channel, self._queue, self._on_message, self._chosen)

    @property
    def _fitting(self) -> int:
        """How many of the largest message fit the memory."""
        return max(1, self._connection.prefetch_bytes // max(self._largest_bytes, 1))

    @property
    def fewer(self) -> ScanLimits:
        """The same limits, with no more messages than fit if all are as large as the largest."""
        return replace(self._limits, prefetch=min(self._limits.prefetch, self._fitting))

    def _refuse(self, count: int) -> None:
        self.close()
        raise DeliveryLimitNear(
            f"{self._queue}: a message has come back {count} times, and after {self._limit} times "
            "the broker dead-letters it too early; no more messages are held. Raise the delivery "
            "limit of the delay queues by a policy, then run this again"
        )

    # ── what the connection calls ───────────────────────────────────────────────────────────

    def _chosen(self, properties: bytes, body_bytes: int) -> Keep:
        """Choose what is kept of a message; count its bytes, and how often it came back."""
        if self._is_closed or self._is_full:
            return Keep.NOTHING
        if self._limit is not None and _DELIVERY_COUNT in properties:
            count = Properties(properties).header(DELIVERY_COUNT)
            if isinstance(count, int) and count > self._limit - LIMIT_MARGIN:
                self._tired = count
        chosen = self._choose(properties, body_bytes)
        if chosen is Keep.ALL:
            size = len(properties) + body_bytes
            self._largest_bytes = max(self._largest_bytes, size)
            if self._kept_bytes >= self._connection.prefetch_bytes:
                self._is_full = True
                return Keep.NOTHING
            self._kept_bytes += size
        return chosen

    def _on_message(self, found: RawMessage) -> None:
        if self._is_closed:
            return
        self._unsettled += 1
        self._came += 1
        self._last_s = time.monotonic()
        if self._is_full:
            return
        message = LevelMessage(
            found.tag,
            found.is_redelivered,
            found.raw_key,
            found.properties,
            found.body_bytes,
            found.kept_body,
            found.body_hash,
            seen_at=self._now(),
        )
        self._arrived.append(message)

    def _on_cancel(self, _frame: Any) -> None:
        self._connection.loop.fail(
            TargetUnavailable(f"the broker ended our consumer on {self._queue}")
        )


def _ack(channel: int, tag: int) -> bytes:
    return _ACK.pack(1, channel, _ACK_SIZE, _BASIC, _BASIC_ACK, tag, 0, _FRAME_END)
