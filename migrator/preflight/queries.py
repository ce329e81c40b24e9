"""What preflight asks the ledger."""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import Engine

from migrator.database import mysql
from migrator.database.engine import reading
from migrator.database.failures import translating
from migrator.errors import LedgerError, NotChecked
from migrator.ledger.failover import standbys_behind
from migrator.ledger.identity import check_identity
from migrator.ledger.tables import LedgerTables
from migrator.ledger.version import check_head, head


class SqlLedgerFacts:
    """Implements ``ports.LedgerFacts``."""

    def __init__(self, engine: Engine, tables: LedgerTables) -> None:
        """Look at the ledger in *tables*."""
        self._engine = engine
        self._tables = tables

    def verify(self) -> str:
        """Return version and id of a ledger that is fit for use; see ``ports.LedgerFacts``."""
        check_head(self._engine, self._tables)
        ledger_id = check_identity(self._engine, self._tables)
        return f"ledger {ledger_id}, version {head()}"

    def forgets(self) -> str | None:
        """Return how commits may be forgotten; see ``ports.LedgerFacts``.

        PostgreSQL and SQLite are told not to, session by session.
        """
        if self._engine.dialect.name != "mysql":
            return None
        doing = "asking how durable the ledger is"
        with translating(LedgerError, doing=doing), reading(self._engine) as connection:
            return mysql.forgets(connection)

    def standbys_behind(self) -> Sequence[str] | NotChecked:
        """Return standbys that may lack what was committed; see ``ports.LedgerFacts``."""
        doing = "asking for standbys"
        with translating(LedgerError, doing=doing), reading(self._engine) as connection:
            return standbys_behind(connection)
