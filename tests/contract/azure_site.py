"""Azure Storage beside a ledger: an account in Azurite."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any, ClassVar

from azure.data.tables import TableServiceClient

from migrator.stores.azure.account import Account, AccountSettings
from migrator.stores.azure.partitions import parse_scope
from migrator.stores.azure.store import AzureStore
from tests.contract.any_site import LegacyRow, due_in
from tests.contract.document_site import DocumentSite, Sight
from tests.support.azure import LegacyAccount, Stored

PAGE = 3
"""Entities in a page of a listing: every test reads several."""
SCOPE = "yyyyMMddHH"
REQUESTS = 4
"""Under way at a time."""
UNREADABLE = "soon"
"""The due time of a main entry that somebody has damaged."""


@dataclass
class AzureSite(DocumentSite):
    """An account with timeouts beside a ledger."""

    legacy: LegacyAccount = field(kw_only=True)
    keeps_bodies: bool = False

    needs: ClassVar[str | None] = "azure_account"
    due_digits: ClassVar[int] = 7
    first_time: ClassVar[str] = "1601-01-01 00:00:00.0000000"
    last_time: ClassVar[str] = "9999-12-31 23:59:59.9999999"

    def open_documents(self) -> AzureStore:
        """Return the adapter, which reads small pages."""
        settings = AccountSettings(
            connection_string=self.legacy.url,
            table=self.legacy.table_name,
            container=self.legacy.container_name,
            requests=REQUESTS,
            keeps_bodies=self.keeps_bodies,
        )
        return AzureStore(Account(settings), parse_scope(SCOPE), page=PAGE)

    @property
    def unusable_times(self) -> Sequence[str | None]:
        """Due times that a timeout may have, and at which no timeout manager would send it."""
        return (UNREADABLE,)

    def put(self, row: LegacyRow, owner: str) -> None:
        """Store blob and entities."""
        is_readable = row.due != UNREADABLE
        due_at, ticks = _time(row.due if row.due and is_readable else due_in(timedelta(hours=1)))
        stored = Stored(
            id=row.id,
            due_at=due_at,
            ticks=ticks,
            owner=owner,
            destination=row.destination,
            saga=row.saga_id,
            body=row.body,
            headers=row.headers,
            more={"PersistenceVersion": row.version},
        )
        self.legacy.add([stored])
        if not is_readable:
            main = self.legacy.table.get_entity(row.id, "")
            self.legacy.table.upsert_entity({**main, "Time": UNREADABLE})

    @contextmanager
    def vendor_run(self) -> Iterator[None]:
        """Leave an open run in the vendor's table, and afterwards a finished one."""
        state: dict[str, Any] = {
            "PartitionKey": "2E81644B-3DD2-42FD-8D81-23B757AEE714",
            "RowKey": "run-1",
            "EndpointName": self.endpoint_name,
            "UniqueHiddenEndpointName": f"__hidden__tmp1__{self.endpoint_name}",
        }
        with TableServiceClient.from_connection_string(self.legacy.url) as service:
            table = service.create_table("timeoutsmigrationtoolstate")
            try:
                table.create_entity({**state, "Status": 1})
                yield
                table.upsert_entity({**state, "Status": 2})
            finally:
                service.delete_table("timeoutsmigrationtoolstate")

    def put_flawed(self, row: LegacyRow) -> None:
        """Store a row without a blob."""
        self.put(replace(row, body=None), self.endpoint_name)

    def look(self) -> Sight:
        """Return all entities and blobs."""
        exact: dict[str, dict[Any, Any]] = {}
        owners: dict[str, str] = {}
        evidence = []
        for key, value in self.legacy.contents().items():
            partition, row = key if isinstance(key, tuple) else (key, None)
            if row is not None and row.startswith("migrator."):
                evidence.append(row)
                continue
            exact.setdefault(row or partition, {})[key] = value
            if row == "":
                owners[partition] = value["OwningTimeoutManager"]
        return Sight(exact=exact, owners=owners, evidence=evidence)


def _time(text: str) -> tuple[datetime, int]:
    """Return a due time, and its seventh digit."""
    plain, ticks = text[:26], text[26:]
    return datetime.fromisoformat(plain).replace(tzinfo=UTC), int(ticks or 0)
