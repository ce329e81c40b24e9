"""Restoring handed-over rows in a SQL database that holds the ledger as well.

Rules of this file: a row is restored in the transaction that marks it, so it is never in both
places and never in none; the recall's lease is proven first; what the message says of itself is
believed only as far as the ledger agrees.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, Engine, Row, Select, and_, select, true

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
        by_id = {str(sighting.timeout_id): sighting for sighting in sightings}
        doing = "restoring handed-over rows"
        with translating(StoreError, doing=doing), writing(self._engine) as connection:
            hold_lease(connection, self._ledger, lease)
            # with the sources named, the index on source and id answers; else nothing does
            sources = connection.scalars(select(self._ledger.batch.c.source).distinct()).all()
            handed_over = connection.execute(self._handed_over(by_id, sources, scope)).all()
            outcomes = {
                by_id[row.store_id]: _judge(row, by_id[row.store_id], not_before)
                for row in handed_over
            }
            unknown = [s.timeout_id for s in sightings if s not in outcomes]
            for store_id in connection.scalars(self._recalled(unknown)):
                outcomes[by_id[store_id]] = RecallOutcome.LEFTOVER
            outcomes |= self._put_back(connection, handed_over, outcomes, by_id)
        return {s: outcomes.get(s, RecallOutcome.FOREIGN) for s in sightings}

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

    def _handed_over(
        self, ids: Iterable[str], sources: Sequence[str], scope: RecallScope
    ) -> Select[Any]:
        row, batch = self._ledger.timeout, self._ledger.batch
        return (
            select(
                row.c.id,
                row.c.source,
                row.c.store_id,
                row.c.due,
                byte_length(row.c.body).label("body_bytes"),
                and_(true(), *of_batches(batch.c, scope), *of_rows(row.c, scope)).label("is_meant"),
            )
            .join(batch, batch.c.id == row.c.batch_id)
            .where(
                row.c.store_id.in_(list(ids)),
                row.c.source.in_(sources),
                row.c.state.is_(None),
                batch.c.state == BatchState.HANDED_OVER,
            )
            .with_for_update(of=row)
        )

    def _recalled(self, ids: Sequence[str]) -> Select[Any]:
        row = self._ledger.timeout
        return select(row.c.store_id).where(
            row.c.state == RowState.RECALLED, row.c.store_id.in_(ids)
        )

    def _put_back(
        self,
        connection: Connection,
        handed_over: Sequence[Row[Any]],
        outcomes: Mapping[Sighting, RecallOutcome],
        by_id: Mapping[str, Sighting],
    ) -> Mapping[Sighting, RecallOutcome]:
        """Insert the rows to be restored, table by table; return those whose id is there again."""
        wanted = [r for r in handed_over if outcomes[by_id[r.store_id]] is RecallOutcome.RESTORED]
        taken: dict[Sighting, RecallOutcome] = {}
        row = self._ledger.timeout
        for source in sorted({found.source for found in wanted}):
            legacy = self._store.legacy_table(source)
            of_source = {found.store_id: found.id for found in wanted if found.source == source}
            there = select(id_text(legacy)).where(id_text(legacy).in_(list(of_source)))
            for store_id in connection.scalars(there):
                taken[by_id[store_id]] = RecallOutcome.TAKEN
                del of_source[store_id]
            if of_source:
                which = row.c.id.in_(list(of_source.values()))
                self._claims.put_back(connection, legacy, which, state=RowState.RECALLED)
        return taken


def _judge(row: Row[Any], sighting: Sighting, not_before: datetime) -> RecallOutcome:
    if row.body_bytes != sighting.body_bytes:
        return RecallOutcome.DIFFERENT
    if not row.is_meant:
        return RecallOutcome.OUT_OF_SCOPE
    return RecallOutcome.TOO_NEAR if row.due < not_before else RecallOutcome.RESTORED
