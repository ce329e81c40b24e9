"""What a kind of SQL database has to say of itself, so that timeouts can be kept in it.

Rules of this file: a default does nothing, or holds in any database; what a dialect returns is
SQL for a caller's transaction, and none of it begins or ends one.
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
"""So long a claim waits for a table that another transaction keeps; see ``Dialect.bound_locks``."""


class Dialect(ABC):
    """One kind of SQL database; has no state."""

    name: ClassVar[str]
    """As SQLAlchemy calls it."""
    has_schemas: ClassVar[bool] = True
    """Whether a table is named by schema and name."""
    may_fold_names: ClassVar[bool] = False
    """Whether ``folds_names`` must be asked."""
    looks_names_up: ClassVar[bool] = False
    """Whether ``as_kept`` must be asked."""
    default_schema: ClassVar[str | None] = "public"
    """Where tables are unless somebody says so; None: in the user's own schema."""
    table_suffix: ClassVar[str] = "TimeoutData"
    """What the name of a timeouts table ends with (reference 1.1)."""
    hashes_all: ClassVar[bool] = True
    """Whether ``content_hash`` and ``body_hash`` hash whatever was stored."""
    name_max_bytes: ClassVar[int]
    """The longest name of a table."""

    inserting: ClassVar[type[Any]]
    """SQLAlchemy's INSERT for this kind, where that knows ``ON CONFLICT``."""

    # ── claiming and putting back ───────────────────────────────────────────────────────────

    @abstractmethod
    def move(self, connection: sa.Connection, move: Move) -> Moved | None:
        """Move the soonest due rows of the request's range; None when there are none.

        A row is taken only while nobody else holds it; locked ones are skipped.
        """

    def move_unread(self, connection: sa.Connection, move: Move) -> Moved | None:
        """Do as ``move`` does, without reading the text of a row where the database can spare it.

        For a row whose text the driver, or a function of the database, takes for none.
        """
        return self.move(connection, move)

    def as_stored(
        self, column: sa.ColumnElement[Any], legacy: LegacyTable, key: str
    ) -> sa.ColumnElement[Any]:
        """Return a ledger column as the legacy column *key* has it."""
        is_bytes = isinstance(legacy.table.c[key].type, GuidBytes)
        return guid_as_bytes(column) if is_bytes else column

    def check_deferred(self, connection: sa.Connection) -> None:
        """Have constraints that wait for the commit be checked now, where there are such."""
        del connection

    def kept_owner(self, extra: sa.ColumnElement[str]) -> sa.ColumnElement[str]:
        """Return how a row spelled its owner, out of what the ledger keeps beside it."""
        return extra

    def insert_absent(
        self, connection: sa.Connection, table: sa.Table, rows: Sequence[Mapping[str, Any]]
    ) -> Collection[str]:
        """Insert *rows* whose ``Id`` the table does not have; return the ids that were inserted."""
        key = [table.c.Id]
        statement = self.inserting(table).on_conflict_do_nothing(index_elements=key)
        return list(connection.scalars(statement.returning(*key), rows))

    # ── content ─────────────────────────────────────────────────────────────────────────────

    def content_hash(
        self, headers: sa.ColumnElement[Any], body: sa.ColumnElement[Any]
    ) -> sa.ColumnElement[str] | None:
        """Return what ``nservicebus.timeouts.content_hash`` returns, computed by the database.

        None: it cannot, so content is read and hashed here.
        """
        return None

    def body_hash(self, body: sa.ColumnElement[Any]) -> sa.ColumnElement[str]:
        """Return the hex SHA-256 of a body, to be selected; NULL counts as empty."""
        return sa.type_coerce(body, HashedBody())

    # ── planner, patience, locks ────────────────────────────────────────────────────────────

    def prefer_hashing(self, connection: sa.Connection) -> None:
        """Have this transaction group rows without sorting them, whatever statistics say."""
        del connection

    def wait_at_most(self, connection: sa.Connection, patience: timedelta) -> None:
        """Have the database give up after *patience*, in this transaction alone."""
        del connection, patience

    def bound_locks(self, connection: sa.Connection, at_most: timedelta) -> None:
        """Have waits for locks end after *at_most* in this transaction, where that can be said."""
        del connection, at_most

    def allow_long(self, connection: sa.Connection) -> None:
        """Have this transaction go through a whole table, however long that takes."""
        del connection

    def read_only(self, engine: sa.Engine) -> sa.Engine:
        """Return *engine* with transactions that see one moment, and cannot write if possible."""
        return engine

    def lock_table(self, connection: sa.Connection, quoted_name: str) -> None:
        """Keep everybody else out of a table until the end of the transaction."""
        del connection, quoted_name

    # ── facts ───────────────────────────────────────────────────────────────────────────────

    def estimated_rows(self, connection: sa.Connection, legacy: LegacyTable) -> int:
        """Return what the database believes without counting; 0: it has no idea."""
        return 0

    def missing_rights(self, connection: sa.Connection, legacy: LegacyTable) -> Sequence[str]:
        """Return which rights on the table a claim lacks, where the database can tell."""
        return ()

    def obstacle(self, connection: sa.Connection, legacy: LegacyTable) -> str | None:
        """Return why nothing may be claimed from the table, whatever the rights; None: nothing."""
        return None

    def delete_triggers(self, connection: sa.Connection, legacy: LegacyTable) -> Sequence[str]:
        """Return the triggers of the table that act when a row is removed, where it can tell."""
        return ()

    def remarks(self, connection: sa.Connection) -> Sequence[StoreRemark]:
        """Return what is to be known of the database itself; see ``Store.remarks``."""
        return ()

    def folds_names(self, connection: sa.Connection) -> bool:
        """Return whether the database keeps names of tables in lower case."""
        return False

    def as_kept(
        self, connection: sa.Connection, schema: str | None, table: str
    ) -> tuple[str | None, str | None]:
        """Return schema and name of a table as the database spells them; None: it has no such."""
        return schema, table

    def renaming(self, quoted_table: str, new_name: str, quoted_new_name: str) -> str:
        """Return the statement that renames a table, for a person to run."""
        return f"ALTER TABLE {quoted_table} RENAME TO {quoted_new_name}"

    def spelled(self, name: str) -> str:
        """Return the name of a table or schema as SQLAlchemy spells what the vendor made of it."""
        return name

    # ── making tables ───────────────────────────────────────────────────────────────────────

    @abstractmethod
    def column_types(self) -> Mapping[str, TypeEngine[Any]]:
        """Return the types of the columns as the vendor's script creates them."""

    def table_options(self) -> Mapping[str, str]:
        """Return SQLAlchemy's options of a table as the vendor's script creates it."""
        return {}

    def shared_column_types(self) -> Mapping[str, TypeEngine[Any]]:
        """Return the types of the columns as NHibernate creates them (reference 2.1)."""
        own = {k: v for k, v in self.column_types().items() if k != "PersistenceVersion"}
        return {**own, "Destination": sa.String(1024), "Endpoint": sa.String(440)}

    def column_names(self) -> Mapping[str, str]:
        """Return what the vendor's script calls the columns, by our names for them."""
        return {key: key for key in self.column_types()}

    def write_rows(
        self, connection: sa.Connection, table: sa.Table, rows: Sequence[Sequence[Any]]
    ) -> bool:
        """Write many rows the fastest way there is; False: nothing was done, there is none."""
        return False


class LookingDialect(Dialect):
    """One that does not return what was inserted: whoever stores rows looks for them first."""

    @abstractmethod
    def looking(
        self, connection: sa.Connection, table: sa.Table, ids: Sequence[str]
    ) -> sa.Select[Any]:
        """Return what finds and locks those of *ids* that are there."""

    @abstractmethod
    def step(self, table: sa.Table) -> timedelta:
        """Return what the due column keeps of a second: times are rounded up to a whole number."""

    def demand_room(self, connection: sa.Connection, rows: Sequence[Mapping[str, Any]]) -> None:
        """Return when each row can be written.

        Raises:
            RowRefused: One cannot, and never will.
        """

    def is_known(self, connection: sa.Connection, table: sa.Table, exc: IntegrityError) -> bool:
        """Return whether an insert failed because a row of its id is there."""
        return False

    def insert_absent(
        self, connection: sa.Connection, table: sa.Table, rows: Sequence[Mapping[str, Any]]
    ) -> Collection[str]:
        """Look, waiting for whoever is just removing one of them, and insert the others.

        What is inserted is called by a GUID in lower case; letter case is all that may differ.
        """
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
    """Return the columns in whose order an endpoint's rows are due."""
    return ["Time"] if legacy.owner is None else ["Endpoint", "Time"]


def beginning_with(columns: Iterable[tuple[str, str]], names: Sequence[str]) -> str | None:
    """Return the first index that begins with the columns *names*; None: there is none.

    *columns* are pairs of an index and one of its columns, in the order in which it has them.
    """
    wanted = [name.casefold() for name in names]
    found = dict[str, list[str]]()
    for index, name in columns:
        found.setdefault(index, []).append(name.casefold())
    fitting = (index for index, its in found.items() if its[: len(wanted)] == wanted)
    return next(fitting, None)
