"""Messages that leave when their time has come, and what each answer of the broker means."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from datetime import timedelta
from typing import Final

from migrator.delays.routing import Unreachable
from migrator.dispatcher.due_rows import DueRows
from migrator.dispatcher.incoming import Incoming
from migrator.dispatcher.outbox import (
    Copy,
    Forwarded,
    Item,
    Outbox,
    PassedOn,
    StoredRow,
    letters,
    sorted_out,
)
from migrator.dispatcher.parts import DispatcherParts
from migrator.dispatcher.ports import Delivery, Letter, SatelliteLink
from migrator.dispatcher.tracing import tell_of
from migrator.dispatcher.trouble import Trouble
from migrator.dispatcher.watch import Watch
from migrator.errors import MessageTooLarge, TargetError, TargetUnavailable
from migrator.nservicebus.conversion import Reason
from migrator.nservicebus.recoverability import Failure
from migrator.nservicebus.timeouts import EndpointName
from migrator.rabbitmq.messages import PublishResult

AGAIN_AFTER: Final = timedelta(seconds=5)
"""A copy that no queue took is tried again after this."""
_REFUSED: Final = Unreachable(
    reason=Reason.REFUSED, detail="the broker refused it: its queue is full, or in trouble"
)


class Sender:
    """Publishes what is due over one link."""

    def __init__(
        self,
        parts: DispatcherParts,
        *,
        link: SatelliteLink,
        outbox: Outbox,
        watch: Watch,
        incoming: Incoming,
        rows: DueRows,
        trouble: Trouble,
        guard: Callable[[], None],
    ) -> None:
        """Send over *link* what *outbox* holds; *guard* raises when nothing more may be sent."""
        self._parts = parts
        self._link = link
        self._outbox = outbox
        self._watch = watch
        self._incoming = incoming
        self._rows = rows
        self._trouble = trouble
        self._guard = guard

    def send(self) -> None:
        """Publish what is due and deal with each answer.

        Raises:
            LeaseLost, Interrupted: Nothing more may be sent.
            TargetError: The link is gone.
        """
        items = self._chosen(self._outbox.take(self._watch.now()))
        if not items:
            return
        answers, began_s = PublishResult(), self._parts.clock.monotonic_s()
        try:
            self._link.publish(self._letters(items), answers)
        except TargetError as exc:
            self._blame(sorted_out(items, answers).refused, exc)
            raise
        finally:
            self._note(items, answers, began_s)
        self._parts.blame.clear(items)
        sent = sorted_out(items, answers)
        self._confirmed(sent.confirmed)
        for item in sent.returned:
            self._not_taken(item, _unroutable(item))
        for item in sent.refused:
            self._not_taken(item, _REFUSED)
        self._rows.settle_answered(items)

    def _chosen(self, items: Sequence[Item]) -> Sequence[Item]:
        """Return what may be sent together; put aside what ended a channel when it was alone."""
        blame, innocent = self._parts.blame, []
        for item in items:
            error = blame.verdict(item)
            if error is None:
                innocent.append(item)
            else:
                self._condemned(item, error)
        self._rows.settle_answered(items)
        chosen = blame.chosen(innocent)
        for item in innocent:
            if len(chosen) < len(innocent) and item is not chosen[0]:
                self._outbox.add(item, due_at=self._watch.now())
        return chosen

    def _blame(self, unanswered: Sequence[Item], error: TargetError) -> None:
        """Find out whose fault it is; an exchange may be gone, so routes are looked for anew."""
        routed = (StoredRow, PassedOn)
        names = {item.message.destination for item in unanswered if isinstance(item, routed)}
        self._parts.poller.routes.forget(names)
        self._parts.blame.note(unanswered, error)

    def _letters(self, items: Sequence[Item]) -> Iterator[Letter]:
        """Yield the letters of *items*, with a step to be killed at in the middle."""
        half = len(items) // 2
        for letter in letters(items, version=self._parts.version, now=self._watch.now):
            self._guard()
            if letter.key == half and any(isinstance(item, StoredRow) for item in items):
                self._parts.fault("dispatch.publishing")
            yield letter

    def _note(self, items: Sequence[Item], answers: PublishResult, began_s: float) -> None:
        """Remember which rows were sent, also when the link is gone."""
        taken, now = answers.confirmed - answers.returned, self._watch.now()
        for key, item in enumerate(items):
            if isinstance(item, StoredRow) and key in taken:
                self._parts.sending[item.batch].note_sent(item.row)
                self._parts.sent((now - item.message.due_at).total_seconds())
        tell_of(
            [items[key] for key in sorted(taken)],
            tracer=self._parts.tracer,
            endpoint=EndpointName(self._parts.recoverability.endpoint),
            seconds=self._parts.clock.monotonic_s() - began_s,
        )

    def _confirmed(self, items: Sequence[Item]) -> None:
        """Acknowledge the deliveries whose message, or copy, is confirmed elsewhere."""
        done: list[Delivery] = []
        for item in items:
            if not isinstance(item, StoredRow):
                self._parts.fault(_step(item))
                done.append(item.delivery)
        self._incoming.settle(done)

    def _not_taken(self, item: Item, why: Unreachable) -> None:
        """Deal with a message that no queue took, or whose queue takes no more."""
        if isinstance(item, StoredRow):
            self._parts.sending[item.batch].note_returned(item.row, why)
        elif isinstance(item, Copy):
            self._copy_not_taken(item, why)
        else:
            self._parts.poller.routes.forget([item.message.destination])
            text = f"{why.reason}: {why.detail}"
            self._incoming.fail(item.delivery, Failure(kind="migrator.NotTaken", text=text))

    def _condemned(self, item: Item, error: TargetError) -> None:
        """Deal with a message that ended the channel all by itself."""
        # neither a missing right nor a missing exchange: then it is the message itself
        is_ours = type(error) is TargetError or isinstance(error, MessageTooLarge)
        if isinstance(item, StoredRow) and is_ours:
            is_large = isinstance(error, MessageTooLarge)
            reason = Reason.BODY_TOO_LARGE if is_large else Reason.REFUSED
            self._parts.sending[item.batch].note_unfit(item.row, reason, str(error))
        elif isinstance(item, StoredRow | Copy):
            self._not_taken(item, Unreachable(reason=Reason.REFUSED, detail=str(error)))
        else:
            failure = Failure(kind="migrator.Refused", text=str(error), is_final=is_ours)
            self._incoming.fail(item.delivery, failure)

    def _copy_not_taken(self, item: Copy, why: Unreachable) -> None:
        if item.is_renewal:  # a queue that is full, or no right to write to it
            self._incoming.add_as_it_is(item.delivery)
            return
        if why.reason is Reason.UNROUTABLE and not item.is_final:
            raise TargetUnavailable(f"queue {item.queue!r} is gone")  # the next link declares it
        instead = None
        if why.reason is Reason.UNROUTABLE:
            instead = self._trouble.instead_of_error_queue(item.delivery)
        again_at = self._watch.now() + (AGAIN_AFTER if instead is None else timedelta(0))
        self._outbox.add(instead or item, due_at=again_at)


def _step(item: PassedOn | Forwarded | Copy) -> str:
    """Return the name of the step between a confirmed message and its acknowledgement."""
    if isinstance(item, Copy):
        return "error.published" if item.is_final else "retry.published"
    return "pass_on.confirmed" if isinstance(item, PassedOn) else "forward.confirmed"


def _unroutable(item: Item) -> Unreachable:
    where = item.queue if isinstance(item, Copy) else item.message.destination
    detail = f"the broker returned it: nothing is bound for {where!r}"
    return Unreachable(reason=Reason.UNROUTABLE, detail=detail)
