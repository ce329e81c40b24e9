"""What a message in a delay level turns out to be, by the ledger; the same for every store."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, Row, Select, and_, func, select, true

from migrator.database.portable import flag, for_update, pair_in
from migrator.database.types import byte_length
from migrator.ledger.states import BatchState, RowState
from migrator.ledger.tables import LedgerTables
from migrator.recall.forecast import of_batches, of_rows
from migrator.recall.ports import Sighting
from migrator.recall.rules import RecallOutcome, RecallScope


def sighted_rows(
    ledger: LedgerTables, sightings: Collection[Sighting], scope: RecallScope, *, dialect: str
) -> Select[Any]:
    """Return a query for what ``judge`` asks of the rows of *sightings*; it locks them."""
    row, batch = ledger.timeout, ledger.batch
    keys = {key_of(sighting) for sighting in sightings}
    meant = [*of_batches(batch.c, scope), *of_rows(row.c, scope)]
    query = (
        select(
            row.c.id,
            row.c.batch_id,
            row.c.row_index,
            row.c.source,
            row.c.store_id,
            row.c.due,
            func.coalesce(row.c.state, batch.c.state).label("state"),
            byte_length(row.c.body).label("body_bytes"),
            row.c.going_back,
            flag(and_(*meant) if meant else true()).label("is_meant"),
        )
        .join(batch, batch.c.id == row.c.batch_id)
        .where(pair_in(row.c.batch_id, row.c.row_index, keys, dialect=dialect))
    )
    return for_update(query, row)


def rows_of(
    connection: Connection,
    ledger: LedgerTables,
    sightings: Collection[Sighting],
    scope: RecallScope,
) -> Mapping[tuple[int, int], Row[Any]]:
    """Return the rows of *sightings* that there are, by ``key_of``; they are locked."""
    query = sighted_rows(ledger, sightings, scope, dialect=connection.dialect.name)
    return {(row.batch_id, row.row_index): row for row in connection.execute(query)}


def key_of(sighting: Sighting) -> tuple[int, int]:
    """Return by which a row is found: its batch, and its index in there."""
    return sighting.row.batch, sighting.row.row_index


def judge(row: Row[Any] | None, sighting: Sighting, not_before: datetime) -> RecallOutcome:
    """Return what *sighting* is; ``RESTORED`` means that its row is to be restored.

    A row that an earlier recall began to restore may be in the store already: that is finished
    whatever this recall means, and however near it is due, else it would be sent twice.
    """
    if row is None:
        return RecallOutcome.FOREIGN
    if row.store_id != sighting.row.timeout_id or row.body_bytes != sighting.body_bytes:
        return RecallOutcome.DIFFERENT
    if row.state == RowState.RECALLED:
        return RecallOutcome.LEFTOVER
    if row.state != BatchState.HANDED_OVER:
        return RecallOutcome.UNSETTLED
    if row.going_back == RowState.RECALLED:
        return RecallOutcome.RESTORED
    if not row.is_meant:
        return RecallOutcome.OUT_OF_SCOPE
    return RecallOutcome.TOO_NEAR if row.due < not_before else RecallOutcome.RESTORED
