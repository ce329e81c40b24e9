"""What the settings say of the ledger: its database, its tables, and all that works on them."""

from __future__ import annotations

import getpass
import os
import socket
import time
from functools import cached_property
from typing import Final

from sqlalchemy import Engine

from migrator import __version__
from migrator.config import Settings, required_secret
from migrator.database.engine import open_engine
from migrator.ledger.adoption import SqlAdoption
from migrator.ledger.batches import SqlBatches
from migrator.ledger.clock import DatabaseClock
from migrator.ledger.failover import Continuity
from migrator.ledger.identity import check_identity
from migrator.ledger.leases import SqlLeases
from migrator.ledger.operator_actions import SqlUpkeep
from migrator.ledger.quarantine import SqlQuarantine
from migrator.ledger.queries import SqlBooks, SqlHandOvers
from migrator.ledger.runs import SqlRuns
from migrator.ledger.tables import LedgerTables, build_tables, names_for
from migrator.preflight.queries import LedgerFacts

_BESIDE_LANES: Final = 4
"""Connections for all that is no lane."""


class LedgerParts:
    """The ledger's side of an application, each part made when it is first asked for."""

    settings: Settings

    @cached_property
    def engine(self) -> Engine:
        """The ledger's database; a SQL store's tables are in it, too."""
        # each lane claims, converts and records side by side, none of it for long
        return self._open_engine(kept_open=self.settings.handover.lanes + _BESIDE_LANES)

    @cached_property
    def lease_engine(self) -> Engine:
        """The same database for the leases alone: no renewal waits until lanes are done with it."""
        return self._open_engine()

    def _open_engine(self, *, kept_open: int | None = None) -> Engine:
        given = self.settings
        if given.store.kind.has_own_ledger:
            url = required_secret(given.ledger.url, key="ledger.url")
        else:
            url = required_secret(given.store.url, key="store.url", option="--store-url")
        return open_engine(url, kept_open=kept_open)

    @cached_property
    def tables(self) -> LedgerTables:
        """The ledger's tables, whether they exist or not."""
        return build_tables(names_for(self.engine, self.settings.store.ledger_schema))

    @cached_property
    def ledger_facts(self) -> LedgerFacts:
        """What checks ask the ledger."""
        return LedgerFacts(self.engine, self.tables)

    @cached_property
    def hand_overs(self) -> SqlHandOvers:
        """Where timeouts were handed over to."""
        renamed = self.settings.handover.destination_map
        return SqlHandOvers(self.engine, self.tables, renamed)

    @cached_property
    def ledger_id(self) -> str:
        """The id that names our queues.

        Raises:
            LedgerMissing, LedgerCloned, DatabaseFailedOver: The ledger cannot be used.
        """
        ledger_id = check_identity(self.engine, self.tables)
        self.continuity.begin()
        return ledger_id

    def accept_failover(self) -> None:
        """Work with the ledger although another server has taken over: to settle that.

        Raises:
            LedgerMissing, LedgerCloned: The ledger cannot be used.
        """
        self.__dict__["ledger_id"] = check_identity(
            self.engine, self.tables, may_have_failed_over=True
        )

    @cached_property
    def continuity(self) -> Continuity:
        """Whether the database is still the server it was."""
        return Continuity(self.engine, self.tables, self.lease_engine)

    @cached_property
    def leases(self) -> SqlLeases:
        """The lanes."""
        return SqlLeases(self.lease_engine, self.tables, self.ledger_id, self.continuity)

    @cached_property
    def batches(self) -> SqlBatches:
        """The batches."""
        return SqlBatches(self.engine, self.tables, self.continuity.note)

    @cached_property
    def runs(self) -> SqlRuns:
        """Runs and the audit trail."""
        return SqlRuns(self.engine, self.tables, actor=_actor(), version=__version__)

    @cached_property
    def clock(self) -> DatabaseClock:
        """The database's time."""
        return DatabaseClock(self.engine, monotonic=_seconds_since_boot)

    # ── for people ──────────────────────────────────────────────────────────────────────────

    @cached_property
    def books(self) -> SqlBooks:
        """Progress, lanes and history."""
        return SqlBooks(self.engine, self.tables)

    @cached_property
    def quarantine(self) -> SqlQuarantine:
        """Rows kept aside with a reason."""
        return SqlQuarantine(self.engine, self.tables)

    @cached_property
    def upkeep(self) -> SqlUpkeep:
        """What only an operator may change."""
        return SqlUpkeep(self.engine, self.tables)

    @cached_property
    def adoption(self) -> SqlAdoption:
        """What becomes of a ledger that is not where it was created."""
        return SqlAdoption(self.engine, self.tables, self.runs)


def _seconds_since_boot() -> float:
    """Return monotonic seconds that go on while the machine is suspended, where it tells them."""
    clock = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
    return time.clock_gettime(clock)


def _actor() -> str:
    try:
        user = getpass.getuser()
    except (KeyError, OSError):
        user = str(os.getuid())
    return f"{user}@{socket.gethostname()}"
