"""Restoring handed-over rows in a SQL database that holds the ledger as well.

Rules of this file: a row is restored in the transaction that marks it, so it is never in both
places and never in none; the recall's lease is proven first; what the message says of itself is
believed only as far as the ledger agrees.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, Engine, Row, Select, and_, func, select, true, tuple_

from migrator.database.engine import reading, writing
from migrator.database.failures import translating
from migrator.database.types import byte_length
from migrator.domain.recall import RecallForecast, RecallOutcome, RecallScope
from migrator.domain.states import BatchState, RowState
from migrator.errors import StoreError
from migrator.ports import Lease
from migrator.ports.recall import Sighting
from migrator.stores.claims import SqlClaims
from migrator.stores.fencing import hold_lease
from migrator.stores.forecast import Forecaster, Span, of_batches, of_rows
from migrator.stores.ledger_side import LedgerSide
from migrator.stores.moving import id_text
from migrator.stores.sql_persistence import SqlStore


class SqlRecalls:
    """Implements ``ports.Recalls`` over one database."""

    def __init__(
        self, engine: Engine, ledger: LedgerSide, store: SqlStore, claims: SqlClaims
    ) -> None:
        """Restore rows of *ledger* into the tables of *store*, as *claims* puts rows back."""
        self._engine = engine
        self._ledger = ledger
        self._store = store
        self._claims = claims

    def restore(
        self,
        sightings: Collection[Sighting],
        scope: RecallScope,
        lease: Lease,
        *,
        not_before: datetime,
    ) -> Mapping[Sighting, RecallOutcome]:
        """Restore what is meant and say what each sighting is; see ``ports.Recalls``."""
        if not sightings:
            return {}
        doing = "restoring handed-over rows"
        with translating(StoreError, doing=doing), writing(self._engine) as connection:
            hold_lease(connection, self._ledger, lease)
            known = {
                (row.batch_id, row.row_index): row
                for row in connection.execute(self._rows(sightings, scope))
            }
            judged = {s: _judge(known.get(_key(s)), s, not_before) for s in sightings}
            wanted = [s for s, outcome in judged.items() if outcome is RecallOutcome.RESTORED]
            taken = self._put_back(connection, {s: known[_key(s)] for s in wanted})
        return judged | dict.fromkeys(taken, RecallOutcome.TAKEN)

    def forecast(
        self,
        scope: RecallScope,
        *,
        now: datetime,
        not_before: datetime,
        exact_rows: int | None = None,
    ) -> RecallForecast:
        """Return what the ledger expects in the levels; see ``ports.Recalls``."""
        doing = "counting what could be recalled"
        with translating(StoreError, doing=doing), reading(self._engine) as connection:
            forecaster = Forecaster(connection, self._ledger, scope)
            span = Span(now=now, not_before=not_before)
            return forecaster.forecast(span, exact_rows=exact_rows)

    def _rows(self, sightings: Collection[Sighting], scope: RecallScope) -> Select[Any]:
        row, batch = self._ledger.timeout, self._ledger.batch
        keys = [_key(sighting) for sighting in sightings]
        return (
            select(
                row.c.id,
                row.c.batch_id,
                row.c.row_index,
                row.c.source,
                row.c.store_id,
                row.c.due,
                func.coalesce(row.c.state, batch.c.state).label("state"),
                byte_length(row.c.body).label("body_bytes"),
                and_(true(), *of_batches(batch.c, scope), *of_rows(row.c, scope)).label("is_meant"),
            )
            .join(batch, batch.c.id == row.c.batch_id)
            .where(tuple_(row.c.batch_id, row.c.row_index).in_(keys))
            .with_for_update(of=row)
        )

    def _put_back(
        self, connection: Connection, wanted: Mapping[Sighting, Row[Any]]
    ) -> Collection[Sighting]:
        """Insert the rows that are wanted, table by table; return those whose id is there again."""
        taken: list[Sighting] = []
        row = self._ledger.timeout
        for source in sorted({found.source for found in wanted.values()}):
            legacy = self._store.legacy_table(source)
            of_source = {s: found for s, found in wanted.items() if found.source == source}
            ids = [found.store_id for found in of_source.values()]
            there = {*connection.scalars(select(id_text(legacy)).where(id_text(legacy).in_(ids)))}
            taken += [s for s, found in of_source.items() if found.store_id in there]
            free = [found.id for found in of_source.values() if found.store_id not in there]
            if free:
                which = row.c.id.in_(free)
                self._claims.put_back(connection, legacy, which, state=RowState.RECALLED)
        return taken


def _key(sighting: Sighting) -> tuple[int, int]:
    return sighting.row.batch, sighting.row.row_index


def _judge(row: Row[Any] | None, sighting: Sighting, not_before: datetime) -> RecallOutcome:
    if row is None:
        return RecallOutcome.FOREIGN
    if row.store_id != sighting.row.timeout_id or row.body_bytes != sighting.body_bytes:
        return RecallOutcome.DIFFERENT
    if row.state == RowState.RECALLED:
        return RecallOutcome.LEFTOVER
    if row.state != BatchState.HANDED_OVER:
        return RecallOutcome.UNSETTLED
    if not row.is_meant:
        return RecallOutcome.OUT_OF_SCOPE
    return RecallOutcome.TOO_NEAR if row.due < not_before else RecallOutcome.RESTORED
