"""All live timeouts of an endpoint, by listing: whose main entries there are, then time entries.

Rules of this file: what is live is in the listing, even if no claim could ever take it; of each
timeout some 200 bytes are held, never a body.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

from migrator.errors import StoreError, StoreUnavailable
from migrator.nservicebus.timeouts import TimeoutId
from migrator.stores.azure.account import Account, asking, paged
from migrator.stores.azure.entities import OWNER, blob_name, due_of, text_of
from migrator.stores.azure.partitions import PartitionScope
from migrator.stores.azure.reading import TimeoutReader
from migrator.stores.azure.soonest import Entry, entry_of
from migrator.stores.azure.strays import Strays
from migrator.stores.documents.ports import Candidate, Unclaimable

_log = logging.getLogger(__name__)

_MAIN: Final = ["PartitionKey", "Time", "StateAddress"]
_COLUMNS: Final = ["PartitionKey", "RowKey", "Time", OWNER, "Destination", "Headers"]
NO_TIME: Final = "its due time cannot be read"

Pages = Callable[[str, Mapping[str, str], Sequence[str]], Iterator[Sequence[Any]]]
"""Lists entities by a condition, its parameters, and the columns that are wanted."""
Listed = Candidate | Unclaimable


class LiveTimeouts:
    """Lists the timeouts of one account."""

    def __init__(
        self,
        account: Account,
        scope: PartitionScope,
        reader: TimeoutReader,
        strays: Strays,
        pages: Pages,
    ) -> None:
        """List by *pages*; *reader* looks at what a listing leaves open."""
        self._account = account
        self._scope = scope
        self._reader = reader
        self._strays = strays
        self._pages = pages

    def of(self, owner: str, *, with_sizes: bool) -> Iterator[Sequence[Listed]]:
        """Yield the live timeouts of *owner* in pages; see ``ports.DocumentStore.list``.

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
            yield [Unclaimable(id=TimeoutId(each), why=NO_TIME) for each in sorted(broken)]
        sizes = self._sizes(frozenset(blob_of.values())) if with_sizes else {}
        for page in self._pages(f"{OWNER} eq @owner and RowKey ne @none", mine, _COLUMNS):
            self._strays.refuse(page, blob_of)
            suspects |= {e["RowKey"] for e in page if due_of(e) is None and e["RowKey"] in blob_of}
            entries = [entry_of(each, self._scope) for each in page]
            found = [
                candidate(each, sizes.get(blob_of[each.id]))
                for each in entries
                if each is not None and each.id in blob_of and each.id not in broken
            ]
            if found:
                yield found
        if left := self._without_time_entry(owner, sorted(suspects - broken)):
            yield [Unclaimable(id=each, why=NO_TIME) for each in left]

    def _without_time_entry(self, owner: str, suspects: Sequence[str]) -> Sequence[TimeoutId]:
        """Return those of *suspects* that were not listed; of the others a saga entry is odd."""
        ids = [TimeoutId(each) for each in suspects]
        has_one = self._account.each(lambda each: self._reader.has_time_entry(owner, each), ids)
        return [each for each, yes in zip(ids, has_one, strict=True) if not yes]

    def _sizes(self, names: frozenset[str]) -> Mapping[str, int]:
        """Return the sizes of blobs called *names*; empty when they may not be listed."""
        container = self._account.container
        place = f"container {container.container_name}"
        try:
            with asking("listing bodies", place=place):
                pages = container.list_blobs().by_page()
            return {
                blob.name: int(blob.size)
                for page in paged(pages, doing="listing bodies", place=place)
                for blob in page
                if blob.name in names
            }
        except StoreUnavailable:
            raise
        except StoreError as exc:
            _log.warning(
                "bodies may not be listed, so their sizes are not known",
                extra={"action": "sizes_unknown", "error": str(exc)},
            )
            return {}


def candidate(entry: Entry, size: int | None = None) -> Candidate:
    """Return what a listing shows of a timeout; *size* is that of its body, if it is known."""
    return Candidate(
        id=entry.id,
        due_at=entry.due_at,
        destination=text_of(entry.entity, "Destination"),
        headers_text=text_of(entry.entity, "Headers"),
        body_bytes=size,
    )
