"""Reads documents by id and by prefix, and finds those that are due next, with bounded memory.

A page is requested behind an id, the *anchor*. RavenDB 3.x, 4.0 and 4.1 seek the anchor, take the
next id if it is gone, and then skip what they found: if the anchor was removed, an unseen document
is left out. So the anchor is the last id but one, and a page counts only if it begins with a known
id: what was skipped is no later than that. Else an earlier anchor is tried, and at last none.
Source: seen on 4.1, and in the published sources of 3.x and 4.0; 5.4, 6.2 and 7.0 compare first.

An index could sort by due time but lags behind its documents, so a new timeout could be missed
without notice. So the documents themselves are listed, and the soonest are remembered for a while:
one listing of a large collection serves many claims.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Collection, Container, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from migrator.database.failures import retrying
from migrator.errors import StoreError
from migrator.stores.documents.ports import DueRange, Entry
from migrator.stores.documents.soonest import RecentListings
from migrator.stores.ravendb.families import BadAnswer, Family, RawDocument, Request
from migrator.stores.ravendb.http import (
    ANSWER_BYTES,
    ONE_DOCUMENT_BYTES,
    AnswerTooLarge,
    RavenHttp,
)

SMALLEST_PAGE: Final = 2
"""A page repeats a document of the one before."""
_FURTHER_BACK: Final = 8
"""How many times further back the next anchor is, where one was removed."""
PAGE_DOCUMENTS: Final = 1024
"""A 3.5 server gives no more, whatever is asked for."""
KEPT_ENTRIES: Final = 200_000
"""Of all endpoints together; about 40 MB, and twice that while listing."""
SMALL_COLLECTION: Final = 2_000
"""So many documents are listed again each time; what is larger is remembered."""
_AGE_FACTOR: Final = 10
"""What took a second to list is remembered for ten: listing takes a tenth of the time at most."""
_BEGINNING: Final = datetime.min.replace(tzinfo=UTC)
_TICK: Final = timedelta(microseconds=1)
ListedPage = tuple[int, Sequence[tuple[str, Entry]]]
"""How many documents a page had, timeouts or not; and of each live timeout whose it is."""


class DoesNotPageError(ValueError):
    """A page is not behind its anchor: the listing would never end."""


class Listing:
    """How far a listing has come."""

    def __init__(self) -> None:
        self.is_done = False
        self._came: Sequence[str] = ()
        """The ids of the last page that counted, in order."""
        self._places: Mapping[str, int] = {}
        """Where in it an id is, by the id in lower case, as servers compare."""
        self._back = 1
        self._told = ""
        """The last id that was told, in lower case."""
        self._is_behind = False
        """Whether it went back, and has not come to what was not told yet."""

    @property
    def after(self) -> str | None:
        """The anchor of the next page; None: it begins at the beginning."""
        at = self._anchor
        return self._came[at] if at >= 0 else None

    @property
    def _anchor(self) -> int:
        return len(self._came) - 1 - self._back

    def add(self, page: Sequence[RawDocument]) -> Sequence[RawDocument]:
        if self.after is not None and not self._counts(page):
            self._go_back()
            return ()
        self._is_behind |= self.after is None or self._back > 1
        new = [raw for raw in page if raw.id.lower() not in self._places]
        self.is_done = not new and self._back == 1
        self._came = [raw.id for raw in page]
        self._places = {id_.lower(): place for place, id_ in enumerate(self._came)}
        self._back = 1
        return self._untold(page if self._is_behind else new)

    def _counts(self, page: Sequence[RawDocument]) -> bool:
        place = self._places.get(page[0].id.lower()) if page else None
        if place is not None and place <= self._anchor:
            raise DoesNotPageError(f"{page[0].id!r} was listed twice")
        return place is not None

    def _go_back(self) -> None:
        self._back *= _FURTHER_BACK
        if self._anchor < 0:  # all that is known may be gone
            self._came, self._places, self._back = (), {}, 1

    def _untold(self, found: Sequence[RawDocument]) -> Sequence[RawDocument]:
        if self._is_behind:
            found = [raw for raw in found if raw.id.lower() > self._told]
        if found:
            self._is_behind = False
            self._told = found[-1].id.lower()
        return found


class RavenReader:
    """Reads of one database; each is tried again a little later while there is no answer."""

    def __init__(self, http: RavenHttp, family: Family) -> None:
        self._http = http
        self._family = family

    def pages(self, prefix: str) -> Iterator[Sequence[RawDocument]]:
        """Yield all documents whose id starts with *prefix*, in pages, in the order of ids.

        A removed document makes it skip no other. Pages are smaller if documents are large.

        Raises:
            StoreError: Two documents alone are too large, or the server does not page.
        """
        listing = Listing()
        size = PAGE_DOCUMENTS // 4
        while not listing.is_done:
            try:
                page = self._page(prefix, listing.after, size)
            except AnswerTooLarge:
                if size == SMALLEST_PAGE:
                    raise StoreError(
                        f"{self._http.where}: the two documents behind {listing.after or prefix!r} "
                        f"have more than {ONE_DOCUMENT_BYTES} bytes"
                    ) from None
                size = max(size // 4, SMALLEST_PAGE)
                continue
            try:
                new = listing.add(page)
            except DoesNotPageError as exc:
                raise StoreError(f"{self._http.where} does not return pages: {exc}") from exc
            if new:
                yield new
            size = min(size * 2, PAGE_DOCUMENTS)

    def _page(self, prefix: str, after: str | None, size: int) -> list[RawDocument]:
        bound = ONE_DOCUMENT_BYTES if size == SMALLEST_PAGE else ANSWER_BYTES
        return self._documents(self._family.page(prefix, after=after, size=size), bound)

    def by_id(self, ids: Collection[str]) -> Iterator[RawDocument]:
        for request in self._family.reads(tuple(ids)):
            asked = _ids_of(request)
            try:
                found = {each.id: each for each in self._documents(request, ANSWER_BYTES)}
            except AnswerTooLarge:
                yield from self._one_by_one(asked)
            else:
                yield from (found[each] for each in asked if each in found)

    def _one_by_one(self, ids: Sequence[str]) -> Iterator[RawDocument]:
        for each in ids:
            (request,) = self._family.reads((each,))
            try:
                found = self._documents(request, ONE_DOCUMENT_BYTES)
            except AnswerTooLarge:
                raise StoreError(
                    f"{self._http.where}: {each!r} has more than {ONE_DOCUMENT_BYTES} bytes"
                ) from None
            yield from (raw for raw in found if raw.id == each)

    def _documents(self, request: Request, at_most_bytes: int) -> list[RawDocument]:
        def work() -> Any:
            return self._http.send(request, at_most_bytes=at_most_bytes)

        return self._told(retrying(work))

    def part_of(
        self, collection: str, start: int, size: int
    ) -> tuple[Sequence[RawDocument], int] | None:
        """Return some documents of a collection, and their number; None: the server cannot tell."""
        request = self._family.part_of_collection(collection, start=start, size=size)
        if request is None:
            return None
        answer = retrying(lambda: self._http.send(request))
        found, total = self._told(answer), answer.get("TotalResults")
        return found, total if isinstance(total, int) else len(found)

    def _told(self, answer: Any) -> list[RawDocument]:
        try:
            return self._family.documents(answer)
        except BadAnswer as exc:
            raise StoreError(
                f"{self._http.where}: not an answer of version {self._family.name}: {exc}; "
                "check store.ravendb.version"
            ) from exc


def _ids_of(request: Request) -> list[str]:
    body: Any = request.body
    if body is None:
        return [value for _, value in request.query]
    return list(body["Ids"] if isinstance(body, dict) else body)


class SoonestEntries:
    """The soonest entries of every endpoint; several threads may ask.

    One listing shows those of all endpoints, since all are in the same collections.
    """

    def __init__(
        self, listing: Callable[[], Iterator[ListedPage]], monotonic_s: Callable[[], float]
    ) -> None:
        self._listing = listing
        self._monotonic_s = monotonic_s
        self._lock = threading.RLock()
        self._owners: Container[str] = ()
        """Who has timeouts, as long as the last listing is remembered."""
        self._stale_at_s = 0.0
        self.recent = RecentListings(monotonic_s, most=sys.maxsize)  # what is kept is bounded here

    def between(self, owner: str, due: DueRange, at_most: int) -> Sequence[Entry]:
        """Return the *at_most* soonest entries of a range, ascending.

        What appeared since the last listing may be left out for as long as that is remembered.
        """
        with self._lock:
            found = self.recent.soonest(owner, due, at_most)
            if found is None and self._monotonic_s() < self._stale_at_s:
                found = None if owner in self._owners else ()
            return self._listed(owner, due, at_most) if found is None else found

    def forget(self) -> None:
        """List again when asked next; a listing that is under way ends before."""
        with self._lock:
            self.recent.forget()
            self._stale_at_s = 0.0

    def _listed(self, owner: str, due: DueRange, at_most: int) -> Sequence[Entry]:
        self.forget()
        began_s = self._monotonic_s()
        soonest = _Soonest(owner, due.after, at_most)
        listed = 0
        for documents, entries in self._listing():
            listed += documents
            soonest.add(entries)
        soonest.cut_down()
        if listed > SMALL_COLLECTION:
            ended_s = self._monotonic_s()
            for_s = _AGE_FACTOR * (ended_s - began_s)
            self._owners, self._stale_at_s = frozenset(soonest.entries), ended_s + for_s
            for each, kept in soonest.entries.items():
                self.recent.remember(
                    each,
                    kept,
                    after=due.after if each == owner else None,
                    complete_until=soonest.complete_until(each),
                    for_s=for_s,
                )
        return [each for each in soonest.entries.get(owner, ()) if each.due_at in due][:at_most]


class _Soonest:
    """The soonest entries of a listing that is under way, never more than a bound."""

    def __init__(self, owner: str, after: datetime | None, at_most: int) -> None:
        self._owner = owner
        self._after = after
        self._at_most = at_most
        self.entries: dict[str, list[Entry]] = {}
        """Of each endpoint; ascending once they were cut down."""
        self._last: dict[str, Entry] = {}
        """Of an endpoint that was cut: the latest entry kept. Behind it there may be a gap."""

    def add(self, entries: Iterable[tuple[str, Entry]]) -> None:
        for owner, entry in entries:
            if owner == self._owner and self._after is not None and entry.due_at <= self._after:
                continue
            if owner not in self._last or entry < self._last[owner]:
                self.entries.setdefault(owner, []).append(entry)
        if sum(map(len, self.entries.values())) > 2 * max(KEPT_ENTRIES, self._at_most):
            self.cut_down()

    def cut_down(self) -> None:
        is_too_much = sum(map(len, self.entries.values())) > KEPT_ENTRIES
        for owner, entries in self.entries.items():
            room = KEPT_ENTRIES // len(self.entries)
            room = max(room, self._at_most if owner == self._owner else 1)
            entries.sort()
            if is_too_much and len(entries) > room:
                del entries[room:]
                self._last[owner] = entries[-1]

    def complete_until(self, owner: str) -> datetime | None:
        """Return the due time up to which the entries are complete; None: unknown."""
        last = self._last.get(owner)
        if last is None:
            return datetime.max.replace(tzinfo=UTC)
        return None if last.due_at == _BEGINNING else last.due_at - _TICK
