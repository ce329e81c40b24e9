"""The broker as a lane sees it: its link, and its staging queue.

Beside the real ones there are those of the tests that kill a lane at each step.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass
from typing import Protocol

from migrator.nservicebus.tags import Attempt
from migrator.nservicebus.timeouts import EncodedTimeout
from migrator.rabbitmq.messages import PublishResult

Delayed = tuple[EncodedTimeout, int]
"""A message and the delay it gets in this attempt, in whole seconds.

0: already due; routed through to the destination at once.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Held:
    """What the staging consumer holds unacknowledged of one attempt."""

    rows: Set[int]
    """Row indexes; may be a live view, so that asking often costs nothing."""
    has_receipt: bool


class Link(Protocol):
    """One lane's two connections to the broker; used by one thread only."""

    @property
    def frame_max_bytes(self) -> int:
        """The negotiated frame size."""
        ...

    @property
    def silent_s(self) -> float:
        """For how many seconds the broker has answered nothing; asked by the same thread."""
        ...

    @property
    def blocked_reason(self) -> str | None:
        """Why the broker makes us wait (memory or disk alarm), or None."""
        ...

    def publish(
        self,
        attempt: Attempt,
        chunks: Iterable[Sequence[Delayed]],
        result: PublishResult,
        *,
        silence_s: float = math.inf,
    ) -> Collection[int]:
        """Publish mandatory into the native delays; return once each message was answered.

        With *silence_s*, for messages without a delay, rows without an answer for so long are
        returned, while the broker answers otherwise. *result* is filled by late answers, too.

        A chunk is asked for once the window of unconfirmed messages has room, and then sent at
        once, so that delays are computed just before publishing.

        Raises:
            TargetUnavailable: The connection went away, or the broker blocked us past the
                deadline. *result* says what was answered before; the rest is unknown.
        """
        ...

    def staging(self) -> Staging:
        """Return this lane's staging queue, declared, bound and consumed from now on.

        Raises:
            TargetError: It cannot be had; says why (version, rights, policy, other owner).
        """
        ...

    def idle(self, wait_s: float) -> None:
        """Serve the connections for up to *wait_s* seconds (heartbeats, alarms, deliveries).

        Raises:
            TargetUnavailable: A connection went away.
        """
        ...

    def serve(self) -> None:
        """Do what is due on the connections (heartbeats), without waiting.

        No sign of life: whoever waits for something else than the broker may wait for ever.

        Raises:
            TargetUnavailable: A connection went away.
        """
        ...

    def close(self) -> None:
        """Close both connections; never raises. Unacknowledged messages go back to the queue."""
        ...


class Staging(Protocol):
    """A lane's staging and receipts queues. Rules: design section 5.2.

    Nothing is ever acknowledged here by itself; all deliveries stay held until ``discard``,
    ``commit``, ``settle_receipt`` or ``move_strays``.
    """

    def publish(self, attempt: Attempt, chunks: Iterable[Sequence[Delayed]]) -> None:
        """Put all messages and then the receipt into the staging queue, all confirmed.

        Raises:
            TargetUnavailable: Connection lost, blocked past the deadline, or a message was
                nacked or returned. What arrived stays in the queue; abandon the attempt.
        """
        ...

    def held(self) -> Mapping[Attempt, Held]:
        """Return what is held now, by attempt.

        Raises:
            HandOverDoubtful: A message of this ledger is there twice, though the broker delivered
                none again.
        """
        ...

    def receipts(self) -> Mapping[Attempt, float]:
        """Return the attempts whose receipt arrived behind the router: they are committed.

        With each come the seconds since its receipt was first read from the connection.
        """
        ...

    def wait_for_event(self, timeout_s: float) -> None:
        """Serve the connections until something arrives, or the timeout.

        Raises:
            TargetUnavailable: A connection went away, or the broker delivered again, marked so,
                what this link had published or held: it took back what was held, and whether a
                nack reached it first is for the next link to find out. Nothing is held any more.
        """
        ...

    def discard(self, attempt: Attempt) -> None:
        """Acknowledge away, one by one, everything held of an abandoned attempt."""
        ...

    def disown(self, attempt: Attempt) -> None:
        """Take everything held of *attempt* for strays: it cannot be the lane's any more."""
        ...

    def move_strays(self) -> None:
        """Move what is not the lane's to the poison queue, and ack it once it is there.

        What fails is logged and tried again at a later call; it is never nacked with an attempt.

        Raises:
            TargetUnavailable: The connection is gone; strays are in their queue again.
        """
        ...

    def commit(self, attempt: Attempt, rows: frozenset[int]) -> None:
        """Dead-letter the whole attempt with one nack: all of it or none.

        Sends exactly one ``basic.nack(multiple=true, requeue=false)`` and does not wait.

        Raises:
            HandOverDoubtful: What it would cover is not exactly *rows* and the receipt of
                *attempt*. Nothing was sent.
            TargetUnavailable: The connection was already gone. Nothing was sent.
        """
        ...

    def bind_again(self) -> None:
        """Declare and bind again all that leads from here to the levels and to the receipts.

        Nothing changes where all is there; what somebody deleted or made anew meanwhile is bound
        as before, and the broker sends on what it could not, within minutes.

        Raises:
            TargetError: Something is missing or refused; what is held stays as it is.
        """
        ...

    def settle_receipt(self, attempt: Attempt) -> None:
        """Acknowledge a receipt, once the ledger knows what it says; unknown ones are ignored."""
        ...
