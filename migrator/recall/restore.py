"""Restoring handed-over timeouts into the store they came from.

Rules of this file:

* the recall's lease is proven first; what a message says of itself is believed only as far as the
  ledger agrees;
* in a SQL database that holds the ledger as well, a row is restored in the transaction that marks
  it, so it is never in both places and never in none;
* in a document store a row is recorded as going back before anything is asked of the store, and
  as recalled after the store has it; until then its message is held, so a crash in between leaves
  a copy that the next recall takes away.
"""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, Engine, Row, select

from migrator.database.engine import reading, writing
from migrator.errors import LedgerError, SourceGone, StoreError
from migrator.ledger.claims import hold_lease
from migrator.ledger.states import RowState
from migrator.ledger.tables import LedgerPart, LedgerTables
from migrator.ledger.work import FaultPoint, Lease
from migrator.recall.queries import Forecaster, judge, key_of, rows_of
from migrator.recall.rules import RecallForecast, RecallOutcome, RecallScope, Sighting
from migrator.stores.documents.claims import DocumentClaims
from migrator.stores.documents.ledger import DocumentLedger, KeptRow
from migrator.stores.sql.claims import SqlClaims
from migrator.stores.sql.moving import id_text, ids_for
from migrator.stores.sql.store import TableStore

_log = logging.getLogger(__name__)

_Found = tuple[Mapping[Sighting, RecallOutcome], Mapping[Sighting, KeptRow]]


class Recalls(LedgerPart, ABC):
    """Puts handed-over rows back, byte for byte; what the ledger tells is the same for each."""

    @abstractmethod
    def restore(
        self,
        sightings: Collection[Sighting],
        scope: RecallScope,
        lease: Lease,
        *,
        not_before: datetime,
    ) -> Mapping[Sighting, RecallOutcome]:
        """Restore the rows of *sightings* that are meant; say what each is.

        A row that is restored is in its legacy table and marked ``recalled`` in the ledger.
        Repeating is harmless: a row is restored once.

        Args:
            sightings: Messages that were found; they are held meanwhile.
            scope: Which rows are meant.
            lease: The recall's own.
            not_before: Rows due before this are left to the broker.

        Raises:
            LeaseLost: Nothing was changed.
            StoreUnavailable: Some rows may be restored; calling again with the same messages
                finishes that, and records it.
        """

    def forecast(
        self,
        scope: RecallScope,
        *,
        now: datetime,
        not_before: datetime,
        exact_rows: int | None = None,
    ) -> RecallForecast:
        """Return what is still to be found in the levels, by the ledger; changes nothing.

        Args:
            scope: Which rows are meant.
            now: What was due before has left.
            not_before: What is due before is too near.
            exact_rows: How many rows are read at most, of batches that are due in part; beyond
                that, such batches count by their due times. None: all are read.
        """
        doing = "counting what could be recalled"
        with reading(self._engine, StoreError, doing=doing) as connection:
            forecaster = Forecaster(connection, self._tables, scope, now=now, not_before=not_before)
            return forecaster.forecast(exact_rows=exact_rows)


class SqlRecalls(Recalls):
    """In one database, all of it or nothing."""

    def __init__(
        self, engine: Engine, ledger: LedgerTables, store: TableStore, claims: SqlClaims
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
        """Restore what is meant and say what each sighting is."""
        if not sightings:
            return {}
        doing = "restoring handed-over rows"
        with writing(self._engine, StoreError, doing=doing) as connection:
            hold_lease(connection, self._tables, lease)
            known = rows_of(connection, self._tables, sightings, scope)
            judged = {s: judge(known.get(key_of(s)), s, not_before) for s in sightings}
            wanted = [s for s, outcome in judged.items() if outcome is RecallOutcome.RESTORED]
            taken = self._put_back(connection, {s: known[key_of(s)] for s in wanted})
        return judged | dict.fromkeys(taken, RecallOutcome.TAKEN)

    def _put_back(
        self, connection: Connection, wanted: Mapping[Sighting, Row[Any]]
    ) -> Collection[Sighting]:
        """Insert the rows that are wanted, table by table; return those whose id is there again."""
        taken: list[Sighting] = []
        row = self._tables.timeout
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


class DocumentRecalls(Recalls):
    """In a document store, in two recorded steps."""

    def __init__(
        self,
        engine: Engine,
        ledger: LedgerTables,
        records: DocumentLedger,
        claims: DocumentClaims,
        *,
        fault: FaultPoint = lambda _step: None,
    ) -> None:
        """Restore rows of *ledger* as *claims* puts rows back."""
        super().__init__(engine, ledger)
        self._records = records
        self._claims = claims
        self._fault = fault
        self._gone = set[str]()
        """Sources that were found to be gone."""

    def restore(
        self,
        sightings: Collection[Sighting],
        scope: RecallScope,
        lease: Lease,
        *,
        not_before: datetime,
    ) -> Mapping[Sighting, RecallOutcome]:
        """Restore what is meant and say what each sighting is.

        What came from a store that is gone stays with the broker, and all else goes on.
        """
        if not sightings:
            return {}
        judged, going = self._begin(sightings, scope, lease, not_before)
        if not going:
            return judged
        self._fault("recall.recorded")
        rows = {row.id: row for row in going.values()}
        of_source = defaultdict[str, list[KeptRow]](list)  # two sources may have the same id
        for row in rows.values():
            of_source[row.endpoint.source].append(row)
        became: dict[int, RecallOutcome] = {}
        for some in of_source.values():
            became |= self._restored(some)
        return {**judged, **{s: became[row.id] for s, row in going.items()}}

    def _restored(self, rows: Sequence[KeptRow]) -> Mapping[int, RecallOutcome]:
        """Restore *rows* of one source; return what became of each, by the ledger's own id."""
        source = rows[0].endpoint.source
        try:
            restored = self._claims.restore_singly(rows, RowState.RECALLED)
        except SourceGone as exc:
            self._gone.add(source)
            _log.warning(
                "what came from a store that is gone stays with the broker",
                extra={"action": "recall_stuck", "store": source, "error": str(exc)},
            )
            return {row.id: RecallOutcome.STORE_GONE for row in rows}
        self._fault("recall.put_back")
        self._records.confirm_return(rows, restored, RowState.RECALLED)
        self._fault("recall.confirmed")
        back = [row for row in rows if row.document.id in restored]
        self._claims.forget_singly(back)
        ours = {row.id for row in back}
        return {
            row.id: RecallOutcome.RESTORED if row.id in ours else RecallOutcome.TAKEN
            for row in rows
        }

    def _begin(
        self,
        sightings: Collection[Sighting],
        scope: RecallScope,
        lease: Lease,
        not_before: datetime,
    ) -> _Found:
        doing = "recording that handed-over rows go back"
        with writing(self._engine, LedgerError, doing=doing) as connection:
            hold_lease(connection, self._tables, lease)
            known = rows_of(connection, self._tables, sightings, scope)
            judged = {s: self._judge(known.get(key_of(s)), s, not_before) for s in sightings}
            wanted = [s for s, outcome in judged.items() if outcome is RecallOutcome.RESTORED]
            ids = {known[key_of(s)].id for s in wanted}
            rows = {row.id: row for row in self._records.kept(connection, ids)}
            self._records.mark_going(connection, [*rows.values()], RowState.RECALLED)
        return judged, {s: rows[known[key_of(s)].id] for s in wanted}

    def _judge(
        self, row: Row[Any] | None, sighting: Sighting, not_before: datetime
    ) -> RecallOutcome:
        """Return what ``judge`` does, but record no more rows that nobody could put back."""
        outcome = judge(row, sighting, not_before)
        is_stuck = row is not None and row.source in self._gone
        wanted = outcome is RecallOutcome.RESTORED
        return RecallOutcome.STORE_GONE if wanted and is_stuck else outcome
