"""What is done about failed work and failed messages.

A message gets five immediate attempts, then one retry queue after the other, from which the broker
dead-letters it back, then the error queue. A message that can never succeed goes there at once.
The original is acked only when the copy is confirmed. Work that failed because of the store or the
broker is repeated after a pause. Source: design section 10; reference ``timeout-manager.md``
section 12.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Hashable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from migrator.dispatcher.link import Delivery
from migrator.dispatcher.outbox import Copy, Item, StoredRow
from migrator.errors import TargetError, TargetUnavailable
from migrator.ledger.work import Backoff
from migrator.nservicebus.incoming import normalised_headers
from migrator.nservicebus.recoverability import (
    IMMEDIATE_ATTEMPTS,
    FailedAt,
    Failure,
    can_be_retried_later,
    failed_copy,
    is_worn,
    renewed_copy,
    retries_so_far,
    retry_copy,
)

_log = logging.getLogger(__name__)

_FIRST_PAUSE_S: Final = 0.5
_LONGEST_PAUSE_S: Final = 10.0
"""Before failed work is repeated.

Its deliveries stay unacked meanwhile: closing the link would requeue all of them, and a quorum
queue with a delivery limit finally drops what is requeued often.
"""
_MOST_LINES: Final = 20
_WINDOW_S: Final = 60.0


def new_backoff(monotonic_s: Callable[[], float]) -> Backoff:
    return Backoff(first_s=_FIRST_PAUSE_S, most_s=_LONGEST_PAUSE_S, monotonic_s=monotonic_s)


class LogRateLimiter:
    """Logs at most ``_MOST_LINES`` lines of an action per minute; counts the others."""

    def __init__(self, monotonic_s: Callable[[], float]) -> None:
        self._monotonic_s = monotonic_s
        self._since_s: dict[str, float] = {}
        self._lines: dict[str, int] = {}

    def log(
        self, level: int, text: str, delivery: Delivery, *, action: str, **facts: object
    ) -> None:
        left_out = self._left_out(action)
        if left_out is not None:
            facts |= {"queue": delivery.queue, "message_id": delivery.message.message_id}
            _log.log(level, text, extra={"action": action, **facts, "left_out": left_out})

    def _left_out(self, action: str) -> int | None:
        now_s = self._monotonic_s()
        if now_s - self._since_s.get(action, float("-inf")) >= _WINDOW_S:
            before = max(self._lines.get(action, 0) - _MOST_LINES, 0)
            self._since_s[action], self._lines[action] = now_s, 1
            return before
        self._lines[action] += 1
        return 0 if self._lines[action] <= _MOST_LINES else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Recoverability:
    """Where failed messages of one endpoint go."""

    retry_queues: Sequence[str]
    """One per delayed retry, in order; may be empty."""
    error_queue: str
    endpoint: str
    machine: str
    host_id: str


class RecoverabilityPolicy:
    """Counts attempts of one link's deliveries; decides what comes next."""

    def __init__(
        self, given: Recoverability, *, frame_max_bytes: int, log_limiter: LogRateLimiter
    ) -> None:
        self._given = given
        self._log = log_limiter.log
        self._frame_max_bytes = frame_max_bytes
        self._attempts: dict[int, int] = {}

    def next_step(self, delivery: Delivery, failure: Failure, *, now: datetime) -> Copy | None:
        """Return the copy to publish in place of the message; None: try it again at once."""
        attempts = self._attempts[delivery.tag] = self._attempts.get(delivery.tag, 0) + 1
        if not failure.is_final:
            if attempts < IMMEDIATE_ATTEMPTS:
                return None
            retries = retries_so_far(delivery.message, limit=len(self._given.retry_queues))
            if retries < len(self._given.retry_queues) and self._may_wait(delivery):
                return self._retried(delivery, failure, retries + 1)
        return self._failed(delivery, failure, now)

    def forget(self, tags: Collection[int]) -> None:
        for tag in tags:
            self._attempts.pop(tag, None)

    def renewal(self, delivery: Delivery) -> Copy | None:
        """Return the copy that replaces a message redelivered too often; None: not needed."""
        if not is_worn(delivery.message, frame_max_bytes=self._frame_max_bytes):
            return None
        self._log(
            logging.WARNING,
            "message redelivered so often that the broker may drop it; a copy replaces it",
            delivery,
            action="message_renewed",
        )
        message = renewed_copy(delivery.message)
        return Copy(delivery=delivery, message=message, queue=delivery.queue, is_final=False)

    def instead_of_error_queue(self, delivery: Delivery) -> Copy | None:
        """Return a copy for the last retry queue, from which it comes back; None: there is none."""
        self._log(
            logging.ERROR,
            "error queue does not exist; a failed message waits for it",
            delivery,
            action="error_queue_missing",
            error_queue=self._given.error_queue,
        )
        if not self._given.retry_queues or not self._may_wait(delivery):
            return None
        return self._retry_copy(delivery, len(self._given.retry_queues))

    def _may_wait(self, delivery: Delivery) -> bool:
        return can_be_retried_later(delivery.message, frame_max_bytes=self._frame_max_bytes)

    def _retry_copy(self, delivery: Delivery, retry: int) -> Copy:
        message = retry_copy(delivery.message, retries=retry)
        queue = self._given.retry_queues[retry - 1]
        return Copy(delivery=delivery, message=message, queue=queue, is_final=False)

    def _retried(self, delivery: Delivery, failure: Failure, retry: int) -> Copy:
        copy = self._retry_copy(delivery, retry)
        self._log(
            logging.WARNING,
            "message failed; retrying later",
            delivery,
            action="message_retried",
            retry=retry,
            retry_queue=copy.queue,
            reason=failure.text,
        )
        return copy

    def _failed(self, delivery: Delivery, failure: Failure, now: datetime) -> Copy:
        given = self._given
        self._log(
            logging.ERROR,
            "message failed; moving it to the error queue",
            delivery,
            action="message_failed",
            error_queue=given.error_queue,
            reason=failure.text,
        )
        message = failed_copy(
            delivery.message,
            failure,
            at=FailedAt(
                queue=delivery.queue,
                endpoint=given.endpoint,
                machine=given.machine,
                host_id=given.host_id,
            ),
            now=now,
            frame_max_bytes=self._frame_max_bytes,
        )
        return Copy(delivery=delivery, message=message, queue=given.error_queue, is_final=True)


class PoisonMessageDetector:
    """Finds the message for which the broker closed a channel; outlives the links.

    A missing permission, or a message that is too large, closes the channel and so the link, again
    and again if sent with others. So items that had no answer then are sent one by one, until one
    closes a channel alone.
    """

    def __init__(self) -> None:
        self._suspects: set[Hashable] = set()
        self._poison: dict[Hashable, TargetError] = {}

    def chosen(self, items: Sequence[Item]) -> Sequence[Item]:
        if not self._suspects:
            return items
        suspect = next((item for item in items if _key(item) in self._suspects), None)
        return items if suspect is None else [suspect]

    def note(self, items: Sequence[Item], error: TargetError) -> None:
        if isinstance(error, TargetUnavailable):
            return  # not caused by a message
        if len(items) == 1:
            self._poison[_key(items[0])] = error
        self._suspects.update(_key(item) for item in items)

    def clear(self, items: Sequence[Item]) -> None:
        if self._suspects:
            self._suspects.difference_update(_key(item) for item in items)

    def verdict(self, item: Item) -> TargetError | None:
        """Return, and forget, why *item* must not be sent again; None: it may be sent."""
        if not self._poison:
            return None
        error = self._poison.pop(_key(item), None)
        if error is not None:
            self._suspects.discard(_key(item))
        return error


def _key(item: Item) -> Hashable:
    """Identify an item over links and redeliveries."""
    if isinstance(item, StoredRow):
        return item.row.id
    message = item.delivery.message
    if message.problem is not None:
        return type(item).__name__, item.delivery.queue, message.raw_properties
    # normalised: a quorum queue counts deliveries in the headers
    headers = frozenset(normalised_headers(message).items())
    return type(item).__name__, item.delivery.queue, message.message_id, headers
