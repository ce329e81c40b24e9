"""A lane's staging queue: keep a whole attempt unacked, then dead-letter it with one nack.

Rules (design section 5.2; each was measured or cost a message somewhere):

* every delivery stays unacked until ``discard``, ``commit`` or ``ack_receipt``; only its tag is
  kept, by attempt and row, never its body;
* the nack is sent on the consuming connection, on the one channel whose tags it names: under a
  memory alarm the broker stops reading connections that publish;
* before the nack, everything unacked up to its tag must be exactly the attempt: ``multiple`` would
  move anything else with it;
* a quorum queue that loses contact with the consumer's node for a moment (a short split of the
  cluster) requeues unacked messages and redelivers them on the same channel: their old tags are
  void, so the link is closed, and the next link finds out the outcome of each commit;
* a message that is not the lane's is moved to the poison queue and makes nothing doubtful; a
  message that is there twice is doubtful and stays where it is.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from migrator.delays.routing import DelaysVersion, entry_level, level_name, routing_key
from migrator.errors import HandOverDoubtful, TargetUnavailable
from migrator.handover.ports import Delayed, UnackedAttempt
from migrator.handover.strays import PoisonQueue, StraysOfQueue
from migrator.nservicebus.headers import CONFIRMATION_ID
from migrator.nservicebus.incoming import OutgoingMessage
from migrator.nservicebus.tags import (
    Attempt,
    UnknownTag,
    build_tag,
    parse_tag,
    tag_of_rows,
)
from migrator.nservicebus.timeouts import BITS, BatchId, Lane
from migrator.rabbitmq.admin import AdminSession
from migrator.rabbitmq.event_loop import Connection
from migrator.rabbitmq.frames import OnDelivery
from migrator.rabbitmq.messages import (
    EncodedMessage,
    PublishResult,
    encode_fields,
    encode_properties,
    tagged_properties,
)
from migrator.rabbitmq.names import receipt_value, receipts_queue, router_exchange, staging_name
from migrator.rabbitmq.publisher import RECEIPT_INDEX, Publisher
from migrator.text import counted, grouped

_DELIVERY_LIMIT: Final = 100_000
"""The default of RabbitMQ 4 is 20, after which it drops; a lost connection counts as a delivery."""
_RECEIPTS_PREFETCH: Final = 100
_MAX_PREFETCH: Final = 65_535
_FLUSH_S: Final = 1.0
_LEVEL_FIELDS: Final = tuple(encode_fields({CONFIRMATION_ID: str(n)}) for n in range(BITS))
"""By level: the header that the router matches, in wire format."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LaneQueues:
    ledger_id: str
    lane: Lane
    version: DelaysVersion

    @property
    def staging(self) -> str:
        return staging_name(self.version, self.ledger_id, self.lane)

    @property
    def receipts(self) -> str:
        return receipts_queue(self.ledger_id, self.lane)


def declare_staging(admin: AdminSession, queues: LaneQueues) -> None:
    """Declare and bind a lane's queues and the router; raises ``EntityAbsent`` without levels."""
    router = router_exchange(queues.version)
    admin.declare_exchange(router, "headers")
    for level in range(BITS):
        _route(admin, router, level_name(queues.version, level), str(level))
    admin.declare_queue(queues.receipts, _quorum())
    _route(admin, router, queues.receipts, receipt_value(queues.ledger_id, queues.lane))
    admin.declare_exchange(queues.staging, "fanout")
    admin.declare_queue(queues.staging, staging_arguments(queues.version))
    admin.bind_queue(queues.staging, queues.staging, "")


def staging_arguments(version: DelaysVersion) -> dict[str, str | int]:
    """Return the arguments of a staging queue; without a dead-letter key, messages keep theirs."""
    return _quorum() | {
        "x-dead-letter-exchange": router_exchange(version),
        "x-dead-letter-strategy": "at-least-once",
        "x-overflow": "reject-publish",
        "x-single-active-consumer": True,
    }


def _quorum() -> dict[str, str | int]:
    return {"x-queue-type": "quorum", "x-delivery-limit": _DELIVERY_LIMIT}


def _route(admin: AdminSession, router: str, queue: str, value: str) -> None:
    admin.bind_queue(router, queue, "", {"x-match": "all", CONFIRMATION_ID: value})


@dataclass(slots=True)
class _AttemptTags:
    tags: dict[int, int] = field(default_factory=dict)
    receipt_tag: int | None = None
    highest_tag: int = 0

    def all_tags(self) -> Iterator[int]:
        yield from self.tags.values()
        if self.receipt_tag is not None:
            yield self.receipt_tag


@dataclass(slots=True)
class _Receipts:
    tags: list[int] = field(default_factory=list)
    read_s: float = field(default_factory=time.monotonic)


class RabbitStaging:
    """Implements ``Staging`` on a publisher and a consuming connection.

    *prefetch* is at least the rows of the largest open batch, its receipt, and a margin;
    *declare* calls ``declare_staging`` over a connection of its own.
    """

    def __init__(
        self,
        *,
        connection: Connection,
        publisher: Publisher,
        queues: LaneQueues,
        prefetch: int,
        declare: Callable[[], None],
        poison: PoisonQueue,
    ) -> None:
        if not 0 < prefetch <= _MAX_PREFETCH:
            raise ValueError(f"a prefetch of {prefetch} does not fit 16 bits")
        self._connection = connection
        self._publisher = publisher
        self._queues = queues
        self.bind_again = declare
        self._unacked: dict[Attempt, _AttemptTags] = {}
        self._known_begin, self._known_attempt = "", Attempt(batch=BatchId(0), number=0)
        """Tag prefix of the attempt delivered last; most tags repeat it."""
        self._published: set[Attempt] = set()
        self._committed: set[Attempt] = set()
        """Nacked over this link, without a receipt."""
        self._receipts: dict[Attempt, _Receipts] = {}
        self._doubtful: str | None = None
        self._poison = poison
        self._channel = connection.channel()
        self._strays = StraysOfQueue(connection, self._channel, queues.staging)
        self._consume(self._channel, self._strays, prefetch, self._on_staged)
        self._receipts_channel = connection.channel()
        self._stray_receipts = StraysOfQueue(connection, self._receipts_channel, queues.receipts)
        self._consume(
            self._receipts_channel, self._stray_receipts, _RECEIPTS_PREFETCH, self._on_receipt
        )

    def publish(self, attempt: Attempt, chunks: Iterable[Sequence[Delayed]]) -> None:
        settled, count = PublishResult(), 0

        def encoded() -> Iterator[list[EncodedMessage]]:
            nonlocal count
            tag = tag_of_rows(self._queues.ledger_id, attempt)
            for chunk in chunks:
                count += len(chunk)
                yield self._encoded(tag, chunk)
            count += 1
            yield [self._receipt(attempt)]

        self._published.add(attempt)
        self._publisher.publish(attempt, encoded(), settled)
        if settled.returned or len(settled.confirmed) != count:
            raise TargetUnavailable(
                f"batch {attempt.batch}: {self._queues.staging} did not accept the whole attempt "
                f"({len(settled.confirmed)} of {count} confirmed, "
                f"{len(settled.returned)} returned); abandon it"
            )

    def unacked(self) -> Mapping[Attempt, UnackedAttempt]:
        self._raise_doubtful()
        return {
            attempt: UnackedAttempt(
                rows=found.tags.keys(), has_receipt=found.receipt_tag is not None
            )
            for attempt, found in self._unacked.items()
        }

    def receipts(self) -> Mapping[Attempt, float]:
        self._raise_doubtful()
        now_s = time.monotonic()
        return {attempt: now_s - found.read_s for attempt, found in self._receipts.items()}

    def wait_for_event(self, timeout_s: float) -> None:
        self._connection.loop.wait_for_event(timeout_s)

    def discard(self, attempt: Attempt) -> None:
        self._published.discard(attempt)
        found = self._unacked.pop(attempt, None)
        if found is not None:
            for tag in found.all_tags():
                self._connection.send(self._channel.basic_ack, tag)

    def disown(self, attempt: Attempt) -> None:
        found = self._unacked.pop(attempt, _AttemptTags())
        begin = tag_of_rows(self._queues.ledger_id, attempt)
        for row_index, tag in found.tags.items():
            self._strays.note(tag, f"{begin}{row_index}")
        if found.receipt_tag is not None:
            app_id = build_tag(self._queues.ledger_id, attempt, None)
            self._strays.note(found.receipt_tag, app_id)

    def move_strays(self) -> None:
        for strays in (self._strays, self._stray_receipts):
            if strays:
                strays.ask_for_whole()
                self._poison.move(strays)

    def commit(self, attempt: Attempt, rows: frozenset[int]) -> None:
        self._connection.loop.check()
        found = self._unacked.get(attempt, _AttemptTags())
        self._assert_alone(attempt, found, rows)
        self._strays.clear_below(found.highest_tag)
        self._committed.add(attempt)
        self._connection.send(
            self._channel.basic_nack, found.highest_tag, multiple=True, requeue=False
        )
        del self._unacked[attempt]
        self._connection.flush(_FLUSH_S)

    def ack_receipt(self, attempt: Attempt) -> None:
        self._published.discard(attempt)
        self._committed.discard(attempt)
        for tag in self._receipts.pop(attempt, _Receipts()).tags:
            self._connection.send(self._receipts_channel.basic_ack, tag)

    # ── opening ─────────────────────────────────────────────────────────────────────────────

    def _consume(
        self, channel: Any, strays: StraysOfQueue, prefetch: int, on_delivery: OnDelivery
    ) -> None:
        queue = strays.queue
        self._connection.call(channel.basic_qos, prefetch_count=prefetch)
        channel.add_on_cancel_callback(lambda _frame: self._on_cancel(queue))
        self._connection.consume(
            channel, queue, on_delivery, strays.note_whole, strays.wanted, strays.choose
        )

    def _on_cancel(self, queue: str) -> None:
        self._connection.loop.fail(TargetUnavailable(f"the broker ended the consumer of {queue}"))

    # ── publishing ──────────────────────────────────────────────────────────────────────────

    def _encoded(self, tag: str, chunk: Sequence[Delayed]) -> list[EncodedMessage]:
        exchange = self._queues.staging
        return [
            EncodedMessage(
                message.row_index,
                exchange,
                routing_key(delay_s, message.destination),
                tagged_properties(
                    message, f"{tag}{message.row_index}", _LEVEL_FIELDS[entry_level(delay_s)]
                ),
                message.body,
            )
            for message, delay_s in chunk
        ]

    def _receipt(self, attempt: Attempt) -> EncodedMessage:
        queues = self._queues
        properties = encode_properties(
            OutgoingMessage(
                body=b"",
                headers={CONFIRMATION_ID: receipt_value(queues.ledger_id, queues.lane)},
            ),
            app_id=build_tag(queues.ledger_id, attempt, None),
        )
        return EncodedMessage(RECEIPT_INDEX, queues.staging, "receipt", properties, b"")

    # ── the one nack ────────────────────────────────────────────────────────────────────────

    def _assert_alone(self, attempt: Attempt, found: _AttemptTags, rows: frozenset[int]) -> None:
        if found.tags.keys() != rows or found.receipt_tag is None:
            raise HandOverDoubtful(
                f"batch {attempt.batch}: {counted(len(found.tags), 'row is', 'rows are')} "
                f"unacked, {grouped(len(rows))} and a receipt were expected; nothing was sent"
            )
        self._raise_doubtful()
        for other, unacked in self._unacked.items():
            if other != attempt and any(tag < found.highest_tag for tag in unacked.all_tags()):
                raise HandOverDoubtful(
                    f"batch {attempt.batch}: a nack would also move messages of batch "
                    f"{other.batch}, attempt {other.number}; nothing was sent"
                )

    # ── what a delivery calls ───────────────────────────────────────────────────────────────

    def _on_staged(self, tag: int, is_redelivered: bool, app_id: str | None) -> None:
        own = self._own_row(app_id)
        # the nack moved all of its attempt: a later message of it is a copy
        if own is None or (own[0] in self._committed and not is_redelivered):
            self._strays.note(tag, app_id)
            return
        attempt, row_index = own
        found = self._unacked.get(attempt)
        if found is None:
            found = self._unacked[attempt] = _AttemptTags()
        found.highest_tag = max(found.highest_tag, tag)
        if row_index is None:
            is_new, found.receipt_tag = found.receipt_tag is None, tag
        else:
            is_new = found.tags.setdefault(row_index, tag) == tag
        if is_redelivered and (not is_new or attempt in self._published):
            self._connection.loop.fail(
                TargetUnavailable(
                    f"{self._queues.staging} redelivers unacked messages (its leader lost contact "
                    "with the consumer's node); their outcome is found out over a new connection"
                )
            )
        elif not is_new:
            self._doubt(f"{self._queues.staging} contains {app_id!r} twice")

    def _on_receipt(self, tag: int, _is_redelivered: bool, app_id: str | None) -> None:
        own = self._own_row(app_id)
        if own is None or own[1] is not None:
            self._stray_receipts.note(tag, app_id)
            return
        attempt = own[0]
        self._receipts.setdefault(attempt, _Receipts()).tags.append(tag)

    def _own_row(self, app_id: str | None) -> tuple[Attempt, int | None] | None:
        """Return the attempt and the row (None: its receipt); None: a stray."""
        begin, _, last = (app_id or "").rpartition(".")
        if begin == self._known_begin and last.isascii() and last.isdecimal() and len(last) < 10:
            return self._known_attempt, int(last)
        try:
            own = parse_tag(app_id)
        except UnknownTag:
            return None
        if own.ledger_id != self._queues.ledger_id:
            return None
        self._known_begin, self._known_attempt = begin, own.attempt
        return own.attempt, own.row_index

    def _doubt(self, reason: str) -> None:
        if self._doubtful is None:
            self._doubtful = reason

    def _raise_doubtful(self) -> None:
        if self._doubtful is not None:
            raise HandOverDoubtful(f"{self._doubtful}; nothing was moved; find out why first")
