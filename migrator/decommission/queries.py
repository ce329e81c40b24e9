"""What legacy store and ledger know of an endpoint that is to go, and the end of its table.

Rules of this file: the SQL that is run is the SQL that was shown; a table is dropped only in the
transaction that has locked it and seen it empty.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from sqlalchemy import Connection, Engine, func, inspect, select, text
from sqlalchemy.sql.compiler import IdentifierPreparer

from migrator.database.engine import reading, writing
from migrator.database.types import database_now
from migrator.decommission.rules import DatabaseSnapshot, read_bindings
from migrator.errors import LedgerError, StoreError
from migrator.ledger.batches import RUNNING
from migrator.ledger.states import OPEN, BatchState, RowState
from migrator.ledger.tables import INCOMPLETE, LedgerTables
from migrator.nservicebus.timeouts import BatchId
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


class DecommissionDatabase:
    """The database with ledger and legacy tables, of which one is to go."""

    def __init__(self, engine: Engine, tables: LedgerTables, store: TableStore) -> None:
        self._engine = engine
        self._tables = tables
        self._store = store
        self._dialect = dialect_for(engine.dialect.name)
        # the engine's own preparer doubles percent signs, for a driver and not for a reader
        dialect: Any = type(engine.dialect)
        self._preparer: IdentifierPreparer = dialect(paramstyle="named").identifier_preparer

    def look(self, source: str, *, ignoring: Callable[[str], bool]) -> DatabaseSnapshot:
        """Return what there is now, without leases of owners that *ignoring* says yes to."""
        others = [each for each in self._store.endpoints() if each.source != source]
        with reading(self._engine, StoreError, doing=f"looking at {source}") as connection:
            rows = self._rows(connection, source)
            others_with_rows = [e.name for e in others if self._look_for_rows(connection, e.source)]
        doing = f"looking up what is left of {source}"
        with reading(self._engine, LedgerError, doing=doing) as connection:
            return DatabaseSnapshot(
                rows=rows,
                is_table_shared=self._store.shares_table,
                vendor_runs=self._store.unfinished_vendor_runs(),
                others_with_rows=others_with_rows,
                unfinished=self._unfinished(connection, source) or (),
                **self._counts(connection, source),
                **self._leases(connection, source, ignoring),
            )

    def was_begun(self, source: str) -> bool:
        """Return whether a decommission of this table was ever begun."""
        with reading(self._engine, LedgerError, doing="reading the audit trail") as connection:
            return self._unfinished(connection, source) is not None

    # ── the table ───────────────────────────────────────────────────────────────────────────

    def statements(self, source: str) -> Mapping[str, str]:
        """Return what archives the table, and what drops it; empty when it is gone, or shared."""
        if self._store.shares_table:
            return {}
        with reading(self._engine, StoreError, doing=f"looking for {source}") as connection:
            if not self._exists(connection, source):
                return {}
        name, table = self._name(source), self._store.location(source)[1]
        room = self._dialect.name_max_bytes - len(_ARCHIVED.encode())
        archived = table.encode()[:room].decode(errors="ignore") + _ARCHIVED
        return {
            "archive": self._dialect.renaming(name, archived, self._preparer.quote(archived)),
            "drop": _dropping(name),
        }

    def drop(self, source: str) -> int:
        """Drop the table if it is empty, in one transaction that locks it; return its rows.

        0: it is gone, or was before. More: nothing was changed.

        Raises:
            StoreUnavailable: The table could not be locked in time, or the answer was lost.
            StoreError: The database refused, or the table is shared. Nothing was changed.
        """
        if self._store.shares_table:
            raise StoreError(f"the table of {source} is shared with others; it was not dropped")
        with writing(self._engine, StoreError, doing=f"dropping {source}") as connection:
            if not self._exists(connection, source):
                return 0
            self._store.legacy_table(source)  # a later read would wait for our own lock
            self._dialect.lock_table(connection, self._name(source))
            rows = self._rows(connection, source) or 0
            if not rows:
                connection.execute(text(_dropping(self._name(source)).replace(":", r"\:")))
            return rows

    def _rows(self, connection: Connection, source: str) -> int | None:
        if not self._exists(connection, source):
            return None
        legacy = self._store.legacy_table(source)
        counting = select(func.count()).select_from(legacy.table).where(*legacy.is_owned)
        return connection.execute(counting).scalar_one()

    def _look_for_rows(self, connection: Connection, source: str) -> bool:
        legacy: LegacyTable = self._store.legacy_table(source)
        one = select(legacy.table.c.Id).where(*legacy.is_owned).limit(1)
        return connection.execute(one).first() is not None

    def _name(self, source: str) -> str:
        schema, name = self._store.location(source)
        quoted = self._preparer.quote(name)
        return quoted if schema is None else f"{self._preparer.quote_schema(schema)}.{quoted}"

    def _exists(self, connection: Connection, source: str) -> bool:
        schema, name = self._store.location(source)
        return inspect(connection).has_table(name, schema=schema)

    # ── the ledger ──────────────────────────────────────────────────────────────────────────

    def _unfinished(self, connection: Connection, source: str) -> Sequence[Binding] | None:
        """Return what a decommission that did not end may have cut; None: none was ever begun."""
        event = self._tables.event.c
        query = select(event.detail).where(event.kind.in_(_KINDS)).order_by(event.id.desc())
        for detail in map(json.loads, connection.scalars(query)):
            if detail["source"] == source:
                # one that ended keeps what it could not bind again, mostly nothing
                return read_bindings(detail["bindings"])
        return None

    def _counts(self, connection: Connection, source: str) -> dict[str, Any]:
        batch, row, run = self._tables.batch.c, self._tables.timeout.c, self._tables.run.c

        def one(what: Any, *where: Any) -> int:
            return int(connection.scalar(select(what).where(*where)) or 0)

        doubtful = select(batch.id).where(
            batch.source == source, batch.state == BatchState.DOUBTFUL
        )
        last_run = select(run.status).where(run.source == source).order_by(run.id.desc()).limit(1)
        waiting = (
            select(func.count(), func.max(row.due))
            .join_from(self._tables.timeout, self._tables.batch, batch.id == row.batch_id)
            .where(
                batch.source == source,
                batch.state == BatchState.HANDED_OVER,
                row.state.is_(None),
                row.due > database_now(),
            )
        )
        recallable, last_due = connection.execute(waiting).one()
        return {
            "open_rows": one(
                func.sum(batch.size),
                batch.source == source,
                batch.state.in_({*OPEN, BatchState.PARKED}),
            ),
            "doubtful": tuple(BatchId(found) for found in connection.scalars(doubtful)),
            "quarantined": one(
                func.count(), row.state == RowState.QUARANTINED, row.source == source
            ),
            "open_elsewhere": one(
                func.count(), batch.source != source, batch.state.in_(INCOMPLETE)
            ),
            "is_running": connection.scalar(last_run) == RUNNING,
            "recallable": int(recallable),
            "last_due": last_due,
        }

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


def _dropping(name: str) -> str:
    return f"DROP TABLE {name}"
