"""The timeout manager's satellites: queues that are consumed, messages that leave at once.

Source: reference ``timeout-manager.md``; design section 10.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Protocol

from migrator.delays.routing import Unreachable
from migrator.ledger.work import Lease, StoreEndpoint
from migrator.nservicebus.incoming import IncomingMessage, RawMessage
from migrator.nservicebus.timeouts import Lane, NativeMessage, QueueName
from migrator.rabbitmq.messages import PublishResult


@dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    """Where a message for a destination is published: by the topology the endpoint uses."""

    exchange: str
    routing_key: str


class Routes(Protocol):
    """How destinations are reached without a delay; may be asked by several threads."""

    def routes(self, names: Collection[QueueName]) -> Mapping[QueueName, Route | Unreachable]:
        """Return for each name how it is reached, or why it is not; declares and binds nothing.

        Answers are remembered for a while, refusals much shorter.

        Raises:
            TargetUnavailable: The broker cannot be asked now.
        """
        ...

    def forget(self, names: Collection[QueueName]) -> None:
        """Ask again for *names* at the next call."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Delivery:
    """One message taken from a queue and not settled yet."""

    queue: QueueName
    tag: int
    """Names it on the link that delivered it, and nowhere else."""
    message: IncomingMessage
    is_redelivered: bool = False
    """Somebody had it before, and may have stored it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Letter:
    """One message on its way to an exchange, mandatory."""

    key: int
    """What the answer names it by; unique in its call."""
    exchange: str
    routing_key: str
    message: RawMessage | NativeMessage


class SatelliteLink(Protocol):
    """One endpoint's two connections: one publishes, one consumes and settles.

    Used by one thread only, except for ``wake``. It dies as a whole: whatever was delivered and
    not acknowledged goes back to its queue.
    """

    @property
    def frame_max_bytes(self) -> int:
        """The negotiated frame size."""
        ...

    @property
    def blocked_reason(self) -> str | None:
        """Why the broker makes us wait (memory or disk alarm), or None."""
        ...

    def consume(self, queue: QueueName, *, prefetch: int) -> None:
        """Begin to consume *queue*, with up to *prefetch* messages unsettled at a time.

        Raises:
            TargetError: It does not exist, or may not be read.
        """
        ...

    def received(self) -> Sequence[Delivery]:
        """Return what was delivered since the last call, in the order of each queue."""
        ...

    def publish(self, letters: Iterable[Letter], answers: PublishResult) -> None:
        """Publish *letters*, drawn as the window allows; return once each was answered.

        *answers* is filled meanwhile, so that it tells what was answered before an error.

        Raises:
            TargetUnavailable: The connection went away (also because an exchange does not
                exist), or the broker blocked us past the deadline. What is in neither set is
                unknown.
        """
        ...

    def acknowledge(self, tags: Iterable[int]) -> None:
        """Settle deliveries; they never come back once the broker has read this.

        Raises:
            TargetUnavailable: The connection was already gone; they all come back.
        """
        ...

    def idle(self, wait_s: float) -> None:
        """Serve the connections for up to *wait_s* seconds.

        Returns at once when something was received, or ``wake`` is called.

        Raises:
            TargetUnavailable: A connection went away.
        """
        ...

    def wake(self) -> None:
        """End ``idle`` early; any thread may call it, also after ``close``."""
        ...

    def close(self, *, at_once: bool = False) -> None:
        """Close both connections; never raises.

        With *at_once*, whatever is still on its way out stays here.
        """
        ...


class Dispatching(Protocol):
    """What the ledger keeps for a dispatcher."""

    def lane(self, endpoint: StoreEndpoint) -> Lane:
        """Return the lane of the endpoint's dispatcher, made at the first call; never shared."""
        ...

    def fold(self, lease: Lease, *, older_than: timedelta) -> int:
        """Forget rows dispatched longer ago than *older_than*; return how many.

        Their batches become one, so that counts stay true. A message that is redelivered later
        than this is not recognised any more.
        """
        ...
