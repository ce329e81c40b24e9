"""What decommissioning asks of the broker, the legacy store and the ledger."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Protocol

from migrator.decommission.rules import BrokerLook, LedgerLook
from migrator.nservicebus.timeouts import EndpointName, QueueName
from migrator.rabbitmq.entities import Binding, Entity


class Hands(Protocol):
    """Changes entities of the broker over one connection; each call may be repeated."""

    def unbind(self, binding: Binding) -> None:
        """Cut *binding*; nothing happens when it, or an end of it, is not there."""
        ...

    def bind(self, binding: Binding) -> bool:
        """Make *binding* as it was; return whether it is there now: not when an end is gone."""
        ...

    def delete(self, entity: Entity) -> str | None:
        """Delete an empty, unused entity; return why it is still there, or None: it is gone.

        A classic queue is deleted only if it is empty and unused, in one step of the broker. A
        quorum queue cannot be: it is looked at once more, and deleted a moment later.

        Raises:
            AccessRefused: A permission is missing. It is still there.
            TargetUnavailable: It may be gone.
        """
        ...


class DecommissionBroker(Protocol):
    """Looks at entities, and hands out who changes them."""

    def look(self, queue: QueueName) -> BrokerLook | None:
        """Return what there is now for the endpoint whose input queue is *queue*.

        What is ready and who consumes is as it is now; the rest lags by some seconds. None:
        there is no management API, so nobody can tell.

        Raises:
            TargetError: The broker, or its management API, did not answer or refused.
        """
        ...

    def hands(self) -> AbstractContextManager[Hands]:
        """Open a connection, closed at the end."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Statement:
    """One SQL statement about the legacy table."""

    purpose: str
    """``archive`` or ``drop``: one of the two is wanted."""
    sql: str


class DecommissionStore(Protocol):
    """The legacy tables, as far as one of them is to go."""

    @property
    def is_shared(self) -> bool:
        """Whether endpoints share one table, which then stays."""
        ...

    def rows(self, source: str) -> int | None:
        """Return how many rows the table has, or None when there is no such table."""
        ...

    def others_with_rows(self, source: str) -> Sequence[EndpointName]:
        """Return the endpoints of all other tables that have a row."""
        ...

    def statements(self, source: str) -> Sequence[Statement]:
        """Return what archives the table, and what drops it; empty when it is gone, or shared."""
        ...

    def drop(self, source: str) -> int:
        """Drop the table if it is empty, in one transaction that locks it; return its rows.

        0: it is gone, or was before. More: nothing was changed.

        Raises:
            StoreUnavailable: The table could not be locked in time, or the answer was lost.
            StoreError: The database refused, or the table is shared. Nothing was changed.
        """
        ...


class DecommissionLedger(Protocol):
    """What the ledger knows of an endpoint that is to go; changes nothing."""

    def look(self, source: str, *, ignoring: Callable[[str], bool]) -> LedgerLook:
        """Return what there is now, without leases of owners that *ignoring* says yes to."""
        ...

    def unfinished(self, source: str) -> Sequence[Binding]:
        """Return the bindings that a decommission which did not end may have cut."""
        ...

    def knows(self, source: str) -> bool:
        """Return whether a decommission of this table was ever begun."""
        ...
