"""The legacy side: what can be asked of a store, and how rows move out of it and back."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Final, Protocol

from migrator.errors import SomeGone, SourceGone
from migrator.ledger.report import ANY_QUARANTINED, QuarantineFilter
from migrator.ledger.work import Batch, Lease, StoreEndpoint
from migrator.stores.requests import Claim, ClaimRequest, ScannedRow, SummaryRequest

if TYPE_CHECKING:  # only stores in a SQL database have one
    from migrator.stores.sql.summary import TableSummary

DUE_SPANS: Final = (
    ("overdue", timedelta(0)),
    ("up to 1m", timedelta(minutes=1)),
    ("up to 1h", timedelta(hours=1)),
    ("up to 1d", timedelta(days=1)),
    ("up to 7d", timedelta(days=7)),
    ("up to 30d", timedelta(days=30)),
    ("up to 365d", timedelta(days=365)),
)
"""How soon rows are due, for counts; behind the last is ``LATER``."""
LATER: Final = "later"
NEVER: Final = datetime.max.replace(tzinfo=UTC)
"""Later than every due time that is counted, or none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DueTime:
    """When one row is due, in three ways that ought to be one."""

    stored: datetime
    """What the column has, taken as UTC."""
    due_at: datetime
    """When that is, as migrator reads it."""
    expires_at: datetime | None
    """What the row's own Expire header says; None: it has none that can be read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreRemark:
    """Advice about a store that does not prevent a migration."""

    subject: str
    """The table or container."""
    text: str
    remedy: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TableCount:
    """How many timeouts wait in one place."""

    rows: int
    is_all: bool
    """False: too many to be counted; *rows* is estimated."""
    due: Sequence[tuple[str, int]]
    """Those that were read, by how soon they are due, soonest first."""
    until: Sequence[int] = ()
    """Those that were read and are due until each of the limits that were asked for."""


def by_span(dues: Mapping[datetime, int], now: datetime) -> Sequence[tuple[str, int]]:
    """Return rows by how soon they are due, soonest first; *dues*: due times with rows each."""
    found: Counter[str] = Counter()
    for due_at, rows in sorted(dues.items()):
        within = (name for name, span in DUE_SPANS if due_at <= now + span)
        found[next(within, LATER)] += rows
    return list(found.items())


def until(dues: Mapping[datetime, int], limits: Sequence[datetime]) -> Sequence[int]:
    """Return how many rows of *dues* are due until each of *limits*."""
    return [sum(rows for due, rows in dues.items() if due <= limit) for limit in limits]


class Store(Protocol):
    """The legacy database as people ask about it; nothing here changes it."""

    @property
    def kind(self) -> str:
        """Name of the store's kind, as in settings, such as ``sql``."""
        ...

    def endpoints(self) -> Sequence[StoreEndpoint]:
        """Return every endpoint that has a timeouts table, sorted by name; may be empty.

        Raises:
            StoreUnavailable: The database cannot be reached.
        """
        ...

    def find(self, name: str) -> StoreEndpoint:
        """Return the endpoint an operator means by *name* (``Sales.Orders`` or ``Sales_Orders``).

        Raises:
            UnknownEndpoint: No table belongs to it; carries the names there are.
        """
        ...

    def expected(self, name: str) -> StoreEndpoint:
        """Return where the rows of the endpoint *name* would be, whether or not they are there.

        Raises:
            StoreUnavailable: The database cannot be reached.
        """
        ...

    def scan(self, endpoint: StoreEndpoint) -> Iterator[Sequence[ScannedRow]]:
        """Yield all rows in chunks, in no promised order, by keyset; takes no locks.

        Rows that appear or vanish meanwhile may or may not be seen; no other row is skipped.
        """
        ...

    def summary(
        self, endpoint: StoreEndpoint, request: SummaryRequest
    ) -> AbstractContextManager[TableSummary] | None:
        """Open a transaction that only reads, and counts rows; None: the store cannot count.

        Raises, also inside:
            StoreUnavailable: The database cannot be reached, or went away half-way.
        """
        ...

    def due_times(self, endpoint: StoreEndpoint, now: datetime) -> Sequence[DueTime]:
        """Return the due times of a few rows: the first, the next after *now*, and the last.

        Empty where no stack can have written anything but UTC; takes no locks.
        """
        ...

    def trial_claim(self, endpoint: StoreEndpoint) -> None:
        """Claim one row and roll back; proves rights on store and ledger.

        Raises:
            StoreError: A right is missing; says which. Nothing was changed.
        """
        ...

    def unfinished_vendor_runs(self) -> Sequence[str]:
        """Return what a half-finished run of the vendor's migration tool left here, as text."""
        ...

    def remarks(self) -> Sequence[StoreRemark]:
        """Return what costs time or leaves rows behind, such as a missing index; may be empty."""
        ...

    def count(self, source: str, now: datetime, *, limits: Sequence[datetime] = ()) -> TableCount:
        """Return how many rows *source* has, and how soon they are due, as of *now*.

        Rows without a due time are due after each of *limits*.

        Raises:
            StoreError: It is gone, or the store cannot be asked.
        """
        ...

    def access_latency_s(self, source: str, *, timeout: timedelta) -> float:
        """Return the seconds it takes to be let at *source*; about *timeout* at most.

        Raises:
            StoreError: It is gone, or a right is missing.
            StoreUnavailable: The store cannot be reached at all.
        """
        ...

    def read_anew(self, endpoint: StoreEndpoint) -> None:
        """Forget what is known of the place of *endpoint*, which failed, and look at it anew.

        Raises:
            StoreError: It is gone, or cannot be worked with; says why.
        """
        ...


class Claims(Protocol):
    """Moving rows between store and ledger.

    Where both are one database, each call is one local transaction. With a document store it is
    several, and a batch is ``claiming`` or ``releasing`` in between.
    """

    def claim(self, request: ClaimRequest) -> Claim | None:
        """Move the soonest due rows of the range into a new ``claimed`` batch.

        Rows locked by others are skipped, as are rows the ledger already has (same source and
        id, open state). None: nothing to claim in the range behind the cursor.

        Raises:
            LeaseLost: The lease's token is no longer the lane's. Nothing was moved.
            StoreUnavailable: Nothing was moved, or the answer was lost after the commit: then
                the batch is in the ledger as ``claimed`` or ``claiming``, and recovery finds it.
        """
        ...

    @property
    def can_seek(self) -> bool:
        """Whether a claim goes straight to the rows of its range; else it may list the whole store.

        What was listed serves later claims of the same range, or of what follows it.
        """
        ...

    @property
    def is_atomic(self) -> bool:
        """Whether a claim that fails with an answer of the store has claimed nothing at all."""
        ...

    def promising(self, requests: Sequence[ClaimRequest]) -> Sequence[ClaimRequest]:
        """Return those of *requests* that may find something; the others would find nothing now.

        Where the store can tell, it writes nothing, locks nothing, and answers for all at once;
        where it cannot, it returns all of them.

        Raises:
            StoreError, StoreLocked: One of the tables cannot be read now. Of which, a call with
                the requests of one source tells.
            StoreUnavailable: The store does not answer.
        """
        ...

    def unclaimed(self, request: ClaimRequest) -> int:
        """Return how many rows of *request* are there and not in the ledger; up to a limit.

        A claim that has just found none could not have them: others have locked them. 0, too,
        where the store locks no rows.

        Raises:
            StoreUnavailable: It does not answer.
        """
        ...

    def unclaimable(self) -> Mapping[str, Mapping[str, str]]:
        """Return by source which rows this process could not claim just now: id and error.

        Each stays in the store and is tried again, every minute at most.
        """
        ...

    def resume(self, batch: Batch, lease: Lease) -> Batch | None:
        """Finish what a crash left half-done of a ``claiming`` or ``releasing`` batch.

        Returns the batch, now ``claimed``. None: there is nothing more to do for it; its rows
        are back, or other processes took all of them and it is gone.

        Raises:
            LeaseLost: Nothing was recorded.
            StoreUnavailable: It is as half-done as before; repeat the call.
        """
        ...

    def release(self, batch: Batch, lease: Lease) -> int:
        """Put every row of a ``claimed`` batch back, byte for byte, and mark it ``released``.

        Goes on with one that is ``releasing``.

        Rows in quarantine go back too. The attempt number is raised, so that what an abandoned one
        left in a staging queue can never count. Returns the number of rows put back.

        Raises:
            LeaseLost: Nothing was changed.
        """
        ...

    def release_quarantined(
        self, endpoint: StoreEndpoint | None, which: QuarantineFilter = ANY_QUARANTINED
    ) -> int:
        """Put quarantined rows of settled batches back, byte for byte; return how many.

        Only those that *which* means, where it is given. What the store does not take back stays
        in quarantine, with the reason; so it does at a release.

        Raises:
            SomeGone: Some stay, because where they came from is gone. All others are back.
        """
        ...

    def count_taken(self, source: str) -> int:
        """Return how many ids of rows that are not back the store has again, as far as it tells.

        Raises:
            SourceGone: There is no such place (any more).
        """
        ...


def returned(sources: Iterable[str], put_back: Callable[[str], int]) -> int:
    """Return how many rows *put_back* has put back, to all *sources* together.

    Raises:
        SomeGone: A source is gone; the others had their turn all the same.
    """
    back, gone = 0, list[SourceGone]()
    for source in sources:
        try:
            back += put_back(source)
        except SourceGone as exc:
            gone.append(exc)
    if gone:
        raise SomeGone(gone, back=back) from gone[0]
    return back
