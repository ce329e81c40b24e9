"""A store of any kind, and the ledger beside it, as one process sees them.

Tests of what every store promises know no more of it than is here.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any, ClassVar, Protocol, Self
from uuid import UUID

from sqlalchemy import Engine, Executable

from migrator.database.engine import writing
from migrator.delays.tagged import TaggedMessage
from migrator.dispatcher.ledger import DispatchedBatches
from migrator.ledger.batches import SqlBatches, SqlRuns
from migrator.ledger.held_destinations import SqlHeldDestinations
from migrator.ledger.identity import check_identity
from migrator.ledger.leases import SqlLeases
from migrator.ledger.migrations import upgrade
from migrator.ledger.parking import SqlParking
from migrator.ledger.purge import SettledRows
from migrator.ledger.queries import LedgerQueries
from migrator.ledger.report import HeldDestination
from migrator.ledger.states import Event, Mode
from migrator.ledger.tables import LedgerTables, build_tables, names_for
from migrator.ledger.version import current
from migrator.ledger.work import Batch, Lease, StoreEndpoint
from migrator.nservicebus.conversion import Quarantine, Reason
from migrator.nservicebus.timeouts import Lane, RunId, TimeoutId
from migrator.quarantine.rows import SqlQuarantine
from migrator.recall.restore import Recalls
from migrator.recovery.adoption import SqlAdoption
from migrator.recovery.resolve import UnresolvedBatches
from migrator.stores.ports import Claims, Store
from migrator.stores.requests import Claim, ClaimRequest
from migrator.verify.queries import LedgerAudit
from tests.support.tagged import tagged_message

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
LONG = timedelta(minutes=5)


def timeout_id(number: int) -> str:
    """Return a guid that sorts by *number*."""
    return str(UUID(int=number))


@dataclass(frozen=True, kw_only=True)
class LegacyRow:
    """One row of the legacy table as the database returns it, converted to text and bytes."""

    id: str
    destination: str | None = "Billing"
    saga_id: str | None = "00000000-0000-0000-0000-000000000000"
    body: bytes | None = b'{"a":1}'
    due: str | None = "2026-03-01 13:00:00.123456"
    headers: str | None = '{"NServiceBus.MessageId":"m-1"}'
    version: str | None = "6.6.5.0"


def due_in(delay: timedelta) -> str:
    """Return the due column of a row that is due *delay* after ``NOW``."""
    return (NOW + delay).replace(tzinfo=None).isoformat(" ", "microseconds")


def hours(count: int, *, start: int = 0) -> list[LegacyRow]:
    """Return *count* rows, due one, two, three … hours after ``NOW``."""
    return [
        LegacyRow(id=timeout_id(n), due=due_in(timedelta(hours=n + 1)))
        for n in range(start, start + count)
    ]


def held_destination(destination: str, endpoint: StoreEndpoint, **changes: Any) -> HeldDestination:
    """Return a destination that was tried once, at ``NOW``, and cannot be reached."""
    values: dict[str, Any] = {
        "endpoint": endpoint.name,
        "source": endpoint.source,
        "destination": destination,
        "reason": "destination-unknown",
        "detail": "no exchange",
        "tries": 1,
        "since": NOW,
        "next_try_at": NOW + timedelta(seconds=5),
    }
    return HeldDestination(**(values | changes))


class TimeoutManager(Protocol):
    """The endpoint's own timeout manager, on the same store and without migrator's code."""

    def due(self) -> Sequence[str]:
        """Return the ids of all timeouts that it knows of, soonest first."""
        ...

    def peek(self, row_id: str) -> bool:
        """Return whether it would send this timeout now."""
        ...

    def remove(self, row_id: str) -> bool:
        """Remove a timeout that is about to be sent; False: it is gone, and is not sent."""
        ...

    def remove_saga(self, saga_id: str) -> int:
        """Remove all timeouts of a saga that has ended; return how many there were."""
        ...


@dataclass
class AnySite(ABC):
    """A ledger, and timeouts of an endpoint beside it."""

    engine: Engine
    """Of the ledger."""
    endpoint_name: str = "Sales.Orders"

    store: Store = field(init=False)
    claims: Claims = field(init=False)

    takes_two_steps: ClassVar[bool] = False
    """Whether the ledger is another database than the store, so that a claim has two steps."""
    needs: ClassVar[str | None] = None
    """The fixture that makes the store, where it is not in the ledger's database."""
    due_digits: ClassVar[int] = 6
    """Digits of a second in due times as the store keeps them."""
    first_time: ClassVar[str] = "1000-01-01 00:00:00.000000"
    """The earliest due time at which a timeout manager would send something."""
    last_time: ClassVar[str] = "9999-12-31 23:59:59.999999"
    """The latest due time that the store can keep."""

    def __post_init__(self) -> None:
        """Build everything wiring would build."""
        self.tables: LedgerTables = build_tables(names_for(self.engine))
        if current(self.engine, self.tables) is None:
            upgrade(self.engine, self.tables)
        self.runs = SqlRuns(self.engine, self.tables, actor="test", version="0")
        self.adoption = SqlAdoption(self.engine, self.tables, self.runs)
        self.ledger_id = check_identity(self.engine, self.tables)
        self.leases = SqlLeases(self.engine, self.tables, self.ledger_id)
        self.batches = SqlBatches(self.engine, self.tables)
        self.queries = LedgerQueries(self.engine, self.tables)
        self.quarantine = SqlQuarantine(self.engine, self.tables)
        self.unresolved = UnresolvedBatches(self.engine, self.tables)
        self.settled_rows = SettledRows(self.engine, self.tables)
        self.dispatched = DispatchedBatches(self.engine, self.tables)
        self.held = SqlHeldDestinations(self.engine, self.tables)
        self.parking = SqlParking(self.engine, self.tables)
        self._open()

    @abstractmethod
    def _open(self) -> None:
        """Build what wiring would build of the store: ``store``, ``claims`` and what else."""

    def adopt(self) -> None:
        """Give the ledger another id, as an operator does, and go on under it."""
        for lane, owner in self.leases.holders():
            self.leases.evict(lane, owner)
        self.ledger_id = self.adoption.adopt()
        self.leases = SqlLeases(self.engine, self.tables, self.ledger_id)

    # ── the store ───────────────────────────────────────────────────────────────────────────

    @property
    @abstractmethod
    def source(self) -> str:
        """Where the endpoint's timeouts are."""

    @property
    def unusable_times(self) -> Sequence[str | None]:
        """Due times that a row may have, and at which no timeout manager would send it."""
        return (None, "0999-12-31 23:59:59.000000")

    @property
    @abstractmethod
    def manager(self) -> TimeoutManager:
        """The endpoint's timeout manager."""

    @abstractmethod
    def create(self, rows: Sequence[LegacyRow] = ()) -> StoreEndpoint:
        """Make the store hold *rows* of the endpoint, and one of another; return the endpoint."""

    @abstractmethod
    def insert(self, rows: Sequence[LegacyRow]) -> None:
        """Store rows of the endpoint as they are, however odd."""

    @abstractmethod
    def legacy_rows(self) -> list[LegacyRow]:
        """Return the endpoint's timeouts as they are stored, to the last digit, by id."""

    def remains(self) -> list[str]:
        """Return what is in the store beside whole timeouts, by name."""
        return []

    @abstractmethod
    def recalls(self) -> Recalls:
        """Return what puts handed-over timeouts back."""

    @abstractmethod
    def audit(self) -> LedgerAudit:
        """Return what reads the ledger to verify it."""

    @abstractmethod
    def second(self, endpoint_name: str | None = None) -> Self:
        """Return the same as another process would open it; ``close`` it.

        With *endpoint_name*, as one of another endpoint.
        """

    @abstractmethod
    def vendor_run(self) -> AbstractContextManager[None]:
        """Leave what an open run of the vendor's tool leaves, and afterwards a finished one."""

    @contextmanager
    def default_zone(self, zone: str) -> Iterator[None]:
        """Have the server give new sessions a time zone, where it has such a thing."""
        yield

    def close(self) -> None:
        """Close what was opened."""
        self.engine.dispose()

    # ── the ledger ──────────────────────────────────────────────────────────────────────────
    def lease(self, lane: int = 0, owner: str = "me") -> Lease:
        """Take a lane."""
        lease = self.leases.acquire(Lane(lane), owner, LONG)
        assert lease is not None
        return lease

    def run(self, endpoint: StoreEndpoint) -> RunId:
        """Begin a run."""
        return self.runs.begin(endpoint, {})

    def request(self, endpoint: StoreEndpoint, lease: Lease, **changes: Any) -> ClaimRequest:
        """Return a request for everything due within ten days after ``NOW``."""
        values: dict[str, Any] = {
            "run": RunId(0),
            "endpoint": endpoint,
            "lease": lease,
            "mode": Mode.STAGED,
            "due_after": None,
            "due_until": NOW + timedelta(days=10),
            "max_rows": 1000,
            "max_bytes": 10**9,
            "cursor": None,
        } | changes
        if not values["run"]:
            values["run"] = self.run(endpoint)
        return ClaimRequest(**values)

    def claim(self, endpoint: StoreEndpoint, lease: Lease, **changes: Any) -> Claim:
        """Claim, and expect to get something; rows that come along are those of the ledger."""
        claim = self.claims.claim(self.request(endpoint, lease, **changes))
        assert claim is not None
        assert claim.batch.fresh in (None, self.batches.rows(claim.batch))
        return claim

    def claim_all(
        self, endpoint: StoreEndpoint, lease: Lease, *, max_rows: int, **changes: Any
    ) -> list[Claim]:
        """Claim until there is nothing more, from cursor to cursor."""
        found: list[Claim] = []
        asked = self.request(endpoint, lease, max_rows=max_rows, **changes)
        while claim := self.claims.claim(asked):
            found.append(claim)
            asked = replace(asked, cursor=claim.cursor)
        return found

    def ids(self, claim: Claim) -> list[str]:
        """Return the ids a claim took, by row index."""
        return [str(row.id) for row in self.batches.rows(claim.batch)]

    def ledger_rows(self) -> list[Any]:
        """Return the ledger's timeouts, by id."""
        with self.engine.connect() as connection:
            return list(connection.execute(self.tables.timeout.select().order_by("id")))

    def states(self) -> dict[str, int]:
        """Return how many rows are in which effective state, by the public view."""
        return {s: n for e in self.queries.progress().endpoints for s, n in e.rows.items()}

    def write(self, statement: Executable) -> None:
        """Change the ledger as the program would not."""
        with writing(self.engine) as connection:
            connection.execute(statement)

    def advance(self, batch: Batch, lease: Lease, *events: Event) -> Batch:
        """Record *events*, one after the other; return the batch after them."""
        for event in events:
            batch = self.batches.advance(batch, event, lease)
        return batch

    def set_aside(
        self,
        batch: Batch,
        lease: Lease,
        *rows: int,
        reason: Reason = Reason.NO_DESTINATION,
        detail: str = "",
    ) -> None:
        """Quarantine *rows* of a batch, by their indexes."""
        findings = [
            Quarantine(
                row_index=index,
                timeout_id=TimeoutId(timeout_id(index)),
                reason=reason,
                detail=detail,
            )
            for index in rows
        ]
        self.batches.quarantine(batch, findings, lease)

    def hand_over(self, claim: Claim, lease: Lease) -> Batch:
        """Record that all of a batch is with the broker."""
        return self.advance(claim.batch, lease, Event.BEGIN_PUBLISHING, Event.ALL_SETTLED)

    def handed_over(
        self, endpoint: StoreEndpoint, lease: Lease, *, bad: Sequence[int] = (), **changes: Any
    ) -> Batch:
        """Claim, set the rows *bad* aside, and record that the rest is with the broker."""
        claim = self.claim(endpoint, lease, mode=Mode.DIRECT, **changes)
        self.set_aside(claim.batch, lease, *bad)
        return self.hand_over(claim, lease)

    def dispatched_batch(
        self, endpoint: StoreEndpoint, lease: Lease, *, bad: Sequence[int] = (), **changes: Any
    ) -> Batch:
        """Claim for a dispatcher, set the rows *bad* aside, and record the rest as sent."""
        batch = self.claim(endpoint, lease, mode=Mode.DISPATCH, **changes).batch
        self.set_aside(batch, lease, *bad)
        return self.advance(batch, lease, Event.BEGIN_PUBLISHING, Event.ALL_DISPATCHED)

    def tagged_messages(self) -> list[TaggedMessage]:
        """Return the message of each row of the ledger, as a recall would find it."""
        return [
            tagged_message(row.batch_id, row.row_index, row.store_id, len(row.body or b""))
            for row in self.ledger_rows()
        ]
