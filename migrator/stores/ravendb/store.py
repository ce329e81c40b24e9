"""RavenDB as a document store: whose timeouts there are, which are due next, take and put back.

A sharded database is refused: a batch is no single transaction there, and documents could be
removed without their receipt. So are ids with another prefix than configured: a listing by prefix
would never show them. Source: reference ``legacy-stores.md`` 3.1, 3.3; 6.2 and 7.0 name each shard
in place of the database.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final

from migrator.database.failures import retrying
from migrator.errors import SourceElsewhere, StoreError, StoreUnavailable
from migrator.ledger.work import StoreEndpoint
from migrator.nservicebus.timeouts import EndpointName, TimeoutId
from migrator.stores.documents.ports import Document, DueRange, Entry, IsMeant, Mark
from migrator.stores.ravendb.documents import (
    Timeout,
    Unreadable,
    document_of,
    entry_of,
    is_hidden,
    is_marked,
    listed_as,
    owner_of,
    timeout_of,
)
from migrator.stores.ravendb.families import (
    BadAnswer,
    Classic,
    Family,
    Modern,
    RawDocument,
    family_of,
)
from migrator.stores.ravendb.http import RavenHttp, ServerSettings
from migrator.stores.ravendb.listing import ListedPage, RavenReader, SoonestEntries
from migrator.stores.ravendb.receipts import Receipts
from migrator.stores.requests import ScannedRow
from migrator.text import counted

NO_OWNER: Final = EndpointName("(no owner)")
"""How timeouts are listed that name no endpoint, while no endpoint is said to own them."""
COLLECTIONS: Final = ("TimeoutDatas", "TimeoutData")
"""By default, and by the older convention that some databases have kept."""
_VENDOR_STATE: Final = "TimeoutMigrationTool/State"
_VENDOR_BATCHES: Final = "batch/"
_FAMILIES: Final[dict[str, Callable[[], Family]]] = {"3.5": Classic, "4": Modern}
_LOOKED_AT: Final = 32
"""Documents at each end."""
_SHARD: Final = "$"
"""Between the name of a database and the number of a shard; no name of a database may have it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RavenOptions:
    server: ServerSettings
    version: str = "auto"
    """``3.5``, ``4`` (and later), or ``auto``: the server is asked."""
    collections: Sequence[str] = COLLECTIONS
    prefixes: Sequence[str] = ()
    """What ids begin with; empty: each collection's name and a slash."""
    unowned: str | None = None
    """The endpoint that owns documents without an owner; None: they cannot be claimed."""


class RavenStore:
    """Implements ``DocumentStore``.

    Raises:
        ConfigError: The address or a certificate cannot be used.
    """

    kind: Final = "ravendb"

    def __init__(
        self, options: RavenOptions, monotonic_s: Callable[[], float] = time.monotonic
    ) -> None:
        self._options = options
        self._http = RavenHttp(options.server)
        self._prefixes = _disjoint(options.prefixes or [f"{c}/" for c in options.collections])
        self._collections = frozenset(name.lower() for name in options.collections)
        self._soonest = SoonestEntries(self._listed_pages, monotonic_s)

    def close(self) -> None:
        self._http.close()

    def source_of(self, name: str) -> str:
        """The source names the server, too: another database of the same name is another source."""
        return f"{self._http.host}/{self._options.server.database}:{name}"

    def endpoints(self) -> Sequence[StoreEndpoint]:
        """Return whose timeouts there are; see ``DocumentStore``.

        Documents without an owner count for ``store.ravendb.unowned``, else for ``NO_OWNER``.

        Raises:
            StoreError: There are timeouts that no listing would show, or shards.
        """
        self._refuse_what_cannot_be_claimed()
        owners = {self._claimant(owner_of(raw)) for page in self._raw_pages() for raw in page}
        return [
            StoreEndpoint(name=EndpointName(owner), source=self.source_of(owner))
            for owner in sorted(owners)
            if not is_marked(owner)
        ]

    def list(
        self, endpoint: StoreEndpoint, *, with_sizes: bool = False
    ) -> Iterator[Sequence[ScannedRow]]:
        """Sizes are always known."""
        del with_sizes
        owner = self._owner(endpoint)
        for page in self._raw_pages():
            found = [listed_as(raw) for raw in page if self._is_live(raw, owner)]
            if found:
                yield found

    def soonest(self, endpoint: StoreEndpoint, due: DueRange, at_most: int) -> Sequence[Entry]:
        """Return what is due next; see ``DocumentStore``.

        Raises:
            StoreError: No owner of these documents is configured.
        """
        self._require_owner(endpoint)
        return self._soonest.between(self._owner(endpoint), due, at_most)

    def read(self, endpoint: StoreEndpoint, ids: Collection[TimeoutId]) -> Iterator[Document]:
        owner = self._owner(endpoint)
        left, gone = deque(ids), list[TimeoutId]()
        try:
            for raw in self._reader.by_id(ids):
                while (asked := left.popleft()) != raw.id:
                    gone.append(asked)
                if (timeout := self._live(raw, owner)) is not None:
                    yield document_of(timeout)
                else:
                    gone.append(asked)
            gone += left
        finally:
            self._soonest.recent.drop(gone)

    def take(
        self, endpoint: StoreEndpoint, mark: Mark, documents: Sequence[Document]
    ) -> Collection[TimeoutId]:
        self._require_owner(endpoint)
        taken = self._receipts.take(mark, documents)
        self._soonest.recent.drop(taken)
        return taken

    def put_back(
        self,
        endpoint: StoreEndpoint,
        mark: Mark,
        documents: Sequence[Document],
        *,
        is_meant: IsMeant,
    ) -> Collection[TimeoutId]:
        self._owner(endpoint)
        restored = self._receipts.put_back(mark, documents, is_meant)
        self._soonest.forget()
        return restored

    def forget(self, endpoint: StoreEndpoint, mark: Mark, ids: Collection[TimeoutId]) -> None:
        self._owner(endpoint)
        self._receipts.forget(mark, ids)

    def probe(self, endpoint: StoreEndpoint) -> None:
        """Reads a page, and removes a document that never existed."""
        self._require_owner(endpoint)
        self._refuse_what_cannot_be_claimed()
        next(iter(self._raw_pages()), None)
        self._receipts.probe()

    def unfinished_vendor_runs(self) -> Sequence[str]:
        """Reads every document: hidden ones may remain although the tool's own are gone."""
        found = [
            f"document {each.id}: a run of the vendor's tool for endpoint "
            f"{str(each.content.get('Endpoint'))[:200]!r} is open"
            for each in self._reader.by_id((_VENDOR_STATE,))
        ]
        batches = sum(len(page) for page in self._reader.pages(_VENDOR_BATCHES))
        if batches:
            documents = counted(batches, "document")
            found.append(f"{documents} {_VENDOR_BATCHES}…: batches of the vendor's tool")
        hidden = sum(is_hidden(owner_of(raw)) for page in self._raw_pages() for raw in page)
        if hidden:
            timeouts = counted(hidden, "timeout is", "timeouts are")
            found.append(f"{timeouts} hidden by the vendor's tool")
        return found

    # ── whose is it ─────────────────────────────────────────────────────────────────────────

    def _claimant(self, owner: str) -> str:
        return owner or self._options.unowned or NO_OWNER

    def _owner(self, endpoint: StoreEndpoint) -> str:
        before = self.source_of("")
        if not endpoint.source.startswith(before):
            raise SourceElsewhere(
                f"{endpoint.source!r} is not in {self._http.where}, which store.url and "
                "store.ravendb.database name now; nothing was changed"
            )
        return endpoint.source.removeprefix(before)

    def _require_owner(self, endpoint: StoreEndpoint) -> None:
        if self._owner(endpoint) == NO_OWNER:
            raise StoreError(
                f"{self._http.where} has timeouts that name no owner, which any timeout manager "
                "would send; set store.ravendb.unowned to the endpoint that they belong to"
            )

    # ── reading ─────────────────────────────────────────────────────────────────────────────

    def _listed_pages(self) -> Iterator[ListedPage]:
        for page in self._raw_pages():
            entries = []
            for raw in page:
                owner = self._claimant(owner_of(raw))
                if (timeout := self._live(raw, owner)) is not None:
                    entries.append((owner, entry_of(timeout)))
            yield len(page), entries

    def _refuse_what_cannot_be_claimed(self) -> None:
        """Refuse a sharded database, and collections that have ids with none of the prefixes.

        Before version 4 there are no shards, and a collection cannot be read.
        """
        if isinstance(self._family, Modern) and any(_SHARD in name for name in self._names()):
            raise StoreError(
                f"{self._http.where} is sharded: a claim would not be a single transaction there, "
                "and timeouts could be lost; nothing was changed. Move it to a database without "
                "shards first"
            )
        known = tuple(prefix.lower() for prefix in self._prefixes)
        for collection in self._options.collections:
            for raw in self._ends_of(collection):
                if not raw.id.lower().startswith(known):
                    raise StoreError(
                        f"{self._http.where}: {raw.id[:200]!r} is in collection {collection!r} but "
                        f"begins with none of {', '.join(self._prefixes)}; list the prefixes of "
                        "its ids in store.ravendb.prefixes"
                    )

    def _names(self) -> Sequence[str]:
        """Return what the server calls the database; what it does not tell shows later."""
        try:
            told = retrying(self._http.names)
        except StoreUnavailable:
            raise
        except StoreError:
            return ()
        listed = told.get("Databases") if isinstance(told, dict) else None
        return [e for e in listed if isinstance(e, str)] if isinstance(listed, list) else ()

    def _ends_of(self, collection: str) -> Sequence[RawDocument]:
        first = self._reader.part_of(collection, 0, _LOOKED_AT)
        if first is None or first[1] <= _LOOKED_AT:
            return () if first is None else first[0]
        last = self._reader.part_of(collection, first[1] - _LOOKED_AT, _LOOKED_AT)
        return [*first[0], *(last[0] if last else ())]

    def _raw_pages(self) -> Iterator[Sequence[RawDocument]]:
        for prefix in self._prefixes:
            for page in self._reader.pages(prefix):
                yield [raw for raw in page if raw.collection.lower() in self._collections]

    def _is_live(self, raw: RawDocument, owner: str) -> bool:
        stored = owner_of(raw)
        is_theirs = not is_marked(stored) and self._claimant(stored) == owner
        return is_theirs and self._family.is_settled(raw)

    def _live(self, raw: RawDocument, owner: str) -> Timeout | None:
        if not self._is_live(raw, owner):
            return None
        try:
            return timeout_of(raw)
        except Unreadable:
            return None  # ``list`` shows it

    # ── made when first asked for ───────────────────────────────────────────────────────────

    @cached_property
    def _family(self) -> Family:
        if (make := _FAMILIES.get(self._options.version)) is not None:
            return make()
        try:
            return family_of(retrying(self._http.build))
        except BadAnswer as exc:
            raise StoreError(
                f"{self._http.where}: the server's version is not known ({exc}); set "
                "store.ravendb.version"
            ) from exc

    @cached_property
    def _reader(self) -> RavenReader:
        return RavenReader(self._http, self._family)

    @cached_property
    def _receipts(self) -> Receipts:
        return Receipts(self._http, self._family, self._reader)


def _disjoint(prefixes: Sequence[str]) -> Sequence[str]:
    """Return *prefixes* without those that another one covers: nothing shall be listed twice."""
    kept: list[str] = []
    for prefix in sorted(prefixes, key=str.lower):
        if not kept or not prefix.lower().startswith(kept[-1].lower()):
            kept.append(prefix)
    return kept
