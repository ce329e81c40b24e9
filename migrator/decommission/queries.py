"""What legacy store and ledger know of an endpoint that is to go, and the end of its table.

Rules of this file: the SQL that is run is the SQL that was shown; a table is dropped only in the
transaction that has locked it and seen it empty.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

from sqlalchemy import Connection, Engine, func, inspect, select, text
from sqlalchemy.sql.compiler import IdentifierPreparer

from migrator.database.engine import reading, writing
from migrator.database.types import database_now
from migrator.decommission.report import LedgerSnapshot, Statement, read_bindings
from migrator.errors import LedgerError, StoreError
from migrator.ledger.runs import RUNNING
from migrator.ledger.states import OPEN, BatchState, RowState
from migrator.ledger.tables import UNSETTLED, LedgerTables
from migrator.nservicebus.timeouts import BatchId, EndpointName
from migrator.rabbitmq.entities import Binding
from migrator.stores.sql.dialects import dialect_for
from migrator.stores.sql.legacy_table import LegacyTable
from migrator.stores.sql.store import TableStore

BEGUN: Final = "decommission_begun"
UNDONE: Final = "decommission_undone"
ENDED: Final = "decommissioned"
_KINDS: Final = (BEGUN, UNDONE, ENDED)
"""Events of the audit log, so that what a killed one cut can be bound again."""
_ARCHIVED: Final = "_decommissioned"


class DecommissionStore:
    """The legacy tables, as far as one of them is to go."""

    def __init__(self, engine: Engine, store: TableStore) -> None:
        """Look at the tables of *store*, in the database of *engine*."""
        self._engine = engine
        self._store = store
        self._dialect = dialect_for(engine.dialect.name)
        # the engine's own preparer doubles percent signs, for a driver and not for a reader
        dialect: Any = type(engine.dialect)
        self._preparer: IdentifierPreparer = dialect(paramstyle="named").identifier_preparer

    def vendor_runs(self) -> Sequence[str]:
        """Return unfinished runs of the vendor's tool, which keep rows elsewhere."""
        return self._store.unfinished_vendor_runs()

    @property
    def is_shared(self) -> bool:
        """Whether endpoints share one table, which then stays."""
        return self._store.shares_table

    def rows(self, source: str) -> int | None:
        """Return how many rows the table has, or None when there is no such table."""
        doing = f"counting the rows of {source}"
        with reading(self._engine, StoreError, doing=doing) as connection:
            return self._rows(connection, source)

    def others_with_rows(self, source: str) -> Sequence[EndpointName]:
        """Return the endpoints of all other tables that have a row."""
        others = [each for each in self._store.endpoints() if each.source != source]
        doing = "looking into other timeouts tables"
        with reading(self._engine, StoreError, doing=doing) as connection:
            return [
                each.name
                for each in others
                if not _is_empty(connection, self._store.legacy_table(each.source))
            ]

    def statements(self, source: str) -> Sequence[Statement]:
        """Return what archives the table, and what drops it; empty when it is gone, or shared."""
        if self.is_shared:
            return ()
        doing = f"looking for {source}"
        with reading(self._engine, StoreError, doing=doing) as connection:
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
        """Drop the table if it is empty, in one transaction that locks it; return its rows.

        0: it is gone, or was before. More: nothing was changed.

        Raises:
            StoreUnavailable: The table could not be locked in time, or the answer was lost.
            StoreError: The database refused, or the table is shared. Nothing was changed.
        """
        if self.is_shared:
            raise StoreError(f"the table of {source} is shared with others; it was not dropped")
        doing = f"dropping {source}"
        with writing(self._engine, StoreError, doing=doing) as connection:
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


class DecommissionLedger:
    """What the ledger knows of an endpoint that is to go; changes nothing."""

    def __init__(self, engine: Engine, tables: LedgerTables) -> None:
        """Read the ledger in *tables*."""
        self._engine = engine
        self._tables = tables

    def look(self, source: str, *, ignoring: Callable[[str], bool]) -> LedgerSnapshot:
        """Return what there is now, without leases of owners that *ignoring* says yes to."""
        batch, row = self._tables.batch.c, self._tables.timeout.c
        doing = f"looking up what is left of {source}"
        with reading(self._engine, LedgerError, doing=doing) as connection:

            def one(query: Any) -> int:
                return int(connection.scalar(query) or 0)

            recallable, last_due = connection.execute(self._recallable(source)).one()
            doubtful = select(batch.id).where(
                batch.source == source, batch.state == BatchState.DOUBTFUL
            )
            return LedgerSnapshot(
                open_rows=one(
                    select(func.sum(batch.size)).where(
                        batch.source == source, batch.state.in_(OPEN)
                    )
                ),
                doubtful=tuple(BatchId(found) for found in connection.scalars(doubtful)),
                quarantined=one(
                    select(func.count()).where(
                        row.state == RowState.QUARANTINED, row.source == source
                    )
                ),
                open_elsewhere=one(
                    select(func.count()).where(batch.source != source, batch.state.in_(UNSETTLED))
                ),
                is_running=self._is_running(connection, source),
                recallable=int(recallable),
                last_due=last_due,
                **self._leases(connection, source, ignoring),
            )

    def unfinished(self, source: str) -> Sequence[Binding]:
        """Return the bindings that a decommission which did not end may have cut."""
        records = list(self._records(source))
        # one that ended keeps what it could not bind again, mostly nothing
        return read_bindings(records[-1]["bindings"]) if records else ()

    def knows(self, source: str) -> bool:
        """Return whether a decommission of this table was ever begun."""
        return any(True for _ in self._records(source))

    def _records(self, source: str) -> Iterator[Mapping[str, Any]]:
        event = self._tables.event.c
        query = select(event.detail).where(event.kind.in_(_KINDS)).order_by(event.id)
        doing = "reading the audit trail"
        with reading(self._engine, LedgerError, doing=doing) as connection:
            found = connection.scalars(query).all()
        for detail in map(json.loads, found):
            if detail["source"] == source:
                yield detail

    def _recallable(self, source: str) -> Any:
        row, batch = self._tables.timeout, self._tables.batch
        return (
            select(func.count(), func.max(row.c.due))
            .join(batch, batch.c.id == row.c.batch_id)
            .where(
                batch.c.source == source,
                batch.c.state == BatchState.HANDED_OVER,
                row.c.state.is_(None),
                row.c.due > database_now(),
            )
        )

    def _is_running(self, connection: Connection, source: str) -> bool:
        run = self._tables.run.c
        last = select(run.status).where(run.source == source).order_by(run.id.desc()).limit(1)
        return connection.scalar(last) == RUNNING

    def _leases(
        self, connection: Connection, source: str, ignoring: Callable[[str], bool]
    ) -> dict[str, Any]:
        lease = self._tables.lease.c
        query = select(lease.name, lease.owner, lease.serves).where(
            lease.owner.is_not(None), lease.until > database_now()
        )
        rows = connection.execute(query.order_by(lease.name)).all()
        found = [each for each in rows if not ignoring(each.owner)]
        serving = [each.owner for each in found if each.serves == source]
        return {
            "dispatcher": serving[0] if serving else None,
            "lanes": tuple(f"{each.name} ({each.owner})" for each in found),
        }


def _is_empty(connection: Connection, legacy: LegacyTable) -> bool:
    one = select(legacy.table.c.Id).where(*legacy.is_owned).limit(1)
    return connection.execute(one).first() is None


def _run(connection: Connection, statement: str) -> None:
    connection.execute(text(statement.replace(":", r"\:")))
