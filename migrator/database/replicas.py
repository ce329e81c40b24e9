"""How far the replicas of a PostgreSQL database are behind, as the primary sees them.

Rules of this file: a replica that has applied everything is not behind, however long ago it did.
The lag of a replica that stands still is the time since the program first saw what it has not
applied. The primary's own figure only changes when the replica answers.

Source: PostgreSQL documentation, ``pg_stat_replication``.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Final

import sqlalchemy as sa

from migrator.database.engine import reading
from migrator.errors import NotChecked, StoreError

_REPLICAS: Final = sa.text(
    "SELECT application_name AS name, state, extract(epoch FROM replay_lag) AS lag_s, "
    "pg_wal_lsn_diff(pg_current_wal_lsn(), '0/0') AS written, "
    "pg_wal_lsn_diff(replay_lsn, '0/0') AS applied "
    "FROM pg_stat_replication WHERE state IS DISTINCT FROM 'backup'"
)
"""Without ``pg_read_all_stats`` the database shows the rows, but none of their values."""
_SYNCHRONOUS: Final = ("sync", "quorum")
_MOST_SAMPLES: Final = 10_000


class ReplicaLag:
    """For one thread at a time."""

    def __init__(self, engine: sa.Engine, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._engine = engine
        self._monotonic = monotonic
        self._written: deque[tuple[float, int]] = deque(maxlen=_MOST_SAMPLES)
        """Time and position of samples that a replica has not applied yet."""

    def worst_s(self) -> tuple[float, str]:
        """Return how many seconds the slowest replica is behind, and its name.

        Raises:
            StoreError: It is no PostgreSQL primary, no replica is connected, or a right is missing.
        """
        if self._engine.dialect.name != "postgresql":
            raise StoreError("only PostgreSQL reports how far its replicas are behind")
        doing = "reading how far replicas are behind"
        with reading(self._engine, StoreError, doing=doing) as connection:
            found = connection.execute(_REPLICAS).all()
        if not found:
            raise StoreError("no replica is connected")
        if any(row.state is None for row in found):
            raise StoreError("the lag of replicas is hidden from this user: GRANT pg_monitor")
        now_s = self._monotonic()
        self._written.append((now_s, int(found[0].written)))
        lags = [(self._lag_s(row.applied, row.lag_s, now_s), str(row.name)) for row in found]
        slowest = min(int(row.applied or 0) for row in found)
        while self._written and self._written[0][1] <= slowest:
            self._written.popleft()
        return max(lags)

    def _lag_s(self, applied: object, reported_s: object, now_s: float) -> float:
        position = int(str(applied)) if applied is not None else 0
        missing = [at_s for at_s, written in self._written if written > position]
        if not missing:
            return 0.0
        return max(now_s - missing[0], float(str(reported_s)) if reported_s is not None else 0.0)


def standbys_behind(connection: sa.Connection) -> Sequence[str]:
    """Return the standbys of which none has to have a commit before it is answered.

    Raises:
        NotChecked: The server does not report it.
    """
    if connection.dialect.name != "postgresql":
        return ()
    query = (
        "SELECT application_name AS name, state, sync_state FROM pg_stat_replication "
        "WHERE state IS DISTINCT FROM 'backup'"
    )
    found = connection.execute(sa.text(query)).all()
    if any(row.state is None for row in found):
        raise NotChecked("whether standbys are synchronous is hidden: GRANT pg_monitor")
    is_kept = any(row.sync_state in _SYNCHRONOUS for row in found)
    return () if is_kept else sorted({row.name for row in found})
