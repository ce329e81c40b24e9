"""What the engine needs from the outside, as narrow Protocols; adapters implement them.

``Store`` and ``Claims`` are the legacy side, ``Leases``, ``Batches`` and ``Runs`` the ledger,
``Link``, ``Staging`` and ``Destinations`` the broker. Every method's docstring is its contract:
what is true when it returns, and what is true when it raises.

All datetimes are aware and in UTC. Adapters translate their driver's errors into
``migrator.errors``; a ``…Unavailable`` always means that nothing half-done was left behind in
that adapter, or that the docstring says what was.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Protocol, TypeVar

from migrator.domain.conversion import Quarantine, Reason
from migrator.domain.marks import Pass
from migrator.domain.routing import Address, DelaysVersion
from migrator.domain.states import BatchState, Event, Mode
from migrator.domain.timeouts import (
    BatchId,
    EndpointName,
    Lane,
    NativeMessage,
    QueueName,
    RunId,
    StoredTimeout,
)

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)

FaultPoint = Callable[[str], None]
"""Called with the name of each step; tests make it kill the process, otherwise it does nothing."""


class Clock(Protocol):
    """The time of the legacy database, which all rows' due times refer to."""

    def now(self) -> datetime:
        """Return the database's time, carried on by a monotonic clock between samples."""
        ...

    def monotonic_s(self) -> float:
        """Return seconds of a clock that never jumps; for ages and deadlines."""
        ...


class Pending(Protocol[T_co]):
    """A result that is being worked on elsewhere."""

    def result(self) -> T_co:
        """Wait for the work and return its result, or raise what it raised."""
        ...


class Background(Protocol):
    """Somewhere to do the next thing while this one is still going on."""

    def start(self, work: Callable[[], T]) -> Pending[T]:
        """Begin *work* and return at once."""
        ...


# ── the legacy store ────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreEndpoint:
    """One endpoint's timeouts in the store."""

    name: EndpointName
    """As the operator named it; when merely discovered, as the table shows it (dots are ``_``)."""
    source: str
    """Where its rows are, unique in the store: for SQL ``schema.table``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cursor:
    """How far claims have come; opaque outside the store."""

    due_at: datetime
    id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Lease:
    """A lane held by this process, until the deadline it was last renewed to."""

    lane: Lane
    owner: str
    token: int
    """Fencing token: grows with every change of owner; each write names it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """One batch as the ledger has it."""

    id: BatchId
    run: RunId
    endpoint: EndpointName
    source: str
    lane: Lane
    mode: Mode
    state: BatchState
    attempt: int
    size: int
    """Rows claimed, quarantined ones included."""
    body_bytes: int

    @property
    def current_pass(self) -> Pass:
        """The attempt that is under way or was the last."""
        return Pass(batch=self.id, attempt=self.attempt)


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimRequest:
    """Which rows to claim, soonest due first, and into which lane."""

    run: RunId
    endpoint: StoreEndpoint
    lease: Lease
    mode: Mode
    due_after: datetime | None
    """Exclusive; None: from the earliest time a timeout manager knows."""
    due_until: datetime
    """Inclusive."""
    max_rows: int
    max_bytes: int
    """Bound on the sum of body and headers; one larger row is still claimed, alone."""
    cursor: Cursor | None
    """Only rows behind it; None: from the start of the range."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """A batch that has just moved from the store into the ledger."""

    batch: Batch
    cursor: Cursor


@dataclass(frozen=True, slots=True, kw_only=True)
class SurveyedRow:
    """One stored row as preview reads it, without its body."""

    id: str
    destination: str | None
    due_at: datetime | None
    """None: no due time, or one no timeout manager would ever reach; the row stays where it is."""
    headers_text: str | None
    body_bytes: int
    is_in_ledger: bool
    """The ledger already has this id of this source in an open state: it will not be claimed."""


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

    def survey(self, endpoint: StoreEndpoint) -> Iterator[Sequence[SurveyedRow]]:
        """Yield all rows in chunks, in no promised order, by keyset; takes no locks.

        Rows that appear or vanish meanwhile may or may not be seen; no other row is skipped.
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


class Claims(Protocol):
    """Moving rows between store and ledger; each call is one local transaction."""

    def claim(self, request: ClaimRequest) -> Claim | None:
        """Move the soonest due rows of the range into a new ``claimed`` batch.

        Rows locked by others are skipped, as are rows the ledger already has (same source and
        id, open state). None: nothing to claim in the range behind the cursor.

        Raises:
            LeaseLost: The lease's token is no longer the lane's. Nothing was moved.
            StoreUnavailable: Nothing was moved, or the answer was lost after the commit: then
                the batch is in the ledger as ``claimed`` and recovery finds it.
        """
        ...

    def release(self, batch: Batch, lease: Lease) -> int:
        """Put every row of a ``claimed`` batch back, byte for byte, and mark it ``released``.

        Rows in quarantine go back too. The attempt is raised, so that what an abandoned pass
        left in a staging queue can never count. Returns the number of rows put back.

        Raises:
            LeaseLost: Nothing was changed.
        """
        ...

    def release_quarantined(self, endpoint: StoreEndpoint | None) -> int:
        """Put quarantined rows of settled batches back, byte for byte; return how many."""
        ...


# ── the ledger ──────────────────────────────────────────────────────────────────────────────


class Leases(Protocol):
    """Lanes as leases across the whole ledger, in database time."""

    @property
    def ledger_id(self) -> str:
        """The id that names this ledger's queues: lower case letters and digits."""
        ...

    def acquire(self, lane: Lane, owner: str, duration: timedelta) -> Lease | None:
        """Take a lane that is free, expired or already *owner*'s, with all its open batches.

        The token grows; the lane's open batches carry it from now on. None: somebody has it.
        """
        ...

    def renew(self, lease: Lease, duration: timedelta, *, doing: str) -> None:
        """Prolong *lease*, and record in a few words what its owner is doing (for status).

        Raises:
            LeaseLost: It expired and somebody else took the lane.
        """
        ...

    def surrender(self, lease: Lease) -> None:
        """Free the lane; without effect when it is no longer ours."""
        ...

    def orphaned_lanes(self) -> Sequence[Lane]:
        """Return lanes that have open batches and no living owner, ascending."""
        ...

    def holders(self) -> Sequence[tuple[Lane, str]]:
        """Return every lane whose lease is running, with its owner."""
        ...

    def evict(self, lane: Lane, owner: str) -> None:
        """End the lease of an *owner* whose process is surely dead; harmless when it changed."""
        ...


class Batches(Protocol):
    """Batches and their rows, as the owner of their lane works on them."""

    def open_batches(self, lease: Lease) -> Sequence[Batch]:
        """Return the lane's batches in an ``OPEN`` state, in order of their id.

        Batches put into the lane by others (a quarantine retry) get the lease's token here.
        """
        ...

    def find(self, batch: BatchId) -> Batch | None:
        """Return one batch in whatever state, or None when the ledger never had it."""
        ...

    def rows(self, batch: Batch) -> Sequence[StoredTimeout]:
        """Return the rows that share the batch's state (not the quarantined), by row index."""
        ...

    def advance(self, batch: Batch, event: Event, lease: Lease) -> Batch:
        """Record *event* and return the batch after it; events that start a pass raise attempt.

        One ``UPDATE … WHERE id, state, attempt, token`` that is committed on return.

        Raises:
            IllegalTransition: The state table has no such step. Nothing was changed.
            LeaseLost: No row matched. Nothing was changed; stop touching the batch.
            StoreUnavailable: It may or may not have been recorded; ``find`` tells.
        """
        ...

    def quarantine(self, batch: Batch, findings: Collection[Quarantine], lease: Lease) -> None:
        """Mark rows of *batch* as quarantined, with code and detail; repeating is harmless.

        Raises:
            LeaseLost: Nothing was changed.
        """
        ...


class Runs(Protocol):
    """Runs and the audit trail."""

    def begin(self, endpoint: StoreEndpoint, options: Mapping[str, str | int | bool]) -> RunId:
        """Record that a run begins; *options* carry no secrets."""
        ...

    def end(self, run: RunId, status: str) -> None:
        """Record how a run ended: ``done``, ``stopped`` or ``failed``."""
        ...

    def record(self, kind: str, *, detail: Mapping[str, object], batch: BatchId | None) -> None:
        """Append one event to the audit trail."""
        ...


# ── the broker ──────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True, kw_only=True)
class Outgoing:
    """One message with the delay it gets in this pass."""

    message: NativeMessage
    delay_s: int
    """0: already due; routed through to the destination at once."""
    address: Address
    """The native exchange, level and key; the link may know a faster way to the same level."""


@dataclass(slots=True)
class Settled:
    """What the broker answered so far, by row index; filled while ``publish`` goes on."""

    confirmed: set[int] = field(default_factory=set)
    returned: set[int] = field(default_factory=set)
    """Unroutable (mandatory) and therefore nowhere."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Held:
    """What the staging consumer holds unacknowledged of one pass."""

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
    def blocked_reason(self) -> str | None:
        """Why the broker makes us wait (memory or disk alarm), or None."""
        ...

    def publish(self, batch_pass: Pass, messages: Iterable[Outgoing], settled: Settled) -> None:
        """Publish mandatory into the native delays; return once each message was answered.

        *messages* is read lazily, as the window of unconfirmed messages allows, so that delays
        are computed just before publishing. Rows nacked by the broker are in neither set.

        Raises:
            TargetUnavailable: The connection went away, or the broker blocked us past the
                deadline. ``settled`` says what was answered before; the rest is unknown.
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

    def close(self) -> None:
        """Close both connections; never raises. Unacknowledged messages go back to the queue."""
        ...


class Staging(Protocol):
    """A lane's staging and receipts queues. Rules: design section 5.2.

    Nothing is ever acknowledged here by itself; all deliveries stay held until ``discard``,
    ``commit`` or ``settle_receipt``.
    """

    def publish(self, batch_pass: Pass, messages: Iterable[Outgoing]) -> None:
        """Put all messages and then the receipt into the staging queue, all confirmed.

        Raises:
            TargetUnavailable: Connection lost, blocked past the deadline, or a message was
                nacked or returned. What arrived stays in the queue; abandon the pass.
        """
        ...

    def held(self) -> Mapping[Pass, Held]:
        """Return what is held now, by pass.

        Raises:
            HandOverDoubtful: A message is not of this ledger or carries no mark.
        """
        ...

    def receipts(self) -> Collection[Pass]:
        """Return the passes whose receipt arrived behind the router: they are committed."""
        ...

    def wait(self, is_enough: Callable[[], bool], timeout_s: float) -> bool:
        """Serve the connections until *is_enough* or the timeout; return what it last said.

        Raises:
            TargetUnavailable: A connection went away; nothing is held any more.
        """
        ...

    def discard(self, batch_pass: Pass) -> None:
        """Acknowledge away, one by one, everything held of an abandoned pass."""
        ...

    def commit(self, batch_pass: Pass, rows: frozenset[int]) -> None:
        """Dead-letter the whole pass with one nack: all of it or none.

        Sends exactly one ``basic.nack(multiple=true, requeue=false)`` and does not wait.

        Raises:
            HandOverDoubtful: What it would cover is not exactly *rows* and the receipt of
                *batch_pass*. Nothing was sent.
            TargetUnavailable: The connection was already gone. Nothing was sent.
        """
        ...

    def settle_receipt(self, batch_pass: Pass) -> None:
        """Acknowledge a receipt, once the ledger knows what it says; unknown ones are ignored."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Unreachable:
    """Why messages for a destination may not enter the delays."""

    reason: Reason
    detail: str


class Destinations(Protocol):
    """Whether messages would find their way out of the delays again."""

    def unreachable(self, names: Collection[QueueName]) -> Mapping[QueueName, Unreachable]:
        """Bind each destination to the delivery exchange; return those that cannot be.

        Answers are remembered for a while. Binding is idempotent.

        Raises:
            TargetUnavailable: The broker cannot be asked now.
        """
        ...


# ── facts for preflight: asked before anything is done, nothing here changes anything ──────


@dataclass(frozen=True, slots=True, kw_only=True)
class NotChecked:
    """In place of an answer that could not be had; never to be read as "fine"."""

    reason: str
    """Why: no management API, no right to look …"""


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerServer:
    """What the broker says about itself."""

    product: str
    version: tuple[int, int, int]
    """All zeros when it cannot be read."""
    version_text: str
    flags: Mapping[str, bool] | NotChecked
    """Feature flags, by name: whether enabled."""


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueProbe:
    """A queue that exists."""

    messages: int
    """Ready ones; what consumers hold is invisible here."""
    consumers: int


@dataclass(frozen=True, slots=True, kw_only=True)
class DelayEntities:
    """How far the native delays of one generation are there."""

    missing: Sequence[str]
    """Exchanges, queues and bindings that do not exist, each as a short text."""
    different: Mapping[str, str]
    """Entities that exist with other arguments: name to what differs."""
    not_checked: Sequence[NotChecked]
    """What could not be looked at (bindings, without the management API)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """A policy, or an operator policy, that applies to a queue."""

    name: str
    definition: Mapping[str, object]


@dataclass(frozen=True, slots=True, kw_only=True)
class Room:
    """What the broker has left for messages, on its fullest node."""

    disk_free_bytes: int
    disk_limit_bytes: int
    """Below this much free disk the broker stops all publishers."""


class BrokerFacts(Protocol):
    """What checks ask the broker.

    Raises, each of its methods:
        TargetUnavailable: The broker cannot be reached (network).
        AccessRefused: It answered and refused (authentication, virtual host, permission).

    Absence is an answer, not an error; so is ``NotChecked``.
    """

    def server(self) -> BrokerServer:
        """Connect as the daemon would, and return what the broker says about itself."""
        ...

    def queues(self, names: Collection[str]) -> Mapping[str, QueueProbe | None]:
        """Return each of *names*, with None for a queue that does not exist."""
        ...

    def delay_entities(self, version: DelaysVersion) -> DelayEntities:
        """Compare the native delays of *version* with what they must be."""
        ...

    def policies(self, names: Collection[str]) -> Mapping[str, Sequence[Policy]] | NotChecked:
        """Return the policies that apply to the queues *names*, or would once they exist."""
        ...

    def bound_names(self, version: DelaysVersion) -> frozenset[QueueName] | NotChecked:
        """Return the names that are bound to the delivery exchange by ``#.<name>``."""
        ...

    def stuck(self, version: DelaysVersion) -> Mapping[int, int] | NotChecked:
        """Return how many expired messages wait in vain for a target, by level; no zeros."""
        ...

    def alarms(self) -> Sequence[str] | NotChecked:
        """Return the resource alarms in force, each as a short text."""
        ...

    def room(self) -> Room | NotChecked:
        """Return what is left for messages."""
        ...


class LedgerFacts(Protocol):
    """What checks ask the ledger."""

    def verify(self) -> str:
        """Return a short text about the ledger (version, id) when it is fit for use.

        Raises:
            LedgerMissing: There is none, or not of the version this program needs.
            LedgerCloned: It was created in another database.
            StoreUnavailable: It cannot be asked.
        """
        ...
