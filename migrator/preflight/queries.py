"""Preflight's queries of the ledger."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Final

from sqlalchemy import Engine

from migrator.database import mysql
from migrator.database.engine import reading
from migrator.database.replicas import standbys_behind
from migrator.errors import LedgerError
from migrator.ledger.identity import check_identity
from migrator.ledger.queries import HandedOver, SqlHandOvers
from migrator.ledger.tables import LedgerTables
from migrator.ledger.version import check_head, head
from migrator.nservicebus.timeouts import QueueName

_OVERLAP: Final = timedelta(minutes=5)
"""A hand-over is recorded with the start of its transaction, which takes up to a minute."""


class LedgerFacts:
    def __init__(self, engine: Engine, tables: LedgerTables) -> None:
        self._engine = engine
        self._tables = tables

    def verify(self) -> str:
        """Return version and id of a ledger that is fit for use, or raise ``PreflightRefused``."""
        check_head(self._engine, self._tables)
        ledger_id = check_identity(self._engine, self._tables)
        return f"ledger {ledger_id}, version {head()}"

    def lossy_setting(self) -> str | None:
        """None: no commit can be lost; on PostgreSQL and SQLite, each session prevents it."""
        if self._engine.dialect.name != "mysql":
            return None
        doing = "asking how durable the ledger is"
        with reading(self._engine, LedgerError, doing=doing) as connection:
            return mysql.lossy_setting(connection)

    def standbys_behind(self) -> Sequence[str]:
        """The asynchronous standbys, unless a synchronous one has every commit."""
        doing = "asking for standbys"
        with reading(self._engine, LedgerError, doing=doing) as connection:
            return standbys_behind(connection)


class KnownHandOvers:
    """A cache: reading all hand-overs of a million rows takes some 1.5 GB and a second.

    It may name too much, never too little; ``forget`` drops rows recalled or purged since. For one
    thread.
    """

    def __init__(self, hand_overs: SqlHandOvers, now: Callable[[], datetime]) -> None:
        self._hand_overs = hand_overs
        self._now = now
        self._known: dict[QueueName, HandedOver] = {}
        self._since: datetime | None = None

    def handed_over(self, *, due_from: datetime) -> Sequence[HandedOver]:
        """As ``SqlHandOvers``, with row counts of the last read; the cache survives a failure."""
        asked_at, known = self._now(), self._known
        for new in self._hand_overs.handed_over(due_from=due_from, handed_over_from=self._since):
            last_due = max(new.last_due, known.get(new.destination, new).last_due)
            known[new.destination] = replace(new, last_due=last_due)
        self._since = asked_at - _OVERLAP
        self._known = {name: each for name, each in known.items() if each.last_due >= due_from}
        return [self._known[name] for name in sorted(self._known)]

    def forget(self) -> None:
        self._known, self._since = {}, None
