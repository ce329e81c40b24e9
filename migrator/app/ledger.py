"""The ledger that the settings name: its engines and tables, and what reads and writes them."""

from __future__ import annotations

import getpass
import os
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cached_property
from typing import TYPE_CHECKING, Final

from pydantic import SecretStr

from migrator import __version__
from migrator.config.secrets import required_secret
from migrator.config.sources import LEDGER_PLACE, ledger_place
from migrator.database.engine import open_engine
from migrator.ledger.batches import SqlBatches, SqlRuns
from migrator.ledger.clock import DatabaseClock
from migrator.ledger.failover import FailoverDetector
from migrator.ledger.identity import check_identity
from migrator.ledger.leases import SqlLeases
from migrator.ledger.queries import LedgerQueries, SqlHandOvers
from migrator.ledger.tables import build_tables, names_for
from migrator.preflight.queries import LedgerFacts

if TYPE_CHECKING:
    from sqlalchemy import Engine

    from migrator.config import Settings

_BESIDE_LANES: Final = 4
"""Connections for all that is no lane."""


class Ledger:
    """The ledger, whether it exists or not; nothing connects before it is used.

    Raises:
        ConfigError: No database is named.
    """

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        # each lane claims, converts and records side by side, none of it for long
        self.engine = _open_engine(settings, kept_open=settings.handover.lanes + _BESIDE_LANES)
        """The database; a SQL store's tables are in it, too."""
        self._lease_engine = _open_engine(settings)
        """The same for the leases alone: no renewal waits until lanes are done with it."""
        engine = self.engine
        self.tables = tables = build_tables(names_for(engine, settings.store.ledger_schema))
        self.detector = FailoverDetector(engine, tables, self._lease_engine)
        self.clock = DatabaseClock(engine, monotonic=_seconds_since_boot)
        self.facts = LedgerFacts(engine, tables)
        self.queries = LedgerQueries(engine, tables)
        self.hand_overs = SqlHandOvers(engine, tables, settings.handover.destination_map)
        self.batches = SqlBatches(engine, tables, self.detector)
        self.runs = SqlRuns(engine, tables, actor=_actor(), version=__version__)

    @property
    def place(self) -> str:
        """Where it is, without telling the address; see ``config.sources``."""
        store, url = self._settings.store, self._settings.ledger.url
        given = (store.kind, store.url, store.ledger_schema, url)
        texts = (each.get_secret_value() if isinstance(each, SecretStr) else each for each in given)
        return ledger_place(dict(zip(LEDGER_PLACE, texts, strict=True)))

    @cached_property
    def id(self) -> str:
        """The id that names our queues.

        Raises:
            LedgerMissing, LedgerCloned, DatabaseFailedOver: The ledger cannot be used.
        """
        ledger_id = check_identity(self.engine, self.tables)
        self.detector.begin()
        return ledger_id

    def accept_failover(self) -> None:
        """Work with the ledger although another server has taken over: to settle that.

        Raises:
            LedgerMissing, LedgerCloned: The ledger cannot be used.
        """
        self.__dict__["id"] = check_identity(self.engine, self.tables, may_have_failed_over=True)

    @cached_property
    def leases(self) -> SqlLeases:
        """The lanes; raises what ``id`` does."""
        return SqlLeases(self._lease_engine, self.tables, self.id, self.detector)

    def close(self) -> None:
        """Close all connections."""
        self.engine.dispose()
        self._lease_engine.dispose()


@contextmanager
def open_ledger(settings: Settings, *, must_exist: bool = True) -> Iterator[Ledger]:
    """Open the ledger that *settings* name, and close it at the end.

    Raises:
        ConfigError: No database is named.
        PreflightRefused: *must_exist*, and there is none that can be used.
    """
    ledger = Ledger(settings)
    try:
        if must_exist:
            ledger.facts.verify()
        yield ledger
    finally:
        ledger.close()


def _open_engine(given: Settings, *, kept_open: int | None = None) -> Engine:
    if given.store.kind.has_own_ledger:
        url = required_secret(given.ledger.url, key="ledger.url")
    else:
        url = required_secret(given.store.url, key="store.url", option="--store-url")
    return open_engine(url, kept_open=kept_open)


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
