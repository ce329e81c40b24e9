"""A row of the ledger and the document it came from, as claims and returns read it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

from sqlalchemy import Row, Select, select

from migrator.ledger.tables import LedgerTables
from migrator.ledger.work import StoreEndpoint
from migrator.nservicebus.timeouts import EndpointName, TimeoutId
from migrator.stores.documents.ports import Document

_IDS_AT_A_TIME: Final = 500


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptRow:
    """A row of the ledger and the document it came from."""

    id: int
    """The ledger's own."""
    endpoint: StoreEndpoint
    document: Document
    ledger_id: str | None
    """As of its batch: by which id its evidence is found."""


def kept_rows(ledger: LedgerTables) -> Select[Any]:
    """Return a query for every row; ``kept_row`` makes values of what it finds."""
    row, batch = ledger.timeout.c, ledger.batch.c
    marked_by = select(batch.ledger_id).where(batch.id == row.batch_id).scalar_subquery()
    return select(
        row.id,
        row.endpoint,
        row.source,
        row.store_id,
        row.destination,
        row.saga_id,
        row.due,
        row.body,
        row.headers,
        row.store_version,
        row.store_extra,
        marked_by.label("ledger_id"),
    )


def kept_row(row: Row[Any]) -> KeptRow:
    """Return what a row of ``kept_rows`` says."""
    return KeptRow(
        id=row.id,
        endpoint=StoreEndpoint(name=EndpointName(row.endpoint), source=row.source),
        document=Document(
            id=TimeoutId(row.store_id),
            destination=row.destination,
            saga_id=row.saga_id,
            due_at=row.due,
            body=row.body,
            headers_text=row.headers,
            version=row.store_version or "",
            extra=row.store_extra or "{}",
        ),
        ledger_id=row.ledger_id,
    )


def slices(items: Sequence[Any]) -> Iterator[Sequence[Any]]:
    """Yield *items* in parts that any database takes as parameters."""
    for start in range(0, len(items), _IDS_AT_A_TIME):
        yield items[start : start + _IDS_AT_A_TIME]
