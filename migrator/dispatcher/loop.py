"""One endpoint's dispatcher over one link: receive, claim, send when due, complete.

Rules of this file: the thread of a session only serves the broker; database calls and new
connections run in the background. A delivery is acked only when its message is stored, claimed, or
confirmed elsewhere. Whatever ends a session, the next one begins with the open batches of the
ledger, and knows which of their rows this process has sent.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from concurrent.futures import Executor, Future
from dataclasses import dataclass
from datetime import timedelta
from typing import Final, ParamSpec, TypeVar

from migrator.delays.routing import DelaysVersion
from migrator.dispatcher.due import DueRows, Poller
from migrator.dispatcher.failures import (
    LogRateLimiter,
    PoisonMessageDetector,
    Recoverability,
    RecoverabilityPolicy,
)
from migrator.dispatcher.link import SatelliteLink, declare_retry_queues, open_satellite_link
from migrator.dispatcher.outbox import DatabaseTime, Outbox
from migrator.dispatcher.receive import DelayedMessageHandler, LinkContext, Receiver
from migrator.dispatcher.send import AGAIN_AFTER, Sender
from migrator.errors import MigratorError, TargetUnavailable
from migrator.ledger.work import Clock, FaultPoint, Lease, StoreEndpoint
from migrator.nservicebus.timeouts import QueueName
from migrator.rabbitmq.admin import admin_session
from migrator.rabbitmq.connection import ConnectionSettings
from migrator.rabbitmq.publisher import WindowLimits
from migrator.text import counted

P = ParamSpec("P")
T = TypeVar("T")

_log = logging.getLogger(__name__)

_SLICE: Final = timedelta(milliseconds=100)
"""Longest sleep: a lost lease or a stop is noticed after this."""
_SLICE_IN_WORK: Final = timedelta(milliseconds=20)
"""Longest sleep while the background works; its end wakes the link."""
_CHECK_MISSING_S: Final = 10.0
"""Between two checks for a missing queue."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DispatcherPlan:
    endpoint: StoreEndpoint
    timeouts_queue: QueueName | None
    """Its messages are stored or forwarded; None: only rows are sent."""
    control_queue: QueueName | None
    """May not exist."""
    recoverability: Recoverability
    retry_delays_s: Sequence[int]
    prefetch: int
    version: DelaysVersion
    limits: WindowLimits
    finishes_only: bool
    """Only open batches of an earlier process are finished."""


@dataclass(kw_only=True)
class Dispatcher:
    """What outlives the links of one endpoint's dispatcher."""

    plan: DispatcherPlan
    poller: Poller
    handler: DelayedMessageHandler | None
    """Stores or forwards received messages; None: no queue is consumed."""
    connection: ConnectionSettings
    clock: Clock
    storing: Executor
    claiming: Executor
    fault: FaultPoint
    sent: Callable[[float], None]
    completed: Callable[[int, float], None]

    def __post_init__(self) -> None:
        self.log_limiter = LogRateLimiter(self.clock.monotonic_s)
        self.detector = PoisonMessageDetector()

    def open(self, lease: Lease, guard: Callable[[], None]) -> DispatcherSession:
        """Declare the retry queues and connect; *guard* raises when all must end at once."""
        plan = self.plan
        existing = self._prepared_queues()
        link = open_satellite_link(
            self.connection,
            endpoint=str(plan.endpoint.name),
            owner=lease.owner.split("/")[0],
            limits=plan.limits,
            guard=guard,
        )
        try:
            return DispatcherSession(self, lease=lease, link=link, guard=guard, existing=existing)
        except BaseException:
            link.close()
            raise

    def _prepared_queues(self) -> frozenset[QueueName]:
        plan = self.plan
        if plan.timeouts_queue is None:
            return frozenset()
        wanted = [queue for queue in (plan.timeouts_queue, plan.control_queue) if queue is not None]
        with admin_session(self.connection, purpose="prepare the satellites' queues") as admin:
            declare_retry_queues(admin, plan.timeouts_queue, plan.retry_delays_s)
            return frozenset(queue for queue in wanted if admin.queue(queue) is not None)


class _WakingExecutor(Executor):
    def __init__(self, background: Executor, link: SatelliteLink) -> None:
        self._background = background
        self._link = link

    def submit(self, work: Callable[P, T], /, *args: P.args, **options: P.kwargs) -> Future[T]:
        future = self._background.submit(work, *args, **options)
        future.add_done_callback(lambda _done: self._link.wake())
        return future


class DispatcherSession:
    """The work of one dispatcher over one link.

    Only *existing* queues are consumed. Without the timeouts queue, stored rows are still sent, and
    the session ends after a while, so that the next one checks again.
    """

    def __init__(
        self,
        dispatcher: Dispatcher,
        *,
        lease: Lease,
        link: SatelliteLink,
        guard: Callable[[], None],
        existing: frozenset[QueueName],
    ) -> None:
        plan = dispatcher.plan
        self._dispatcher = dispatcher
        self._queues = [q for q in (plan.timeouts_queue, plan.control_queue) if q in existing]
        self._is_consuming = False
        self._missing: TargetUnavailable | None = None
        if plan.timeouts_queue is not None and plan.timeouts_queue not in existing:
            self._missing = TargetUnavailable(f"queue {plan.timeouts_queue!r} does not exist")
        self._context = context = LinkContext(
            lease=lease,
            link=link,
            policy=RecoverabilityPolicy(
                plan.recoverability,
                frame_max_bytes=link.frame_max_bytes,
                log_limiter=dispatcher.log_limiter,
            ),
            outbox=Outbox(),
            time=DatabaseTime(dispatcher.clock),
            guard=guard,
            fault=dispatcher.fault,
        )
        self._last_busy_s = context.time.monotonic_s()
        self._check_missing_at_s = self._last_busy_s + _CHECK_MISSING_S
        self._receiver = Receiver(
            context=context,
            handler=dispatcher.handler,
            background=_WakingExecutor(dispatcher.storing, link),
        )
        self._rows = DueRows(
            context=context,
            poller=dispatcher.poller,
            receiver=self._receiver,
            background=_WakingExecutor(dispatcher.claiming, link),
            completed=dispatcher.completed,
            most_bytes=dispatcher.connection.prefetch_bytes,
        )
        self._sender = Sender(
            context=context,
            receiver=self._receiver,
            rows=self._rows,
            detector=dispatcher.detector,
            version=plan.version,
            sent=dispatcher.sent,
        )
        dispatcher.poller.limit_frames(link.frame_max_bytes)
        if dispatcher.handler is not None:
            dispatcher.handler.limit_frames(link.frame_max_bytes)

    def turn(self, *, may_take: bool) -> bool:
        """Do what can be done now and wait briefly; return whether there is unfinished work.

        *may_take* is false while draining: claimed rows and unacked messages are finished.
        """
        self._context.guard()
        self._end_if_queue_missing()
        if self._receiver.finish():
            self._rows.poll_soon()
        self._rows.finish()
        self._consume()
        self._sort_deliveries()
        if may_take:
            self._receiver.begin()
        self._rows.begin(may_take=may_take)
        self._sender.send()
        if is_busy := self._is_busy(may_take=may_take):
            self._last_busy_s = self._context.time.monotonic_s()
        self._context.link.idle(self._rest(may_take=may_take).total_seconds())
        return is_busy

    def poll_soon(self) -> None:
        self._rows.poll_soon()

    @property
    def has_polled(self) -> bool:
        return self._rows.has_polled

    @property
    def problem(self) -> MigratorError | None:
        """The last error of store or broker; the work is repeated."""
        return self._rows.error or self._receiver.error or self._missing

    @property
    def blocked_reason(self) -> str | None:
        return self._context.link.blocked_reason

    @property
    def silent_s(self) -> float:
        return self._context.link.silent_s

    @property
    def activity(self) -> str:
        if (blocked := self._context.link.blocked_reason) is not None:
            return f"throttled: {blocked}"
        if self.problem is not None:
            return f"degraded: {self.problem}"
        held = len(self._dispatcher.poller.held)
        more = f"; {counted(held, 'destination')} cannot be reached" if held else ""
        return f"dispatching: {counted(len(self._context.outbox), 'row')} wait until due{more}"

    def is_idle_for(self, seconds: float) -> bool:
        return self._context.time.monotonic_s() - self._last_busy_s >= seconds

    def close(self, *, at_once: bool) -> None:
        """Close the link, then await the background; never raises. *at_once* drops unsent bytes.

        Results of the background are not acked; the next session finds them in the ledger.
        """
        self._context.link.close(at_once=at_once)
        for each in (self._receiver.pending, *self._rows.pending):
            try:
                if each is not None:
                    each.result()
            except Exception as exc:  # the next session begins anew after any error
                _log.warning(
                    "background work failed; its messages are in the store or in their queue",
                    extra={
                        "action": "dispatcher_work_failed",
                        "lane": self._context.lease.lane,
                        "error": str(exc),
                    },
                )

    # ── the parts of a turn ─────────────────────────────────────────────────────────────────

    def _end_if_queue_missing(self) -> None:
        """End the session by an error when it is time to check again for the missing queue."""
        if self._missing is None or self._context.time.monotonic_s() < self._check_missing_at_s:
            return
        if not self._rows.is_busy(may_take=False):
            raise self._missing

    def _consume(self) -> None:
        if self._is_consuming or not self._rows.has_polled:
            return  # without the store, all messages would only be requeued
        self._is_consuming = True
        for queue in self._queues:
            self._context.link.consume(queue, prefetch=self._dispatcher.plan.prefetch)

    def _sort_deliveries(self) -> None:
        for delivery in self._context.link.received():
            self._dispatcher.fault("intake.received")
            if delivery.queue == self._dispatcher.plan.control_queue:
                self._rows.add_control(delivery)
            else:
                self._receiver.add(delivery)

    def _is_busy(self, *, may_take: bool) -> bool:
        due_at = self._context.outbox.next_due_at
        # a copy that no queue accepts may wait for ever and does not keep the session busy
        waits = due_at is not None and due_at - self._context.time.now() < AGAIN_AFTER / 2
        return bool(
            waits
            or self._rows.is_busy(may_take=may_take)
            or self._receiver.pending
            or (may_take and self._receiver.has_waiting)
        )

    def _rest(self, *, may_take: bool) -> timedelta:
        longest = _SLICE_IN_WORK if self._receiver.pending or self._rows.pending else _SLICE
        poll_in_s = self._rows.next_poll_in_s if may_take else None
        if poll_in_s is not None:
            longest = min(longest, timedelta(seconds=poll_in_s))
        due_at = self._context.outbox.next_due_at
        if due_at is not None:
            longest = min(longest, max(due_at - self._context.time.now(), timedelta(0)))
        return longest
