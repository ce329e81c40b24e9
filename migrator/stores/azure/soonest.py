"""Finds the time entries that are due next, and remembers for a moment what a listing showed.

A partition is an hour, by default, and sorted by id: to know the soonest of it, all of it has to
be listed. What that costs is spent once for several claims. Nothing is lost by an old listing: a
claim takes a timeout only in the version of its main entry that is read after it.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from heapq import nsmallest
from itertools import chain, islice
from typing import Any, Final

from migrator.nservicebus.timeouts import TimeoutId
from migrator.stores.azure.entities import OWNER, due_of, text_of
from migrator.stores.azure.leftovers import Leftovers
from migrator.stores.azure.partitions import PartitionScope

KEPT_ENTRIES: Final = 8_000
"""Time entries of all endpoints together; about 3 KB each, and their headers."""
_KEPT_TEXT: Final = 16 * 2**20
"""Characters of their headers, together."""
KEPT_FOR_S: Final = 30.0
"""What is stored meanwhile, and due sooner, is claimed so much later at the most."""
_OLDEST_PARTITION: Final = datetime(2000, 1, 1, tzinfo=UTC)
"""Partitions before it are looked at now and then only: they sort among those of GUIDs."""
_OLDER_EVERY_S: Final = 300.0

Pages = Callable[[str, Mapping[str, str]], Iterator[Sequence[Any]]]
"""Lists entities by a condition and its parameters, in the order of their keys."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """A time entry and when it is due."""

    due_at: datetime
    """Aware, UTC."""
    id: TimeoutId
    entity: Any
    """As Azure's client read it, whole."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Listing:
    """The soonest entries of an endpoint behind a moment, as they were listed."""

    owner: str
    after: datetime | None
    """Exclusive; None: from the first of all."""
    until_s: float
    """When it is too old, by the monotonic clock."""
    entries: dict[TimeoutId, Entry]
    """Ascending; those that are gone are taken out."""

    def covers(self, after: datetime | None) -> bool:
        """Return whether what is due right behind *after* was listed."""
        return self.after is None or (after is not None and self.after <= after)

    def between(self, after: datetime | None, until: datetime) -> Iterator[Entry]:
        """Yield the entries of a range, ascending."""
        return (each for each in self.entries.values() if _is_between(each, after, until))


class SoonestEntries:
    """The soonest time entries of every endpoint; several threads may ask."""

    def __init__(
        self,
        pages: Pages,
        scope: PartitionScope,
        leftovers: Leftovers,
        *,
        page: int,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        """List by *pages* of *page* entities; *leftovers* are passed over."""
        self._pages = pages
        self._scope = scope
        self._leftovers = leftovers
        self._page = page
        self._monotonic = monotonic
        self._lock = threading.Lock()
        self._listings: deque[_Listing] = deque()
        self._older_looked_s: dict[str, float] = {}

    def between(
        self, owner: str, due_after: datetime | None, due_until: datetime, at_most: int
    ) -> Sequence[Entry]:
        """Return the *at_most* soonest of *owner* in a range, ascending.

        May come from a listing of a moment ago, if that has so many. A look for a single one never
        does: how long it takes is what the throttle measures.
        """
        if at_most > 1 and (known := self._known(owner, due_after, due_until, at_most)):
            return known
        found = self._listed(owner, due_after, due_until, at_most)
        if 1 < at_most <= KEPT_ENTRIES:
            self._remember(owner, due_after, found)
        return found[:at_most]

    def entity(self, owner: str, timeout: TimeoutId) -> Any:
        """Return a time entry as a listing of a moment ago showed it; None: none did."""
        with self._lock:
            for listing in self._fresh(owner):
                if (found := listing.entries.get(timeout)) is not None:
                    return found.entity
        return None

    def drop(self, ids: Collection[TimeoutId]) -> None:
        """Forget *ids*: they are not there any more."""
        with self._lock:
            for listing in self._listings:
                for each in ids:
                    listing.entries.pop(each, None)

    # ── remembering ─────────────────────────────────────────────────────────────────────────

    def _fresh(self, owner: str) -> Sequence[_Listing]:
        now_s = self._monotonic()
        while self._listings and self._listings[0].until_s <= now_s:
            self._listings.popleft()
        return [each for each in self._listings if each.owner == owner and each.until_s > now_s]

    def _known(
        self, owner: str, due_after: datetime | None, due_until: datetime, at_most: int
    ) -> Sequence[Entry]:
        """Return so many entries from a listing, or none at all."""
        with self._lock:
            for listing in self._fresh(owner):
                if listing.covers(due_after):
                    found = list(islice(listing.between(due_after, due_until), at_most))
                    if len(found) == at_most:
                        return found
        return ()

    def _remember(self, owner: str, due_after: datetime | None, found: Sequence[Entry]) -> None:
        kept: dict[TimeoutId, Entry] = {}
        text = 0
        for each in found[:KEPT_ENTRIES]:
            text += len(text_of(each.entity, "Headers") or "")
            if text > _KEPT_TEXT:
                break
            kept[each.id] = each
        listing = _Listing(
            owner=owner,
            after=due_after,
            until_s=self._monotonic() + KEPT_FOR_S,
            entries=kept,
        )
        with self._lock:
            self._listings.append(listing)
            while sum(len(each.entries) for each in self._listings) > KEPT_ENTRIES:
                self._listings.popleft()

    # ── listing ─────────────────────────────────────────────────────────────────────────────

    def _listed(
        self, owner: str, due_after: datetime | None, due_until: datetime, at_most: int
    ) -> Sequence[Entry]:
        """Return at least the *at_most* soonest, if there are so many; ascending, without gap."""
        parts = [
            self._first(owner, where, parameters, due_after, due_until, at_most)
            for where, parameters in self._ranges(owner, due_after, due_until)
        ]
        found = sorted(chain.from_iterable(parts), key=_order)
        # of the older ones of two parts there may be more, before the first of the other part
        return found if sum(map(bool, parts)) < 2 else found[:at_most]

    def _ranges(
        self, owner: str, due_after: datetime | None, due_until: datetime
    ) -> Iterator[tuple[str, dict[str, str]]]:
        """Yield conditions on partition keys that together cover the range."""
        if not self._scope.is_ascending:
            yield "RowKey ne @none", {"none": ""}
            return
        first = _OLDEST_PARTITION if due_after is None else due_after
        keys = {"first": self._scope.key_of(first), "last": self._scope.key_of(due_until)}
        yield "PartitionKey ge @first and PartitionKey le @last", keys
        if due_after is not None:
            return
        looked_s = self._older_looked_s.get(owner, float("-inf"))
        if self._monotonic() - looked_s >= _OLDER_EVERY_S:
            self._older_looked_s[owner] = self._monotonic()
            yield "PartitionKey lt @first and RowKey ne @none", {"first": keys["first"], "none": ""}

    def _first(
        self,
        owner: str,
        where: str,
        parameters: Mapping[str, str],
        due_after: datetime | None,
        due_until: datetime,
        at_most: int,
    ) -> Sequence[Entry]:
        """Return at least the *at_most* soonest of the partitions that *where* means."""
        found: list[Entry] = []
        most = max(at_most, KEPT_ENTRIES)
        count = 0
        enough: str | None = None
        """The key of the partition in which there was enough; it is read to its end."""
        condition = f"{where} and {OWNER} eq @owner"
        for page in self._pages(condition, {**parameters, "owner": owner}):
            for entity in page:
                if enough is not None and entity["PartitionKey"] != enough:
                    return found
                entry = entry_of(entity, self._scope)
                if entry is None or entry.id in self._leftovers:
                    continue
                if _is_between(entry, due_after, due_until):
                    found.append(entry)
                    count += 1
                if enough is None and self._scope.is_ascending and count >= at_most:
                    enough = entity["PartitionKey"]
            if len(found) > most + self._page:  # a partition, or a table, may be huge
                found = nsmallest(most, found, key=_order)
        return found


def entry_of(entity: Any, scope: PartitionScope) -> Entry | None:
    """Return *entity* as a time entry; None: it is none, or is not where one of its time is."""
    due_at = due_of(entity)
    if due_at is None or entity["PartitionKey"] != scope.key_of(entity["Time"]):
        return None
    return Entry(due_at=due_at, id=TimeoutId(entity["RowKey"]), entity=entity)


def _is_between(entry: Entry, after: datetime | None, until: datetime) -> bool:
    """*after* is exclusive, *until* inclusive."""
    return (after is None or entry.due_at > after) and entry.due_at <= until


def _order(entry: Entry) -> tuple[datetime, TimeoutId]:
    """Return how entries sort: as they are to be claimed."""
    return entry.due_at, entry.id
