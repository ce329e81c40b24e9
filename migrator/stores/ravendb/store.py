"""RavenDB as a document store: whose timeouts there are, which are due next, take and put back.

A database over shards is refused: there a batch is no single transaction, and documents could be
removed without the receipt that tells of it. So are ids that begin otherwise than said: a listing
by prefix would never show them. Source: reference ``legacy-stores.md`` 3.1, 3.3; 6.2 and 7.0 name
each shard in place of the database.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from itertools import islice
from typing import Any, Final, Self

from migrator.database.failures import retrying
from migrator.errors import SourceElsewhere, StoreError, StoreUnavailable
from migrator.ledger.work import StoreEndpoint
from migrator.nservicebus.timeouts import EndpointName, TimeoutId
from migrator.stores.documents.ports import Candidate, Document, IsMeant, Mark, Unclaimable
from migrator.stores.ravendb.documents import (
    Timeout,
    Unreadable,
    candidate_of,
    document_of,
    is_hidden,
    is_marked,
    owner_of,
    timeout_of,
    unclaimable_of,
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

NO_OWNER: Final = EndpointName("(no owner)")
"""How timeouts are listed that name no endpoint, while no endpoint is said to own them."""
COLLECTIONS: Final = ("TimeoutDatas", "TimeoutData")
"""By default, and by the older convention that some databases have kept."""
_LOOKS: Final = 3
"""How often what is due next is looked for while others take it."""
_VENDOR_STATE: Final = "TimeoutMigrationTool/State"
_VENDOR_BATCHES: Final = "batch/"
_FAMILIES: Final[dict[str, Callable[[], Family]]] = {"3.5": Classic, "4": Modern}
_LOOKED_AT: Final = 32
"""Documents at each end."""
_SHARD: Final = "$"
"""Between the name of a database and the number of a shard; no name of a database may have it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RavenOptions:
    """What an operator may say about where the timeouts are."""

    server: ServerSettings
    version: str = "auto"
    """``3.5``, ``4`` (and later), or ``auto``: the server is asked."""
    collections: Sequence[str] = COLLECTIONS
    prefixes: Sequence[str] = ()
    """What ids begin with; empty: each collection's name and a slash."""
    unowned: str | None = None
    """The endpoint that documents without an owner belong to; None: nobody may take them."""


class RavenStore:
    """Implements ``DocumentStore``."""

    kind: Final = "ravendb"

    def __init__(
        self, options: RavenOptions, monotonic_s: Callable[[], float] = time.monotonic
    ) -> None:
        """Connect when first asked.

        Raises:
            ConfigError: The address or a certificate cannot be used.
        """
        self._options = options
        self._http = RavenHttp(options.server)
        self._prefixes = _disjoint(options.prefixes or [f"{c}/" for c in options.collections])
        self._collections = frozenset(name.lower() for name in options.collections)
        self._soonest = SoonestEntries(self._listed_pages, monotonic_s)

    def close(self) -> None:
        """Close the connections."""
        self._http.close()

    def source_of(self, name: str) -> str:
        """Return where timeouts of *name* are; see ``DocumentStore``.

        The server belongs to it: in a database that merely has the same name, nothing that was
        claimed would be found, and it would be taken for somebody else's.
        """
        return f"{self._http.host}/{self._options.server.database}:{name}"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

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
    ) -> Iterator[Sequence[Candidate | Unclaimable]]:
        """Yield the live timeouts of *endpoint*; see ``DocumentStore``.

        Sizes are always known.
        """
        del with_sizes
        owner = self._owner(endpoint)
        for page in self._raw_pages():
            found = [_listed(raw) for raw in page if self._is_live(raw, owner)]
            if found:
                yield found

    def soonest(
        self,
        endpoint: StoreEndpoint,
        *,
        due_after: datetime | None,
        due_until: datetime,
        at_most: int,
    ) -> Sequence[Candidate]:
        """Return what is due next; see ``DocumentStore``, and ``soonest`` beside this file.

        Raises:
            StoreError: Nobody is said to own these documents.
        """
        self._require_owner(endpoint)
        found: Sequence[Candidate] = ()
        for _ in range(_LOOKS):
            found, has_gone = self._look(endpoint, due_after, due_until, at_most)
            if len(found) >= at_most or not has_gone:
                break  # else there may be more behind what was remembered, and is not there
        return found

    def _look(
        self,
        endpoint: StoreEndpoint,
        due_after: datetime | None,
        due_until: datetime,
        at_most: int,
    ) -> tuple[Sequence[Candidate], bool]:
        """Return what is still there of what is thought to be due next, and was anything not?"""
        owner = self._owner(endpoint)
        entries = iter(self._soonest.between(owner, due_after, due_until, at_most))
        found: list[Candidate] = []
        has_gone = False
        while len(found) < at_most and (asked := list(islice(entries, at_most - len(found)))):
            live = {
                (timeout.due_at, TimeoutId(timeout.raw.id)): timeout
                for timeout in self._by_id(endpoint, [id_ for _, id_ in asked])
            }
            found += (candidate_of(live[entry]) for entry in asked if entry in live)
            gone = [entry[1] for entry in asked if entry not in live]
            self._soonest.drop(owner, gone)
            has_gone = has_gone or bool(gone)
        return found, has_gone

    def read(self, endpoint: StoreEndpoint, ids: Collection[TimeoutId]) -> Iterator[Document]:
        """Yield what is still there of *ids*; see ``DocumentStore``."""
        yield from map(document_of, self._by_id(endpoint, ids))

    def take(
        self, endpoint: StoreEndpoint, mark: Mark, documents: Sequence[Document]
    ) -> Collection[TimeoutId]:
        """Remove what is unchanged; see ``DocumentStore``."""
        self._require_owner(endpoint)
        taken = self._receipts.take(mark, documents)
        self._soonest.drop(self._owner(endpoint), taken)
        return taken

    def put_back(
        self,
        endpoint: StoreEndpoint,
        mark: Mark,
        documents: Sequence[Document],
        *,
        is_meant: IsMeant,
    ) -> Collection[TimeoutId]:
        """Store documents again; see ``DocumentStore``."""
        self._owner(endpoint)
        restored = self._receipts.put_back(mark, documents, is_meant)
        self._soonest.forget()
        return restored

    def forget(self, endpoint: StoreEndpoint, mark: Mark, ids: Collection[TimeoutId]) -> None:
        """Remove the evidence; see ``DocumentStore``."""
        self._owner(endpoint)
        self._receipts.forget(mark, ids)

    def probe(self, endpoint: StoreEndpoint) -> None:
        """Prove the rights that a claim needs; see ``DocumentStore``.

        Reads a page, and removes a document that never existed.
        """
        self._require_owner(endpoint)
        self._refuse_what_cannot_be_claimed()
        next(iter(self._raw_pages()), None)
        self._receipts.probe()

    def unfinished_vendor_runs(self) -> Sequence[str]:
        """Return what a run of the vendor's tool left; see ``DocumentStore``.

        Looks at every document: hidden ones may be left although the tool's own are gone.
        """
        found = [
            f"document {each.id}: a run of the vendor's tool for endpoint "
            f"{str(each.content.get('Endpoint'))[:200]!r} is open"
            for each in self._reader.by_id((_VENDOR_STATE,))
        ]
        batches = sum(len(page) for page in self._reader.pages(_VENDOR_BATCHES))
        if batches:
            found.append(f"{batches} documents {_VENDOR_BATCHES}…: batches of the vendor's tool")
        hidden = sum(is_hidden(owner_of(raw)) for page in self._raw_pages() for raw in page)
        if hidden:
            found.append(f"{hidden} timeouts are hidden by the vendor's tool")
        return found

    # ── whose is it ─────────────────────────────────────────────────────────────────────────

    def _claimant(self, owner: str) -> str:
        return owner or self._options.unowned or NO_OWNER

    def _owner(self, endpoint: StoreEndpoint) -> str:
        before = self.source_of("")
        if not endpoint.source.startswith(before):
            raise SourceElsewhere(
                f"{endpoint.source!r} is not in {self._http.where}, where store.url and "
                "store.ravendb.database point now; nothing was changed"
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
                    entries.append((owner, (timeout.due_at, TimeoutId(raw.id))))
            yield ListedPage(documents=len(page), entries=entries)

    def _refuse_what_cannot_be_claimed(self) -> None:
        refuse_shards(self._http, self._family)
        refuse_strays(self._http, self._family, self._options.collections, self._prefixes)

    def _raw_pages(self) -> Iterator[Sequence[RawDocument]]:
        for prefix in self._prefixes:
            for page in self._reader.pages(prefix):
                yield [raw for raw in page if raw.collection.lower() in self._collections]

    def _by_id(self, endpoint: StoreEndpoint, ids: Collection[TimeoutId]) -> Iterator[Timeout]:
        owner = self._owner(endpoint)
        for raw in self._reader.by_id(ids):
            if (timeout := self._live(raw, owner)) is not None:
                yield timeout

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
                f"{self._http.where}: the server's version cannot be told ({exc}); "
                "set store.ravendb.version"
            ) from exc

    @cached_property
    def _reader(self) -> RavenReader:
        return RavenReader(self._http, self._family)

    @cached_property
    def _receipts(self) -> Receipts:
        return Receipts(self._http, self._family, self._reader)


def _listed(raw: RawDocument) -> Candidate | Unclaimable:
    try:
        return candidate_of(timeout_of(raw))
    except Unreadable as exc:
        return unclaimable_of(raw, exc)


def _disjoint(prefixes: Sequence[str]) -> Sequence[str]:
    """Return *prefixes* without those that another one covers: nothing shall be listed twice."""
    kept: list[str] = []
    for prefix in sorted(prefixes, key=str.lower):
        if not kept or not prefix.lower().startswith(kept[-1].lower()):
            kept.append(prefix)
    return kept


def refuse_strays(
    http: RavenHttp, family: Family, collections: Sequence[str], prefixes: Sequence[str]
) -> None:
    """Refuse collections that have ids with none of *prefixes*; a 3.5 server cannot be asked.

    Raises:
        StoreError: There are such; names one and the setting.
        StoreUnavailable: No answer.
    """
    known = tuple(prefix.lower() for prefix in prefixes)
    for collection in collections:
        for raw in _ends_of(http, family, collection):
            if not raw.id.lower().startswith(known):
                raise StoreError(
                    f"{http.where}: {raw.id[:200]!r} is in collection {collection!r} and begins "
                    f"with none of {', '.join(prefixes)}; say in store.ravendb.prefixes what ids "
                    "begin with"
                )


def _ends_of(http: RavenHttp, family: Family, collection: str) -> Sequence[RawDocument]:
    first, total = _part_of(http, family, collection, 0)
    if total <= _LOOKED_AT:
        return first
    last, _ = _part_of(http, family, collection, total - _LOOKED_AT)
    return [*first, *last]


def _part_of(
    http: RavenHttp, family: Family, collection: str, start: int
) -> tuple[Sequence[RawDocument], int]:
    request = family.part_of_collection(collection, start=start, size=_LOOKED_AT)
    if request is None:
        return (), 0

    def work() -> Any:
        return http.send(request)

    answer = retrying(work)
    try:
        found = family.documents(answer)
    except BadAnswer as exc:
        raise StoreError(
            f"{http.where}: not an answer of version {family.name}: {exc}; "
            "check store.ravendb.version"
        ) from exc
    total = answer.get("TotalResults")
    return found, total if isinstance(total, int) else len(found)


def refuse_shards(http: RavenHttp, family: Family) -> None:
    """Refuse a sharded database; before 6 there are none.

    What the server does not want to tell is left to the next request, which says what is wrong.

    Raises:
        StoreError: It has shards, or is one.
        StoreUnavailable: No answer.
    """
    if not isinstance(family, Modern):
        return
    try:
        told = retrying(http.names)
    except StoreUnavailable:
        raise
    except StoreError:
        return
    if any(_SHARD in name for name in _names_in(told)):
        raise StoreError(
            f"{http.where} is sharded: a claim would be no single transaction there, and timeouts "
            "could be lost; nothing was changed. Move it to a database without shards first"
        )


def _names_in(told: Any) -> list[str]:
    listed = told.get("Databases") if isinstance(told, dict) else None
    return [each for each in listed if isinstance(each, str)] if isinstance(listed, list) else []
