"""Timeouts in Azure Storage tables and blobs; implements ``stores.documents.ports``.

Rules of this file: nothing here changes anything but through ``changes``; a listing goes by time
entries, because only they show what the vendor's tool has hidden.
Source: reference ``legacy-stores.md`` 4.1 (entities), 5.5 and 5.6 (the vendor's tool).
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import UTC
from itertools import islice
from typing import Any, Final

from azure.core.exceptions import HttpResponseError, ResourceExistsError, ResourceNotFoundError

from migrator.database.failures import retrying
from migrator.errors import SourceElsewhere, StoreError
from migrator.ledger.work import StoreEndpoint
from migrator.nservicebus.timeouts import NO_SAGA, EndpointName, TimeoutId
from migrator.stores.azure.account import Account, code_of
from migrator.stores.azure.changes import Changes
from migrator.stores.azure.entities import HIDDEN, OWNER, TYPE, due_of, text_of
from migrator.stores.azure.http import Entity
from migrator.stores.azure.listing import (
    LiveTimeouts,
    SoonestEntries,
    entry_of,
)
from migrator.stores.azure.partitions import PartitionScope
from migrator.stores.azure.reading import LARGEST_BODY, TimeoutReader
from migrator.stores.documents.ports import Document, DueRange, Entry, IsMeant, Mark
from migrator.stores.requests import ScannedRow
from migrator.stores.sql.seeding import SeedRow
from migrator.text import counted

PAGE: Final = 1000
"""Entities in a page; the service gives no more."""
_PLACE: Final = ["PartitionKey", "RowKey", "Time", OWNER]
_AT_A_TIME: Final = 1000
_STATE_TABLE: Final = "timeoutsmigrationtoolstate"
_OPEN: Final = frozenset({0, 1})
_COMPLETED: Final = 2
_PAST_HIDDEN: Final = HIDDEN[:-1] + chr(ord(HIDDEN[-1]) + 1)


class AzureStore:
    """Implements ``DocumentStore``.

    Work on *account*, whose time entries are partitioned by *scope*; closes it.

    Listings ask for *page* entities at a time; bodies of more than *largest_body* bytes are
    not read.
    """

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
        self._page = page
        self._account = account
        self._scope = scope
        self._reader = TimeoutReader(account, scope, largest_body=largest_body)
        self._live = LiveTimeouts(account, scope, self._reader, self._pages)
        self._changes = Changes(account, self._reader)
        self._soonest = SoonestEntries(self._pages, scope, page=page, monotonic=monotonic)

    def endpoints(self) -> Sequence[StoreEndpoint]:
        """Reads the whole table; ``StoreError``: a listing would not show all timeouts."""
        names = set[str]()
        for page in self._pages("RowKey ne @none", {"none": ""}, _PLACE):
            self._live.refuse_strays(page)
            names |= {text_of(each, OWNER) or "" for each in page if self._shows_owner(each)}
        return [
            self._endpoint(name) for name in sorted(names) if name and not name.startswith(HIDDEN)
        ]

    def source_of(self, name: str) -> str:
        return f"{self._account.name}/{self._account.settings.table}/{name}"

    def list(
        self, endpoint: StoreEndpoint, *, with_sizes: bool = False
    ) -> Iterator[Sequence[ScannedRow]]:
        """Reads main entries, then time entries, and lists the container for sizes."""
        return self._live.of(self._owner(endpoint), with_sizes=with_sizes)

    def soonest(self, endpoint: StoreEndpoint, due: DueRange, at_most: int) -> Sequence[Entry]:
        return self._soonest.between(self._owner(endpoint), due, at_most)

    def read(self, endpoint: StoreEndpoint, ids: Collection[TimeoutId]) -> Iterator[Document]:
        owner = self._owner(endpoint)
        asked = [*ids]

        def read(timeout: TimeoutId) -> Document | None:
            listed = self._soonest.recent.entry(owner, timeout)
            return self._reader.read(owner, timeout, None if listed is None else listed.read)

        gone: list[TimeoutId] = []
        try:
            for timeout, document in zip(asked, self._account.each(read, asked), strict=True):
                if document is None:
                    gone.append(timeout)
                else:
                    yield document
        finally:
            self._soonest.leave_out(gone)

    def take(
        self, endpoint: StoreEndpoint, mark: Mark, documents: Sequence[Document]
    ) -> Collection[TimeoutId]:
        self._owner(endpoint)
        taken = self._changes.take(mark, documents)
        self._soonest.recent.drop([each.id for each in documents])
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
        restored = self._changes.put_back(mark, documents, is_meant)
        self._soonest.bring_back(restored)
        return restored

    def forget(self, endpoint: StoreEndpoint, mark: Mark, ids: Collection[TimeoutId]) -> None:
        self._owner(endpoint)
        self._changes.forget(mark, ids)

    def probe(self, endpoint: StoreEndpoint) -> None:
        """Checks, too, that some time entries are in their expected partition."""
        mine = {"owner": self._owner(endpoint), "none": ""}
        where = f"{OWNER} eq @owner and RowKey ne @none"
        self._live.refuse_strays(next(self._pages(where, mine, _PLACE), ()))
        retrying(self._changes.probe)

    def unfinished_vendor_runs(self) -> Sequence[str]:
        return unfinished_vendor_runs(self._account)

    def seed(self, name: str, rows: Iterable[SeedRow]) -> int:
        return write_rows(self._account, self._scope, name, rows)

    def close(self) -> None:
        self._account.close()

    # ── whose and where ─────────────────────────────────────────────────────────────────────

    def _endpoint(self, name: str) -> StoreEndpoint:
        return StoreEndpoint(name=EndpointName(name), source=self.source_of(name))

    def _owner(self, endpoint: StoreEndpoint) -> str:
        prefix = self.source_of("")
        if not endpoint.source.startswith(prefix):
            raise SourceElsewhere(
                f"{endpoint.source} is not in {prefix}, which store.url and store.azure.table "
                "name; nothing was changed"
            )
        return endpoint.source.removeprefix(prefix)

    def _shows_owner(self, entity: Entity) -> bool:
        """Return whether *entity* is a time entry, or one with an unreadable due time."""
        return due_of(entity) is None or entry_of(entity, self._scope) is not None

    # ── listing ─────────────────────────────────────────────────────────────────────────────

    def _pages(
        self, where: str, parameters: Mapping[str, str], columns: Sequence[str] | None
    ) -> Iterator[Sequence[Entity]]:
        doing = "listing timeouts"
        return self._account.pages(where, parameters, columns, doing=doing, size=self._page)


def write_rows(account: Account, scope: PartitionScope, owner: str, rows: Iterable[SeedRow]) -> int:
    """Write *rows* as timeouts of *owner*, making table and container first; return how many.

    Rows without a due time cannot be written as a time entry, and are left out.
    """
    with account.at_table("seeding"):
        try:
            account.tables.create_table(account.table)
        except HttpResponseError as exc:
            if code_of(exc) != "TableAlreadyExists":
                raise
        with suppress(ResourceExistsError):
            account.container.create_container()
    written, left = 0, iter(rows)
    while some := list(islice(left, _AT_A_TIME)):
        written += sum(account.each(lambda row: _write(account, scope, owner, row), some))
    return written


def _write(account: Account, scope: PartitionScope, owner: str, row: SeedRow) -> int:
    if row.due_at is None:
        return 0
    saga = row.saga_id or NO_SAGA
    properties: dict[str, Any] = {
        "Destination": row.destination,
        "SagaId": saga,
        f"SagaId{TYPE}": "Edm.Guid",
        "StateAddress": row.id,
        "Time": row.due_at.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ"),
        f"Time{TYPE}": "Edm.DateTime",
        OWNER: owner,
        "Headers": row.headers_text,
    }
    # compact, as the persistence has it; a table takes no null
    present = {name: value for name, value in properties.items() if value is not None}
    keys = [(scope.key_of(row.due_at), row.id), (row.id, "")]
    if saga != NO_SAGA:
        keys.insert(1, (saga, row.id))
    with account.at_table("seeding"):
        account.container.upload_blob(row.id, row.body or b"", overwrite=True)
        for partition, name in keys:
            entity = {"PartitionKey": partition, "RowKey": name, **present}
            account.tables.upsert(account.table, entity)
    return 1


def unfinished_vendor_runs(account: Account) -> Sequence[str]:
    found, completed = [], list[str]()
    for run in _states(account):
        endpoint, hidden = text_of(run, "EndpointName"), text_of(run, "UniqueHiddenEndpointName")
        if run.get("Status") in _OPEN:
            found.append(
                f"table {_STATE_TABLE}: a run of the vendor's tool for {endpoint!r} is open"
            )
        elif run.get("Status") == _COMPLETED and hidden:
            completed.append(hidden)
    for owner, count in sorted(_hidden(account).items()):
        if not any(hidden in owner for hidden in completed) and not found:
            found.append(
                f"{counted(count, 'timeout is', 'timeouts are')} hidden as {owner!r}, and no "
                "completed run explains it"
            )
    return found


def _states(account: Account) -> Iterator[Entity]:
    doing = "looking for a run of the vendor's tool"
    none = {"none": ""}
    try:
        for page in account.pages("PartitionKey ne @none", none, doing=doing, table=_STATE_TABLE):
            yield from page
    except StoreError as exc:
        if not isinstance(exc.__cause__, ResourceNotFoundError):
            raise  # else the tool has never run here


def _hidden(account: Account) -> Counter[str]:
    where = f"{OWNER} ge @first and {OWNER} lt @past"
    hidden = {"first": HIDDEN, "past": _PAST_HIDDEN}
    found = Counter[str]()
    for page in account.pages(where, hidden, [OWNER], doing="looking for hidden timeouts"):
        found.update(text_of(entity, OWNER) or "" for entity in page)
    return found
