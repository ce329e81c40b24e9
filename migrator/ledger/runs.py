"""Runs and the audit trail."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Final

from sqlalchemy import Engine, Insert, insert, update

from migrator.database.types import database_now
from migrator.errors import LedgerError
from migrator.ledger.claims import insert_run, too_long
from migrator.ledger.tables import LedgerPart, LedgerTables
from migrator.ledger.work import StoreEndpoint
from migrator.nservicebus.timeouts import BatchId, RunId

RUNNING: Final = "running"


class SqlRuns(LedgerPart):
    """Runs and the audit trail."""

    def __init__(self, engine: Engine, tables: LedgerTables, *, actor: str, version: str) -> None:
        """Write into *tables*.

        Args:
            engine: Opens the ledger's database.
            tables: The ledger's tables.
            actor: Who acts, for the audit trail: ``user@host`` of the operator or daemon.
            version: Of this program.
        """
        super().__init__(engine, tables)
        self._actor = actor
        self._version = version

    def begin(self, endpoint: StoreEndpoint, options: Mapping[str, str | int | bool]) -> RunId:
        """Record that a run begins; *options* carry no secrets."""
        if (why := too_long(endpoint, self._engine.dialect.name)) is not None:
            raise LedgerError(why)
        with self._writing(f"beginning a run of {endpoint.name}") as connection:
            return insert_run(
                connection,
                self._tables,
                endpoint,
                options=options,
                version=self._version,
                status=RUNNING,
            )

    def end(self, run: RunId, status: str) -> None:
        """Record how a run ended: ``done``, ``stopped`` or ``failed``."""
        table = self._tables.run
        with self._writing(f"ending run {run}") as connection:
            connection.execute(
                update(table)
                .where(table.c.id == run)
                .values(status=status, ended_at=database_now())
            )

    def record(self, kind: str, *, detail: Mapping[str, object], batch: BatchId | None) -> None:
        """Append one event to the audit trail."""
        with self._writing(f"recording {kind}") as connection:
            connection.execute(self.event(kind, detail=detail, batch=batch))

    def event(self, kind: str, *, detail: Mapping[str, object], batch: BatchId | None) -> Insert:
        """Return what appends an event in a transaction of the caller's."""
        endpoint = detail.get("endpoint")
        return insert(self._tables.event).values(
            at=database_now(),
            kind=kind,
            batch_id=batch,
            endpoint=None if endpoint is None else str(endpoint),
            actor=self._actor,
            detail=json.dumps(dict(detail), sort_keys=True, default=str),
        )
