"""Messages that leave when their time has come, and what each answer of the broker means."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Final

from migrator.delays.routing import (
    DelaysVersion,
    Unreachable,
    address,
    delay_s,
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

AGAIN_AFTER: Final = timedelta(seconds=5)
"""A copy that no queue took is tried again after this."""


@dataclass(kw_only=True)
class Sender:
    """Publishes what is due over one link."""

    context: LinkContext
    receiver: Receiver
    rows: DueRows
    detector: PoisonMessageDetector
    version: DelaysVersion
    sent: Callable[[float], None]
    """Told of each stored row that the broker took: how many seconds after its due time."""

    def send(self) -> None:
        """Publish what is due and deal with each answer.

        Raises:
            LeaseLost, Interrupted: Nothing more may be sent.
            TargetError: The link is gone.
        """
        items = self._chosen(self.context.outbox.take(self.context.time.now()))
        if not items:
            return
        answers = PublishResult()
        try:
            self.context.link.publish(self._routed(items), answers)
        except TargetError as exc:
            self._look_for_poison(items, answers, exc)
            raise
        finally:
            self._note(items, answers)
        self.detector.clear(items)
        sent = _sorted_out(items, answers)
        self._confirmed(sent.confirmed)
        for item in sent.returned:
            self._not_taken(item, unroutable(_where(item)))
        for item in sent.refused:
            self._not_taken(item, refused(_where(item)))
        self.rows.settle_answered(items)

    def _chosen(self, items: Sequence[Item]) -> Sequence[Item]:
        """Return what may be sent together; put aside what ended a channel when it was alone."""
        harmless = []
        for item in items:
            error = self.detector.verdict(item)
            if error is None:
                harmless.append(item)
            else:
                self._never_taken(item, error)
        self.rows.settle_answered(items)
        chosen = self.detector.chosen(harmless)
        for item in harmless:
            if len(chosen) < len(harmless) and item is not chosen[0]:
                self.context.outbox.add(item, due_at=self.context.time.now())
        return chosen

    def _look_for_poison(
        self, items: Sequence[Item], answers: PublishResult, error: TargetError
    ) -> None:
        """Find out which message it was; an exchange may be gone, so routes are asked for anew."""
        unanswered = _sorted_out(items, answers).refused
        with_route = (StoredRow, PassedOn)
        names = {item.message.destination for item in unanswered if isinstance(item, with_route)}
        self.rows.poller.routes.forget(names)
        self.detector.note(unanswered, error)

    def _routed(self, items: Sequence[Item]) -> Iterator[Routed]:
        """Yield what is published of *items*, with a step to be killed at in the middle."""
        half = len(items) // 2
        for key, item in enumerate(items):
            routed = self._routed_item(item)
            self.context.guard()
            if key == half and any(isinstance(item, StoredRow) for item in items):
                self.context.fault("dispatch.publishing")
            yield routed

    def _routed_item(self, item: Item) -> Routed:
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

    def _note(self, items: Sequence[Item], answers: PublishResult) -> None:
        """Remember which rows were sent, also when the link is gone."""
        confirmed, now = _sorted_out(items, answers).confirmed, self.context.time.now()
        for item in confirmed:
            if isinstance(item, StoredRow):
                self.rows.sending(item).note_sent(item)
                self.sent((now - item.message.due_at).total_seconds())

    def _confirmed(self, items: Sequence[Item]) -> None:
        """Acknowledge the deliveries whose message, or copy, is confirmed elsewhere."""
        done: list[Delivery] = []
        for item in items:
            if not isinstance(item, StoredRow):
                self.context.fault(_step(item))
                done.append(item.delivery)
        self.receiver.settle(done)

    def _not_taken(self, item: Item, why: Unreachable) -> None:
        """Deal with a message that no queue took, or whose queue takes no more."""
        if isinstance(item, StoredRow):
            self.rows.sending(item).note_returned(item, why)
        elif isinstance(item, Copy):
            self._copy_not_taken(item, why)
        else:
            self.rows.poller.routes.forget([item.message.destination])
            text = f"{why.reason}: {why.detail}"
            self.receiver.fail(item.delivery, Failure(kind="migrator.NotTaken", text=text))

    def _never_taken(self, item: Item, error: TargetError) -> None:
        """Deal with a message that ended the channel all by itself."""
        # neither a missing right nor a missing exchange: then it is the message itself
        is_ours = type(error) is TargetError or isinstance(error, MessageTooLarge)
        if isinstance(item, StoredRow) and is_ours:
            is_large = isinstance(error, MessageTooLarge)
            reason = Reason.BODY_TOO_LARGE if is_large else Reason.REFUSED
            self.rows.sending(item).note_unfit(item.row, reason, str(error))
        elif isinstance(item, StoredRow | Copy):
            self._not_taken(item, Unreachable(reason=Reason.REFUSED, detail=str(error)))
        else:
            failure = Failure(kind="migrator.Refused", text=str(error), is_final=is_ours)
            self.receiver.fail(item.delivery, failure)

    def _copy_not_taken(self, item: Copy, why: Unreachable) -> None:
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
    """What became of the items of one call, each in the order in which they were sent."""

    confirmed: list[Item] = field(default_factory=list)
    returned: list[Item] = field(default_factory=list)
    """Unroutable."""
    refused: list[Item] = field(default_factory=list)
    """The broker said no (nack), or the connection went away before it said anything."""


def _sorted_out(items: Sequence[Item], answers: PublishResult) -> _Sent:
    sent = _Sent()
    for key, item in enumerate(items):
        if key in answers.returned:
            sent.returned.append(item)
        elif key in answers.confirmed:
            sent.confirmed.append(item)
        else:
            sent.refused.append(item)
    return sent


def _step(item: PassedOn | Forwarded | Copy) -> str:
    """Return the name of the step between a confirmed message and its acknowledgement."""
    if isinstance(item, Copy):
        return "error.published" if item.is_final else "retry.published"
    return "pass_on.confirmed" if isinstance(item, PassedOn) else "forward.confirmed"


def _where(item: Item) -> str:
    """Return the queue that *item* is for."""
    return item.queue if isinstance(item, Copy) else item.message.destination
