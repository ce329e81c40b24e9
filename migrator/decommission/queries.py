"""What the ledger knows of an endpoint that is to go; reads only."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from sqlalchemy import Connection, Engine, func, select

from migrator.database.engine import reading
from migrator.database.failures import translating
from migrator.database.types import database_now
from migrator.decommission.record import KINDS, read_bindings
from migrator.decommission.rules import LedgerLook
from migrator.errors import LedgerError
from migrator.ledger.runs import RUNNING
from migrator.ledger.states import OPEN, BatchState, RowState
from migrator.ledger.tables import UNSETTLED, LedgerTables
from migrator.nservicebus.timeouts import BatchId
from migrator.rabbitmq.entities import Binding


class SqlDecommissionLedger:
    """Implements ``decommission.ports.DecommissionLedger``."""

    def __init__(self, engine: Engine, tables: LedgerTables) -> None:
        """Read the ledger in *tables*."""
        self._engine = engine
        self._tables = tables

    def look(self, source: str, *, ignoring: Callable[[str], bool]) -> LedgerLook:
        """Return what there is now; see ``decommission.ports.DecommissionLedger``."""
        batch, row = self._tables.batch.c, self._tables.timeout.c
        doing = f"looking up what is left of {source}"
        with translating(LedgerError, doing=doing), reading(self._engine) as connection:

            def one(query: Any) -> int:
                return int(connection.scalar(query) or 0)

            recallable, last_due = connection.execute(self._recallable(source)).one()
            doubtful = select(batch.id).where(
                batch.source == source, batch.state == BatchState.DOUBTFUL
            )
            return LedgerLook(
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
        """Return what may be cut; see ``decommission.ports.DecommissionLedger``."""
        last = None
        for _kind, detail in self._records(source):
            last = detail  # one that ended keeps what it could not bind again, mostly nothing
        return () if last is None else read_bindings(last["bindings"])

    def knows(self, source: str) -> bool:
        """Return whether one was ever begun; see ``decommission.ports.DecommissionLedger``."""
        return any(True for _ in self._records(source))

    def _records(self, source: str) -> Iterator[tuple[str, Mapping[str, Any]]]:
        event = self._tables.event.c
        query = select(event.kind, event.detail).where(event.kind.in_(KINDS)).order_by(event.id)
        doing = "reading the audit trail"
        with translating(LedgerError, doing=doing), reading(self._engine) as connection:
            found = connection.execute(query).all()
        for kind, text in found:
            detail = json.loads(text)
            if detail["source"] == source:
                yield kind, detail

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
