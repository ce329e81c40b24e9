"""Claiming and releasing in a SQL database that holds the ledger as well.

Rules of this file: each call is one local transaction; whoever writes for a lane proves first
that the lane is still theirs; no transaction is open when a call returns.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Final

import sqlalchemy as sa

from migrator.database import mssql
from migrator.database.engine import reading, writing
from migrator.database.portable import (
    first_for_update,
    flag,
    prefer_indexes,
    row_by_row,
)
from migrator.database.types import database_now
from migrator.errors import IllegalTransition, LeaseLost, StoreError, StoreLocked
from migrator.ledger.claims import insert_trial_run, open_batch, under_lease
from migrator.ledger.quarantine import in_quarantine
from migrator.ledger.report import ANY_QUARANTINED, QuarantineFilter
from migrator.ledger.states import OPEN, BatchState, Event, RowState, next_state
from migrator.ledger.tables import LedgerTables
from migrator.ledger.work import Batch, Lease, StoreEndpoint
from migrator.stores.ports import Claim, ClaimRequest, Cursor, returned, trial_request
from migrator.stores.sql.dialects import Dialect, dialect_for
from migrator.stores.sql.dialects.base import CLAIM_LOCKS
from migrator.stores.sql.legacy_table import LegacyTable
from migrator.stores.sql.moving import Move, demand, ids_for, wanted

_RELEASE_ROWS: Final = 500
"""Quarantined rows put back per transaction."""
_LOOKED_AT_ONCE: Final = 50
"""Tables in one statement."""
_LOOK_LOCKS: Final = timedelta(seconds=0.2)
"""So long a look at several tables waits for one that another transaction keeps."""
_COUNTED: Final = {"preserve_rowcount": True}
_LEDGER_COLUMNS: Final = {
    "Id": "store_id",
    "Destination": "destination",
    "SagaId": "saga_id",
    "State": "body",
    "Time": "due",
    "Headers": "headers",
    "PersistenceVersion": "persistence_version",
}


class SqlClaims:
    """Implements ``DispatchClaims`` over one database."""

    can_seek = True
    is_atomic = True

    def __init__(
        self, engine: sa.Engine, ledger: LedgerTables, table_of: Callable[[str], LegacyTable]
    ) -> None:
        """Move rows between legacy tables and *ledger*, both in the database of *engine*.

        *table_of* returns the table that a source names, or raises ``StoreError``.
        """
        self._engine = engine
        self._ledger = ledger
        self._table_of = table_of
        self._dialect = dialect_for(engine.dialect.name)

    def claim(self, request: ClaimRequest) -> Claim | None:
        """Move the soonest due rows into a new batch; see ``Claims``."""
        legacy = self._table_of(request.endpoint.source)
        if request.only is not None and not ids_for(legacy, request.only):
            return None
        with writing(
            self._engine, StoreError, doing=f"claiming from {legacy.source}"
        ) as connection:
            with under_lease(connection, self._ledger, request.lease):
                claim = self.claim_within(connection, legacy, request)
            if claim is None:
                connection.rollback()
        return claim

    def promising(self, requests: Sequence[ClaimRequest]) -> Sequence[ClaimRequest]:
        """Look without a lock or a transaction id; see ``Claims``."""
        starts = range(0, len(requests), _LOOKED_AT_ONCE)
        parts = (requests[start : start + _LOOKED_AT_ONCE] for start in starts)
        return [each for some in parts for each in self._promising(some)]

    def _promising(self, requests: Sequence[ClaimRequest]) -> Sequence[ClaimRequest]:
        sources = {each.endpoint.source for each in requests}
        of = f" from {min(sources)}" if len(sources) == 1 else ""
        doing = f"looking for rows to claim{of}"
        try:
            query = sa.select(
                *(is_there(self._table_of(each.endpoint.source), each) for each in requests)
            )
            with reading(self._engine, StoreError, doing=doing) as connection:
                prefer_indexes(connection)
                locks = _LOOK_LOCKS if len(sources) > 1 else _LOOK_LOCKS / 2
                self._dialect.bound_locks(connection, locks)
                found = connection.execute(query).one()
        except StoreLocked as exc:
            if mssql.is_lock_timeout(exc.__cause__):
                return requests  # a claim reads past what this waited for
            raise
        return [each for each, is_there in zip(requests, found, strict=True) if is_there]

    def claim_within(
        self, connection: sa.Connection, legacy: LegacyTable, request: ClaimRequest
    ) -> Claim | None:
        """Claim as part of the caller's transaction, without looking at the lease.

        On None an empty batch was written: the caller rolls back.
        """
        batch = open_batch(
            connection,
            self._ledger,
            run=request.run,
            endpoint=request.endpoint,
            lease=request.lease,
            mode=request.mode,
            state=BatchState.CLAIMED,
            claimed_at=database_now(),
        )
        move = Move(legacy=legacy, ledger=self._ledger, request=request, batch_id=batch.id)
        moved = self._dialect.move(connection, move)
        if moved is None:
            return None
        claimed = replace(batch, size=moved.size, body_bytes=moved.body_bytes, fresh=moved.rows)
        table = self._ledger.batch
        statement = sa.update(table).where(table.c.id == batch.id)
        connection.execute(
            statement.values(
                size=moved.size,
                body_bytes=moved.body_bytes,
                first_due=moved.first_due,
                last_due=moved.last_due,
            )
        )
        return Claim(batch=claimed, cursor=Cursor(due_at=moved.last_due, id=moved.last_id))

    def resume(self, batch: Batch, lease: Lease) -> Batch | None:
        """Refuse: one transaction leaves nothing half-done."""
        raise IllegalTransition(f"a batch of a SQL store is never {batch.state}")

    def release(self, batch: Batch, lease: Lease) -> int:
        """Put every row of a claimed batch back; see ``Claims``."""
        state = next_state(batch.state, Event.RELEASE)
        legacy = self._table_of(batch.source)
        table, row = self._ledger.batch, self._ledger.timeout
        with writing(
            self._engine, StoreError, doing=f"releasing batch {batch.id} to {batch.source}"
        ) as connection:
            changed = connection.execute(
                sa.update(table)
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

    def release_quarantined(
        self, endpoint: StoreEndpoint | None, which: QuarantineFilter = ANY_QUARANTINED
    ) -> int:
        """Put quarantined rows of settled batches back; see ``Claims``.

        Only those that *which* means, where it is given.
        """
        sources = self._sources(which) if endpoint is None else [endpoint.source]
        return returned(sources, lambda source: self._release_quarantined_of(source, which))

    def put_back(
        self,
        connection: sa.Connection,
        legacy: LegacyTable,
        which: sa.ColumnElement[bool],
        *,
        state: RowState = RowState.RELEASED,
    ) -> int:
        """Insert the ledger rows that match *which* into the legacy table, mark them *state*.

        The caller holds a lock that keeps the set from changing. Returns how many.
        """
        row = self._ledger.timeout
        put = self._insert(connection, legacy, which)
        marking = row_by_row(sa.update(row).where(which).values(state=state))
        marked = connection.execute(marking)
        demand(legacy, "put back", put, of=marked.rowcount)
        return put

    def _insert(
        self, connection: sa.Connection, legacy: LegacyTable, which: sa.ColumnElement[bool]
    ) -> int:
        putting = putting_back(self._dialect, self._ledger, legacy, which)
        return connection.execute(putting, execution_options=_COUNTED).rowcount

    def _sources(self, which: QuarantineFilter) -> list[str]:
        row, batch = self._ledger.timeout, self._ledger.batch
        query = sa.select(row.c.source).where(*in_quarantine(row, batch, which)).distinct()
        doing = "reading the quarantine"
        with reading(self._engine, StoreError, doing=doing) as connection:
            prefer_indexes(connection)
            return sorted(connection.scalars(query))

    def _release_quarantined_of(self, source: str, which: QuarantineFilter) -> int:
        legacy, released = self._table_of(source), 0
        row, batch = self._ledger.timeout, self._ledger.batch
        unsettled = [*OPEN, BatchState.DOUBTFUL]
        query = (
            sa.select(row.c.id)
            .join(batch, batch.c.id == row.c.batch_id)
            .where(
                *in_quarantine(row, batch, which),
                row.c.source == source,
                batch.c.state.not_in(unsettled),
            )
            .order_by(row.c.id)
        )
        query = first_for_update(
            query, row, at_most=_RELEASE_ROWS, dialect=self._engine.dialect.name
        )
        while True:
            with writing(
                self._engine, StoreError, doing=f"releasing quarantined rows to {source}"
            ) as connection:
                prefer_indexes(connection)
                ids = list(connection.scalars(query))
                if not ids:
                    return released
                released += self.put_back(connection, legacy, row.c.id.in_(ids))


def is_there(legacy: LegacyTable, request: ClaimRequest) -> sa.ColumnElement[int]:
    """Return 1 when rows are there that are wanted, else 0."""
    return flag(sa.exists().select_from(legacy.table).where(*wanted(legacy, request)))


def putting_back(
    dialect: Dialect, ledger: LedgerTables, legacy: LegacyTable, which: sa.ColumnElement[bool]
) -> sa.Insert:
    """Return what writes the ledger's rows that match *which* into their table, as they were."""
    row = ledger.timeout
    values = {
        key: dialect.as_stored(row.c[_LEDGER_COLUMNS[key]], legacy, key) for key in legacy.keys
    } | {
        key: sa.func.coalesce(
            sa.cast(dialect.kept_owner(row.c.store_extra), legacy.table.c[key].type),
            sa.literal(value),
        )
        for key, value in legacy.constants.items()
    }
    return sa.insert(legacy.table).from_select(
        [legacy.table.c[key] for key in values], sa.select(*values.values()).where(which)
    )


def trial_claim(
    engine: sa.Engine, ledger: LedgerTables, legacy: LegacyTable, endpoint: StoreEndpoint
) -> None:
    """Claim one row, put it back, and roll all of it back; see ``Store.trial_claim``."""
    claims = SqlClaims(engine, ledger, lambda _source: legacy)
    doing = f"a trial claim from {legacy.source}; nothing was changed"
    with writing(engine, StoreError, doing=doing) as connection:
        dialect_for(connection.dialect.name).bound_locks(connection, CLAIM_LOCKS)
        _check_rights(connection, legacy)
        request = trial_request(insert_trial_run(connection, ledger, endpoint), endpoint)
        claim = claims.claim_within(connection, legacy, request)
        # without a row, too: the right to insert is looked at all the same
        batch = claim.batch.id if claim else None
        claims.put_back(connection, legacy, ledger.timeout.c.batch_id == batch)
        connection.rollback()


def _check_rights(connection: sa.Connection, legacy: LegacyTable) -> None:
    """Tell which right is missing; the server's own message names only the table."""
    dialect = dialect_for(connection.dialect.name)
    obstacle = dialect.obstacle(connection, legacy)
    if obstacle is not None:
        raise StoreError(f"nothing can be claimed from {legacy.source}: {obstacle}")
    missing = dialect.missing_rights(connection, legacy)
    if missing:
        raise StoreError(
            f"the database user lacks {', '.join(missing)} on {legacy.source}; nothing was "
            "changed: have your DBA run what `migrator db grants` prints"
        )
