"""What a verification looks at, as queries over the ledger's tables.

Rules of this file: rows are counted one by one and hashed by the database; rows whose batch is
gone are looked at like all others, and are doubtful: nobody can tell what became of them.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any, Final

from sqlalchemy import (
    CTE,
    ColumnElement,
    CompoundSelect,
    Row,
    Select,
    and_,
    case,
    func,
    literal_column,
    select,
    true,
    union_all,
)

from migrator.database.portable import among, flag, pair_in
from migrator.ledger.states import BatchState, RowState
from migrator.ledger.tables import LedgerTables
from migrator.nservicebus.timeouts import content_hash
from migrator.stores.sql.dialects import Dialect
from migrator.stores.sql.legacy_table import LegacyTable
from migrator.stores.sql.moving import id_text

_WITHOUT_BATCH: Final = BatchState.DOUBTFUL
"""State of a row whose batch is gone."""


def is_intact(found: Row[Any]) -> bool | None:
    """Return whether the content of a row that ``intact`` found still has its hash.

    None: the database cannot tell; ``content_of`` is to be read.
    """
    if "is_intact" in found._fields:
        return None if found.is_intact is None else bool(found.is_intact)
    return bool(found.content_hash == content_hash(found.headers, found.body))


class AuditQueries:
    """Builds the queries for one dialect."""

    def __init__(self, ledger: LedgerTables, dialect: Dialect) -> None:
        """Look at *ledger*."""
        self._ledger = ledger
        self._dialect = dialect

    def gaps(self) -> CompoundSelect[Any]:
        """Return every batch with other rows than its size less what was purged of it."""
        row, batch = self._ledger.timeout, self._ledger.batch
        kept = (
            select(row.c.batch_id, func.count().label("rows")).group_by(row.c.batch_id).cte("kept")
        )
        rows = func.coalesce(kept.c.rows, 0)
        of_batches = (
            select(
                batch.c.id,
                batch.c.endpoint,
                batch.c.state,
                batch.c.size,
                batch.c.purged,
                rows.label("rows"),
            )
            .select_from(batch.outerjoin(kept, kept.c.batch_id == batch.c.id))
            .where(batch.c.size - batch.c.purged != rows)
        )
        return union_all(of_batches, self._without_batch(kept))

    def _without_batch(self, kept: CTE) -> Select[Any]:
        row, batch = self._ledger.timeout, self._ledger.batch
        endpoint = (
            select(func.min(row.c.endpoint))
            .where(row.c.batch_id == kept.c.batch_id)
            .correlate(kept)
            .scalar_subquery()
        )
        nothing: ColumnElement[int] = literal_column("0")
        return (
            select(
                kept.c.batch_id,
                endpoint,
                literal_column(f"'{_WITHOUT_BATCH}'"),
                nothing,
                nothing,
                kept.c.rows,
            )
            .select_from(kept.outerjoin(batch, batch.c.id == kept.c.batch_id))
            .where(batch.c.id.is_(None))
        )

    def also_in(
        self, legacy: LegacyTable, endpoints: Collection[str], *, limit: int
    ) -> Select[Any]:
        """Return rows that are in *legacy* and open here, and as ``total`` how many they are.

        Only rows of *endpoints* count; empty: of all.

        Each row of the legacy table is looked up by a correlated scalar subquery on purpose: a
        planner without statistics may compare every row of the one with every row of the other.
        """
        row, known = self._ledger.timeout, self._ledger.timeout.alias("known")
        open_id = (
            select(known.c.id)
            .where(
                known.c.source == legacy.source,
                self._ledger.is_open(known, id_text(legacy)),
                among(known.c.endpoint, endpoints) if endpoints else true(),
            )
            .limit(1)
            .correlate(legacy.table)
            .scalar_subquery()
        )
        # sorted by a column, for who knows which database sorts by a subquery
        found = (
            select(open_id.label("id"))
            .select_from(legacy.table)
            .where(*legacy.is_owned)
            .subquery("found")
        )
        both = (
            select(found.c.id, func.count().over().label("total"))
            .where(found.c.id.is_not(None))
            .order_by(found.c.id)
            .limit(limit)
            .subquery("both")
        )
        audited = self.rows().add_columns(both.c.total)
        return audited.join(both, both.c.id == row.c.id).order_by(row.c.id)

    def rows(self) -> Select[Any]:
        """Return a query for every row; its columns are those of ``ports.AuditedRow``."""
        row, batch = self._ledger.timeout, self._ledger.batch
        return self.with_batch(
            select(
                row.c.id,
                row.c.batch_id,
                row.c.row_index,
                row.c.endpoint,
                row.c.source,
                row.c.store_id,
                row.c.destination,
                row.c.due,
                self.state().label("state"),
                case((self.is_quarantined(), row.c.reason)).label("reason"),
                row.c.content_hash,
                case((self.is_handed_over(), batch.c.handed_over_at)).label("handed_over_at"),
            )
        )

    def with_keys(self, keys: Collection[tuple[int, int]]) -> Select[Any]:
        """Return rows by batch and index."""
        row = self._ledger.timeout
        is_wanted = pair_in(row.c.batch_id, row.c.row_index, keys, dialect=self._dialect.name)
        return self.with_batch(
            select(
                row.c.id,
                row.c.store_id,
                row.c.batch_id,
                row.c.row_index,
                row.c.endpoint,
                row.c.due,
                self.state().label("state"),
                self._dialect.body_hash(row.c.body).label("body_hash"),
            )
        ).where(is_wanted)

    def intact(self, ids: Collection[int]) -> Select[Any]:
        """Return rows by their own id, each with what ``is_intact`` asks of it."""
        row = self._ledger.timeout
        content = self._dialect.content_hash(row.c.headers, row.c.body)
        columns: list[ColumnElement[Any]] = [row.c.content_hash, row.c.headers, row.c.body]
        if content is not None:
            is_same = row.c.content_hash == content
            columns = [(flag(is_same) if self._dialect.hashes_all else is_same).label("is_intact")]
        return select(row.c.id, *columns).where(row.c.id.in_(sorted(ids)))

    def content_of(self, id_: int) -> Sequence[Select[Any]]:
        """Return what reads a row's hash, headers and body: one after the other, as it is large."""
        row = self._ledger.timeout
        parts = (row.c.content_hash, row.c.headers, row.c.body)
        return [select(part).where(row.c.id == id_) for part in parts]

    def with_batch(self, query: Select[Any]) -> Select[Any]:
        """Return *query* over rows and their batches, also rows without one."""
        row, batch = self._ledger.timeout, self._ledger.batch
        return query.select_from(row.outerjoin(batch, batch.c.id == row.c.batch_id))

    def state(self) -> ColumnElement[str]:
        """Return the row's own state, else its batch's."""
        row, batch = self._ledger.timeout, self._ledger.batch
        return func.coalesce(row.c.state, batch.c.state, literal_column(f"'{_WITHOUT_BATCH}'"))

    def is_handed_over(self) -> ColumnElement[bool]:
        """Return whether a row is with the broker, and was not taken back."""
        row, batch = self._ledger.timeout, self._ledger.batch
        return and_(row.c.state.is_(None), batch.c.state == BatchState.HANDED_OVER)

    def is_quarantined(self) -> ColumnElement[bool]:
        """Return whether a row was set aside."""
        return self._ledger.timeout.c.state == RowState.QUARANTINED
