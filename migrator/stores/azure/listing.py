"""Listing timeouts: all that live of an endpoint, and those that are due next.

Rules of this file: what is live is in the listing, even if no claim could ever take it; of each
timeout some 200 bytes are held, never a body. A partition is an hour, by default, and sorted by id:
to know the soonest of it, all of it has to be listed, once for several claims. Nothing is lost by
an old listing: a claim takes a timeout only in the version of its main entry that is read after it.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Container, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from heapq import nsmallest
from itertools import chain, islice
from typing import Final

from migrator.errors import StoreError, StoreUnavailable
from migrator.nservicebus.timeouts import TimeoutId
from migrator.stores.azure.account import Account, paged
from migrator.stores.azure.entities import GUID, OWNER, blob_name, due_of, text_of, time_of
from migrator.stores.azure.http import Entity
from migrator.stores.azure.partitions import PartitionScope
from migrator.stores.azure.reading import TimeoutReader
from migrator.stores.documents.ports import DueRange, Entry
from migrator.stores.documents.soonest import RecentListings
from migrator.stores.requests import ScannedRow

_log = logging.getLogger(__name__)
_MAIN: Final = ["PartitionKey", "Time", "StateAddress"]
_COLUMNS: Final = ["PartitionKey", "RowKey", "Time", OWNER, "Destination", "Headers"]
NO_TIME: Final = "its due time cannot be read"
Pages = Callable[[str, Mapping[str, str], Sequence[str] | None], Iterator[Sequence[Entity]]]
"""Lists entities in the order of their keys: by a condition, its parameters, and the columns that
are wanted; None: all.
"""
KEPT_ENTRIES: Final = 8_000
"""Time entries of all endpoints together; about 3 KB each, and their headers."""
_AHEAD: Final = 2
"""Claims for which one listing shall be enough."""
_KEPT_TEXT: Final = 16 * 2**20
"""Characters of their headers, together."""
KEPT_FOR_S: Final = 30.0
"""What is stored meanwhile, and due sooner, is claimed so much later at the most."""
_OLDEST_PARTITION: Final = datetime(2000, 1, 1, tzinfo=UTC)
"""Partitions before it are looked at now and then only: they sort among those of GUIDs."""
_OLDER_EVERY_S: Final = 300.0
_KEPT_FOR_S: Final = 60.0
"""A timeout manager writes the main entry last, so what looks like a leftover may become whole."""
_MOST: Final = 200_000


class LiveTimeouts:
    def __init__(
        self,
        account: Account,
        scope: PartitionScope,
        reader: TimeoutReader,
        pages: Pages,
    ) -> None:
        self._account = account
        self._scope = scope
        self._reader = reader
        self._pages = pages

    def of(self, owner: str, *, with_sizes: bool) -> Iterator[Sequence[ScannedRow]]:
        """Yield the live timeouts of *owner* in pages; see ``DocumentStore.list``.

        Raises:
            StoreError: There are timeouts that no listing would show.
        """
        mine = {"owner": owner, "none": ""}
        blob_of = dict[str, str]()
        """Of each live timeout; its keys are what is live."""
        suspects = set[str]()
        """Those of which an entry has no due time that can be read: main entries, then others."""
        for page in self._pages(f"{OWNER} eq @owner and RowKey eq @none", mine, _MAIN):
            for main in page:
                timeout = TimeoutId(main["PartitionKey"])
                blob_of[timeout] = blob_name(main, timeout)
                if due_of(main) is None:
                    suspects.add(timeout)
        if broken := frozenset(suspects):
            yield [ScannedRow(id=each, why_unclaimable=NO_TIME) for each in sorted(broken)]
        sizes = self._sizes(frozenset(blob_of.values())) if with_sizes else {}
        for page in self._pages(f"{OWNER} eq @owner and RowKey ne @none", mine, _COLUMNS):
            self.refuse_strays(page, blob_of)
            suspects |= {e["RowKey"] for e in page if due_of(e) is None and e["RowKey"] in blob_of}
            entries = [entry_of(each, self._scope) for each in page]
            found = [
                _scanned(each, sizes.get(blob_of[each.id]))
                for each in entries
                if each is not None and each.id in blob_of and each.id not in broken
            ]
            if found:
                yield found
        if left := self._without_time_entry(owner, sorted(suspects - broken)):
            yield [ScannedRow(id=each, why_unclaimable=NO_TIME) for each in left]

    def refuse_strays(self, page: Sequence[Entity], live: Container[str] | None = None) -> None:
        """Refuse time entries of live timeouts in partitions of another scope.

        Args:
            page: Entities that are no main entries.
            live: Ids that have a main entry; None: the table is asked.

        Raises:
            StoreError: There is one; names the setting.
        """
        strays = [each for each in page if self._is_stray(each)]
        if live is None:
            has_main = self._account.each(lambda each: self._reader.is_live(each["RowKey"]), strays)
            strays = [each for each, yes in zip(strays, [*has_main], strict=True) if yes]
        else:
            strays = [each for each in strays if each["RowKey"] in live]
        if strays:
            first = strays[0]
            raise StoreError(
                f"table {self._account.table}: timeout {first['RowKey'][:200]!r} is in "
                f"partition {first['PartitionKey'][:200]!r}, not in "
                f"{self._expected(first)!r}; set store.azure.partition_key_scope to "
                "what the endpoints set in code"
            )

    def _expected(self, entity: Entity) -> str | None:
        moment = time_of(entity)
        return None if moment is None else self._scope.key_of(moment)

    def _is_stray(self, entity: Entity) -> bool:
        if self._expected(entity) in (None, entity["PartitionKey"]):
            return False
        return GUID.fullmatch(entity["PartitionKey"]) is None  # else it is a saga entry

    def _without_time_entry(self, owner: str, suspects: Sequence[str]) -> Sequence[TimeoutId]:
        """Return those of *suspects* that were not listed; of the others a saga entry is odd."""
        ids = [TimeoutId(each) for each in suspects]
        has_one = self._account.each(lambda each: self._reader.has_time_entry(owner, each), ids)
        return [each for each, yes in zip(ids, has_one, strict=True) if not yes]

    def _sizes(self, names: frozenset[str]) -> Mapping[str, int]:
        """Return the sizes of blobs called *names*; empty when they may not be listed."""
        container, doing = self._account.container, "listing bodies"
        try:
            with self._account.at_container(doing):
                pages = container.list_blobs().by_page()
            return {
                blob.name: int(blob.size)
                for page in paged(pages, doing=doing, place=f"container {container.container_name}")
                for blob in page
                if blob.name in names
            }
        except StoreUnavailable:
            raise
        except StoreError as exc:
            _log.warning(
                "this user may not list bodies, so their sizes are not known",
                extra={"action": "sizes_unknown", "error": str(exc)},
            )
            return {}


def _scanned(entry: Entry, size: int | None) -> ScannedRow:
    return ScannedRow(
        id=entry.id,
        due_at=entry.due_at,
        destination=entry.destination,
        headers_text=text_of(entry.read, "Headers"),
        body_bytes=size,
    )


class SoonestEntries:
    """The soonest time entries of every endpoint; several threads may ask."""

    def __init__(
        self,
        pages: Pages,
        scope: PartitionScope,
        *,
        page: int,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._pages = pages
        self._scope = scope
        self._page = page
        self._monotonic = monotonic
        self.recent = RecentListings(monotonic, most=KEPT_ENTRIES)
        self._older_looked_s: dict[str, float] = {}
        self._gone_until_s: dict[TimeoutId, float] = {}
        """Ids that were found without a main entry: they are passed over until then."""

    def leave_out(self, ids: Collection[TimeoutId]) -> None:
        """Pass over *ids* for a while: they are not there, or have no main entry."""
        self.recent.drop(ids)
        if len(self._gone_until_s) > _MOST:
            self._gone_until_s.clear()
        self._gone_until_s.update(dict.fromkeys(ids, self._monotonic() + _KEPT_FOR_S))

    def bring_back(self, ids: Collection[TimeoutId]) -> None:
        """Name *ids* again: they are whole."""
        for each in ids:
            self._gone_until_s.pop(each, None)

    def between(self, owner: str, due: DueRange, at_most: int) -> Sequence[Entry]:
        """Return the *at_most* soonest of *owner* in a range, ascending.

        May come from a listing of a moment ago, if that has so many.
        """
        if known := self.recent.soonest(owner, due, at_most):
            return known
        found = self._listed(owner, due, at_most)
        if at_most <= KEPT_ENTRIES:
            kept = [*islice(_short_enough(found), KEPT_ENTRIES)]
            self.recent.remember(owner, kept, after=due.after, for_s=KEPT_FOR_S)
        return found[:at_most]

    def _listed(self, owner: str, due: DueRange, at_most: int) -> Sequence[Entry]:
        """Return at least the *at_most* soonest, if there are so many; ascending, without gap."""
        parts = [
            self._first({**parameters, "owner": owner}, where, due, at_most)
            for where, parameters in self._ranges(owner, due)
        ]
        found = sorted(chain.from_iterable(parts))
        # of the older ones of two parts there may be more, before the first of the other part
        return found if sum(map(bool, parts)) < 2 else found[:at_most]

    def _ranges(self, owner: str, due: DueRange) -> Iterator[tuple[str, dict[str, str]]]:
        """Yield conditions on partition keys that together cover the range."""
        if not self._scope.is_ascending:
            yield "RowKey ne @none", {"none": ""}
            return
        first = _OLDEST_PARTITION if due.after is None else due.after
        keys = {"first": self._scope.key_of(first), "last": self._scope.key_of(due.until)}
        yield "PartitionKey ge @first and PartitionKey le @last", keys
        if due.after is not None:
            return
        looked_s = self._older_looked_s.get(owner, float("-inf"))
        if self._monotonic() - looked_s >= _OLDER_EVERY_S:
            self._older_looked_s[owner] = self._monotonic()
            yield "PartitionKey lt @first and RowKey ne @none", {"first": keys["first"], "none": ""}

    def _first(
        self, parameters: Mapping[str, str], where: str, due: DueRange, at_most: int
    ) -> Sequence[Entry]:
        """Return at least the *at_most* soonest of the partitions that *where* means.

        And what else is known by then: all of each partition that was read to its end. Enough for
        the next claim, too, is read ahead: a page may cost the service a look at the whole table.
        """
        found: list[Entry] = []
        most = max(at_most, KEPT_ENTRIES)
        wanted = at_most * _AHEAD if at_most * _AHEAD <= KEPT_ENTRIES else at_most
        count = 0
        enough: str | None = None
        """The key of the partition in which there was enough; it is read to its end."""
        for page in self._pages(f"{where} and {OWNER} eq @owner", parameters, None):
            for entity in page:
                entry = entry_of(entity, self._scope)
                if entry is None or self._gone_until_s.get(entry.id, 0.0) > self._monotonic():
                    continue
                if entry.due_at in due:
                    found.append(entry)
                    count += 1
                if enough is None and self._scope.is_ascending and count >= wanted:
                    enough = entity["PartitionKey"]
            if enough is not None and page and (last := page[-1]["PartitionKey"]) != enough:
                return [each for each in found if each.read["PartitionKey"] != last]
            if len(found) > most + self._page:  # a partition, or a table, may be huge
                found = nsmallest(most, found)
        return found


def entry_of(entity: Entity, scope: PartitionScope) -> Entry | None:
    moment, due_at = time_of(entity), due_of(entity)
    if moment is None or due_at is None or entity["PartitionKey"] != scope.key_of(moment):
        return None
    destination = text_of(entity, "Destination")
    return Entry(
        due_at=due_at, id=TimeoutId(entity["RowKey"]), destination=destination, read=entity
    )


def _short_enough(entries: Iterable[Entry]) -> Iterator[Entry]:
    """Yield the first of *entries*, until their headers are too long to be remembered."""
    length = 0
    for each in entries:
        length += len(text_of(each.read, "Headers") or "")
        if length > _KEPT_TEXT:
            return
        yield each
