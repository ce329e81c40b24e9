"""The timeout manager's satellites: queues that are consumed, messages that leave at once.

Source: reference ``timeout-manager.md``; design section 10.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Protocol

from migrator.delays.link_ports import Unreachable
from migrator.ledger.work import Batch, Lease, StoreEndpoint
from migrator.nservicebus.envelopes import IncomingMessage, RawMessage
from migrator.nservicebus.timeouts import Lane, NativeMessage, QueueName, TimeoutId
from migrator.rabbitmq.messages import PublishResult
from migrator.stores.ports import Claims


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


@dataclass(frozen=True, slots=True, kw_only=True)
class NewTimeout:
    """One row to be written exactly as the legacy persister would."""

    id: TimeoutId
    """Lower-case GUID; the same message always has the same."""
    destination: str | None
    saga_id: str
    """Lower-case GUID; ``NO_SAGA`` when there is none."""
    due_at: datetime
    """Aware, UTC."""
    headers_text: str
    body: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class ClearSaga:
    """Remove every stored timeout of a saga."""

    saga_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Applied:
    """What one call of ``Intake.apply`` did."""

    stored: int
    known: int
    """Rows that were there already, or have been dispatched already: a redelivered message."""
    cleared: int
    """Rows removed from the store for the sake of ``ClearSaga``."""


class Intake(Protocol):
    """Writing into the legacy table, as the timeout manager's store satellite does."""

    def apply(
        self, endpoint: StoreEndpoint, changes: Sequence[NewTimeout | ClearSaga], lease: Lease
    ) -> Applied:
        """Carry out *changes* in their order, in one transaction; repeating them is harmless.

        Raises:
            LeaseLost: Nothing was changed.
            StoreUnavailable: Nothing was changed, or all of it was and the answer was lost.
            StoreError: The database refused a row. Nothing was changed.
        """
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldDestination:
    """A destination that could not be reached; its rows wait in the store until it is tried."""

    destination: str
    """As in the Destination column."""
    reason: str
    """A code of ``Reason``."""
    detail: str
    tries: int
    since: datetime
    next_try_at: datetime


class GivesBack(Protocol):
    """Claims of which single rows can be undone."""

    def give_back(self, batch: Batch, rows: Collection[int], lease: Lease) -> Batch:
        """Put rows of an open batch back into the store, byte for byte, as if never claimed.

        Returns the batch, which is smaller by them.

        Raises:
            LeaseLost: Nothing was changed.
        """
        ...


class DispatchClaims(Claims, GivesBack, Protocol):
    """Claims as a dispatcher needs them."""


class HeldBooks(Protocol):
    """What the ledger keeps of destinations that cannot be reached."""

    def held(self, endpoint: StoreEndpoint) -> Sequence[HeldDestination]:
        """Return the destinations whose rows wait."""
        ...

    def hold(self, endpoint: StoreEndpoint, held: HeldDestination) -> None:
        """Record that rows for a destination wait; replaces what was recorded for it."""
        ...

    def free(self, endpoint: StoreEndpoint, destinations: Collection[str]) -> None:
        """Record that destinations are reached again; repeating is harmless."""
        ...


class Dispatching(HeldBooks, Protocol):
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
