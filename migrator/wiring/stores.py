"""Which parts each kind of legacy store brings; a new kind is entered here, and nowhere else.

A SQL store shares its database with the ledger. A document store has its ledger elsewhere: all of
them work through ``stores.documents``, and an adapter only implements ``ports.documents``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Final, Protocol

from sqlalchemy import Engine

from migrator.config import Settings
from migrator.config.servers import StoreKind
from migrator.ledger.tables import LedgerTables
from migrator.ports import Claims, FaultPoint, Store
from migrator.ports.measuring import Counting, Pulse
from migrator.ports.recall import Recalls
from migrator.ports.verification import Verifications
from migrator.stores.claims import SqlClaims
from migrator.stores.counting import SqlCounting
from migrator.stores.pulse import SqlPulse
from migrator.stores.recall import SqlRecalls
from migrator.stores.sql_persistence import Placement, SqlOptions, SqlStore
from migrator.stores.verification import SqlVerifications


class StoreSide(Protocol):
    """All that one kind of legacy store brings; each part is made when it is first asked for."""

    @property
    def store(self) -> Store:
        """Answers questions about the store."""
        ...

    @property
    def claims(self) -> Claims:
        """Moves timeouts between store and ledger."""
        ...

    @property
    def recalls(self) -> Recalls:
        """Puts handed-over timeouts back."""
        ...

    @property
    def verifications(self) -> Verifications:
        """Reads the books, and compares them with the store."""
        ...

    @property
    def counting(self) -> Counting:
        """Counts for the page."""
        ...

    @property
    def pulse(self) -> Pulse:
        """Measures for the throttle."""
        ...

    def close(self) -> None:
        """Close what was opened; the ledger's engine is not this side's."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Ground:
    """What every side stands on."""

    settings: Settings
    engine: Engine
    """The ledger's database; of a SQL store, the store's as well."""
    tables: LedgerTables
    ledger_id: Callable[[], str]
    """Asked when the ledger is first written to; raises when it cannot be used."""
    fault: FaultPoint


class SqlSide:
    """A SQL database that holds the ledger as well; implements ``StoreSide``."""

    def __init__(self, ground: Ground) -> None:
        """Remember *ground*; nothing is opened."""
        self._ground = ground

    @cached_property
    def store(self) -> SqlStore:
        """The legacy tables."""
        settings = self._ground.settings
        placements = {
            endpoint.name: Placement(
                prefix=endpoint.table_prefix, table=endpoint.table, schema=endpoint.schema_name
            )
            for endpoint in settings.endpoints
        }
        options = SqlOptions(schema=settings.store.schema_name or "public", placements=placements)
        return SqlStore(self._ground.engine, self._ground.tables, options)

    @cached_property
    def claims(self) -> SqlClaims:
        """Moves rows between store and ledger."""
        return SqlClaims(self._ground.engine, self._ground.tables, self.store)

    @cached_property
    def recalls(self) -> SqlRecalls:
        """Puts handed-over rows back."""
        return SqlRecalls(self._ground.engine, self._ground.tables, self.store, self.claims)

    @cached_property
    def verifications(self) -> SqlVerifications:
        """Reads the books, and compares them with the tables."""
        return SqlVerifications(self._ground.engine, self._ground.tables, self.store)

    @cached_property
    def counting(self) -> SqlCounting:
        """Counts the rows of tables."""
        return SqlCounting(self._ground.engine, self.store)

    @cached_property
    def pulse(self) -> SqlPulse:
        """Measures what every claim needs."""
        return SqlPulse(self._ground.engine, self.store)

    def close(self) -> None:
        """Do nothing: the engine is the ledger's, too."""


_SIDES: Final[Mapping[StoreKind, Callable[[Ground], StoreSide]]] = {StoreKind.SQL: SqlSide}


def open_side(ground: Ground) -> StoreSide:
    """Return the side of the kind that the settings name; nothing is connected yet."""
    return _SIDES[ground.settings.store.kind](ground)
