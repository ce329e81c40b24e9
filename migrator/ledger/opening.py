"""Opening a batch: its row in the ledger, and the batch as its owner sees it."""

from __future__ import annotations

from typing import Any

from sqlalchemy import Connection, CursorResult, insert

from migrator.errors import StoreError
from migrator.ledger.states import BatchState
from migrator.ledger.work import Batch
from migrator.nservicebus.timeouts import BatchId
from migrator.stores.ports import ClaimRequest
from migrator.stores.sql.ledger_side import LedgerSide


def open_batch(
    connection: Connection,
    ledger: LedgerSide,
    request: ClaimRequest,
    state: BatchState,
    *,
    size: int = 0,
    body_bytes: int = 0,
    **values: Any,
) -> Batch:
    """Write the row of a new batch, in the caller's transaction; its timeouts are not in it yet.

    Args:
        connection: Where the caller's transaction is.
        ledger: The ledger's tables.
        request: What the batch is claimed for.
        state: Its first.
        size: Its rows, as far as they are known.
        body_bytes: Of their bodies together.
        values: Further columns.
    """
    statement = insert(ledger.batch).values(
        run_id=request.run,
        endpoint=request.endpoint.name,
        source=request.endpoint.source,
        lane=request.lease.lane,
        mode=request.mode,
        state=state,
        attempt=0,
        size=size,
        body_bytes=body_bytes,
        owner=request.lease.owner,
        lease_token=request.lease.token,
        **values,
    )
    return Batch(
        id=BatchId(inserted_id(connection.execute(statement))),
        run=request.run,
        endpoint=request.endpoint.name,
        source=request.endpoint.source,
        lane=request.lease.lane,
        mode=request.mode,
        state=state,
        attempt=0,
        size=size,
        body_bytes=body_bytes,
    )


def inserted_id(result: CursorResult[Any]) -> int:
    """Return the id the database gave the row that was just inserted."""
    key = result.inserted_primary_key
    if key is None:
        raise StoreError("the database returned no id for a new row; rolled back")
    return int(key[0])
