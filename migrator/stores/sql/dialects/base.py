"""What a kind of SQL database has to define, so that it can contain timeouts.

Rules of this file: a default does nothing, or is valid in any database. A dialect returns SQL for a
caller's transaction, and never begins or ends one.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import timedelta
from typing import Any, ClassVar, Final

import sqlalchemy as sa
from sqlalchemy.exc import IntegrityError
from sqlalchemy.types import TypeEngine

from migrator.database.portable import MOST_IN_LIST
from migrator.database.types import GuidBytes, HashedBody, guid_as_bytes, rounded_up
from migrator.errors import StoreUnavailable
from migrator.stores.ports import StoreRemark
from migrator.stores.sql.legacy_table import LegacyTable
from migrator.stores.sql.moving import Move, Moved

CLAIM_LOCKS: Final = timedelta(seconds=1)


class Dialect(ABC):
    name: ClassVar[str]
    has_schemas: ClassVar[bool] = True
    may_fold_names: ClassVar[bool] = False
    looks_names_up: ClassVar[bool] = False
    default_schema: ClassVar[str | None] = "public"
    table_suffix: ClassVar[str] = "TimeoutData"
    """The end of a timeouts table's name (reference 1.1)."""
    hashes_all: ClassVar[bool] = True
    name_max_bytes: ClassVar[int]

    inserting: ClassVar[type[Any]]

    # ── claiming and putting back ───────────────────────────────────────────────────────────

    @abstractmethod
    def move(self, connection: sa.Connection, move: Move) -> Moved | None:
        """Move the soonest due rows of the range, skipping locked ones; None: there are none."""

    def move_unread(self, connection: sa.Connection, move: Move) -> Moved | None:
        """As ``move``, for text that is invalid for the driver or a function of the database."""
        return self.move(connection, move)

    def as_stored(
        self, column: sa.ColumnElement[Any], legacy: LegacyTable, key: str
    ) -> sa.ColumnElement[Any]:
        is_bytes = isinstance(legacy.table.c[key].type, GuidBytes)
        return guid_as_bytes(column) if is_bytes else column

    def check_deferred(self, connection: sa.Connection) -> None:
        del connection

    def kept_owner(self, extra: sa.ColumnElement[str]) -> sa.ColumnElement[str]:
        """Return a row's original spelling of its owner, from the ledger's ``store_extra``."""
        return extra

    def insert_absent(
        self, connection: sa.Connection, table: sa.Table, rows: Sequence[Mapping[str, Any]]
    ) -> Collection[str]:
        """Insert *rows* whose ``Id`` the table does not have; return the inserted ids."""
        key = [table.c.Id]
        statement = self.inserting(table).on_conflict_do_nothing(index_elements=key)
        return list(connection.scalars(statement.returning(*key), rows))

    # ── content ─────────────────────────────────────────────────────────────────────────────

    def content_hash(
        self, headers: sa.ColumnElement[Any], body: sa.ColumnElement[Any]
    ) -> sa.ColumnElement[str] | None:
        """Return ``nservicebus.timeouts.content_hash`` by the database; None: it cannot."""
        return None

    def body_hash(self, body: sa.ColumnElement[Any]) -> sa.ColumnElement[str]:
        return sa.type_coerce(body, HashedBody())

    # ── planner, timeouts, locks ────────────────────────────────────────────────────────────

    def prefer_hashing(self, connection: sa.Connection) -> None:
        del connection

    def wait_at_most(self, connection: sa.Connection, timeout: timedelta) -> None:
        del connection, timeout

    def bound_locks(self, connection: sa.Connection, at_most: timedelta) -> None:
        del connection, at_most

    def allow_long(self, connection: sa.Connection) -> None:
        """Give this transaction the time to read a whole table."""
        del connection

    def read_only(self, engine: sa.Engine) -> sa.Engine:
        return engine

    def lock_table(self, connection: sa.Connection, quoted_name: str) -> None:
        del connection, quoted_name

    # ── facts ───────────────────────────────────────────────────────────────────────────────

    def estimated_rows(self, connection: sa.Connection, legacy: LegacyTable) -> int:
        return 0

    def missing_rights(self, connection: sa.Connection, legacy: LegacyTable) -> Sequence[str]:
        """Return the rights on the table that a claim lacks, where the database shows them."""
        return ()

    def obstacle(self, connection: sa.Connection, legacy: LegacyTable) -> str | None:
        """Return why nothing may be claimed from the table, whatever the rights."""
        return None

    def delete_triggers(self, connection: sa.Connection, legacy: LegacyTable) -> Sequence[str]:
        """Return the triggers that run when a row is removed, where the database shows them."""
        return ()

    def remarks(self, connection: sa.Connection) -> Sequence[StoreRemark]:
        """Return advisories about the database itself; see ``Store.remarks``."""
        return ()

    def folds_names(self, connection: sa.Connection) -> bool:
        return False

    def as_kept(
        self, connection: sa.Connection, schema: str | None, table: str
    ) -> tuple[str | None, str | None]:
        """Return schema and table in the database's spelling; None: the table does not exist."""
        return schema, table

    def renaming(self, quoted_table: str, new_name: str, quoted_new_name: str) -> str:
        return f"ALTER TABLE {quoted_table} RENAME TO {quoted_new_name}"

    def spelled(self, name: str) -> str:
        """Return the name that the vendor's script creates, in SQLAlchemy's spelling."""
        return name

    # ── making tables ───────────────────────────────────────────────────────────────────────

    @abstractmethod
    def column_types(self) -> Mapping[str, TypeEngine[Any]]: ...

    def table_options(self) -> Mapping[str, str]:
        return {}

    def shared_column_types(self) -> Mapping[str, TypeEngine[Any]]:
        """As NHibernate creates them (reference 2.1)."""
        own = {k: v for k, v in self.column_types().items() if k != "PersistenceVersion"}
        return {**own, "Destination": sa.String(1024), "Endpoint": sa.String(440)}

    def column_names(self) -> Mapping[str, str]:
        """The vendor's names of columns, by migrator's names."""
        return {key: key for key in self.column_types()}

    def write_rows(
        self, connection: sa.Connection, table: sa.Table, rows: Sequence[Sequence[Any]]
    ) -> bool:
        """Write rows by the fastest method; False: there is none, and nothing was written."""
        return False


class LookingDialect(Dialect):
    """One whose INSERT returns no rows: new rows are looked up before they are inserted."""

    @abstractmethod
    def looking(
        self, connection: sa.Connection, table: sa.Table, ids: Sequence[str]
    ) -> sa.Select[Any]: ...

    @abstractmethod
    def step(self, table: sa.Table) -> timedelta:
        """Return the resolution of the due column: times are rounded up to a multiple."""

    def demand_room(self, connection: sa.Connection, rows: Sequence[Mapping[str, Any]]) -> None: ...

    def is_known(self, connection: sa.Connection, table: sa.Table, exc: IntegrityError) -> bool:
        return False

    def insert_absent(
        self, connection: sa.Connection, table: sa.Table, rows: Sequence[Mapping[str, Any]]
    ) -> Collection[str]:
        """Inserted ids are lower-case GUIDs; existing ones may differ in letter case."""
        step = self.step(table)
        absent = {row["Id"]: {**row, "Time": rounded_up(row["Time"], step)} for row in rows}
        ids = list(absent)
        for start in range(0, len(ids), MOST_IN_LIST):
            some = self.looking(connection, table, ids[start : start + MOST_IN_LIST])
            for there in connection.scalars(some).all():
                absent.pop(there.casefold(), None)
        try:
            if absent:
                self.demand_room(connection, [*absent.values()])
                connection.execute(sa.insert(table), [*absent.values()])
        except IntegrityError as exc:
            if self.is_known(connection, table, exc):
                raise StoreUnavailable(
                    f"another process wrote a row of {table.name} as well"
                ) from exc
            raise
        return list(absent)


def due_order(legacy: LegacyTable) -> Sequence[str]:
    return ["Time"] if legacy.owner is None else ["Endpoint", "Time"]


def beginning_with(columns: Iterable[tuple[str, str]], names: Sequence[str]) -> str | None:
    """*columns* are pairs of an index and one of its columns, in the index's order."""
    wanted = [name.casefold() for name in names]
    found = dict[str, list[str]]()
    for index, name in columns:
        found.setdefault(index, []).append(name.casefold())
    fitting = (index for index, its in found.items() if its[: len(wanted)] == wanted)
    return next(fitting, None)
