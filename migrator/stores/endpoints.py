"""Endpoints of a store: which are meant, which of their rows, and what would become of those."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from migrator.delays.routing import LONGEST_DELAY
from migrator.errors import StoreError, UnknownEndpoint
from migrator.ledger.work import StoreEndpoint
from migrator.nservicebus.conversion import Reason
from migrator.nservicebus.timeouts import EndpointName, QueueName
from migrator.stores.ports import Store


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """Which rows of an endpoint are to be migrated now."""

    cutoff: timedelta
    """Rows due sooner than this are left to the timeout manager; zero: none runs any more."""
    horizon: timedelta | None
    """Rows due later than this stay in the store; None: an hour less than the longest delay."""

    def future(self, now: datetime) -> tuple[datetime, datetime]:
        """Return the range (exclusive, inclusive) of due times that can be delayed natively."""
        horizon = LONGEST_DELAY if self.horizon is None else min(self.horizon, LONGEST_DELAY)
        return now + self.cutoff, now + horizon

    @property
    def takes_overdue(self) -> bool:
        """Whether rows already due are ours to send."""
        return not self.cutoff


def chosen_endpoints(store: Store, names: Sequence[str]) -> Sequence[StoreEndpoint]:
    """Return the endpoints called *names*, in that order, or all the store has when none is named.

    Raises:
        UnknownEndpoint: The store has no table for one of them.
        StoreUnavailable: The database cannot be reached.
    """
    if not names:
        return store.endpoints()
    found = {endpoint.source: endpoint for endpoint in map(store.find, names)}
    return tuple(found.values())


def expected_endpoints(store: Store, names: Sequence[str]) -> Sequence[StoreEndpoint]:
    """Return the same, and each of *names* whether or not the store has a table for it.

    Raises:
        StoreUnavailable: The database cannot be reached.
    """
    found = {e.source: e for e in (_found(store, name) or store.expected(name) for name in names)}
    return tuple(found.values()) if names else store.endpoints()


def present_endpoints(store: Store, names: Sequence[str]) -> Sequence[StoreEndpoint]:
    """Return the same without those that the store has no table for.

    Raises:
        StoreUnavailable: The database cannot be reached.
    """
    found = {e.source: e for e in (_found(store, name) for name in names) if e is not None}
    return tuple(found.values()) if names else store.endpoints()


def _found(store: Store, name: str) -> StoreEndpoint | None:
    try:
        return store.find(name)
    except UnknownEndpoint:
        return None
    except StoreError as exc:
        if not exc.is_of_source:
            raise
        return store.expected(name)  # it is there, and cannot be looked at


@dataclass(slots=True, kw_only=True)
class Quarantinable:
    """Rows that would go to quarantine, or stay, for one reason."""

    count: int = 0
    examples: list[str] = field(default_factory=list)
    """A few of their ids."""
    detail: str = ""
    """What was found in the first of them."""


@dataclass(slots=True, kw_only=True)
class Sample:
    """What was found in the rows that were converted to see whether that can be done."""

    rows: int = 0
    quarantine: dict[Reason, Quarantinable] = field(default_factory=dict)
    """Of these rows; how many there are among all of them is not known."""


@dataclass(slots=True, kw_only=True)
class EndpointPreview:
    """What would become of one endpoint's rows; counted, and then read.

    Every row is counted in exactly one of ``in_ledger``, ``without_due_time``, ``left``,
    ``beyond_horizon`` and ``to_migrate``; together they are ``stored``.
    """

    endpoint: EndpointName
    source: str
    is_complete: bool = True
    """False: there may be more rows than were looked at."""
    sample: Sample | None = None
    """None: every row was converted. Else the database counted them, only those that look odd
    were converted, and a sample: ``quarantine`` knows of the odd ones, ``sample`` of its own."""
    stored: int = 0
    in_ledger: int = 0
    """Claimed already, by id; such a row in the store is never claimed a second time."""
    without_due_time: int = 0
    """No due time, or one no timeout manager would reach; they stay where they are."""
    left: int = 0
    """Due before the cutoff; left to the timeout manager."""
    beyond_horizon: int = 0
    """Due too late to be held natively, or by wish; they stay until near."""
    to_migrate: int = 0
    """Would be claimed now, those that would be quarantined included."""
    first_due: datetime | None = None
    """The shortest due time, whatever becomes of the row; aware, UTC; None: there is none."""
    last_due: datetime | None = None
    """The longest."""
    overdue: int = 0
    """Due already, whatever becomes of them."""
    quarantine: dict[Reason, Quarantinable] = field(default_factory=dict)
    destinations: Counter[QueueName] = field(default_factory=Counter)
    """Rows that would be handed over, by destination after renaming."""
    due: Counter[str] = field(default_factory=Counter)
    """Rows with a due time, by the steps of ``SPANS`` and ``BEYOND``."""
    zone_offsets: Counter[timedelta] = field(default_factory=Counter)
    """Rows, or those of the sample, whose due column is whole quarter hours away from their own
    header."""
    bytes: int = 0
    """Bodies and headers of what would be handed over, in UTF-8."""
    entry_levels: Counter[int] = field(default_factory=Counter)
    """Messages by the level they would enter; those due at once enter none."""
    unclaimable: dict[str, Quarantinable] = field(default_factory=dict)
    """Of ``without_due_time``, those of which the store tells why, by that."""
    unmeasured: int = 0
    """Rows that would be handed over, and whose bodies have an unknown size: they
    are not in ``bytes``, and may be too large for the broker."""
    reply_queues: Counter[str] = field(default_factory=Counter)
    """Rows that would be handed over, or those of the sample, by the queue that replies to them
    would go to; the first thousand queues that were found."""

    machine_addresses: Counter[str] = field(default_factory=Counter)
    """Rows that would be handed over and whose column names a machine (``Queue@MACHINE``), by
    that; they go to the queue alone. Those whose queue is renamed are not counted."""

    def count_due(self, *moments: datetime | None) -> None:
        """Take due times into the shortest and the longest."""
        known = [each for each in (self.first_due, self.last_due, *moments) if each is not None]
        if known:
            self.first_due, self.last_due = min(known), max(known)

    @property
    def quarantined(self) -> int:
        """How many of ``to_migrate`` would be quarantined."""
        return sum(found.count for found in self.quarantine.values())

    @property
    def to_hand_over(self) -> int:
        """How many of ``to_migrate`` would reach the broker."""
        return self.to_migrate - self.quarantined

    @property
    def to_send(self) -> int:
        """How many would be sent when due, in mode dispatch."""
        return self.to_hand_over + self.beyond_horizon
