"""Claiming and releasing in a SQL database that contains the ledger as well.

Rules of this file: each call is one local transaction. Writing for a lane begins with proving the
ownership of the lane. No transaction is open when a call returns.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Final

import sqlalchemy as sa

from migrator.database import mssql
from migrator.database.engine import reading, writing
from migrator.database.failures import is_of_row
from migrator.database.portable import (
    among,
    first_for_update,
    flag,
    prefer_indexes,
    row_by_row,
)
from migrator.database.types import database_now
from migrator.errors import IllegalTransition, LeaseLost, RowsKept, StoreError, StoreLocked
from migrator.ledger.claims import in_quarantine, insert_trial_run, open_batch, under_lease
from migrator.ledger.report import ANY_QUARANTINED, QuarantineFilter
from migrator.ledger.states import OPEN, BatchState, Event, RowState, next_state
from migrator.ledger.tables import LedgerTables
from migrator.ledger.work import Batch, Lease, StoreEndpoint
from migrator.nservicebus.conversion import Reason, error_text
from migrator.nservicebus.timeouts import RunId
from migrator.stores.ports import returned
from migrator.stores.requests import Claim, ClaimRequest, Cursor, trial_request
from migrator.stores.sql.dialects import dialect_for
from migrator.stores.sql.dialects.base import CLAIM_LOCKS
from migrator.stores.sql.legacy_table import LegacyTable
from migrator.stores.sql.moving import Move, candidates, ids_for, in_ledger, wanted
from migrator.stores.sql.returns import PutBackRefused, Refusals, Returns, ids_there, not_all_put

_log = logging.getLogger(__name__)

_ODD_AT_ONCE: Final = 20
_TRIALS: Final = 10
_LEFT_S: Final = 60.0
_LEFT_PER_MINUTE: Final = 4
_RELEASE_ROWS: Final = 500
_MOST_COUNTED: Final = 10_000
"""Counted rows are locked by other transactions; a higher number would help no caller."""
_LOOKED_AT_ONCE: Final = 50
_LOOK_LOCKS: Final = timedelta(seconds=0.2)
"""How long a check of several tables waits for one that another transaction has locked."""


class SqlClaims:
    """Implements ``DispatchClaims``; legacy tables and *ledger* are in one database.

    *table_of* returns the table that a source names, or raises ``StoreError``.
    """

    can_seek = True
    is_atomic = True

    def __init__(
        self,
        engine: sa.Engine,
        ledger: LedgerTables,
        table_of: Callable[[str], LegacyTable],
        monotonic_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self._engine = engine
        self._ledger = ledger
        self._table_of = table_of
        self._dialect = dialect_for(engine.dialect.name)
        self._monotonic_s = monotonic_s
        self._left: dict[str, dict[str, tuple[float, str]]] = {}
        """By source: skipped rows, until when, and why."""
        self._removes_from = set[str]()
        self._returns = Returns(engine=engine, ledger=ledger, dialect=self._dialect)

    def claim(self, request: ClaimRequest) -> Claim | None:
        legacy = self._table_of(request.endpoint.source)
        if request.only is not None and not ids_for(legacy, request.only):
            return None
        for _ in range(_ODD_AT_ONCE):
            given = self._but_for_left(request)
            try:
                return self._claim(legacy, given)
            except Exception as exc:
                if not is_of_row(exc):
                    raise
            claim = self._claim_beside(legacy, given)
            if claim is not None:
                return claim
        return self._claim(legacy, self._but_for_left(request))

    def _claim(
        self, legacy: LegacyTable, request: ClaimRequest, *, why: str | None = None
    ) -> Claim | None:
        """With *why*, claim into quarantine, without reading any text."""
        doing = f"claiming from {legacy.source}"
        with writing(self._engine, StoreError, doing=doing) as connection:
            with under_lease(connection, self._ledger, request.lease):
                claim = self.claim_within(connection, legacy, request, is_unread=why is not None)
                if claim is not None and why is not None:
                    self._quarantine(connection, claim.batch, why)
            if claim is None:
                connection.rollback()
        return claim

    def _claim_beside(self, legacy: LegacyTable, request: ClaimRequest) -> Claim | None:
        """Claim some of the rows of which at least one cannot be claimed; None: try the others.

        By halves of halves, until that row is alone: it goes to quarantine unread, or is skipped
        for a while.
        """
        doing = f"looking for what keeps rows of {legacy.source} from being claimed"
        with reading(self._engine, StoreError, doing=doing) as connection:
            prefer_indexes(connection)
            some = list(connection.scalars(candidates(legacy, self._ledger, request)))
        while some:
            first = some[: max(len(some) // 2, 1)]
            named = replace(request, only=first, cursor=None)
            try:
                claim = self._claim(legacy, named)
            except Exception as exc:
                if not is_of_row(exc):
                    raise
                if len(first) == 1:
                    return self._claim_unread(legacy, named, first[0], exc)
                some = first
                continue
            if claim is not None:
                return claim
            some = some[len(first) :]  # others have them
        return None

    def _claim_unread(
        self, legacy: LegacyTable, request: ClaimRequest, row: str, error: Exception
    ) -> Claim | None:
        try:
            return self._claim(legacy, request, why=error_text(error))
        except Exception as exc:
            if not is_of_row(exc):
                raise
            left = self._left.setdefault(legacy.source, {})
            wait_s = _LEFT_S * max(len(left) / _LEFT_PER_MINUTE, 1.0)
            left[row] = self._monotonic_s() + wait_s, error_text(exc)
            _log.warning(
                "a row cannot be claimed; it stays in the store and is tried again later",
                extra={
                    "action": "row_left",
                    "endpoint": request.endpoint.name,
                    "source": legacy.source,
                    "timeout": row,
                    "error": str(exc),
                    "seconds": round(wait_s),
                },
            )
            return None

    def _but_for_left(self, request: ClaimRequest) -> ClaimRequest:
        left = self._left.get(request.endpoint.source)
        if not left:
            return request
        now_s = self._monotonic_s()
        return replace(
            request, but_for=[row for row, (until_s, _) in [*left.items()] if until_s > now_s]
        )

    def unclaimable(self) -> Mapping[str, Mapping[str, str]]:
        now_s = self._monotonic_s()
        return {
            source: {row: why for row, (until_s, why) in [*left.items()] if until_s > now_s}
            for source, left in [*self._left.items()]
        }

    def _quarantine(self, connection: sa.Connection, batch: Batch, why: str) -> None:
        row = self._ledger.timeout
        values = {
            "state": RowState.QUARANTINED,
            "reason": Reason.UNPROCESSABLE,
            "reason_detail": why,
        }
        connection.execute(
            row_by_row(sa.update(row).where(row.c.batch_id == batch.id).values(values))
        )

    def promising(self, requests: Sequence[ClaimRequest]) -> Sequence[ClaimRequest]:
        starts = range(0, len(requests), _LOOKED_AT_ONCE)
        parts = (requests[start : start + _LOOKED_AT_ONCE] for start in starts)
        return [each for some in parts for each in self._promising(some)]

    def _promising(self, requests: Sequence[ClaimRequest]) -> Sequence[ClaimRequest]:
        sources = {each.endpoint.source for each in requests}
        of = f" from {min(sources)}" if len(sources) == 1 else ""
        doing = f"looking for rows to claim{of}"
        try:
            query = sa.select(
                *(
                    is_there(self._table_of(each.endpoint.source), self._but_for_left(each))
                    for each in requests
                )
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

    def unclaimed(self, request: ClaimRequest) -> int:
        legacy, request = self._table_of(request.endpoint.source), self._but_for_left(request)
        some = (
            sa.select(sa.literal_column("1").label("one"))
            .select_from(legacy.table)
            .where(*wanted(legacy, request), in_ledger(legacy, self._ledger).is_(None))
            .limit(_MOST_COUNTED)
            .subquery()
        )
        doing = f"counting what is left in {legacy.source}"
        try:
            with reading(self._engine, StoreError, doing=doing) as connection:
                prefer_indexes(connection)
                return int(
                    connection.execute(sa.select(sa.func.count()).select_from(some)).scalar_one()
                )
        except StoreLocked as exc:
            if mssql.is_lock_timeout(exc.__cause__):
                return 1  # there is at least one, which another transaction has locked
            raise

    def claim_within(
        self,
        connection: sa.Connection,
        legacy: LegacyTable,
        request: ClaimRequest,
        *,
        is_unread: bool = False,
    ) -> Claim | None:
        """Claim as part of the caller's transaction, without checking the lease.

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
        try:
            if is_unread:
                moved = self._dialect.move_unread(connection, move)
            else:
                moved = self._dialect.move(connection, move)
            if moved is None:
                return None
            self._demand_gone(connection, legacy, moved.last_id)
        except RowsKept as exc:
            names = self._dialect.delete_triggers(connection, legacy)
            raise RowsKept(f"{exc}; {kept_by(names)}") from exc
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

    def _demand_gone(self, connection: sa.Connection, legacy: LegacyTable, last_id: str) -> None:
        """Check, once per source, that a removed row is gone.

        A trigger may write it again, or act instead of the server, which counts it as removed all
        the same.

        Raises:
            RowsKept: It is still there; the caller rolls back.
        """
        if legacy.source in self._removes_from:
            return
        if ids_there(connection, legacy, [last_id]):
            raise RowsKept(f"{legacy.source}: rows that are removed stay there; rolled back")
        self._removes_from.add(legacy.source)

    def resume(self, batch: Batch, lease: Lease) -> Batch | None:
        raise IllegalTransition(f"a batch of a SQL store is never {batch.state}")

    def release(self, batch: Batch, lease: Lease) -> int:
        try:
            return self._release(batch, lease, {})
        except PutBackRefused as exc:
            return self._release(batch, lease, self._returns.refusals(exc))

    def _release(self, batch: Batch, lease: Lease, refused: Refusals) -> int:
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
            self._returns.set_aside(connection, refused)
            still_here = row.c.state.is_(None) | (row.c.state == RowState.QUARANTINED)
            which = sa.and_(row.c.batch_id == batch.id, still_here, *but_for(row, refused))
            return self.put_back(connection, legacy, which)

    def release_quarantined(
        self, endpoint: StoreEndpoint | None, which: QuarantineFilter = ANY_QUARANTINED
    ) -> int:
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

        Raises:
            PutBackRefused: The table does not take all of them; the caller rolls back.
        """
        row = self._ledger.timeout
        put = self._returns.insert(connection, legacy, which)
        marking = row_by_row(sa.update(row).where(which).values(state=state))
        marked = connection.execute(marking).rowcount
        if put != marked:
            raise not_all_put(legacy, which, put, of=marked)
        return put

    def refusals(self, refused: PutBackRefused) -> Refusals:
        return self._returns.refusals(refused)

    def count_taken(self, source: str) -> int:
        return self._returns.count_taken(self._table_of(source))

    def _sources(self, which: QuarantineFilter) -> list[str]:
        row, batch = self._ledger.timeout, self._ledger.batch
        query = sa.select(row.c.source).where(*in_quarantine(row, batch, which)).distinct()
        doing = "reading the quarantine"
        with reading(self._engine, StoreError, doing=doing) as connection:
            prefer_indexes(connection)
            return sorted(connection.scalars(query))

    def _release_quarantined_of(self, source: str, which: QuarantineFilter) -> int:
        legacy, released, last = self._table_of(source), 0, 0
        while True:
            try:
                keys, put = self._release_some(legacy, which, last, {})
            except PutBackRefused as exc:
                refused = self._returns.refusals(exc)
                keys, put = self._release_some(legacy, which, last, refused)
            if not keys:
                return released
            released, last = released + put, keys[-1]

    def _release_some(
        self, legacy: LegacyTable, which: QuarantineFilter, last: int, refused: Refusals
    ) -> tuple[Sequence[int], int]:
        row, batch = self._ledger.timeout, self._ledger.batch
        unsettled = [*OPEN, BatchState.DOUBTFUL]
        query = (
            sa.select(row.c.id)
            .join(batch, batch.c.id == row.c.batch_id)
            .where(
                *in_quarantine(row, batch, which),
                row.c.source == legacy.source,
                row.c.id > last,
                batch.c.state.not_in(unsettled),
            )
            .order_by(row.c.id)
        )
        query = first_for_update(
            query, row, at_most=_RELEASE_ROWS, dialect=self._engine.dialect.name
        )
        doing = f"releasing quarantined rows to {legacy.source}"
        with writing(self._engine, StoreError, doing=doing) as connection:
            prefer_indexes(connection)
            keys = list(connection.scalars(query))
            free = [key for key in keys if key not in refused]
            self._returns.set_aside(connection, {k: refused[k] for k in keys if k in refused})
            put = self.put_back(connection, legacy, row.c.id.in_(free)) if free else 0
        return keys, put


def but_for(row: sa.Table, refused: Refusals) -> Sequence[sa.ColumnElement[bool]]:
    return [~among(row.c.id, refused)] if refused else []


def kept_by(names: Sequence[str]) -> str:
    if not names:
        return "find the trigger, rule or policy that keeps them, and drop or disable it"
    return f"drop or disable what may keep them: {', '.join(names)}"


def is_there(legacy: LegacyTable, request: ClaimRequest) -> sa.ColumnElement[int]:
    return flag(sa.exists().select_from(legacy.table).where(*wanted(legacy, request)))


def trial_claim(
    engine: sa.Engine, ledger: LedgerTables, legacy: LegacyTable, endpoint: StoreEndpoint
) -> None:
    """Claim one row, put it back, and roll everything back; see ``Store.trial_claim``.

    An unclaimable row proves nothing about the table: the next one is tried. If all are
    unclaimable, the last error says why.
    """
    but_for: list[str] = []
    last_error: Exception | None = None
    while True:
        try:
            is_claimed = _try_claim(engine, ledger, legacy, endpoint, but_for)
        except Exception as exc:
            if len(but_for) == _TRIALS or not is_of_row(exc):
                raise
            last_error = exc
            asked = replace(trial_request(RunId(0), endpoint), but_for=but_for)
            with reading(engine, StoreError, doing=f"reading {legacy.source}") as connection:
                prefer_indexes(connection)
                found = list(connection.scalars(candidates(legacy, ledger, asked)))
            if not found:
                raise
            but_for += found
        else:
            if last_error is not None and not is_claimed:
                raise last_error
            return


def _try_claim(
    engine: sa.Engine,
    ledger: LedgerTables,
    legacy: LegacyTable,
    endpoint: StoreEndpoint,
    but_for: Collection[str],
) -> bool:
    claims = SqlClaims(engine, ledger, lambda _source: legacy)
    doing = f"a trial claim from {legacy.source}; nothing was changed"
    with writing(engine, StoreError, doing=doing) as connection:
        dialect_for(connection.dialect.name).bound_locks(connection, CLAIM_LOCKS)
        _check_rights(connection, legacy)
        request = trial_request(insert_trial_run(connection, ledger, endpoint), endpoint)
        claim = claims.claim_within(connection, legacy, replace(request, but_for=but_for))
        # without a row, too: the right to insert is looked at all the same
        batch = claim.batch.id if claim else None
        claims.put_back(connection, legacy, ledger.timeout.c.batch_id == batch)
        connection.rollback()
    return claim is not None


def _check_rights(connection: sa.Connection, legacy: LegacyTable) -> None:
    """The server's own message would name only the table, not the missing right."""
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
