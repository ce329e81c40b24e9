"""The end of a legacy table: is it empty, what SQL ends it, and ending it.

Rules of this file: the SQL that is run is the SQL that was shown; a table is dropped only in the
transaction that has locked it and seen it empty.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from sqlalchemy import Connection, Engine, func, inspect, select, text
from sqlalchemy.sql.compiler import IdentifierPreparer

from migrator.database.engine import reading, writing
from migrator.database.failures import translating
from migrator.decommission.ports import Statement
from migrator.errors import StoreError
from migrator.nservicebus.timeouts import EndpointName
from migrator.stores.sql.dialects import dialect_for
from migrator.stores.sql.legacy_table import LegacyTable
from migrator.stores.sql.tables import TableStore

_ARCHIVED: Final = "_decommissioned"


class SqlDecommissionStore:
    """Implements ``decommission.ports.DecommissionStore``."""

    def __init__(self, engine: Engine, store: TableStore) -> None:
        """Look at the tables of *store*, in the database of *engine*."""
        self._engine = engine
        self._store = store
        self._dialect = dialect_for(engine.dialect.name)
        # the engine's own preparer doubles percent signs, for a driver and not for a reader
        dialect: Any = type(engine.dialect)
        self._preparer: IdentifierPreparer = dialect(paramstyle="named").identifier_preparer

    @property
    def is_shared(self) -> bool:
        """Whether endpoints share the table; see ``decommission.ports.DecommissionStore``."""
        return self._store.shares_table

    def rows(self, source: str) -> int | None:
        """Return how many rows there are; see ``decommission.ports.DecommissionStore``."""
        doing = f"counting the rows of {source}"
        with translating(StoreError, doing=doing), reading(self._engine) as connection:
            return self._rows(connection, source)

    def others_with_rows(self, source: str) -> Sequence[EndpointName]:
        """Return the other endpoints with rows; see ``decommission.ports.DecommissionStore``."""
        others = [each for each in self._store.endpoints() if each.source != source]
        doing = "looking into other timeouts tables"
        with translating(StoreError, doing=doing), reading(self._engine) as connection:
            return [
                each.name
                for each in others
                if not _is_empty(connection, self._store.legacy_table(each.source))
            ]

    def statements(self, source: str) -> Sequence[Statement]:
        """Return what archives and what drops; see ``decommission.ports.DecommissionStore``."""
        if self.is_shared:
            return ()
        doing = f"looking for {source}"
        with translating(StoreError, doing=doing), reading(self._engine) as connection:
            if not self._exists(connection, source):
                return ()
        archived = self._archive_name(self._store.location(source)[1])
        return (
            Statement(
                purpose="archive",
                sql=self._dialect.renaming(
                    self._name(source), archived, self._preparer.quote(archived)
                ),
            ),
            Statement(purpose="drop", sql=self._drop_sql(source)),
        )

    def drop(self, source: str) -> int:
        """Drop the table if it is empty; see ``decommission.ports.DecommissionStore``."""
        if self.is_shared:
            raise StoreError(f"the table of {source} is shared with others; it was not dropped")
        doing = f"dropping {source}"
        with translating(StoreError, doing=doing), writing(self._engine) as connection:
            if not self._exists(connection, source):
                return 0
            self._store.legacy_table(source)  # whoever looked later would wait for our own lock
            self._dialect.lock_table(connection, self._name(source))
            rows = self._rows(connection, source) or 0
            if not rows:
                _run(connection, self._drop_sql(source))
            return rows

    def _rows(self, connection: Connection, source: str) -> int | None:
        if not self._exists(connection, source):
            return None
        legacy = self._store.legacy_table(source)
        counting = select(func.count()).select_from(legacy.table).where(*legacy.is_owned)
        return connection.execute(counting).scalar_one()

    def _archive_name(self, table: str) -> str:
        room = self._dialect.name_max_bytes - len(_ARCHIVED.encode())
        return table.encode()[:room].decode(errors="ignore") + _ARCHIVED

    def _drop_sql(self, source: str) -> str:
        return f"DROP TABLE {self._name(source)}"

    def _name(self, source: str) -> str:
        schema, name = self._store.location(source)
        quoted = self._preparer.quote(name)
        return quoted if schema is None else f"{self._preparer.quote_schema(schema)}.{quoted}"

    def _exists(self, connection: Connection, source: str) -> bool:
        schema, name = self._store.location(source)
        return inspect(connection).has_table(name, schema=schema)


def _is_empty(connection: Connection, legacy: LegacyTable) -> bool:
    one = select(legacy.table.c.Id).where(*legacy.is_owned).limit(1)
    return connection.execute(one).first() is None


def _run(connection: Connection, statement: str) -> None:
    connection.execute(text(statement.replace(":", r"\:")))
