"""What the ledger records of claims, and of putting back, in two steps.

Rules of this file: each call is one local transaction, and nothing here asks the document store;
a write for a lane first checks that the caller still owns it; a row keeps all its content until
another copy of it is proved.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, TypeVar

from sqlalchemy import (
    ColumnElement,
    Connection,
    Engine,
    Row,
    Select,
    delete,
    insert,
    select,
    true,
    update,
)
from sqlalchemy.exc import IntegrityError

from migrator.database.engine import reading, retrying_read, writing
from migrator.database.portable import first_for_update
from migrator.database.types import byte_length, database_now
from migrator.errors import LeaseLost, LedgerError
from migrator.ledger.claims import hold_batch, hold_lease, in_quarantine, open_batch
from migrator.ledger.report import QuarantineFilter
from migrator.ledger.states import OPEN, BatchState, Event, RowState, next_state
from migrator.ledger.tables import LedgerTables
from migrator.ledger.work import Batch, Lease, StoreEndpoint
from migrator.nservicebus.conversion import Reason
from migrator.nservicebus.timeouts import EndpointName, TimeoutId, content_hash
from migrator.stores.documents.ports import Document
from migrator.stores.requests import ClaimRequest
from migrator.stores.sql.moving import is_storable

T = TypeVar("T")

_RETURNED_AT_A_TIME: Final = 100
"""Rows in quarantine that are put back between two transactions."""
_IDS_AT_A_TIME: Final = 500


class DocumentLedger:
    def __init__(self, engine: Engine, ledger: LedgerTables) -> None:
        self._engine = engine
        self._ledger = ledger

    # ── claiming ────────────────────────────────────────────────────────────────────────────

    def known(self, source: str, ids: Sequence[TimeoutId]) -> set[str]:
        doing = "looking for timeouts in the ledger"
        return self._asked(doing, lambda connection: self._known(connection, source, ids))

    def record_claim(
        self, request: ClaimRequest, documents: Sequence[Document]
    ) -> tuple[Batch, Sequence[Document]] | None:
        """Record what is to be taken, as a batch that is ``claiming``; return both.

        Documents the ledger has already are left out: another batch takes them. None: none is
        left, or another claimer records one of them now; nothing was written.
        """
        try:
            with writing(self._engine, LedgerError, doing="recording a claim") as connection:
                hold_lease(connection, self._ledger, request.lease)
                ids = [document.id for document in documents]
                known = self._known(connection, request.endpoint.source, ids)
                wanted = [document for document in documents if document.id not in known]
                if not wanted:
                    return None
                return insert_claim(connection, self._ledger, request, wanted), wanted
        except LedgerError as exc:
            if isinstance(exc.__cause__, IntegrityError):
                return None
            raise

    def confirm_claim(
        self, batch: Batch, taken: Collection[TimeoutId], lease: Lease
    ) -> Batch | None:
        """Record that *taken* are claimed; drop all others, which another claimer has.

        None: nothing was taken, and the batch is deleted.
        """
        state = next_state(batch.state, Event.ALL_TAKEN)
        table, row = self._ledger.batch, self._ledger.timeout
        query = select(
            row.c.id, row.c.store_id, row.c.due, byte_length(row.c.body).label("body_bytes")
        ).where(row.c.batch_id == batch.id)
        doing = f"confirming the claim of batch {batch.id}"
        with writing(self._engine, LedgerError, doing=doing) as connection:
            hold_lease(connection, self._ledger, lease)
            hold_batch(connection, self._ledger, batch, lease)
            rows = connection.execute(query).all()
            ours = [found for found in rows if found.store_id in taken]
            lost = [found.id for found in rows if found.store_id not in taken]
            for some in slices(lost):
                connection.execute(delete(row).where(row.c.id.in_(some)))
            if not ours:
                connection.execute(delete(table).where(table.c.id == batch.id))
                return None
            after = {
                "size": len(ours),
                "body_bytes": sum(found.body_bytes for found in ours),
                "first_due": min(found.due for found in ours),
                "last_due": max(found.due for found in ours),
            }
            stamps = {"state": state, "claimed_at": database_now()}
            connection.execute(update(table).where(table.c.id == batch.id).values(after | stamps))
        return replace(batch, state=state, size=after["size"], body_bytes=after["body_bytes"])

    # ── putting back a whole batch ──────────────────────────────────────────────────────────

    def begin_release(self, batch: Batch, lease: Lease) -> Batch:
        """Record that a ``claimed`` batch goes back."""
        state = next_state(batch.state, Event.BEGIN_RELEASE)
        table = self._ledger.batch
        attempt = batch.attempt + 1
        stamps = {"state": state, "attempt": attempt, "releasing_at": database_now()}
        doing = f"recording that batch {batch.id} goes back"
        with writing(self._engine, LedgerError, doing=doing) as connection:
            hold_lease(connection, self._ledger, lease)
            hold_batch(connection, self._ledger, batch, lease)
            connection.execute(update(table).where(table.c.id == batch.id).values(stamps))
        return replace(batch, state=state, attempt=attempt)

    def confirm_release(self, batch: Batch, restored: Collection[TimeoutId], lease: Lease) -> int:
        """Record that *restored* are back; quarantine the others. Return how many are back."""
        state = next_state(batch.state, Event.RELEASE)
        table = self._ledger.batch
        stamps = {"state": state, "attempt": batch.attempt + 1, "released_at": database_now()}
        rows = self.rows_of(batch)
        doing = f"recording that batch {batch.id} is back"
        with writing(self._engine, LedgerError, doing=doing) as connection:
            hold_lease(connection, self._ledger, lease)
            hold_batch(connection, self._ledger, batch, lease)
            back = self._settle(connection, rows, restored, RowState.RELEASED, true())
            connection.execute(update(table).where(table.c.id == batch.id).values(stamps))
        return back

    def demand_releasing(self, batch: Batch) -> bool:
        """Return True while *batch* goes back in the attempt that is named.

        Raises:
            LeaseLost: Another owner has finished that.
        """
        table = self._ledger.batch
        this = select(table.c.id).where(
            table.c.id == batch.id,
            table.c.state == BatchState.RELEASING,
            table.c.attempt == batch.attempt,
        )
        doing = f"looking whether batch {batch.id} still goes back"
        if not self._asked(doing, lambda connection: connection.execute(this).first() is not None):
            raise LeaseLost(f"batch {batch.id} does not go back any more; nothing was restored")
        return True

    def rows_of(self, batch: Batch) -> Sequence[KeptRow]:
        """Return the rows of *batch* that are not back yet, those in quarantine as well."""
        row = self._ledger.timeout
        is_here = row.c.state.is_(None) | (row.c.state == RowState.QUARANTINED)
        rows = (
            kept_rows(self._ledger)
            .where(row.c.batch_id == batch.id, is_here)
            .order_by(row.c.row_index)
        )
        doing = f"reading the rows of batch {batch.id}"
        found = self._asked(doing, lambda connection: connection.execute(rows).all())
        return [kept_row(each) for each in found]

    # ── putting back single rows ────────────────────────────────────────────────────────────

    def quarantined_sources(self, which: QuarantineFilter) -> Sequence[str]:
        row, batch = self._ledger.timeout, self._ledger.batch
        sources = select(row.c.source).where(*in_quarantine(row, batch, which)).distinct()
        doing = "looking where quarantined rows came from"
        with reading(self._engine, LedgerError, doing=doing) as connection:
            return sorted(connection.scalars(sources))

    def begin_return(
        self, source: str | None, which: QuarantineFilter, *, after: int
    ) -> Sequence[KeptRow]:
        """Record that the next quarantined rows, with ids above *after*, go back."""
        row, batch = self._ledger.timeout, self._ledger.batch
        unsettled = [*OPEN, BatchState.DOUBTFUL]
        settled = select(batch.c.id).where(batch.c.state.not_in(unsettled))
        query = (
            kept_rows(self._ledger)
            .where(
                *in_quarantine(row, batch, which),
                row.c.batch_id.in_(settled),
                row.c.id > after,
                *([] if source is None else [row.c.source == source]),
            )
            .order_by(row.c.id)
        )
        query = first_for_update(
            query, row, at_most=_RETURNED_AT_A_TIME, dialect=self._engine.dialect.name
        )
        doing = "recording that quarantined rows go back"
        with writing(self._engine, LedgerError, doing=doing) as connection:
            found = [kept_row(each) for each in connection.execute(query)]
            self.mark_going(connection, found, RowState.RELEASED)
        return found

    def kept(self, connection: Connection, ids: Collection[int]) -> Sequence[KeptRow]:
        row = self._ledger.timeout
        return [
            kept_row(found)
            for some in slices(sorted(ids))
            for found in connection.execute(kept_rows(self._ledger).where(row.c.id.in_(some)))
        ]

    def mark_going(
        self, connection: Connection, rows: Sequence[KeptRow], towards: RowState
    ) -> None:
        """Record, in the caller's transaction, that *rows* go back and become *towards*."""
        row = self._ledger.timeout
        for some in slices([each.id for each in rows]):
            connection.execute(update(row).where(row.c.id.in_(some)).values(going_back=towards))

    def find_going_back(self, row: KeptRow, towards: RowState) -> bool:
        table = self._ledger.timeout
        this = select(table.c.id).where(table.c.id == row.id, table.c.going_back == towards)
        doing = "looking whether a row still goes back"
        return self._asked(doing, lambda connection: connection.execute(this).first() is not None)

    def confirm_return(
        self, rows: Sequence[KeptRow], restored: Collection[TimeoutId], towards: RowState
    ) -> int:
        """Record the outcome of *rows* that went back; return how many are back.

        Rows of the quarantine that are not back stay there, with the reason. Rows whose outcome
        another process has recorded are left unchanged.
        """
        row = self._ledger.timeout
        doing = "recording which rows are back"
        with writing(self._engine, LedgerError, doing=doing) as connection:
            return self._settle(connection, rows, restored, towards, row.c.going_back == towards)

    def _settle(
        self,
        connection: Connection,
        rows: Sequence[KeptRow],
        restored: Collection[TimeoutId],
        towards: RowState,
        which: ColumnElement[bool],
    ) -> int:
        """Record the outcome of those of *rows* that *which* means; return how many are back."""
        row, settled = self._ledger.timeout, 0
        back = [each.id for each in rows if each.document.id in restored]
        left = [each.id for each in rows if each.document.id not in restored]
        for some in slices(back):
            values = {"state": towards, "going_back": None}
            found = connection.execute(update(row).where(row.c.id.in_(some), which).values(values))
            settled += found.rowcount
        for some in slices(left):
            taken: dict[str, Any] = {"going_back": None}
            if towards is RowState.RELEASED:
                taken |= {
                    "state": RowState.QUARANTINED,
                    "reason": Reason.ID_TAKEN,
                    "reason_detail": "the store has another timeout with this id; remove one",
                }
            connection.execute(update(row).where(row.c.id.in_(some), which).values(taken))
        return settled

    # ── parts ───────────────────────────────────────────────────────────────────────────────

    def _known(self, connection: Connection, source: str, ids: Sequence[TimeoutId]) -> set[str]:
        row = self._ledger.timeout
        found: set[str] = set()
        for some in slices(ids):
            query = select(row.c.store_id).where(
                row.c.source == source, self._ledger.are_open(row, some)
            )
            found |= {*connection.scalars(query)}
        return found

    def _asked(self, doing: str, work: Callable[[Connection], T]) -> T:
        return retrying_read(self._engine, work, failed=LedgerError, doing=doing)


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
        reason, detail = Reason.UNREADABLE_HEADERS, "a character that no database accepts"
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
    for start in range(0, len(items), _IDS_AT_A_TIME):
        yield items[start : start + _IDS_AT_A_TIME]
