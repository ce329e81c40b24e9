"""What a document store must be able to do, so that its timeouts can be claimed in two steps.

A SQL store moves a row into the ledger in one transaction. A document store cannot: the ledger is
another database. So the ledger first records what is to be taken (batch ``claiming``, rows with
all their content), then the store is asked to give it up, then the ledger records what it gave
(``claimed``). Each change at the store leaves *evidence* there in the same atomic operation, so
that after a crash, or an answer that got lost, the same call tells what really happened instead
of guessing. Source: design section 4; docs/adr/0008-two-step-claims.md.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final, NewType, Protocol

from migrator.ledger.work import StoreEndpoint
from migrator.nservicebus.timeouts import BatchId, TimeoutId
from migrator.stores.requests import ScannedRow

NONEXISTENT_ID: Final = TimeoutId("migrator-nobody")
"""Asked for to hear whether a place is there, and how soon it answers; no timeout is called so."""
Mark = NewType("Mark", str)
"""Names one change for ever; made by the functions below, of letters, digits and dots."""


def claim_mark(ledger_id: str, batch: BatchId) -> Mark:
    """Return the mark of a batch's claim."""
    return Mark(f"{ledger_id}.{batch}.c")


def release_mark(ledger_id: str, batch: BatchId) -> Mark:
    """Return the mark of putting a whole batch back; a batch is released once."""
    return Mark(f"{ledger_id}.{batch}.b")


def return_mark(ledger_id: str, row: int) -> Mark:
    """Return the mark of putting one row back (quarantine, recall); a row goes back once."""
    return Mark(f"{ledger_id}.{row}.r")


IsMeant = Callable[[], bool]
"""Whether the ledger still says that something goes back; may raise what ends the work."""


@dataclass(frozen=True, slots=True)
class DueRange:
    """Due times from one moment, which is not in it, to another one, which is; aware, UTC."""

    after: datetime | None
    """None: from the first of all."""
    until: datetime

    def __contains__(self, due_at: datetime) -> bool:
        return (self.after is None or due_at > self.after) and due_at <= self.until


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class Entry:
    """A timeout as a listing shows it; sorts as timeouts are to be claimed."""

    due_at: datetime
    """Aware, UTC."""
    id: TimeoutId
    destination: str | None = field(default=None, compare=False)
    read: Any = field(default=None, compare=False)
    """What the store's client read of it, if the adapter wants that again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Document:
    """A whole timeout, and what the store needs to restore it byte for byte."""

    id: TimeoutId
    destination: str | None
    saga_id: str | None
    due_at: datetime
    """Aware, UTC."""
    body: bytes | None
    headers_text: str | None
    version: str
    """ETag or change vector at the time of reading: it is given up only if this still holds."""
    extra: str
    """JSON of what else there was (partition key, metadata, raw forms); opaque to all others."""
    flaw: str | None = None
    """Why it cannot be handed over although it is there (its body is gone, say): it is claimed
    into quarantine, with this as the detail."""


class DocumentStore(Protocol):
    """One document store's primitives; adapters implement them, ``stores.documents`` uses them.

    Raises, each of its methods:
        StoreUnavailable: No answer, or a passing one (429, 5xx): it may have happened or not;
            repeat the same call.
        StoreError: The store refused for good. Says what is true now.
    """

    @property
    def kind(self) -> str:
        """Name of the store's kind, as in settings."""
        ...

    def endpoints(self) -> Sequence[StoreEndpoint]:
        """Return every endpoint that owns a timeout, sorted by name; may be empty."""
        ...

    def source_of(self, name: str) -> str:
        """Return where timeouts of the endpoint *name* are, or would be: a prefix, and the name.

        Asks nobody. The prefix is the same for all endpoints.
        """
        ...

    def list(
        self, endpoint: StoreEndpoint, *, with_sizes: bool = False
    ) -> Iterator[Sequence[ScannedRow]]:
        """Yield the endpoint's live timeouts in pages, in no promised order.

        Also those that no claim ever takes, with the reason.

        *with_sizes*: the sizes of bodies are asked for if the listing does not tell them anyhow.
        Leftovers, vendor-marked ones and those we hold evidence of are left out. What appears or
        vanishes meanwhile may or may not be seen; nothing else is skipped.
        """
        ...

    def soonest(self, endpoint: StoreEndpoint, due: DueRange, at_most: int) -> Sequence[Entry]:
        """Return the *at_most* soonest due of the range, ascending by due time, then id.

        May come from a listing of a moment ago, and name what is gone: ``read`` leaves that out,
        and then it is not named again for a while.
        """
        ...

    def read(self, endpoint: StoreEndpoint, ids: Collection[TimeoutId]) -> Iterator[Document]:
        """Yield those of *ids* that are still there, whole, in that order.

        Reads as it is asked on, and only a few ahead: bodies may be large, and whoever has enough
        just stops.
        """
        ...

    def take(
        self, endpoint: StoreEndpoint, mark: Mark, documents: Sequence[Document]
    ) -> Collection[TimeoutId]:
        """Remove each document if it is unchanged; return the ids that are ours now.

        Removing and leaving the evidence ``mark`` is one atomic operation of the store. Repeating
        with the same mark is harmless and returns what was taken before as well. A document that
        changed or vanished without our evidence belongs to somebody else, and is left out.
        """
        ...

    def put_back(
        self,
        endpoint: StoreEndpoint,
        mark: Mark,
        documents: Sequence[Document],
        *,
        is_meant: IsMeant,
    ) -> Collection[TimeoutId]:
        """Restore documents byte for byte, once per *mark*; return those that are restored.

        Repeating with the same mark restores nothing twice, even if a timeout manager sent and
        removed one meanwhile. An id that somebody else has stored again is left out.

        The evidence is opened first, then *is_meant* is asked, and nothing is restored unless it
        says yes and the evidence is still as it was opened. So whoever is held up here until
        another one has restored, recorded and forgotten it all restores nothing.
        """
        ...

    def forget(self, endpoint: StoreEndpoint, mark: Mark, ids: Collection[TimeoutId]) -> None:
        """Remove the evidence *mark*, once the ledger has recorded it; repeating is harmless."""
        ...

    def probe(self, endpoint: StoreEndpoint) -> None:
        """Prove that all the rights a claim needs are there; changes nothing.

        Raises:
            StoreError: One is missing; says which, as far as the store tells.
        """
        ...

    def unfinished_vendor_runs(self) -> Sequence[str]:
        """Return what a half-finished run of the vendor's tool left here, as text."""
        ...

    def close(self) -> None:
        """Close connections; no thread stays. Never raises."""
        ...
