"""Detects that a replica of the database took over, and that commits are missing there.

Rules of this file: only PostgreSQL reports where its log is; elsewhere, and where its functions are
forbidden, nothing is checked. The position is kept in the ledger, whose timeline is another one
after a promotion; what was committed is kept in this process. Each new connection is checked before
its first use.
"""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from threading import RLock
from typing import Any, Final, Self

from sqlalchemy import Connection, Engine, event, insert, select, text, update
from sqlalchemy.exc import DBAPIError

from migrator.database.engine import open_engine, reading, writing
from migrator.database.types import database_now
from migrator.errors import (
    DatabaseFailedOver,
    LedgerBehind,
    LedgerError,
    StoreUnavailable,
)
from migrator.ledger.states import BatchState
from migrator.ledger.tables import LedgerTables
from migrator.ledger.work import Batch, Lease
from migrator.nservicebus.timeouts import RECALL_LANE, BatchId, Lane
from migrator.text import counted

_log = logging.getLogger(__name__)

_POSITION: Final = (
    "SELECT CASE WHEN pg_is_in_recovery() THEN NULL ELSE "
    "substr(pg_walfile_name(pg_current_wal_flush_lsn()), 1, 8) || ' ' || "
    "pg_current_wal_flush_lsn()::text END"
)
"""Flushed, since what is only written may be gone after a crash that loses nothing committed."""
_REMEMBERED: Final = 1000
"""Batches of which this process knows what it committed last."""
_NAMED: Final = 20
_CHECKED: Final = "migrator_position"
_RANKS: Final = {
    BatchState.PARKED: 0,
    BatchState.CLAIMED: 0,
    BatchState.STAGING: 1,
    BatchState.COMMITTING: 2,
    BatchState.PUBLISHING: 2,
    BatchState.DOUBTFUL: 2,
}
"""How far a state is; a finished batch is further than all of these."""
REMEDY: Final = (
    "check with `migrator db adopt --after-failover --dry-run`, which finds in the delay levels "
    "what was handed over but is not in the ledger"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Position:
    """How far a server's log is: ``timeline log-position``, as ``2 0/3000148``."""

    timeline: int
    lsn: int

    @classmethod
    def parse(cls, text: str) -> Self:
        """Return the position that ``str`` gave, or that the server reported."""
        timeline, lsn = text.split()
        high, low = lsn.split("/")
        return cls(timeline=int(timeline, 16), lsn=(int(high, 16) << 32) + int(low, 16))

    def __str__(self) -> str:
        """Return it as it is kept."""
        return f"{self.timeline:08X} {self.lsn >> 32:X}/{self.lsn & 0xFFFFFFFF:X}"

    def follows(self, earlier: Position) -> bool:
        """Return whether the same server came here from *earlier* and lost nothing."""
        return self.timeline == earlier.timeline and self.lsn >= earlier.lsn


def position_of(connection: Connection) -> Position | None:
    """Return where the server's log is; None: it does not report that."""
    if connection.dialect.name != "postgresql":
        return None
    try:
        with connection.begin_nested():
            reported = connection.scalar(text(_POSITION))
    except DBAPIError:  # a hosted server may forbid it
        return None
    return None if reported is None else Position.parse(reported)


def demand_same_server(connection: Connection, tables: LedgerTables) -> None:
    """Return unless another server has taken over since a lane was last taken.

    Raises:
        DatabaseFailedOver: The server is on another timeline, or its log went back.
    """
    present = position_of(connection)
    if present is None:
        return
    kept = select(tables.lease.c.position).where(tables.lease.c.position.is_not(None))
    for earlier in map(Position.parse, connection.scalars(kept)):
        if not present.follows(earlier):
            raise DatabaseFailedOver(
                "the database failed over to a replica, or was restored: a lane was taken at "
                f"{earlier}, and the server is now at {present} (timeline and position of its "
                "log). The last commits may be missing here, and what they handed over would be "
                f"sent twice: {REMEDY}; nothing was changed"
            )


def record_position(connection: Connection, tables: LedgerTables) -> None:
    """Record where the server is now, in place of all earlier positions; if it reports that."""
    present, lease = position_of(connection), tables.lease
    if present is None:
        return
    if connection.scalar(select(lease.c.name).limit(1)) is None:
        insert_lane(connection, tables, RECALL_LANE)
    connection.execute(update(lease).values(position=str(present)))


def insert_lane(connection: Connection, tables: LedgerTables, lane: Lane, **values: str) -> None:
    """Write the row of a lane without an owner."""
    now = connection.execute(select(database_now())).scalar_one()
    row = {"name": tables.lease_name(lane), "token": 0, "until": now, "renewed_at": now}
    connection.execute(insert(tables.lease).values(row | values))


class FailoverDetector:
    """Compares the server of each new connection with the one before, and with its commits."""

    def __init__(self, engine: Engine, tables: LedgerTables, *others: Engine) -> None:
        self._engine = engine
        self._engines_beside = others
        self._tables = tables
        self._lock = RLock()
        self._seen: Position | None = None
        self._owners: set[str] = set()
        self._committed: OrderedDict[BatchId, Batch] = OrderedDict()
        self._behind: LedgerBehind | None = None

    @property
    def position(self) -> str | None:
        """Where the server's log was at the last check; None: it does not report that."""
        return None if self._seen is None else str(self._seen)

    def begin(self) -> None:
        """Check the server, and from now on each connection before its first use."""
        if self._engine.dialect.name != "postgresql":
            return
        doing = "asking which server it is"
        with reading(self._engine, LedgerError, doing=doing) as connection:
            self._seen = position_of(connection)
        if self._seen is not None:
            for engine in (self._engine, *self._engines_beside):
                event.listen(engine, "checkout", self._check)

    def note_lease(self, lease: Lease) -> None:
        """Remember the name under which this process owns lanes."""
        self._owners.add(lease.owner)

    def note(self, batch: Batch) -> None:
        """Remember what this process has committed of a batch."""
        with self._lock:
            self._committed[batch.id] = batch
            self._committed.move_to_end(batch.id)
            while len(self._committed) > _REMEMBERED:
                self._committed.popitem(last=False)

    # ── a connection ────────────────────────────────────────────────────────────────────────

    def _check(self, connection: Any, record: Any, _proxy: object) -> None:
        if _CHECKED in record.info:
            return
        before = self._seen
        reported = self._ask(connection)
        if reported is None:
            return  # a standby that was not promoted yet writes nothing; it is checked again
        present = Position.parse(reported)
        with self._lock:
            if self._behind is not None:
                raise self._behind
            if before is not None and not present.follows(before) and self._seen is before:
                self._demand_commits(before, present)
            self._seen = present
        record.info[_CHECKED] = reported

    def _ask(self, connection: Any) -> str | None:
        """Ask over the driver's own connection, in a transaction of its own."""
        failed = self._engine.dialect.loaded_dbapi.Error
        was_autocommit = connection.autocommit
        try:
            connection.autocommit = True
            reported: str | None = connection.execute(_POSITION).fetchone()[0]
            connection.autocommit = was_autocommit
        except failed as exc:
            raise StoreUnavailable(
                f"the database cannot be reached to ask which server it is: {type(exc).__name__}; "
                "check store.url, the network and the database"
            ) from exc
        return reported

    def _demand_commits(self, before: Position, present: Position) -> None:
        """Return when no commit of this process is missing, and no other process owned a lane.

        Raises:
            LedgerBehind: Else.
        """
        with _unchecked(self._engine) as connection:
            why = [*self._missing(connection), *self._other_owners(connection)]
            if not why:
                record_position(connection, self._tables)
        where = f"the database failed over: its log was at {before}, and is now at {present}"
        if not why:
            _log.warning(
                "the database failed over, and no committed transaction is missing",
                extra={
                    "action": "database_failed_over",
                    "before": str(before),
                    "now": str(present),
                },
            )
            return
        self._behind = LedgerBehind(
            f"{where}; {'; '.join(why)}; nothing more is claimed or published; {REMEDY}"
        )
        raise self._behind

    def _missing(self, connection: Connection) -> Iterator[str]:
        """Yield what was committed here and is not there, in one sentence."""
        batch = self._tables.batch.c
        query = select(batch.id, batch.state, batch.attempt).where(batch.id.in_(self._committed))
        there = {row.id: row for row in connection.execute(query)}
        gone = [
            f"batch {each.id} ({each.state} in attempt {each.attempt}, now {_state_text(row)})"
            for each in self._committed.values()
            if _is_behind(each, row := there.get(each.id))
        ]
        if gone:
            named = ", ".join(gone[-_NAMED:])
            yield (
                f"{counted(len(gone), 'batch is', 'batches are')} behind what this process "
                "committed, the last ones: "
                f"{named}"
            )

    def _other_owners(self, connection: Connection) -> Iterator[str]:
        """Yield who else owned a lane when the log ended: their commits are unknown."""
        lease = self._tables.lease.c
        rows = connection.execute(select(lease.owner, lease.until, lease.renewed_at)).all()
        ended = max((row.renewed_at for row in rows), default=None)
        others = {
            row.owner
            for row in rows
            if row.owner is not None and row.owner not in self._owners and row.until >= ended
        }
        if others:
            yield f"commits of {', '.join(sorted(others))} may be missing"


def _is_behind(committed: Batch, row: Any) -> bool:
    if row is None or row.attempt != committed.attempt:
        return row is None or row.attempt < committed.attempt
    settled = len(_RANKS)
    return _RANKS.get(row.state, settled) < _RANKS.get(committed.state, settled)


def _state_text(row: Any) -> str:
    return "missing" if row is None else f"{row.state} in attempt {row.attempt}"


@contextmanager
def _unchecked(engine: Engine) -> Iterator[Connection]:
    """Open a transaction over a connection that is not checked."""
    other = open_engine(engine.url)
    doing = "comparing the ledger with what was committed"
    try:
        with writing(other, LedgerError, doing=doing) as connection:
            yield connection
    finally:
        other.dispose()
