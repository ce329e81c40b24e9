"""One endpoint's dispatcher over one link: take in, claim, send when due, settle.

Rules of this file: the thread that runs a session serves the broker and nothing else; whatever
asks the database or makes a connection runs in the background. What is delivered is acknowledged
only when it is stored, claimed, or confirmed elsewhere. Whatever ends a session, the next one
begins with what the ledger has left open, and knows which of it this process has sent already.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from datetime import timedelta
from typing import Final

from migrator.dispatcher.due_rows import DueRows
from migrator.dispatcher.incoming import Incoming
from migrator.dispatcher.outbox import Outbox
from migrator.dispatcher.parts import DispatcherParts
from migrator.dispatcher.ports import SatelliteLink
from migrator.dispatcher.sender import AGAIN_AFTER, Sender
from migrator.dispatcher.trouble import Trouble
from migrator.dispatcher.watch import Watch
from migrator.errors import MigratorError, TargetUnavailable
from migrator.ledger.work import Background, Lease, Pending, T
from migrator.nservicebus.timeouts import QueueName

_log = logging.getLogger(__name__)

_SLICE: Final = timedelta(milliseconds=100)
"""Longest sleep: a lost lease or a wish to stop is noticed after this."""
_SLICE_IN_WORK: Final = timedelta(milliseconds=20)
"""Longest sleep while the background works; it wakes us when it is done."""
_LOOK_AGAIN_S: Final = 10.0
"""How long a queue that is missing is not looked for."""


class DispatcherSession:
    """The work of one dispatcher over one link."""

    def __init__(
        self,
        parts: DispatcherParts,
        *,
        lease: Lease,
        link: SatelliteLink,
        control_queue: QueueName | None,
        guard: Callable[[], None],
        is_queue_missing: bool = False,
    ) -> None:
        """Work under *lease* over *link*; *guard* raises when that must end at once.

        With *is_queue_missing* there is no queue of timeouts at present: stored rows are sent all
        the same, and the session ends after a while, so that the next one can look again.
        """
        self._parts = parts
        self._lease = lease
        self._link = link
        self._control_queue = control_queue
        self._guard = guard
        self._is_consuming = False
        self._missing: TargetUnavailable | None = None
        if is_queue_missing:
            self._missing = TargetUnavailable(f"queue {parts.timeouts_queue!r} does not exist")
        self._looks_again_s = parts.clock.monotonic_s() + _LOOK_AGAIN_S
        self._last_busy_s = parts.clock.monotonic_s()
        self._watch = Watch(parts.clock)
        self._outbox = Outbox()
        trouble = Trouble(
            parts.recoverability,
            frame_max_bytes=link.frame_max_bytes,
            sparingly=parts.sparingly,
        )
        self._incoming = Incoming(
            parts.take_in,
            lease=lease,
            link=link,
            trouble=trouble,
            outbox=self._outbox,
            watch=self._watch,
            begin=lambda work: self._begin(parts.storing, work),
            fault=parts.fault,
        )
        self._rows = DueRows(
            parts,
            lease=lease,
            outbox=self._outbox,
            watch=self._watch,
            incoming=self._incoming,
            begin=lambda work: self._begin(parts.claiming, work),
        )
        self._sender = Sender(
            parts,
            link=link,
            outbox=self._outbox,
            watch=self._watch,
            incoming=self._incoming,
            rows=self._rows,
            trouble=trouble,
            guard=guard,
        )

    def start(self) -> None:
        """Fit what is converted to this link; the first turns take up what was left open."""
        self._parts.poller.limit_frames(self._link.frame_max_bytes)
        if self._parts.take_in is not None:
            self._parts.take_in.limit_frames(self._link.frame_max_bytes)

    def turn(self, *, may_take: bool) -> bool:
        """Do what can be done now and wait a little; return whether anything is under way.

        Args:
            may_take: False while draining: what is claimed or held is finished, nothing more.

        Raises:
            LeaseLost, Interrupted: The session must end.
            TargetError: The link is gone, or of no use.
        """
        self._guard()
        self._look_again()
        self._incoming.finish(now_s=self._now_s())
        self._rows.finish()
        self._consume()
        self._sort_deliveries()
        if may_take:
            self._incoming.begin(now_s=self._now_s())
        self._rows.begin(may_take=may_take)
        self._sender.send()
        is_busy = self._is_busy(may_take=may_take)
        self._link.idle(self._rest(may_take=may_take).total_seconds())
        return is_busy

    @property
    def has_polled(self) -> bool:
        """Whether the store has answered this session."""
        return self._rows.has_polled

    @property
    def problem(self) -> MigratorError | None:
        """What keeps store or broker from doing their part; it is tried again."""
        return self._rows.error or self._incoming.setback.error or self._missing

    @property
    def doing(self) -> str:
        """What is going on, in a few words."""
        if (blocked := self._link.blocked_reason) is not None:
            return f"throttled: {blocked}"
        if self.problem is not None:
            return f"degraded: {self.problem}"
        held = len(self._parts.poller.held)
        more = f"; {held} destinations cannot be reached" if held else ""
        return f"dispatching: {len(self._outbox)} wait for their time{more}"

    def is_idle_for(self, seconds: float) -> bool:
        """Return whether there was nothing to do at all for so long."""
        return self._now_s() - self._last_busy_s >= seconds

    def close(self) -> None:
        """Let the background finish, so that the next session finds everything in the ledger."""
        for each in (self._incoming.pending, *self._rows.pending):
            try:
                if each is not None:
                    each.result()
            except Exception as exc:  # whatever it was, the next session begins anew
                _log.warning(
                    "background work failed; what it was about is in the store or in its queue",
                    extra={
                        "action": "dispatcher_work_failed",
                        "lane": self._lease.lane,
                        "error": str(exc),
                    },
                )

    # ── the parts of a turn ─────────────────────────────────────────────────────────────────

    def _consume(self) -> None:
        """Begin to consume once the store has answered: without it, all would only go back."""
        if self._is_consuming or not self._rows.has_polled:
            return
        self._is_consuming = True
        for queue in (self._parts.timeouts_queue, self._control_queue):
            is_missing = queue == self._parts.timeouts_queue and self._missing is not None
            if queue is not None and not is_missing:
                self._link.consume(queue, prefetch=self._parts.prefetch)

    def _look_again(self) -> None:
        """End the session when it is time to look for the missing queue, and nothing is in hand.

        Raises:
            TargetUnavailable: Names the queue.
        """
        if self._missing is None or self._now_s() < self._looks_again_s:
            return
        if not self._rows.is_busy(may_take=False):
            raise self._missing

    def _sort_deliveries(self) -> None:
        for delivery in self._link.received():
            self._parts.fault("intake.received")
            if delivery.queue == self._control_queue:
                self._rows.add_control(delivery)
            else:
                self._incoming.add(delivery)

    def _rest(self, *, may_take: bool) -> timedelta:
        """Return how long there is nothing to do, unless something happens."""
        longest = _SLICE_IN_WORK if self._incoming.pending or self._rows.pending else _SLICE
        poll_in_s = self._rows.next_poll_in_s if may_take else None
        if poll_in_s is not None:
            longest = min(longest, timedelta(seconds=poll_in_s))
        due_at = self._outbox.next_due_at
        if due_at is not None:
            longest = min(longest, max(due_at - self._watch.now(), timedelta(0)))
        return longest

    def _is_busy(self, *, may_take: bool) -> bool:
        due_at = self._outbox.next_due_at
        # a copy that no queue takes may wait for ever; nobody waits for it
        waits = due_at is not None and due_at - self._watch.now() < AGAIN_AFTER / 2
        is_busy = bool(
            waits
            or self._rows.is_busy(may_take=may_take)
            or self._incoming.pending
            or (may_take and self._incoming.has_waiting)
        )
        if is_busy:
            self._last_busy_s = self._now_s()
        return is_busy

    def _now_s(self) -> float:
        return self._parts.clock.monotonic_s()

    def _begin(self, where: Background, work: Callable[[], T]) -> Pending[T]:
        """Begin *work* in the background, and wake the broker's thread when it is done."""

        def then_wake() -> T:
            try:
                return work()
            finally:
                self._link.wake()

        return where.start(then_wake)
