"""The servers that the settings name, opened together for the verbs that need all of them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from migrator.app.broker import Broker, open_broker
from migrator.app.ledger import Ledger, open_ledger
from migrator.app.stores import SqlBackend, StoreBackend, demand_sql, open_backend
from migrator.app.values import fault_point

if TYPE_CHECKING:
    from migrator.config import Settings
    from migrator.ledger.work import FaultPoint


@dataclass(frozen=True, slots=True, kw_only=True)
class Servers:
    """Ledger, broker and legacy store of one process."""

    settings: Settings
    ledger: Ledger
    broker: Broker
    backend: StoreBackend
    fault: FaultPoint

    def sql_backend(self, *, wanted_for: str) -> SqlBackend:
        """Return the backend of a SQL store; raises what ``demand_sql`` does."""
        return demand_sql(self.backend, self.settings, wanted_for=wanted_for)


@contextmanager
def open_servers(settings: Settings, *, must_exist: bool = True) -> Iterator[Servers]:
    """Open what *settings* name; nothing but the ledger is connected before it is used.

    Raises:
        ConfigError: The store is not named.
        PreflightRefused: *must_exist*, and there is no ledger that can be used.
    """
    fault = fault_point()
    with (
        open_ledger(settings, must_exist=must_exist) as ledger,
        open_broker(settings) as broker,
        open_backend(settings, ledger, fault) as backend,
    ):
        yield Servers(settings=settings, ledger=ledger, broker=broker, backend=backend, fault=fault)
