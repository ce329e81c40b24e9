"""Writing a claim of documents into the ledger, before anything is asked of the store."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sqlalchemy import Connection, insert

from migrator.database.types import database_now
from migrator.ledger.claims import open_batch
from migrator.ledger.states import BatchState, RowState
from migrator.ledger.tables import LedgerTables
from migrator.ledger.work import Batch
from migrator.nservicebus.conversion import Reason
from migrator.nservicebus.timeouts import content_hash
from migrator.stores.documents.ports import Document
from migrator.stores.ports import ClaimRequest
from migrator.stores.sql.selection import is_storable


def insert_claim(
    connection: Connection,
    ledger: LedgerTables,
    request: ClaimRequest,
    documents: Sequence[Document],
) -> Batch:
    """Write a batch that is ``claiming``, with its rows, in the caller's transaction."""
    body_bytes = sum(len(document.body or b"") for document in documents)
    batch = open_batch(
        connection,
        ledger,
        run=request.run,
        endpoint=request.endpoint,
        lease=request.lease,
        mode=request.mode,
        state=BatchState.CLAIMING,
        size=len(documents),
        body_bytes=body_bytes,
        first_due=min(document.due_at for document in documents),
        last_due=max(document.due_at for document in documents),
        claiming_at=database_now(),
    )
    rows = [_row(request, batch.id, index, document) for index, document in enumerate(documents)]
    connection.execute(insert(ledger.timeout), rows)
    return batch


def _row(request: ClaimRequest, batch_id: int, index: int, document: Document) -> dict[str, Any]:
    destination, headers = document.destination, document.headers_text
    reason, detail = None, document.flaw
    if detail is not None:
        reason = Reason.BODY_MISSING
    elif not is_storable(destination or "") or not is_storable(headers or ""):
        # what a database does not take is in ``extra``, from which the document is restored
        destination, headers = None, None
        reason, detail = Reason.UNREADABLE_HEADERS, "a character that no database takes"
    return {
        "source": request.endpoint.source,
        "endpoint": request.endpoint.name,
        "store_id": document.id,
        "batch_id": batch_id,
        "row_index": index,
        "destination": destination,
        "saga_id": document.saga_id,
        "due": document.due_at,
        "body": document.body,
        "headers": headers,
        "content_hash": content_hash(headers, document.body),
        "state": None if reason is None else RowState.QUARANTINED,
        "reason": reason,
        "reason_detail": detail,
        "store_version": document.version,
        "store_extra": document.extra,
    }
