"""How long the database takes for what every claim needs: the right to delete from a table.

Rules of this file: nothing is deleted, nothing is written, and no lock outlives the question;
whoever waits longer than is of interest stops waiting.
"""

from __future__ import annotations

import time
from datetime import timedelta
from typing import Final

from sqlalchemy import Engine, delete, literal_column

from migrator.database.engine import writing
from migrator.database.failures import translating
from migrator.errors import StoreError, StoreUnavailable
from migrator.stores.sql.claims import LegacyTables
from migrator.stores.sql.dialects import dialect_for

_NEVER: Final = literal_column("1") == literal_column("0")
"""In words that each database takes for a condition; Oracle knows no ``false``."""


class SqlPulse:
    """Measures in the database of the legacy tables."""

    def __init__(self, engine: Engine, legacy: LegacyTables) -> None:
        """Ask about the *legacy* tables in the database of *engine*."""
        self._engine = engine
        self._legacy = legacy

    def answer_s(self, source: str, *, patience: timedelta) -> float:
        """Return the seconds it takes to be let at the rows of *source*, and do nothing there.

        A table that is locked, and a database that does not answer, are given up after about
        *patience*; that is then the answer.

        Raises:
            StoreError: The table is gone, or a right is missing.
            StoreUnavailable: The database cannot be reached at all.
        """
        legacy = self._legacy.legacy_table(source)
        asked_s = time.monotonic()
        is_let_in = False
        try:
            with (
                translating(StoreError, doing=f"asking for {source}"),
                writing(self._engine) as connection,
            ):
                dialect_for(connection.dialect.name).wait_at_most(connection, patience)
                is_let_in = True
                connection.execute(delete(legacy.table).where(_NEVER))
        except StoreUnavailable:
            if not is_let_in:
                raise
            return max(time.monotonic() - asked_s, patience.total_seconds())
        return time.monotonic() - asked_s
