"""What becomes of a message that cannot be dealt with: again, later, or to the error queue.

Five attempts at once, then one retry queue after the other (the broker's own dead-lettering
brings it back), then the error queue. What can never succeed goes there at once. The original is
acknowledged only when the copy is confirmed. Source: design section 10; reference
``timeout-manager.md`` section 12.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime

from migrator.dispatcher.outbox import Copy
from migrator.dispatcher.ports import Delivery
from migrator.dispatcher.sparingly import Sparingly
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Recoverability:
    """What to do with failing messages of one endpoint."""

    retry_queues: Sequence[str]
    """One per delayed retry, in order; may be empty."""
    error_queue: str
    endpoint: str
    machine: str
    host_id: str


class Trouble:
    """Counts attempts of one link's deliveries and decides what comes next."""

    def __init__(
        self, rules: Recoverability, *, frame_max_bytes: int, sparingly: Sparingly
    ) -> None:
        """Begin with no attempts: a new link delivers everything anew."""
        self._rules = rules
        self._sparingly = sparingly
        self._frame_max_bytes = frame_max_bytes
        self._attempts: dict[int, int] = {}

    def next_step(self, delivery: Delivery, failure: Failure, *, now: datetime) -> Copy | None:
        """Return the copy to publish in the message's place; None: try it again at once."""
        attempts = self._attempts[delivery.tag] = self._attempts.get(delivery.tag, 0) + 1
        if not failure.is_final:
            if attempts < IMMEDIATE_ATTEMPTS:
                return None
            retries = retries_so_far(delivery.message, limit=len(self._rules.retry_queues))
            if retries < len(self._rules.retry_queues) and self._may_wait(delivery):
                return self._retry(delivery, failure, retries)
        return self._failed(delivery, failure, now)

    def forget(self, tags: Collection[int]) -> None:
        """Forget the attempts of deliveries that are settled."""
        for tag in tags:
            self._attempts.pop(tag, None)

    def renewal(self, delivery: Delivery) -> Copy | None:
        """Return the copy that takes over from a message that came back often; None: no need."""
        if not is_worn(delivery.message, frame_max_bytes=self._frame_max_bytes):
            return None
        left_out = self._sparingly.left_out("message_renewed")
        if left_out is not None:
            _log.warning(
                "a message came back so often that the broker may drop it; a copy takes over",
                extra={
                    "action": "message_renewed",
                    "queue": delivery.queue,
                    "message_id": delivery.message.message_id,
                    "left_out": left_out,
                },
            )
        message = renewed_copy(delivery.message)
        return Copy(delivery=delivery, message=message, queue=delivery.queue, is_final=False)

    def instead_of_error_queue(self, delivery: Delivery) -> Copy | None:
        """Return the copy of a message whose error queue does not exist; None: it has to stay.

        It comes back from the last retry queue, fails again, and is lost on nobody.
        """
        left_out = self._sparingly.left_out("error_queue_missing")
        if left_out is not None:
            _log.error(
                "the error queue does not exist; a failed message waits for it",
                extra={
                    "action": "error_queue_missing",
                    "error_queue": self._rules.error_queue,
                    "queue": delivery.queue,
                    "message_id": delivery.message.message_id,
                    "left_out": left_out,
                },
            )
        if not self._rules.retry_queues or not self._may_wait(delivery):
            return None
        message = retry_copy(delivery.message, retries=len(self._rules.retry_queues))
        queue = self._rules.retry_queues[-1]
        return Copy(delivery=delivery, message=message, queue=queue, is_final=False)

    def _may_wait(self, delivery: Delivery) -> bool:
        return can_be_retried_later(delivery.message, frame_max_bytes=self._frame_max_bytes)

    def _retry(self, delivery: Delivery, failure: Failure, retries: int) -> Copy:
        queue = self._rules.retry_queues[retries]
        left_out = self._sparingly.left_out("message_retried")
        if left_out is not None:
            _log.warning(
                "a message failed and is tried again later",
                extra={
                    "action": "message_retried",
                    "queue": delivery.queue,
                    "message_id": delivery.message.message_id,
                    "retry": retries + 1,
                    "retry_queue": queue,
                    "reason": failure.text,
                    "left_out": left_out,
                },
            )
        message = retry_copy(delivery.message, retries=retries + 1)
        return Copy(delivery=delivery, message=message, queue=queue, is_final=False)

    def _failed(self, delivery: Delivery, failure: Failure, now: datetime) -> Copy:
        rules = self._rules
        left_out = self._sparingly.left_out("message_failed")
        if left_out is not None:
            _log.error(
                "a message failed and goes to the error queue",
                extra={
                    "action": "message_failed",
                    "queue": delivery.queue,
                    "message_id": delivery.message.message_id,
                    "error_queue": rules.error_queue,
                    "reason": failure.text,
                    "left_out": left_out,
                },
            )
        message = failed_copy(
            delivery.message,
            failure,
            at=FailedAt(
                queue=delivery.queue,
                endpoint=rules.endpoint,
                machine=rules.machine,
                host_id=rules.host_id,
            ),
            now=now,
            frame_max_bytes=self._frame_max_bytes,
        )
        return Copy(delivery=delivery, message=message, queue=rules.error_queue, is_final=True)
