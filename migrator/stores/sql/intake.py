"""Writing new timeouts into a legacy table, as the timeout manager's store satellite does.

Rules of this file: each call is one local transaction, which proves the ownership of the lane and
locks in the order of a claim, whose rows it may wait for. Every row is checked before the first one
is written. Source: reference ``legacy-stores.md`` 1.2 (columns), 1.3 (values), 1.4 (removing by
saga).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any, Final

import sqlalchemy as sa
from sqlalchemy.exc import DataError, IntegrityError

from migrator.database.engine import writing
from migrator.database.failures import translating
from migrator.database.portable import prefer_indexes, row_by_row
from migrator.errors import RowRefused, StoreError
from migrator.ledger.claims import under_lease
from migrator.ledger.tables import LedgerTables
from migrator.ledger.work import Lease, StoreEndpoint
from migrator.nservicebus.satellites import MAX_DESTINATION_CHARS, ClearTimeouts, DelayedMessage
from migrator.nservicebus.timeouts import NO_SAGA
from migrator.stores.sql.dialects import dialect_for
from migrator.stores.sql.legacy_table import LegacyTable
from migrator.stores.sql.moving import guid_text, in_ledger, is_storable

PERSISTENCE_VERSION: Final = "6.6.5.0"
"""The value of the last persistence with a timeout table; informational (reference 1.3)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Applied:
    stored: int = 0
    known: int = 0
    """Redelivered messages: rows that exist or were dispatched already."""
    cleared: int = 0

    def __add__(self, other: Applied) -> Applied:
        return Applied(
            stored=self.stored + other.stored,
            known=self.known + other.known,
            cleared=self.cleared + other.cleared,
        )


class SqlIntake:
    def __init__(
        self, engine: sa.Engine, ledger: LedgerTables, table_of: Callable[[str], LegacyTable]
    ) -> None:
        self._dialect = dialect_for(engine.dialect.name)
        self._engine = engine
        self._ledger = ledger
        self._table_of = table_of

    def apply(
        self,
        endpoint: StoreEndpoint,
        changes: Sequence[DelayedMessage | ClearTimeouts],
        lease: Lease,
    ) -> Applied:
        """Carry out *changes* in their order, in one transaction; repeating them is harmless.

        Raises:
            LeaseLost: Nothing was changed.
            StoreUnavailable: Nothing was changed, or all of it was and the answer was lost.
            StoreError: The database refused a row. Nothing was changed.
            RowRefused: Something in a row (a NUL, no GUID, too long a destination) fits into no
                column, or the zero saga was to be cleared. Nothing was changed.
        """
        if not changes:
            return Applied()
        stored = known = cleared = 0
        legacy = self._table_of(endpoint.source)
        steps: list[tuple[type, list[Any]]] = [
            (
                kind,
                [_row(each) if isinstance(each, DelayedMessage) else _saga(each) for each in group],
            )
            for kind, group in groupby(changes, key=type)
        ]
        doing = f"storing timeouts in {legacy.source}"
        with (
            writing(self._engine, StoreError, doing=doing) as connection,
            under_lease(connection, self._ledger, lease),
        ):
            prefer_indexes(connection)
            for kind, values in steps:
                if kind is DelayedMessage:
                    inserted = self._insert(connection, legacy, values)
                    stored += inserted
                    known += len(values) - inserted
                else:
                    cleared += connection.execute(clearing(legacy, values)).rowcount
        return Applied(stored=stored, known=known, cleared=cleared)

    def _insert(
        self, connection: sa.Connection, legacy: LegacyTable, rows: Sequence[Mapping[str, Any]]
    ) -> int:
        """Write rows that neither table nor ledger has; return how many.

        The ledger is asked last: inserting waits for a claim that is just removing the row, and
        only a statement that begins afterwards sees where the claim put it.
        """
        table = legacy.table
        columns = {*table.c.keys()}
        values = [
            {key: value for key, value in row.items() if key in columns} | {**legacy.constants}
            for row in rows
        ]
        try:
            written = self._dialect.insert_absent(connection, table, values)
        except (DataError, IntegrityError):
            with translating(RowRefused, doing=f"a row for {legacy.source}"):
                raise
        if not written:
            return 0
        known = removing_known(legacy, self._ledger, written)
        return len(written) - connection.execute(known).rowcount


def removing_known(legacy: LegacyTable, ledger: LedgerTables, ids: Collection[str]) -> sa.Delete:
    """Only rows that this transaction has written."""
    row = legacy.table.c
    known = sa.delete(legacy.table).where(row.Id.in_(ids), in_ledger(legacy, ledger).is_not(None))
    return row_by_row(known, past_locked=True)


def clearing(legacy: LegacyTable, sagas: Sequence[str]) -> sa.Delete:
    return row_by_row(sa.delete(legacy.table).where(legacy.table.c.SagaId.in_(sagas)))


def _row(new: DelayedMessage) -> dict[str, Any]:
    destination = new.destination
    _demand_text("Destination", destination)
    if len(destination) > MAX_DESTINATION_CHARS:
        raise RowRefused(
            f"a destination of {len(destination)} characters does not fit into a column of "
            f"{MAX_DESTINATION_CHARS}"
        )
    _demand_text("Headers", new.headers_text)
    return {
        "Id": _guid("Id", new.id),
        "Destination": destination,
        "SagaId": _guid("SagaId", new.saga_id),
        "State": new.body,
        "Time": new.due_at,
        "Headers": new.headers_text,
        "PersistenceVersion": PERSISTENCE_VERSION,
    }


def _saga(clear: ClearTimeouts) -> str:
    saga = _guid("SagaId", clear.saga_id)
    if saga == NO_SAGA:
        raise RowRefused("every timeout without a saga has the zero saga id; not cleared")
    return saga


def _guid(column: str, value: str) -> str:
    found = guid_text(value)
    if found is None:
        raise RowRefused(f"{column} is not a GUID: {value[:50]!r}")
    return found


def _demand_text(column: str, value: str) -> None:
    if not is_storable(value):
        raise RowRefused(f"{column} contains a character that no database accepts")
