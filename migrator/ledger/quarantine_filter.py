"""Which rows a person means by a filter on the quarantine, as conditions on the ledger's tables."""

from __future__ import annotations

from sqlalchemy import ColumnElement, FromClause, select

from migrator.ledger.report import QuarantineFilter
from migrator.ledger.states import RowState


def in_quarantine(
    timeout: FromClause, batch: FromClause, which: QuarantineFilter
) -> list[ColumnElement[bool]]:
    """Return the conditions under which a row of *timeout* is in quarantine and *which* means it.

    Conditions on its batch are put as a subquery, so that *batch* need not be joined.
    """
    row = timeout.c
    found: list[ColumnElement[bool]] = [row.state == RowState.QUARANTINED]
    if which.endpoint is not None:
        found.append(row.endpoint == which.endpoint)
    if which.reason is not None:
        found.append(row.reason == which.reason)
    if which.timeout_id is not None:
        found.append(row.store_id == which.timeout_id)
    if which.mode is not None:
        of_mode = batch.alias("of_mode")
        found.append(row.batch_id.in_(select(of_mode.c.id).where(of_mode.c.mode == which.mode)))
    return found
