"""Timeouts in Azure Storage tables and blobs; implements ``ports.documents``.

Rules of this file: nothing here changes anything but through ``changes``; a listing goes by time
entries, because only they show what the vendor's tool has hidden.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from datetime import UTC, datetime
from heapq import nsmallest
from typing import Any, Final

from migrator.domain.partitions import PartitionScope
from migrator.domain.timeouts import EndpointName, TimeoutId
from migrator.errors import StoreError
from migrator.ports import StoreEndpoint
from migrator.ports.documents import Candidate, Document, IsMeant, Mark
from migrator.stores.azure.account import Account, asking, paged
from migrator.stores.azure.changes import Changes
from migrator.stores.azure.entities import HIDDEN, OWNER, due_of, text_of
from migrator.stores.azure.leftovers import Leftovers
from migrator.stores.azure.reading import LARGEST_BODY, TimeoutReader
from migrator.stores.azure.seeding import write_rows
from migrator.stores.azure.vendor_runs import unfinished_vendor_runs
from migrator.stores.seeding import SeedRow

PAGE: Final = 1000
"""Entities in a page; the service gives no more."""
_GUID: Final = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.IGNORECASE)
_OLDEST: Final = datetime(2000, 1, 1, tzinfo=UTC)
"""Partitions before it are looked at now and then only: they sort among those of GUIDs."""
_OLDER_EVERY_S: Final = 300.0
_PLACE: Final = ["PartitionKey", "RowKey", "Time", OWNER]
_COLUMNS: Final = ["PartitionKey", "RowKey", "Time", OWNER, "Destination", "Headers"]


class AzureStore:
    """Implements ``ports.DocumentStore``."""

    kind: Final = "azure"

    def __init__(
        self,
        account: Account,
        scope: PartitionScope,
        *,
        page: int = PAGE,
        largest_body: int = LARGEST_BODY,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        """Work on *account*, whose time entries are partitioned by *scope*; closes it.

        Listings ask for *page* entities at a time; bodies of more than *largest_body* bytes are
        not read.
        """
        self._page = page
        self._account = account
        self._scope = scope
        self._monotonic = monotonic
        self._reader = TimeoutReader(account, scope, largest_body=largest_body)
        self._changes = Changes(account, self._reader)
        self._leftovers = Leftovers(monotonic)
        self._older_looked_s: dict[str, float] = {}

    def endpoints(self) -> Sequence[StoreEndpoint]:
        """Return every endpoint that owns a timeout; reads the whole table.

        Raises:
            StoreError: There are timeouts that no listing would show.
        """
        names = set[str]()
        for page in self._pages("RowKey ne @none", {"none": ""}, _PLACE):
            self._refuse_strays(page)
            names |= {text_of(each, OWNER) or "" for each in page if self._is_time_entry(each)}
        return [
            self._endpoint(name) for name in sorted(names) if name and not name.startswith(HIDDEN)
        ]

    def source_of(self, name: str) -> str:
        """Return where the timeouts of *name* are; see ``ports.DocumentStore``."""
        return f"{self._account.name}/{self._account.settings.table}/{name}"

    def list(self, endpoint: StoreEndpoint) -> Iterator[Sequence[Candidate]]:
        """Yield the live timeouts of *endpoint*; see ``ports.DocumentStore``.

        Reads the table twice: first whose main entries there are, then the time entries.
        """
        owner = self._owner(endpoint)
        mine = {"owner": owner, "none": ""}
        only = f"{OWNER} eq @owner and RowKey eq @none"
        live = {
            entity["PartitionKey"]
            for page in self._pages(only, mine, ["PartitionKey"])
            for entity in page
        }
        for page in self._pages(f"{OWNER} eq @owner and RowKey ne @none", mine, _COLUMNS):
            self._refuse_strays(page, live)
            found = [each for each in self._candidates(page) if each.id in live]
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
        """Return the soonest due of a range; see ``ports.DocumentStore``.

        May name leftovers, whose main entry is gone: ``read`` leaves them out, and then they are
        not named again for a while.
        """
        found: list[Candidate] = []
        for where, parameters in self._ranges(endpoint, due_after, due_until):
            found += self._first(endpoint, where, parameters, due_after, due_until, at_most)
        return nsmallest(at_most, found, key=_soonest)

    def read(self, endpoint: StoreEndpoint, ids: Collection[TimeoutId]) -> Sequence[Document]:
        """Return what is still there of *ids*; see ``ports.DocumentStore``."""
        owner = self._owner(endpoint)
        asked = [*ids]
        found = [*self._account.each(lambda each: self._reader.read(owner, each), asked)]
        self._leftovers.add(each for each, read in zip(asked, found, strict=True) if read is None)
        return [document for document in found if document is not None]

    def take(
        self, endpoint: StoreEndpoint, mark: Mark, documents: Sequence[Document]
    ) -> Collection[TimeoutId]:
        """Remove what is unchanged; see ``ports.DocumentStore``."""
        self._owner(endpoint)
        return self._changes.take(mark, documents)

    def put_back(
        self,
        endpoint: StoreEndpoint,
        mark: Mark,
        documents: Sequence[Document],
        *,
        is_meant: IsMeant,
    ) -> Collection[TimeoutId]:
        """Restore byte for byte; see ``ports.DocumentStore``."""
        self._owner(endpoint)
        restored = self._changes.put_back(mark, documents, is_meant)
        self._leftovers.drop(restored)
        return restored

    def forget(self, endpoint: StoreEndpoint, mark: Mark, ids: Collection[TimeoutId]) -> None:
        """Remove the evidence; see ``ports.DocumentStore``."""
        self._owner(endpoint)
        self._changes.forget(mark, ids)

    def probe(self, endpoint: StoreEndpoint) -> None:
        """Prove the rights of a claim; see ``ports.DocumentStore``.

        Looks at some time entries, too: whether they are where they are looked for.
        """
        mine = {"owner": self._owner(endpoint), "none": ""}
        where = f"{OWNER} eq @owner and RowKey ne @none"
        self._refuse_strays(next(self._pages(where, mine, _PLACE), ()))
        self._changes.probe()

    def unfinished_vendor_runs(self) -> Sequence[str]:
        """Return what the vendor's tool left half-finished; see ``ports.DocumentStore``."""
        return unfinished_vendor_runs(self._account)

    def seed(self, name: str, rows: Iterable[SeedRow]) -> int:
        """Write invented timeouts of the endpoint *name*; return how many."""
        return write_rows(self._account, self._scope, name, rows)

    def close(self) -> None:
        """Close connections and threads."""
        self._account.close()

    # ── whose and where ─────────────────────────────────────────────────────────────────────

    def _endpoint(self, name: str) -> StoreEndpoint:
        return StoreEndpoint(name=EndpointName(name), source=self.source_of(name))

    def _owner(self, endpoint: StoreEndpoint) -> str:
        prefix = self.source_of("")
        if not endpoint.source.startswith(prefix):
            raise StoreError(
                f"{endpoint.source} is not in {prefix}, which store.url and store.azure.table "
                "name; nothing was changed"
            )
        return endpoint.source.removeprefix(prefix)

    # ── listing ─────────────────────────────────────────────────────────────────────────────

    def _ranges(
        self, endpoint: StoreEndpoint, due_after: datetime | None, due_until: datetime
    ) -> Iterator[tuple[str, dict[str, str]]]:
        """Yield conditions on partition keys that together cover the range."""
        if not self._scope.is_ascending:
            yield "RowKey ne @none", {"none": ""}
            return
        first = _OLDEST if due_after is None else due_after
        keys = {"first": self._scope.key_of(first), "last": self._scope.key_of(due_until)}
        yield "PartitionKey ge @first and PartitionKey le @last", keys
        if due_after is not None:
            return
        looked_s = self._older_looked_s.get(endpoint.source, float("-inf"))
        if self._monotonic() - looked_s >= _OLDER_EVERY_S:
            self._older_looked_s[endpoint.source] = self._monotonic()
            yield "PartitionKey lt @first and RowKey ne @none", {"first": keys["first"], "none": ""}

    def _first(
        self,
        endpoint: StoreEndpoint,
        where: str,
        parameters: dict[str, str],
        due_after: datetime | None,
        due_until: datetime,
        at_most: int,
    ) -> Sequence[Candidate]:
        """Return at least the *at_most* soonest of the partitions that *where* means."""
        found: list[Candidate] = []
        count = 0
        enough: str | None = None
        """The key of the partition in which there was enough; it is read to its end."""
        condition = f"{where} and {OWNER} eq @owner"
        for page in self._pages(
            condition, {**parameters, "owner": self._owner(endpoint)}, _COLUMNS
        ):
            for entity in page:
                if enough is not None and entity["PartitionKey"] != enough:
                    return found
                for each in self._candidates([entity]):
                    is_after = due_after is None or each.due_at > due_after
                    if is_after and each.due_at <= due_until and each.id not in self._leftovers:
                        found.append(each)
                        count += 1
                if enough is None and self._scope.is_ascending and count >= at_most:
                    enough = entity["PartitionKey"]
            if len(found) > 2 * max(at_most, self._page):  # a partition, or a table, may be huge
                found = nsmallest(at_most, found, key=_soonest)
        return found

    def _candidates(self, page: Sequence[Any]) -> Iterator[Candidate]:
        for entity in page:
            due_at = due_of(entity)
            if due_at is None or not self._is_time_entry(entity):
                continue
            yield Candidate(
                id=TimeoutId(entity["RowKey"]),
                due_at=due_at,
                destination=text_of(entity, "Destination"),
                headers_text=text_of(entity, "Headers"),
                body_bytes=None,
            )

    def _is_time_entry(self, entity: Any) -> bool:
        moment = entity.get("Time")
        return isinstance(moment, datetime) and entity["PartitionKey"] == self._scope.key_of(moment)

    def _refuse_strays(self, page: Sequence[Any], live: Collection[str] | None = None) -> None:
        """Refuse time entries of live timeouts in partitions of another scope.

        Nobody would ever find them: neither a claim nor a count.

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
                f"table {self._account.table.table_name}: timeout {first['RowKey'][:200]!r} is in "
                f"partition {first['PartitionKey'][:200]!r}, not in "
                f"{self._scope.key_of(first['Time'])!r}; set store.azure.partition_key_scope to "
                "what the endpoints set in code"
            )

    def _is_stray(self, entity: Any) -> bool:
        if not isinstance(entity.get("Time"), datetime) or self._is_time_entry(entity):
            return False
        return _GUID.fullmatch(entity["PartitionKey"]) is None  # else it is a saga entry

    def _pages(
        self, where: str, parameters: dict[str, str], columns: Sequence[str]
    ) -> Iterator[Sequence[Any]]:
        table = self._account.table
        place = f"table {table.table_name}"
        with asking("listing timeouts", place=place):
            pages = table.query_entities(
                where, parameters=parameters, select=[*columns], results_per_page=self._page
            ).by_page()
        yield from paged(pages, doing="listing timeouts", place=place)


def _soonest(candidate: Candidate) -> tuple[datetime, TimeoutId]:
    return candidate.due_at, candidate.id
