"""Messages in hand of one link: taken in lot by lot, and settled when they are done with."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import Final, Protocol

from migrator.dispatcher.intake import TakeIn, Taken
from migrator.dispatcher.outbox import Outbox
from migrator.dispatcher.ports import Delivery, SatelliteLink
from migrator.dispatcher.setback import Setback
from migrator.dispatcher.trouble import Trouble
from migrator.dispatcher.watch import Watch
from migrator.errors import Interrupted, LeaseLost, MigratorError
from migrator.ledger.work import FaultPoint, Lease, Pending, T
from migrator.nservicebus.recoverability import Failure

_MOST_DELIVERIES: Final = 500
_MOST_BYTES: Final = 8 * 2**20


class Begin(Protocol):
    """How work is begun in the background."""

    def __call__(self, work: Callable[[], T]) -> Pending[T]:
        """Begin *work*; the broker's thread is woken when it is done."""
        ...


class Incoming:
    """Deliveries of ``<queue>.Timeouts`` on their way through ``TakeIn`` into the outbox."""

    def __init__(
        self,
        take_in: TakeIn | None,
        *,
        lease: Lease,
        link: SatelliteLink,
        trouble: Trouble,
        outbox: Outbox,
        watch: Watch,
        begin: Begin,
        fault: FaultPoint,
    ) -> None:
        """Take in what *link* delivers; with no *take_in* there is nothing to be delivered."""
        self._take_in = take_in
        self._lease = lease
        self._link = link
        self._trouble = trouble
        self._outbox = outbox
        self._watch = watch
        self._begin = begin
        self._fault = fault
        self._waiting: deque[Delivery] = deque()
        self._in_work: Sequence[Delivery] = ()
        self.setback = Setback()
        self.pending: Pending[Taken] | None = None
        """The lot that is being taken in."""

    @property
    def has_waiting(self) -> bool:
        """Whether a lot could be begun."""
        return bool(self._waiting)

    def add(self, delivery: Delivery) -> None:
        """Put a delivery behind the others; one that came back often is replaced by a copy."""
        copy = self._trouble.renewal(delivery)
        if copy is None:
            self.add_as_it_is(delivery)
        else:
            self._outbox.add(copy, due_at=self._watch.now())

    def add_as_it_is(self, delivery: Delivery) -> None:
        """Put a delivery behind the others, however often it came back."""
        self._waiting.append(delivery)

    def begin(self, *, now_s: float) -> None:
        """Begin with the next lot, unless one is under way or just failed."""
        take_in = self._take_in
        if self.pending is not None or not self._waiting or take_in is None:
            return
        if self.setback.may_try(now_s):
            taken, lease = lot(self._waiting), self._lease
            self._in_work = taken
            self.pending = self._begin(lambda: take_in.take_in(taken, lease))

    def finish(self, *, now_s: float) -> None:
        """Settle the lot that was taken in; what it wants sent waits in the outbox.

        When store or broker did not do their part, the lot stays in hand and is tried again.

        Raises:
            LeaseLost: The lane is somebody else's.
        """
        if self.pending is None or not self.pending.done():
            return
        pending, self.pending = self.pending, None
        try:
            taken = pending.result()
        except (LeaseLost, Interrupted):
            raise
        except MigratorError as exc:
            self.setback.note(exc, now_s=now_s)
            self._waiting.extendleft(reversed(self._in_work))
            return
        self.setback.clear()
        self.settle(taken.settled)
        if taken.settled:
            self._fault("intake.acked")
        for item, due_at in taken.items:
            self._outbox.add(item, due_at=due_at)
        for delivery, failure in reversed(taken.failed):  # those tried again keep their order
            self.fail(delivery, failure)

    def fail(self, delivery: Delivery, failure: Failure) -> None:
        """Have *delivery* tried again at once, or a copy of it sent where it is tried later."""
        now = self._watch.now()
        copy = self._trouble.next_step(delivery, failure, now=now)
        if copy is None:
            self._waiting.appendleft(delivery)
        else:
            self._outbox.add(copy, due_at=now)

    def settle(self, deliveries: Sequence[Delivery]) -> None:
        """Acknowledge *deliveries*: what they asked for is safe elsewhere."""
        tags = [delivery.tag for delivery in deliveries]
        self._link.acknowledge(tags)
        self._trouble.forget(tags)


def lot(deliveries: deque[Delivery]) -> Sequence[Delivery]:
    """Remove and return the first of *deliveries*, bounded in number and bytes."""
    taken: list[Delivery] = []
    size = 0
    while deliveries and len(taken) < _MOST_DELIVERIES and size < _MOST_BYTES:
        taken.append(deliveries.popleft())
        size += len(taken[-1].message.body)
    return taken
