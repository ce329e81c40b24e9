"""Finds what is due next by looking at every document, with bounded memory.

RavenDB could sort by due time only with an index, and an index lags behind its documents: asked
for what is due next, it may leave out what was just stored, and nobody would notice. So the
documents themselves are listed, and the soonest are kept. What a large collection costs to list
is spent once for many claims: ids and due times are remembered for a while.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from migrator.domain.timeouts import TimeoutId

KEPT_ENTRIES: Final = 100_000
"""About 20 MB."""
SMALL_COLLECTION: Final = 2_000
"""So many documents are listed again each time; what is larger is remembered."""
_AGE_FACTOR: Final = 10
"""What took a second to list is remembered for ten: listing takes a tenth of the time at most."""
_BEGINNING: Final = datetime.min.replace(tzinfo=UTC)

Entry = tuple[datetime, TimeoutId]
"""Due time and id; they sort as they shall be claimed."""
Listing = Callable[[], Iterator[Sequence[Entry]]]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Known:
    """The soonest entries behind a moment, as one listing showed them."""

    after: datetime | None
    entries: Sequence[Entry]
    """Ascending."""
    is_all: bool
    """False: there are later ones, too."""
    listed: int
    stale_at_s: float

    def answers(self, after: datetime | None, until: datetime, at_most: int, now_s: float) -> bool:
        """Return whether a listing now would show nothing else but what is new."""
        if now_s >= self.stale_at_s or (after or _BEGINNING) < (self.after or _BEGINNING):
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


class SoonestEntries:
    """The soonest entries of one endpoint; several threads may ask."""

    def __init__(self, listing: Listing, monotonic_s: Callable[[], float]) -> None:
        """List with *listing*, which yields the endpoint's entries in any order."""
        self._listing = listing
        self._monotonic_s = monotonic_s
        self._lock = threading.Lock()
        self._known: _Known | None = None

    def between(self, after: datetime | None, until: datetime, at_most: int) -> Sequence[Entry]:
        """Return the soonest entries of a range, ascending; at least *at_most*, if there are.

        What appeared since the last listing may be left out for as long as that is remembered.
        """
        with self._lock:
            known = self._known
            if known is None or not known.answers(after, until, at_most, self._monotonic_s()):
                known = self._listed(after, max(at_most, KEPT_ENTRIES))
                self._known = known if known.listed > SMALL_COLLECTION else None
            return known.between(after, until)

    def drop(self, ids: Collection[TimeoutId]) -> None:
        """Remember that *ids* are gone."""
        with self._lock:
            if self._known is None or not ids:
                return
            known, gone = self._known, frozenset(ids)
            self._known = _Known(
                after=known.after,
                entries=[entry for entry in known.entries if entry[1] not in gone],
                is_all=known.is_all,
                listed=known.listed,
                stale_at_s=known.stale_at_s,
            )

    def forget(self) -> None:
        """List again when asked next."""
        with self._lock:
            self._known = None

    def _listed(self, after: datetime | None, kept: int) -> _Known:
        began_s = self._monotonic_s()
        entries: list[Entry] = []
        listed, is_all = 0, True
        for page in self._listing():
            listed += len(page)
            entries += (entry for entry in page if after is None or entry[0] > after)
            if len(entries) > 2 * kept:
                entries, is_all = sorted(entries)[:kept], False
        if len(entries) > kept:
            is_all = False
        ended_s = self._monotonic_s()
        return _Known(
            after=after,
            entries=sorted(entries)[:kept],
            is_all=is_all,
            listed=listed,
            stale_at_s=ended_s + _AGE_FACTOR * (ended_s - began_s),
        )
