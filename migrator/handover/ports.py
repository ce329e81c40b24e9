"""The broker as a lane sees it: a link and a staging queue.

Tests that kill a lane at each step bring implementations of their own.
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
"""A message and its delay in this attempt, in whole seconds. 0: due; it passes no level."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UnackedAttempt:
    rows: Set[int]
    """Row indexes; may be a live view."""
    has_receipt: bool


class Link(Protocol):
    """One lane's two connections to the broker. Only the lane's thread uses them.

    Every method but ``close`` raises ``TargetUnavailable`` when a connection was lost.
    """

    @property
    def frame_max_bytes(self) -> int: ...

    @property
    def silent_s(self) -> float:
        """Seconds since the broker last sent anything."""
        ...

    @property
    def blocked_reason(self) -> str | None:
        """The broker's alarm (memory or disk) that blocks publishing."""
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

        The next chunk is drawn when the window of unconfirmed messages has room, and sent at
        once: delays are computed just before they count. *result* receives the answers, also
        later ones. With *silence_s*, for messages without a delay only, rows without an answer
        for so long are returned while the broker answers others.

        Raises:
            TargetUnavailable: The connection was lost, or blocked past the deadline. *result*
                has the answers so far; the outcome of the rest is unknown.
        """
        ...

    def staging(self) -> Staging:
        """Declare, bind and consume this lane's staging queue, the first time; return it."""
        ...

    def idle(self, wait_s: float) -> None:
        """Serve the connections for up to *wait_s* seconds (heartbeats, alarms, deliveries)."""
        ...

    def serve(self) -> None:
        """Do what is due (the broker's heartbeats) without waiting; no heartbeat of the lane."""
        ...

    def close(self) -> None:
        """Close both connections; never raises. Unacked messages return to their queue."""
        ...


class Staging(Protocol):
    """A lane's staging and receipts queues. Rules: design section 5.2.

    Deliveries stay unacked until ``discard``, ``commit``, ``ack_receipt`` or ``move_strays``.
    """

    def publish(self, attempt: Attempt, chunks: Iterable[Sequence[Delayed]]) -> None:
        """Put all messages and then the receipt into the staging queue; wait for all confirms.

        Raises:
            TargetUnavailable: Abandon the attempt. The connection was lost, or blocked past the
                deadline, or a message was nacked or returned.
        """
        ...

    def unacked(self) -> Mapping[Attempt, UnackedAttempt]:
        """Return what is unacked now, by attempt.

        Raises:
            HandOverDoubtful: A message of this ledger is there twice, and not by redelivery.
        """
        ...

    def receipts(self) -> Mapping[Attempt, float]:
        """Return attempts whose receipt came through the router, and so many seconds ago."""
        ...

    def wait_for_event(self, timeout_s: float) -> None:
        """Serve the connections until something arrives, or the timeout.

        Raises:
            TargetUnavailable: Also when the broker redelivered what this link had published or
                unacked; whether a nack came first is for the next link to find out.
        """
        ...

    def discard(self, attempt: Attempt) -> None:
        """Ack, one by one, all unacked messages of an abandoned attempt."""
        ...

    def disown(self, attempt: Attempt) -> None:
        """Treat all unacked messages of *attempt* as strays."""
        ...

    def move_strays(self) -> None:
        """Move messages that are not the lane's to the poison queue, then ack them.

        A failed move is logged and repeated at a later call. No nack of an attempt covers a stray.
        """
        ...

    def commit(self, attempt: Attempt, rows: frozenset[int]) -> None:
        """Dead-letter the whole attempt with one nack: all of it or none.

        Sends exactly one ``basic.nack(multiple=true, requeue=false)`` and does not wait.

        Raises:
            HandOverDoubtful: The nack would not cover exactly *rows* and the receipt of
                *attempt*. Nothing was sent.
            TargetUnavailable: The connection was lost. Nothing was sent.
        """
        ...

    def bind_again(self) -> None:
        """Declare and bind again all between the staging queue, the levels and the receipts.

        It repairs what an operator deleted; the broker then forwards what waited, within minutes.
        """
        ...

    def ack_receipt(self, attempt: Attempt) -> None:
        """Ack a receipt that the ledger has recorded; an unknown one is ignored."""
        ...
