"""Putting rows of the ledger back into their table, and finding those that the table refuses.

Rules of this file: rows go back in one statement. Only where the table refuses that, they are tried
in transactions that are rolled back, by halves, until the refused ones are known. A server may end
a transaction in which a trigger fails, so nothing relies on savepoints.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import sqlalchemy as sa

from migrator.database.engine import reading, writing
from migrator.database.failures import translating
from migrator.database.portable import among, in_lists, prefer_indexes, row_by_row
from migrator.errors import RowRefused, StoreError
from migrator.ledger.states import RowState
from migrator.ledger.tables import LedgerTables
from migrator.nservicebus.conversion import Reason
from migrator.stores.sql.dialects import Dialect
from migrator.stores.sql.legacy_table import LegacyTable
from migrator.stores.sql.moving import id_text, ids_for, in_ledger
from migrator.text import counted

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
_TAKEN_TEXT: Final = "the store has another timeout with this id; remove one"


class PutBackRefused(RowRefused):
    """The table does not take back all rows that match *which*. The caller rolls back."""

    def __init__(self, text: str, legacy: LegacyTable, which: sa.ColumnElement[bool]) -> None:
        super().__init__(text)
        self.legacy = legacy
        self.which = which


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    reason: Reason
    detail: str


Refusals = Mapping[int, Refusal]
"""By the ledger's own ids of rows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Returns:
    engine: sa.Engine
    ledger: LedgerTables
    dialect: Dialect

    def insert(
        self, connection: sa.Connection, legacy: LegacyTable, which: sa.ColumnElement[bool]
    ) -> int:
        """Return how many rows were written; raise ``PutBackRefused`` if the table refuses one."""
        statement = putting_back(self.dialect, self.ledger, legacy, which)
        try:
            with translating(RowRefused, doing=f"rows that go back into {legacy.source}"):
                put = connection.execute(statement, execution_options=_COUNTED).rowcount
                self.dialect.check_deferred(connection)
        except RowRefused as exc:
            raise PutBackRefused(str(exc), legacy, which) from exc
        return put

    def refusals(self, refused: PutBackRefused) -> Refusals:
        """Return the rows that the table does not take.

        Raises:
            PutBackRefused: No single row is the cause, but for example a missing right.
        """
        legacy, row = refused.legacy, self.ledger.timeout
        self._try(legacy, [])
        query = sa.select(row.c.id, row.c.store_id).where(refused.which).order_by(row.c.id)
        with reading(self.engine, StoreError, doing=f"reading what goes to {legacy.source}") as c:
            prefer_indexes(c)
            ids = {found.id: found.store_id for found in c.execute(query)}
            there = ids_there(c, legacy, [*ids.values()])
        taken = Refusal(reason=Reason.ID_TAKEN, detail=_TAKEN_TEXT)
        found = {key: taken for key, store_id in ids.items() if store_id in there}
        found |= self._refused_singly(legacy, [key for key in ids if key not in found])
        if not found:
            raise refused
        return found

    def set_aside(self, connection: sa.Connection, refusals: Refusals) -> None:
        alike, row = defaultdict[Refusal, list[int]](list), self.ledger.timeout
        for key, refusal in refusals.items():
            alike[refusal].append(key)
        for refusal, keys in alike.items():
            values = {
                "state": RowState.QUARANTINED,
                "reason": refusal.reason,
                "reason_detail": refusal.detail,
            }
            changing = sa.update(row).where(among(row.c.id, keys)).values(values)
            connection.execute(row_by_row(changing))

    def count_taken(self, legacy: LegacyTable) -> int:
        query = sa.select(sa.func.count()).select_from(legacy.table)
        query = query.where(in_ledger(legacy, self.ledger).is_not(None))
        doing = f"looking for ids that {legacy.source} has again"
        with reading(self.engine, StoreError, doing=doing) as connection:
            self.dialect.allow_long(connection)
            return int(connection.execute(query).scalar_one())

    def _refused_singly(self, legacy: LegacyTable, keys: Sequence[int]) -> Refusals:
        found = dict[int, Refusal]()
        waiting = [keys] if keys else []
        while waiting:
            some = waiting.pop()
            try:
                self._try(legacy, some)
            except PutBackRefused as exc:
                if len(some) == 1:
                    found[some[0]] = Refusal(reason=Reason.REFUSED_BY_STORE, detail=str(exc))
                else:
                    half = len(some) // 2
                    waiting += [some[half:], some[:half]]
        return found

    def _try(self, legacy: LegacyTable, keys: Sequence[int]) -> None:
        """Put rows back and roll back. Without rows, a refusal is not caused by a row."""
        key = self.ledger.timeout.c.id
        which = among(key, keys) if keys else key.is_(None)
        doing = f"a trial of rows that go back into {legacy.source}; nothing was changed"
        with writing(self.engine, StoreError, doing=doing) as connection:
            prefer_indexes(connection)
            put = self.insert(connection, legacy, which)
            connection.rollback()
        if put != len(keys):
            raise not_all_put(legacy, which, put, of=len(keys))


def not_all_put(
    legacy: LegacyTable, which: sa.ColumnElement[bool], put: int, *, of: int
) -> PutBackRefused:
    kept = f"{counted(put, 'was', 'were')} kept"
    return PutBackRefused(
        f"{legacy.source}: of {counted(of, 'row')} put back, {kept}, and there was no error: does "
        "a trigger or a rule drop rows?",
        legacy,
        which,
    )


def ids_there(
    connection: sa.Connection, legacy: LegacyTable, ids: Sequence[str]
) -> Collection[str]:
    key = legacy.table.c.Id
    return {
        found
        for some in in_lists(ids)
        for found in connection.scalars(
            sa.select(id_text(legacy)).where(key.in_(ids_for(legacy, some)))
        )
    }


def putting_back(
    dialect: Dialect, ledger: LedgerTables, legacy: LegacyTable, which: sa.ColumnElement[bool]
) -> sa.Insert:
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
