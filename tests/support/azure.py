"""An Azure account as an endpoint and its timeout manager use it, written without migrator's code.

Timeouts are written and removed step by step as the persistence does it, so that a mistake in the
adapter cannot hide behind the same mistake here. Source: reference ``legacy-stores.md`` 4.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from azure.core import MatchConditions
from azure.core.exceptions import HttpResponseError, ResourceNotFoundError
from azure.data.tables import EdmType, EntityProperty, TableClient, TableServiceClient
from azure.storage.blob import BlobServiceClient, ContainerClient, ContentSettings

NO_SAGA = "00000000-0000-0000-0000-000000000000"


@dataclass(frozen=True, kw_only=True)
class Stored:
    """One timeout; *ticks* are the 100 ns that Python's microseconds do not hold."""

    id: str
    due_at: datetime
    owner: str = "Sales.Orders"
    destination: str | None = "Billing"
    saga: str | None = NO_SAGA
    body: bytes | None = b'{"a":1}'
    headers: str | None = '{"NServiceBus.MessageId":"m-1"}'
    ticks: int = 0
    more: dict[str, Any] = field(default_factory=dict)

    @property
    def time_text(self) -> str:
        """The due time as the service keeps it."""
        return self.due_at.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%f") + f"{self.ticks}Z"

    @property
    def partition(self) -> str:
        """The time entry's partition, by the default scope."""
        return self.due_at.astimezone(UTC).strftime("%Y%m%d%H")


class LegacyAccount:
    """One table and one container of an account."""

    def __init__(self, url: str, *, table: str | None = None) -> None:
        self.url = url
        self.table_name = table or f"T{secrets.token_hex(6)}"
        self.container_name = f"c{secrets.token_hex(6)}"
        self._tables = TableServiceClient.from_connection_string(url)
        self._blobs = BlobServiceClient.from_connection_string(url)
        self.table: TableClient = self._tables.create_table(self.table_name)
        self.container: ContainerClient = self._blobs.create_container(self.container_name)

    def close(self) -> None:
        """Remove both."""
        self._tables.delete_table(self.table_name)
        self._blobs.delete_container(self.container_name)
        self._tables.close()
        self._blobs.close()

    # ── the persistence ─────────────────────────────────────────────────────────────────────

    def add(self, rows: Iterable[Stored]) -> None:
        """Store timeouts: blob, time entry and saga entry, then the main entry."""
        for row in rows:
            if row.body is not None:
                settings = ContentSettings(content_type="application/x-nsb")
                self.container.upload_blob(
                    row.id, row.body, content_settings=settings, metadata={"by": "nsb"}
                )
            for partition, name in self._keys(row):
                self.table.create_entity(
                    {"PartitionKey": partition, "RowKey": name, **_properties(row)}
                )

    def due(self, owner: str) -> list[str]:
        """Return the ids of an endpoint's timeouts, soonest first."""
        where = "OwningTimeoutManager eq @owner and RowKey ne @none"
        found = self.table.query_entities(where, parameters={"owner": owner, "none": ""})
        by_id = {entity["RowKey"]: entity["Time"] for entity in found}
        return sorted(by_id, key=lambda each: by_id[each])

    def peek(self, timeout: str) -> bool:
        """Return whether the timeout manager would send it."""
        return self._main(timeout) is not None

    def try_remove(self, timeout: str) -> bool:
        """Remove a timeout as a timeout manager does that is about to send it."""
        main = self._main(timeout)
        if main is None:
            return False
        condition = {
            "etag": main.metadata["etag"],
            "match_condition": MatchConditions.IfNotModified,
        }
        try:  # as a transaction of one: ``delete_entity`` passes over what is gone
            self.table.submit_transaction(
                [("delete", {"PartitionKey": timeout, "RowKey": ""}, condition)]
            )
        except HttpResponseError:
            return False
        for partition in (str(main["SagaId"]), main["Time"].strftime("%Y%m%d%H")):
            self.table.delete_entity(partition, timeout)
        with suppress(ResourceNotFoundError):
            self.container.delete_blob(main["StateAddress"])
        return True

    def remove_by_saga(self, saga: str) -> list[str]:
        """Remove all timeouts of a saga; return their ids."""
        where = "PartitionKey eq @saga"
        found = [e["RowKey"] for e in self.table.query_entities(where, parameters={"saga": saga})]
        return [each for each in found if self.try_remove(each)]

    def hide(self, row: Stored, run: str) -> None:
        """Do to a time entry what the vendor's tool does when it has moved it."""
        entity = self.table.get_entity(row.partition, row.id)
        entity["OwningTimeoutManager"] = f"__hidden__{run}__{row.owner}"
        self.table.upsert_entity(entity)

    # ── looking ─────────────────────────────────────────────────────────────────────────────

    def contents(self) -> dict[Any, Any]:
        """Return every entity and blob, down to the last digit, without versions."""
        found: dict[Any, Any] = {}
        for entity in self.table.list_entities():
            values = {key: _exact(value) for key, value in entity.items()}
            found[entity["PartitionKey"], entity["RowKey"]] = values
        for blob in self.container.list_blobs(include=["metadata"]):
            body = self.container.download_blob(blob.name)
            kind = body.properties.content_settings.content_type
            found[blob.name] = (body.readall(), kind, blob.metadata)
        return found

    def ids(self) -> set[str]:
        """Return the ids of all main entries."""
        found = self.table.query_entities("RowKey eq ''", select=["PartitionKey"])
        return {entity["PartitionKey"] for entity in found}

    def _main(self, timeout: str) -> Any:
        with suppress(ResourceNotFoundError):
            return self.table.get_entity(timeout, "")
        return None

    @staticmethod
    def _keys(row: Stored) -> Sequence[tuple[str, str]]:
        by_saga = [] if row.saga in (None, NO_SAGA) else [(str(row.saga), row.id)]
        return [(row.partition, row.id), *by_saga, (row.id, "")]


def due(hours: float, *, count: int = 1, start: int = 0, **more: Any) -> list[Stored]:
    """Return *count* timeouts, one due *hours* after the other, in the order of their ids."""
    base = datetime.now(UTC).replace(microsecond=123456)
    return [
        Stored(
            id=f"c0ffee00-1111-4222-8333-{n:012d}",
            due_at=base + timedelta(hours=hours * (n + 1)),
            **more,
        )
        for n in range(start, start + count)
    ]


def _properties(row: Stored) -> dict[str, Any]:
    values = {
        "Destination": row.destination,
        "SagaId": None if row.saga is None else EntityProperty(row.saga, EdmType.GUID),
        "StateAddress": row.id,
        "Time": EntityProperty(row.time_text, EdmType.DATETIME),
        "OwningTimeoutManager": row.owner,
        "Headers": row.headers,
        **row.more,
    }
    return {name: value for name, value in values.items() if value is not None}


def _exact(value: Any) -> Any:
    return getattr(value, "tables_service_value", None) or value
