"""Finds what is due next by looking at every document, with bounded memory.

RavenDB could sort by due time only with an index, and an index lags behind its documents: asked
for what is due next, it may leave out what was just stored, and nobody would notice. So the
documents themselves are listed, and the soonest are kept. What a large collection costs to list
is spent once for many claims: ids and due times are remembered for a while.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Final

from migrator.nservicebus.timeouts import TimeoutId

KEPT_ENTRIES: Final = 200_000
"""Of all endpoints together; about 40 MB, and twice that while listing."""
SMALL_COLLECTION: Final = 2_000
"""So many documents are listed again each time; what is larger is remembered."""
_AGE_FACTOR: Final = 10
"""What took a second to list is remembered for ten: listing takes a tenth of the time at most."""
_BEGINNING: Final = datetime.min.replace(tzinfo=UTC)

Entry = tuple[datetime, TimeoutId]
"""Due time and id; they sort as they shall be claimed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedPage:
    """A page of documents, of all endpoints."""

    documents: int
    """How many it had, timeouts or not."""
    entries: Sequence[tuple[str, Entry]]
    """Of each live timeout its endpoint, and when it is due."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Known:
    """The soonest entries of an endpoint behind a moment, as one listing showed them."""

    after: datetime | None
    entries: Sequence[Entry]
    """Ascending."""
    is_all: bool
    """False: there are later ones, too."""

    def answers(self, after: datetime | None, until: datetime, at_most: int) -> bool:
        """Return whether a listing now would show nothing else but what is new."""
        if (after or _BEGINNING) < (self.after or _BEGINNING):
            return False
        if self.is_all or (self.entries and self.entries[-1][0] > until):
            return True
        return len(self.between(after, until)) >= at_most

    def between(self, after: datetime | None, until: datetime) -> list[Entry]:
        """Return the entries of a range, ascending; *after* is exclusive, *until* inclusive."""
        return [
            entry
            for entry in self.entries
            if (after is None or entry[0] > after) and entry[0] <= until
        ]


_NOTHING: Final = _Known(after=None, entries=(), is_all=True)


class SoonestEntries:
    """The soonest entries of every endpoint; several threads may ask.

    One listing shows those of all endpoints, since all are in the same collections.
    """

    def __init__(
        self, listing: Callable[[], Iterator[ListedPage]], monotonic_s: Callable[[], float]
    ) -> None:
        """List with *listing*, in any order."""
        self._listing = listing
        self._monotonic_s = monotonic_s
        self._lock = threading.Lock()
        self._known: dict[str, _Known] = {}
        self._stale_at_s = 0.0

    def between(
        self, endpoint: str, after: datetime | None, until: datetime, at_most: int
    ) -> Sequence[Entry]:
        """Return the soonest entries of a range, ascending; at least *at_most*, if there are.

        What appeared since the last listing may be left out for as long as that is remembered.
        """
        with self._lock:
            if self._known and self._monotonic_s() < self._stale_at_s:
                known = self._known.get(endpoint, _NOTHING)
                if known.answers(after, until, at_most):
                    return known.between(after, until)
            return self._listed(endpoint, after, at_most).between(after, until)

    def drop(self, endpoint: str, ids: Collection[TimeoutId]) -> None:
        """Remember that *ids* are gone."""
        with self._lock:
            if (known := self._known.get(endpoint)) is not None:
                gone = frozenset(ids)
                left = [entry for entry in known.entries if entry[1] not in gone]
                self._known[endpoint] = replace(known, entries=left)

    def forget(self) -> None:
        """List again when asked next."""
        with self._lock:
            self._known = {}

    def _listed(self, endpoint: str, after: datetime | None, at_most: int) -> _Known:
        began_s = self._monotonic_s()
        self._known = {}
        kept = _Kept(endpoint, after, at_most)
        listed = 0
        for page in self._listing():
            listed += page.documents
            kept.add(page.entries)
        found = kept.known()
        if listed > SMALL_COLLECTION:
            self._known = found
            ended_s = self._monotonic_s()
            self._stale_at_s = ended_s + _AGE_FACTOR * (ended_s - began_s)
        return found.get(endpoint, _NOTHING)


class _Kept:
    """The soonest entries of a listing that is under way, never more than a bound."""

    def __init__(self, endpoint: str, after: datetime | None, at_most: int) -> None:
        """Of *endpoint* only those behind *after*, and at least *at_most*."""
        self._endpoint = endpoint
        self._after = after
        self._at_most = at_most
        self._entries: dict[str, list[Entry]] = {}
        self._last: dict[str, Entry] = {}
        """Of an endpoint that was cut: the latest entry kept. Behind it there may be a gap."""
        self._count = 0

    def add(self, entries: Sequence[tuple[str, Entry]]) -> None:
        """Take in the entries of a page."""
        for endpoint, entry in entries:
            if self._is_wanted(endpoint, entry):
                self._entries.setdefault(endpoint, []).append(entry)
                self._count += 1
        if self._count > 2 * max(KEPT_ENTRIES, self._at_most):
            self._cut_down()

    def _is_wanted(self, endpoint: str, entry: Entry) -> bool:
        if endpoint == self._endpoint and self._after is not None and entry[0] <= self._after:
            return False
        last = self._last.get(endpoint)
        return last is None or entry < last

    def known(self) -> dict[str, _Known]:
        """Return what is known of each endpoint."""
        self._cut_down()
        return {
            endpoint: _Known(
                after=self._after if endpoint == self._endpoint else None,
                entries=entries,
                is_all=endpoint not in self._last,
            )
            for endpoint, entries in self._entries.items()
        }

    def _cut_down(self) -> None:
        share = KEPT_ENTRIES // max(len(self._entries), 1)
        for endpoint, entries in self._entries.items():
            room = max(share, self._at_most if endpoint == self._endpoint else 1)
            entries.sort()
            if len(entries) > room and self._count > KEPT_ENTRIES:
                del entries[room:]
                self._last[endpoint] = entries[-1]
        self._count = sum(map(len, self._entries.values()))
