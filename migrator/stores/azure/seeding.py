"""Invented timeouts for rehearsals and tests, written as the persistence writes them.

Source: reference ``legacy-stores.md`` 4.1: blob, time entry and saga entry, then the main entry.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from itertools import islice
from typing import Any, Final

from azure.core.exceptions import ResourceExistsError
from azure.data.tables import EdmType, EntityProperty

from migrator.nservicebus.timeouts import NO_SAGA
from migrator.stores.azure.account import Account, asking
from migrator.stores.azure.entities import OWNER
from migrator.stores.azure.partitions import PartitionScope
from migrator.stores.sql.seeding import SeedRow

_AT_A_TIME: Final = 1000


def write_rows(account: Account, scope: PartitionScope, owner: str, rows: Iterable[SeedRow]) -> int:
    """Write *rows* as timeouts of *owner*, making table and container first; return how many.

    Rows without a due time cannot be written as a time entry, and are left out.
    """
    with asking("seeding", place=f"table {account.table.table_name}"):
        with suppress(ResourceExistsError):
            account.table.create_table()
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
        "SagaId": EntityProperty(saga, EdmType.GUID),
        "StateAddress": row.id,
        "Time": row.due_at,
        OWNER: owner,
        "Headers": row.headers_text,
    }
    # compact, as the persistence has it; a table takes no null
    present = {name: value for name, value in properties.items() if value is not None}
    keys = [(scope.key_of(row.due_at), row.id), (row.id, "")]
    if saga != NO_SAGA:
        keys.insert(1, (saga, row.id))
    with asking("seeding", place=f"table {account.table.table_name}"):
        account.container.upload_blob(row.id, row.body or b"", overwrite=True)
        for partition, name in keys:
            account.table.upsert_entity({"PartitionKey": partition, "RowKey": name, **present})
    return 1
