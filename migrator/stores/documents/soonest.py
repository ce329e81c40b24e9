"""What listings of a while ago showed: one listing of the soonest serves several claims.

To know the soonest of a document store, a partition or a whole collection has to be listed. Nothing
is lost by an old listing: a claim takes a timeout only as it is when it is read again. What was
stored since, and is due sooner, is claimed so much later at the most.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import islice

from migrator.nservicebus.timeouts import TimeoutId
from migrator.stores.documents.ports import DueRange, Entry


@dataclass(frozen=True, slots=True, kw_only=True)
class _Listing:
    """The soonest entries of an endpoint behind a moment, as they were listed."""

    owner: str
    after: datetime | None
    """Exclusive; None: from the first of all."""
    complete_until: datetime | None
    """All that was due until then is among the entries; None: only that they leave no gap."""
    until_s: float
    """When it is too old, by the monotonic clock."""
    entries: dict[TimeoutId, Entry]
    """Ascending; those that are gone are taken out."""

    def within(self, due: DueRange, at_most: int) -> Sequence[Entry] | None:
        """Return the soonest of a range; None: another listing might show more."""
        if self.after is not None and (due.after is None or due.after < self.after):
            return None
        found = list(islice((e for e in self.entries.values() if e.due_at in due), at_most))
        is_complete = self.complete_until is not None and due.until <= self.complete_until
        return found if is_complete or len(found) == at_most else None


class RecentListings:
    def __init__(self, monotonic_s: Callable[[], float], *, most: int) -> None:
        self._monotonic_s = monotonic_s
        self._most = most
        self._lock = threading.Lock()
        self._listings: deque[_Listing] = deque()

    def soonest(self, owner: str, due: DueRange, at_most: int) -> Sequence[Entry] | None:
        """Return the *at_most* soonest of *owner* in a range, ascending; None: list again."""
        with self._lock:
            found = (each.within(due, at_most) for each in self._fresh() if each.owner == owner)
            return next((each for each in found if each is not None), None)

    def entry(self, owner: str, timeout: TimeoutId) -> Entry | None:
        with self._lock:
            listings = [each for each in self._fresh() if each.owner == owner]
        return next((found for each in listings if (found := each.entries.get(timeout))), None)

    def remember(
        self,
        owner: str,
        entries: Sequence[Entry],
        *,
        after: datetime | None,
        complete_until: datetime | None = None,
        for_s: float,
    ) -> None:
        """Keep *entries*, ascending, of what is due behind *after*; older listings make room."""
        listing = _Listing(
            owner=owner,
            after=after,
            complete_until=complete_until,
            until_s=self._monotonic_s() + for_s,
            entries={each.id: each for each in entries},
        )
        with self._lock:
            self._listings.append(listing)
            while sum(len(each.entries) for each in self._listings) > self._most:
                self._listings.popleft()

    def drop(self, ids: Collection[TimeoutId]) -> None:
        with self._lock:
            for listing in self._listings:
                for each in ids:
                    listing.entries.pop(each, None)

    def forget(self) -> None:
        with self._lock:
            self._listings.clear()

    def _fresh(self) -> Sequence[_Listing]:
        now_s = self._monotonic_s()
        while self._listings and self._listings[0].until_s <= now_s:
            self._listings.popleft()
        return [each for each in self._listings if each.until_s > now_s]
