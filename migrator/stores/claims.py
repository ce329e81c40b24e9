"""Claiming and releasing in a SQL database that holds the ledger as well.

Rules of this file: each call is one local transaction; whoever writes for a lane proves first
that the lane is still theirs; no transaction is open when a call returns.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final, Protocol

from sqlalchemy import ColumnElement, Connection, CursorResult, Engine, insert, select, update

from migrator.database.engine import reading, writing
from migrator.database.failures import translating
from migrator.database.types import database_now
from migrator.domain.states import OPEN, BatchState, Event, RowState, next_state
from migrator.domain.timeouts import BatchId
from migrator.errors import LeaseLost, StoreError
from migrator.ports import Batch, Claim, ClaimRequest, Cursor, Lease, StoreEndpoint
from migrator.stores.ledger_side import LedgerSide
from migrator.stores.legacy_table import COLUMNS, LegacyTable
from migrator.stores.moving import Moved, mover_for

_RELEASE_ROWS: Final = 500
"""Quarantined rows put back per transaction."""
_LEDGER_COLUMNS: Final = {
    "Id": "store_id",
    "Destination": "destination",
    "SagaId": "saga_id",
    "State": "body",
    "Time": "due",
    "Headers": "headers",
    "PersistenceVersion": "persistence_version",
}


class LegacyTables(Protocol):
    """Where a store keeps its tables."""

    def legacy_table(self, source: str) -> LegacyTable:
        """Return the table that *source* names, or raise ``StoreError``."""
        ...


class SqlClaims:
    """Implements ``ports.Claims`` over one database."""

    def __init__(self, engine: Engine, ledger: LedgerSide, legacy: LegacyTables) -> None:
        """Move rows between the *legacy* tables and *ledger*, both in the database of *engine*."""
        self._engine = engine
        self._ledger = ledger
        self._legacy = legacy
        self._mover = mover_for(engine.dialect.name, ledger)

    def claim(self, request: ClaimRequest) -> Claim | None:
        """Move the soonest due rows into a new batch; see ``ports.Claims``."""
        legacy = self._legacy.legacy_table(request.endpoint.source)
        with self._transaction(f"claiming from {legacy.source}") as connection:
            self._hold_lease(connection, request.lease)
            claim = self.claim_within(connection, legacy, request)
            if claim is None:
                connection.rollback()
        return claim

    def claim_within(
        self, connection: Connection, legacy: LegacyTable, request: ClaimRequest
    ) -> Claim | None:
        """Claim as part of the caller's transaction, without looking at the lease.

        On None an empty batch was written: the caller rolls back.
        """
        batch_id = self._insert_batch(connection, request)
        moved = self._mover.move(connection, legacy, request, batch_id)
        if moved is None:
            return None
        self._complete_batch(connection, batch_id, moved)
        return Claim(
            batch=_batch_of(request, batch_id, moved),
            cursor=Cursor(due_at=moved.last_due, id=moved.last_id),
        )

    def release(self, batch: Batch, lease: Lease) -> int:
        """Put every row of a claimed batch back; see ``ports.Claims``."""
        state = next_state(batch.state, Event.RELEASE)
        legacy = self._legacy.legacy_table(batch.source)
        table, row = self._ledger.batch, self._ledger.timeout
        with self._transaction(f"releasing batch {batch.id} to {batch.source}") as connection:
            changed = connection.execute(
                update(table)
                .where(
                    table.c.id == batch.id,
                    table.c.state == batch.state,
                    table.c.attempt == batch.attempt,
                    table.c.lease_token == lease.token,
                )
                .values(state=state, attempt=batch.attempt + 1, released_at=database_now())
            )
            if changed.rowcount != 1:
                raise LeaseLost(f"batch {batch.id} is no longer lane {lease.lane}'s to release")
            still_here = row.c.state.is_(None) | (row.c.state == RowState.QUARANTINED)
            return self.put_back(connection, legacy, (row.c.batch_id == batch.id) & still_here)

    def release_quarantined(self, endpoint: StoreEndpoint | None) -> int:
        """Put quarantined rows of settled batches back; see ``ports.Claims``."""
        return sum(self._release_quarantined_of(source) for source in self._sources(endpoint))

    def put_back(
        self, connection: Connection, legacy: LegacyTable, which: ColumnElement[bool]
    ) -> int:
        """Insert the ledger rows that match *which* into the legacy table, mark them released.

        The caller holds a lock that keeps the set from changing. Returns how many.
        """
        row = self._ledger.timeout
        columns = [
            self._mover.as_stored(row.c[_LEDGER_COLUMNS[key]], legacy, key) for key in COLUMNS
        ]
        put = connection.execute(
            insert(legacy.table).from_select(
                [legacy.table.c[key] for key in COLUMNS], select(*columns).where(which)
            ),
            execution_options={"preserve_rowcount": True},
        )
        marked = connection.execute(update(row).where(which).values(state=RowState.RELEASED))
        if put.rowcount != marked.rowcount:
            raise StoreError(
                f"{legacy.source} took {put.rowcount} of {marked.rowcount} rows; rolled back"
            )
        return marked.rowcount

    def _sources(self, endpoint: StoreEndpoint | None) -> list[str]:
        if endpoint is not None:
            return [endpoint.source]
        row = self._ledger.timeout
        query = select(row.c.source).where(row.c.state == RowState.QUARANTINED).distinct()
        doing = "reading the quarantine"
        with translating(StoreError, doing=doing), reading(self._engine) as connection:
            return sorted(connection.scalars(query))

    def _release_quarantined_of(self, source: str) -> int:
        legacy, released = self._legacy.legacy_table(source), 0
        row, batch = self._ledger.timeout, self._ledger.batch
        unsettled = [*OPEN, BatchState.DOUBTFUL]
        query = (
            select(row.c.id)
            .join(batch, batch.c.id == row.c.batch_id)
            .where(
                row.c.state == RowState.QUARANTINED,
                row.c.source == source,
                batch.c.state.not_in(unsettled),
            )
            .order_by(row.c.id)
            .limit(_RELEASE_ROWS)
            .with_for_update(of=row)
        )
        while True:
            with self._transaction(f"releasing quarantined rows to {source}") as connection:
                ids = list(connection.scalars(query))
                if not ids:
                    return released
                released += self.put_back(connection, legacy, row.c.id.in_(ids))

    def _hold_lease(self, connection: Connection, lease: Lease) -> None:
        """Keep the lane from changing hands until the end of the transaction.

        ``FOR KEY SHARE`` waits for no renewal and makes none wait; taking the lane over locks
        the row ``FOR UPDATE`` and therefore waits for us.
        """
        table = self._ledger.lease
        query = (
            select(table.c.token)
            .where(
                table.c.name == self._ledger.lease_name(lease.lane), table.c.token == lease.token
            )
            .with_for_update(read=True, key_share=True)
        )
        if connection.execute(query).first() is None:
            raise LeaseLost(f"lane {lease.lane} has another owner than {lease.owner} now")

    def _insert_batch(self, connection: Connection, request: ClaimRequest) -> int:
        statement = insert(self._ledger.batch).values(
            run_id=request.run,
            endpoint=request.endpoint.name,
            source=request.endpoint.source,
            lane=request.lease.lane,
            mode=request.mode,
            state=BatchState.CLAIMED,
            attempt=0,
            size=0,
            body_bytes=0,
            owner=request.lease.owner,
            lease_token=request.lease.token,
            claimed_at=database_now(),
        )
        return inserted_id(connection.execute(statement))

    def _complete_batch(self, connection: Connection, batch_id: int, moved: Moved) -> None:
        table = self._ledger.batch
        connection.execute(
            update(table)
            .where(table.c.id == batch_id)
            .values(
                size=moved.size,
                body_bytes=moved.body_bytes,
                first_due=moved.first_due,
                last_due=moved.last_due,
            )
        )

    @contextmanager
    def _transaction(self, doing: str) -> Iterator[Connection]:
        with translating(StoreError, doing=doing), writing(self._engine) as connection:
            yield connection


def inserted_id(result: CursorResult[Any]) -> int:
    """Return the id the database gave the row that was just inserted."""
    key = result.inserted_primary_key
    if key is None:
        raise StoreError("the database returned no id for a new row; rolled back")
    return int(key[0])


def _batch_of(request: ClaimRequest, batch_id: int, moved: Moved) -> Batch:
    return Batch(
        id=BatchId(batch_id),
        run=request.run,
        endpoint=request.endpoint.name,
        source=request.endpoint.source,
        lane=request.lease.lane,
        mode=request.mode,
        state=BatchState.CLAIMED,
        attempt=0,
        size=moved.size,
        body_bytes=moved.body_bytes,
    )
