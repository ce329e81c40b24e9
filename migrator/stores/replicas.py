"""How far the replicas of a PostgreSQL database are behind, as the primary sees them.

Source: PostgreSQL documentation, ``pg_stat_replication``.
"""

from __future__ import annotations

from typing import Final

from sqlalchemy import Engine, text

from migrator.database.engine import reading
from migrator.database.failures import translating
from migrator.errors import StoreError

_LAG: Final = text(
    "SELECT application_name, state, "
    "pg_wal_lsn_diff(pg_current_wal_lsn(), replay_lsn) AS behind_bytes, "
    "extract(epoch FROM replay_lag) AS lag_s "
    "FROM pg_stat_replication WHERE state IS DISTINCT FROM 'backup'"
)
"""Without ``pg_read_all_stats`` the database shows the rows, but none of their values."""


class ReplicaLag:
    """Asks the primary."""

    def __init__(self, engine: Engine) -> None:
        """Ask the database of *engine*."""
        self._engine = engine

    def worst_s(self) -> tuple[float, str]:
        """Return how many seconds the slowest replica is behind, and its name.

        A replica that has all there is, is not behind, however long ago that was.

        Raises:
            StoreError: It is no PostgreSQL primary, no replica is connected, or we may not know.
            StoreUnavailable: The database cannot be asked.
        """
        if self._engine.dialect.name != "postgresql":
            raise StoreError("only PostgreSQL tells how far its replicas are behind")
        doing = "reading how far replicas are behind"
        with translating(StoreError, doing=doing), reading(self._engine) as connection:
            found = connection.execute(_LAG).all()
        if not found:
            raise StoreError("no replica is connected")
        if any(row.state is None for row in found):
            raise StoreError("the lag of replicas is hidden from this user: GRANT pg_monitor")
        worst = [
            (0.0 if not row.behind_bytes else float(row.lag_s or 0.0), str(row.application_name))
            for row in found
        ]
        return max(worst)
