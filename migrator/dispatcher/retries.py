"""Retry queues: a failed message waits in one, and the broker itself brings it back.

One queue per delay, because a queue only ever expires messages at its head: with a delay per
message, a long one would hold up the short ones behind it. Source: design section 10.
"""

from __future__ import annotations

from collections.abc import Sequence

from migrator.rabbitmq.admin import AdminSession
from migrator.rabbitmq.names import retry_queue


def declare_retry_queues(
    admin: AdminSession, queue: str, delays_s: Sequence[int]
) -> tuple[str, ...]:
    """Declare a retry queue per delay for messages of *queue*; return their names in order.

    A message comes back to *queue* by the default exchange, which leads to every queue in any
    topology. It waits in a quorum queue that hands it over at least once.

    Raises:
        AccessRefused, EntityMismatch: One may not be declared, or exists with other arguments.
    """
    names = tuple(retry_queue(queue, delay_s) for delay_s in delays_s)
    for name, delay_s in zip(names, delays_s, strict=True):
        admin.declare_queue(
            name,
            {
                "x-queue-type": "quorum",
                "x-message-ttl": delay_s * 1000,
                "x-dead-letter-exchange": "",
                "x-dead-letter-routing-key": queue,
                "x-dead-letter-strategy": "at-least-once",
                "x-overflow": "reject-publish",
            },
        )
    return names
