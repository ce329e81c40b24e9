"""What preflight asks the ledger."""

from __future__ import annotations

from sqlalchemy import Engine

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
