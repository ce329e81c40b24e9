"""Restoring handed-over rows in a SQL database that holds the ledger as well.

Rules of this file: a row is restored in the transaction that marks it, so it is never in both
places and never in none; the recall's lease is proven first; what the message says of itself is
believed only as far as the ledger agrees.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, Engine, Row, select

from migrator.database.engine import writing
from migrator.database.failures import translating
from migrator.errors import StoreError
from migrator.ledger.claims import hold_lease
from migrator.ledger.states import RowState
from migrator.ledger.tables import LedgerTables
from migrator.ledger.work import Lease
from migrator.recall.forecast import LedgerForecasts
from migrator.recall.ports import Sighting
from migrator.recall.rules import RecallOutcome, RecallScope
from migrator.recall.sightings import judge, key_of, rows_of
from migrator.stores.sql.claims import LegacyTables, SqlClaims
from migrator.stores.sql.moving import id_text, ids_for


class SqlRecalls(LedgerForecasts):
    """Implements ``ports.Recalls`` over one database."""

    def __init__(
        self, engine: Engine, ledger: LedgerTables, store: LegacyTables, claims: SqlClaims
    ) -> None:
        """Restore rows of *ledger* into the tables of *store*, as *claims* puts rows back."""
        super().__init__(engine, ledger)
        self._store = store
        self._claims = claims

    def restore(
        self,
        sightings: Collection[Sighting],
        scope: RecallScope,
        lease: Lease,
        *,
        not_before: datetime,
    ) -> Mapping[Sighting, RecallOutcome]:
        """Restore what is meant and say what each sighting is; see ``ports.Recalls``."""
        if not sightings:
            return {}
        doing = "restoring handed-over rows"
        with translating(StoreError, doing=doing), writing(self._engine) as connection:
            hold_lease(connection, self._ledger, lease)
            known = rows_of(connection, self._ledger, sightings, scope)
            judged = {s: judge(known.get(key_of(s)), s, not_before) for s in sightings}
            wanted = [s for s, outcome in judged.items() if outcome is RecallOutcome.RESTORED]
            taken = self._put_back(connection, {s: known[key_of(s)] for s in wanted})
        return judged | dict.fromkeys(taken, RecallOutcome.TAKEN)

    def _put_back(
        self, connection: Connection, wanted: Mapping[Sighting, Row[Any]]
    ) -> Collection[Sighting]:
        """Insert the rows that are wanted, table by table; return those whose id is there again."""
        taken: list[Sighting] = []
        row = self._ledger.timeout
        for source in sorted({found.source for found in wanted.values()}):
            legacy = self._store.legacy_table(source)
            of_source = {s: found for s, found in wanted.items() if found.source == source}
            ids = [found.store_id for found in of_source.values()]
            is_there = legacy.table.c.Id.in_(ids_for(legacy, ids))
            there = {*connection.scalars(select(id_text(legacy)).where(is_there))}
            taken += [s for s, found in of_source.items() if found.store_id in there]
            free = [found.id for found in of_source.values() if found.store_id not in there]
            if free:
                which = row.c.id.in_(free)
                self._claims.put_back(connection, legacy, which, state=RowState.RECALLED)
        return taken
