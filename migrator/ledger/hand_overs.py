"""Where handed-over timeouts were sent to; nothing here changes the ledger."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from sqlalchemy import Engine, func, select

from migrator.database.engine import reading
from migrator.errors import LedgerError
from migrator.ledger.identity import check_identity
from migrator.ledger.states import BatchState
from migrator.ledger.tables import LedgerTables
from migrator.nservicebus.conversion import destination_of
from migrator.nservicebus.timeouts import QueueName


@dataclass(frozen=True, slots=True, kw_only=True)
class HandedOver:
    """Timeouts that were handed over for one destination."""

    destination: QueueName
    rows: int
    first_due: datetime
    """Aware, UTC; of those that were asked for."""
    last_due: datetime


class SqlHandOvers:
    """What the ledger knows of timeouts that wait in the delays, or waited there."""

    def __init__(self, engine: Engine, tables: LedgerTables, renamed: Mapping[str, str]) -> None:
        """Read the ledger in *tables*; *renamed* are the destinations that have other names."""
        self._engine = engine
        self._tables = tables
        self._renamed = renamed

    def handed_over(
        self,
        *,
        due_from: datetime,
        due_until: datetime | None = None,
        handed_over_from: datetime | None = None,
    ) -> Sequence[HandedOver]:
        """Return what was handed over and is due in a range, by destination, sorted; may be empty.

        Names are those that messages went to, as far as the renaming in force now is the one
        of that time. Rows whose destination stands in their headers only are left out: that would
        mean to read all of them.

        Args:
            due_from: Aware, UTC; included.
            due_until: Aware, UTC; not included. None: without end.
            handed_over_from: Aware, by the ledger's clock; what was handed over before is left
                out, and not read. None: nothing is.

        Raises:
            StoreUnavailable, LedgerMissing, LedgerError: It cannot be asked; nothing was changed.
        """
        check_identity(self._engine, self._tables)
        row, batch = self._tables.timeout.c, self._tables.batch.c
        query = (
            select(row.destination, func.count(), func.min(row.due), func.max(row.due))
            .join_from(self._tables.batch, self._tables.timeout, row.batch_id == batch.id)
            .where(
                batch.state == BatchState.HANDED_OVER,
                batch.last_due >= due_from,
                row.state.is_(None),
                row.due >= due_from,
                row.destination.is_not(None),
            )
            .group_by(row.destination)
        )
        if due_until is not None:
            query = query.where(batch.first_due < due_until, row.due < due_until)
        if handed_over_from is not None:
            query = query.where(batch.handed_over_at >= handed_over_from)
        doing = "asking where timeouts were handed over to"
        with reading(self._engine, LedgerError, doing=doing) as connection:
            found = connection.execute(query).all()
        return self._merged(
            HandedOver(
                destination=destination_of(column, {}, self._renamed),
                rows=rows,
                first_due=first,
                last_due=last,
            )
            for column, rows, first, last in found
        )

    @staticmethod
    def _merged(found: Iterable[HandedOver]) -> Sequence[HandedOver]:
        """Return one for each destination: ``Sales`` and ``Sales@MACHINE`` are the same."""
        merged: dict[QueueName, HandedOver] = {}
        for each in found:
            known = merged.get(each.destination, each)
            merged[each.destination] = replace(
                each,
                rows=each.rows + (0 if known is each else known.rows),
                first_due=min(each.first_due, known.first_due),
                last_due=max(each.last_due, known.last_due),
            )
        return [merged[name] for name in sorted(merged)]
