"""Runs and the audit trail."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Final

from sqlalchemy import Engine, Insert, insert, update

from migrator.database.engine import writing
from migrator.database.types import database_now
from migrator.errors import LedgerError
from migrator.ledger.claims import too_long
from migrator.ledger.tables import LedgerTables
from migrator.ledger.work import StoreEndpoint
from migrator.nservicebus.timeouts import BatchId, RunId

RUNNING: Final = "running"


class SqlRuns:
    """Runs and the audit trail."""

    def __init__(self, engine: Engine, tables: LedgerTables, *, actor: str, version: str) -> None:
        """Write into *tables*.

        Args:
            engine: Opens the ledger's database.
            tables: The ledger's tables.
            actor: Who acts, for the audit trail: ``user@host`` of the operator or daemon.
            version: Of this program.
        """
        self._engine = engine
        self._tables = tables
        self._actor = actor
        self._version = version

    def begin(self, endpoint: StoreEndpoint, options: Mapping[str, str | int | bool]) -> RunId:
        """Record that a run begins; *options* carry no secrets."""
        if (why := too_long(endpoint, self._engine.dialect.name)) is not None:
            raise LedgerError(why)
        statement = insert(self._tables.run).values(
            endpoint=endpoint.name,
            source=endpoint.source,
            options=json.dumps(dict(options), sort_keys=True),
            tool_version=self._version,
            status=RUNNING,
            begun_at=database_now(),
        )
        doing = f"beginning a run of {endpoint.name}"
        with writing(self._engine, LedgerError, doing=doing) as connection:
            key = connection.execute(statement).inserted_primary_key
            if key is None:
                raise LedgerError("the database returned no id for a new run; nothing was written")
            return RunId(int(key[0]))

    def end(self, run: RunId, status: str) -> None:
        """Record how a run ended: ``done``, ``stopped`` or ``failed``."""
        table = self._tables.run
        doing = f"ending run {run}"
        with writing(self._engine, LedgerError, doing=doing) as connection:
            connection.execute(
                update(table)
                .where(table.c.id == run)
                .values(status=status, ended_at=database_now())
            )

    def record(self, kind: str, *, detail: Mapping[str, object], batch: BatchId | None) -> None:
        """Append one event to the audit trail."""
        doing = f"recording {kind}"
        with writing(self._engine, LedgerError, doing=doing) as connection:
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
