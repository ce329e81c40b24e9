"""Publishes items that are due; decides what each answer of the broker means."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final

from migrator.delays.routing import (
    DelaysVersion,
    Unreachable,
    address,
    delay_s,
    no_answer,
    refused,
    unroutable,
)
from migrator.dispatcher.due import DueRows
from migrator.dispatcher.failures import PoisonMessageDetector
from migrator.dispatcher.link import Delivery, Route, Routed
from migrator.dispatcher.outbox import Copy, Forwarded, Item, PassedOn, StoredRow
from migrator.dispatcher.receive import LinkContext, Receiver
from migrator.dispatcher.rules import sent_at
from migrator.errors import MessageTooLarge, TargetError, TargetUnavailable
from migrator.nservicebus.conversion import Reason
from migrator.nservicebus.recoverability import Failure
from migrator.rabbitmq.messages import PublishResult
from migrator.rabbitmq.publisher import LISTEN_S, SILENCE_S, SLOW_S

_RECENT_S: Final = 1.0
"""For so long after an answer, a queue is sent several messages at once."""
AGAIN_AFTER: Final = timedelta(seconds=5)
"""Until the next try of a copy that no queue accepted."""


_Unanswered = tuple[Item, PublishResult, int]
"""What was sent, and the key of its answer in which result."""


@dataclass(kw_only=True)
class Sender:
    context: LinkContext
    receiver: Receiver
    rows: DueRows
    detector: PoisonMessageDetector
    version: DelaysVersion
    sent: Callable[[float], None]
    """Called for each confirmed stored row with the seconds since its due time."""
    late: list[_Unanswered] = field(default_factory=list)
    """Sent, with their deliveries unacked until the queue answers."""
    last_answer_s: dict[str, float] = field(default_factory=dict)

    def send(self) -> None:
        """Publish due items and process each answer."""
        if self.late:
            self.late = [*self._still_unanswered(self.late)]
        now = self.context.time.now()
        items = self._choose(self.context.outbox.take(now))
        if not items:
            return
        to_levels = [item for item in items if _has_delay(item, now)]
        if to_levels:
            self._send(to_levels)
        straight = [item for item in items if not _has_delay(item, now)]
        self._send_straight(straight)
        self.rows.complete_answered(items)

    def _send_straight(self, items: Sequence[Item]) -> None:
        """Publish items without a delay, except for queues that have not answered.

        Of several items for a queue the first goes alone, so that no more wait for an answer.
        """
        silent = {*self.rows.poller.late.waiting()}
        silent |= {_queue_of(item) for item, *_ in self.late}
        begun: set[int] = set()
        slow: list[_Unanswered] = []
        for choose in (self._first_of_each, list[Item]):
            rest = [item for item in items if id(item) not in begun]
            some = choose([item for item in rest if _queue_of(item) not in silent])
            slow += self._send(some, silence_s=SLOW_S)
            silent |= {_queue_of(item) for item, *_ in slow}
            begun |= {id(item) for item in some}
        self._await_answers(slow)
        for item in items:
            if id(item) not in begun:
                self._handle_not_accepted(item, no_answer(_queue_of(item)))

    def _await_answers(self, slow: Sequence[_Unanswered]) -> None:
        if not slow:
            return
        link, monotonic_s = self.context.link, self.context.time.monotonic_s
        ends_s = monotonic_s() + SILENCE_S - SLOW_S
        unanswered = slow
        while unanswered and (link.blocked_reason or monotonic_s() < ends_s):
            link.idle(LISTEN_S)
            unanswered = self._still_unanswered(unanswered)
        for item, answers, key in unanswered:
            if isinstance(item, StoredRow):
                late: dict[Hashable, int] = {item.row.id: key}
                self.rows.poller.late.note(late, answers, item.message.destination)
                self._handle_not_accepted(item, no_answer(_queue_of(item)))
            else:
                self.late.append((item, answers, key))

    def _still_unanswered(self, waiting: Sequence[_Unanswered]) -> Sequence[_Unanswered]:
        unanswered: list[_Unanswered] = []
        for item, answers, key in waiting:
            sent = _by_answer({key: item}, answers)
            self._note_confirmed(sent)
            self._process_answers(sent)
            unanswered += [(item, answers, key) for key, item in sent.unanswered]
        return unanswered

    def _send(self, items: Sequence[Item], *, silence_s: float = math.inf) -> Sequence[_Unanswered]:
        if not items:
            return ()
        answers = PublishResult()
        try:
            self.context.link.publish(self._with_routes(items), answers, silence_s=silence_s)
        except TargetError as exc:
            self._note_suspects(items, answers, exc)
            raise
        finally:
            self._note_confirmed(_by_answer(items, answers))
        self.detector.clear(items)
        sent = _by_answer(items, answers)
        self._process_answers(sent)
        answering = map(_queue_of, sent.confirmed)
        self.last_answer_s |= dict.fromkeys(answering, self.context.time.monotonic_s())
        return [(item, answers, key) for key, item in sent.unanswered]

    def _process_answers(self, sent: _Sent) -> None:
        self._ack_confirmed(sent.confirmed)
        for item in sent.returned:
            self._handle_not_accepted(item, unroutable(_queue_of(item)))
        for item in sent.refused:
            self._handle_not_accepted(item, refused(_queue_of(item)))

    def _first_of_each(self, items: Sequence[Item]) -> list[Item]:
        now_s = self.context.time.monotonic_s()
        answering = {name for name, at_s in self.last_answer_s.items() if now_s - at_s < _RECENT_S}
        first = {
            _queue_of(item): item for item in reversed(items) if _queue_of(item) not in answering
        }
        return [*reversed(first.values())]

    def _choose(self, items: Sequence[Item]) -> Sequence[Item]:
        """Return items that may be sent together; give up those that closed a channel alone."""
        sendable = []
        for item in items:
            error = self.detector.verdict(item)
            if error is None:
                sendable.append(item)
            else:
                self._give_up(item, error)
        self.rows.complete_answered(items)
        chosen = self.detector.chosen(sendable)
        for item in sendable:
            if len(chosen) < len(sendable) and item is not chosen[0]:
                self.context.outbox.add(item, due_at=self.context.time.now())
        return chosen

    def _note_suspects(
        self, items: Sequence[Item], answers: PublishResult, error: TargetError
    ) -> None:
        """Note items that may have closed the channel; forget routes: an exchange may be gone."""
        unanswered = [item for _, item in _by_answer(items, answers).unanswered]
        with_route = (StoredRow, PassedOn)
        names = {item.message.destination for item in unanswered if isinstance(item, with_route)}
        self.rows.poller.routes.forget(names)
        self.detector.note(unanswered, error)

    def _with_routes(self, items: Sequence[Item]) -> Iterator[Routed]:
        half = len(items) // 2
        for key, item in enumerate(items):
            routed = self._with_route(item)
            self.context.guard()
            if key == half and any(isinstance(item, StoredRow) for item in items):
                self.context.fault("dispatch.publishing")
            yield routed

    def _with_route(self, item: Item) -> Routed:
        now = self.context.time.now()
        match item:
            case Copy():
                return Route(exchange="", routing_key=item.queue), item.message
            case Forwarded(message=message):
                delay = delay_s(message.due_at, now=now)
                where = address(self.version, delay, message.destination)
                return Route(exchange=where.exchange, routing_key=where.routing_key), message
            case StoredRow():
                return item.route, sent_at(item.message, now)
            case PassedOn():
                return item.route, item.message

    def _note_confirmed(self, sent: _Sent) -> None:
        now = self.context.time.now()
        for item in sent.confirmed:
            if isinstance(item, StoredRow):
                self.rows.sending(item).note_sent(item)
                self.sent((now - item.message.due_at).total_seconds())

    def _ack_confirmed(self, items: Sequence[Item]) -> None:
        done: list[Delivery] = []
        for item in items:
            if not isinstance(item, StoredRow):
                self.context.fault(_fault_point_of(item))
                done.append(item.delivery)
        self.receiver.ack(done)

    def _handle_not_accepted(self, item: Item, why: Unreachable) -> None:
        if isinstance(item, StoredRow):
            self.rows.sending(item).note_returned(item, why)
        elif isinstance(item, Copy):
            self._handle_copy_not_accepted(item, why)
        else:
            self.rows.poller.routes.forget([item.message.destination])
            text = f"{why.reason}: {why.detail}"
            self.receiver.fail(item.delivery, Failure(kind="migrator.NotTaken", text=text))

    def _give_up(self, item: Item, error: TargetError) -> None:
        """Give up a message that closed the channel alone."""
        # without a missing right or a missing exchange, the message itself is the cause
        is_ours = type(error) is TargetError or isinstance(error, MessageTooLarge)
        if isinstance(item, StoredRow) and is_ours:
            is_large = isinstance(error, MessageTooLarge)
            reason = Reason.BODY_TOO_LARGE if is_large else Reason.REFUSED
            self.rows.sending(item).note_unfit(item.row, reason, str(error))
        elif isinstance(item, StoredRow | Copy):
            self._handle_not_accepted(item, Unreachable(reason=Reason.REFUSED, detail=str(error)))
        else:
            failure = Failure(kind="migrator.Refused", text=str(error), is_final=is_ours)
            self.receiver.fail(item.delivery, failure)

    def _handle_copy_not_accepted(self, item: Copy, why: Unreachable) -> None:
        if item.is_renewal:  # a queue that is full, or no right to write to it
            self.receiver.add_as_it_is(item.delivery)
            return
        if why.reason is Reason.UNROUTABLE and not item.is_final:
            raise TargetUnavailable(
                f"queue {item.queue!r} no longer exists"
            )  # the next link declares it
        instead = None
        if why.reason is Reason.UNROUTABLE:
            instead = self.context.policy.instead_of_error_queue(item.delivery)
        again_at = self.context.time.now() + (AGAIN_AFTER if instead is None else timedelta(0))
        self.context.outbox.add(instead or item, due_at=again_at)


@dataclass(slots=True)
class _Sent:
    """The items of one call by answer, in the order of sending."""

    confirmed: list[Item] = field(default_factory=list)
    returned: list[Item] = field(default_factory=list)
    """Unroutable."""
    refused: list[Item] = field(default_factory=list)
    """Nacked."""
    unanswered: list[tuple[int, Item]] = field(default_factory=list)
    """With their keys in the result."""


def _by_answer(items: Sequence[Item] | Mapping[int, Item], answers: PublishResult) -> _Sent:
    sent = _Sent()
    for key, item in items.items() if isinstance(items, Mapping) else enumerate(items):
        if key in answers.returned:
            sent.returned.append(item)
        elif key in answers.confirmed:
            sent.confirmed.append(item)
        elif key in answers.refused:
            sent.refused.append(item)
        else:
            sent.unanswered.append((key, item))
    return sent


def _has_delay(item: Item, now: datetime) -> bool:
    return isinstance(item, Forwarded) and item.message.due_at > now


def _fault_point_of(item: PassedOn | Forwarded | Copy) -> str:
    """Name the fault point between the confirm of a message and the ack of its delivery."""
    if isinstance(item, Copy):
        return "error.published" if item.is_final else "retry.published"
    return "pass_on.confirmed" if isinstance(item, PassedOn) else "forward.confirmed"


def _queue_of(item: Item) -> str:
    return item.queue if isinstance(item, Copy) else item.message.destination
