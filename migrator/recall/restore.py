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
from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import datetime
from typing import Any, ClassVar

from sqlalchemy import Connection, Engine, Row

from migrator.database.engine import writing
from migrator.delays.tagged import TaggedMessage
from migrator.errors import LedgerError, MigratorError, SourceGone, StoreError
from migrator.ledger.claims import under_lease
from migrator.ledger.states import RowState
from migrator.ledger.tables import LedgerPart, LedgerTables
from migrator.ledger.work import FaultPoint, Lease
from migrator.recall.queries import judge, rows_of
from migrator.recall.rules import RecallOutcome, Scope
from migrator.stores.documents.claims import DocumentClaims
from migrator.stores.documents.ledger import DocumentLedger, KeptRow
from migrator.stores.sql.claims import SqlClaims
from migrator.stores.sql.returns import PutBackRefused, ids_there
from migrator.stores.sql.store import TableStore

_log = logging.getLogger(__name__)


class Recalls(LedgerPart, ABC):
    """Puts handed-over rows back, byte for byte; what the ledger tells is the same for each."""

    _failed: ClassVar[type[MigratorError]]
    _doing: ClassVar[str]

    def restore(
        self,
        messages: Collection[TaggedMessage],
        scope: Scope,
        lease: Lease,
        *,
        not_before: datetime,
    ) -> Mapping[TaggedMessage, RecallOutcome]:
        """Restore the rows of *messages* that are meant; say what each is.

        A row that is restored is in its legacy table and marked ``recalled`` in the ledger.
        Repeating is harmless: a row is restored once.

        Args:
            messages: They are unacked meanwhile.
            scope: Which rows are meant.
            lease: The recall's own.
            not_before: Rows due before this are left to the broker.

        Raises:
            LeaseLost: Nothing was changed.
            StoreUnavailable: Some rows may be restored; calling again with the same messages
                finishes that, and records it.
        """
        if not messages:
            return {}
        with (
            writing(self._engine, self._failed, doing=self._doing) as connection,
            under_lease(connection, self._tables, lease),
        ):
            known = rows_of(connection, self._tables, messages, scope)
            judged = {s: judge(known.get(s.row), s, not_before) for s in messages}
            wanted = [s for s, outcome in judged.items() if outcome is RecallOutcome.RESTORED]
            finish = self._begin(connection, {s: known[s.row] for s in wanted})
        return {**judged, **finish()}

    @abstractmethod
    def _begin(
        self, connection: Connection, wanted: Mapping[TaggedMessage, Row[Any]]
    ) -> Callable[[], Mapping[TaggedMessage, RecallOutcome]]:
        """Begin to restore the rows that are *wanted*, in the transaction of *connection*.

        Return what is called after its commit, and returns their outcome, if it is another.
        """


class SqlRecalls(Recalls):
    """In one database, all of it or nothing."""

    _failed = StoreError
    _doing = "restoring handed-over rows"

    def __init__(
        self, engine: Engine, ledger: LedgerTables, store: TableStore, claims: SqlClaims
    ) -> None:
        super().__init__(engine, ledger)
        self._store = store
        self._claims = claims
        self._refused = set[int]()
        """Rows, by the ledger's own ids, that their table was found not to take."""

    def restore(
        self,
        messages: Collection[TaggedMessage],
        scope: Scope,
        lease: Lease,
        *,
        not_before: datetime,
    ) -> Mapping[TaggedMessage, RecallOutcome]:
        """Leave out rows that their table does not take; see ``Recalls``."""
        while True:
            try:
                return super().restore(messages, scope, lease, not_before=not_before)
            except PutBackRefused as exc:
                found = self._claims.refusals(exc)
                self._refused |= found.keys()
                _log.warning(
                    "handed-over timeouts stay with the broker: their table does not take them",
                    extra={
                        "action": "recall_refused",
                        "store": exc.legacy.source,
                        "rows": len(found),
                        "error": next(iter(found.values())).detail,
                    },
                )

    def _begin(
        self, connection: Connection, wanted: Mapping[TaggedMessage, Row[Any]]
    ) -> Callable[[], Mapping[TaggedMessage, RecallOutcome]]:
        """Insert what is wanted, table by table; return what stays, and why."""
        left = dict[TaggedMessage, RecallOutcome]()
        row = self._tables.timeout
        for source in sorted({found.source for found in wanted.values()}):
            legacy = self._store.legacy_table(source)
            of_source = {s: found for s, found in wanted.items() if found.source == source}
            there = ids_there(connection, legacy, [each.store_id for each in of_source.values()])
            free = list[int]()
            for message, found in of_source.items():
                if found.store_id in there:
                    left[message] = RecallOutcome.TAKEN
                elif found.id in self._refused:
                    left[message] = RecallOutcome.REFUSED
                else:
                    free.append(found.id)
            if free:
                which = row.c.id.in_(free)
                self._claims.put_back(connection, legacy, which, state=RowState.RECALLED)
        return lambda: left


class DocumentRecalls(Recalls):
    """In a document store, in two recorded steps.

    What came from a store that is gone stays with the broker, and all else goes on.
    """

    _failed = LedgerError
    _doing = "recording that handed-over rows go back"

    def __init__(
        self,
        engine: Engine,
        ledger: LedgerTables,
        records: DocumentLedger,
        claims: DocumentClaims,
        *,
        fault: FaultPoint = lambda _step: None,
    ) -> None:
        super().__init__(engine, ledger)
        self._records = records
        self._claims = claims
        self._fault = fault
        self._gone = set[str]()
        """Sources that were found to be gone; no more rows of them are recorded."""

    def _begin(
        self, connection: Connection, wanted: Mapping[TaggedMessage, Row[Any]]
    ) -> Callable[[], Mapping[TaggedMessage, RecallOutcome]]:
        going = {s: row.id for s, row in wanted.items() if row.source not in self._gone}
        rows = {row.id: row for row in self._records.kept(connection, {*going.values()})}
        self._records.mark_going(connection, [*rows.values()], RowState.RECALLED)

        def finish() -> Mapping[TaggedMessage, RecallOutcome]:
            became = self._restored([*rows.values()]) if rows else {}
            return {s: became[going[s]] if s in going else RecallOutcome.STORE_GONE for s in wanted}

        return finish

    def _restored(self, rows: Sequence[KeptRow]) -> Mapping[int, RecallOutcome]:
        """Restore recorded *rows*; return the outcome of each, by the ledger's own id."""
        self._fault("recall.recorded")
        of_source = defaultdict[str, list[KeptRow]](list)  # two sources may have the same id
        for row in rows:
            of_source[row.endpoint.source].append(row)
        became: dict[int, RecallOutcome] = {}
        for source, some in of_source.items():
            became |= self._restored_to(source, some)
        return became

    def _restored_to(self, source: str, rows: Sequence[KeptRow]) -> Mapping[int, RecallOutcome]:
        try:
            restored = self._claims.restore_singly(rows, RowState.RECALLED)
        except SourceGone as exc:
            self._gone.add(source)
            _log.warning(
                "handed-over timeouts stay with the broker: their store is gone",
                extra={"action": "recall_stuck", "store": source, "error": str(exc)},
            )
            return {row.id: RecallOutcome.STORE_GONE for row in rows}
        self._fault("recall.put_back")
        self._records.confirm_return(rows, restored, RowState.RECALLED)
        self._fault("recall.confirmed")
        back = [row for row in rows if row.document.id in restored]
        self._claims.forget_singly(back)
        taken = dict.fromkeys((row.id for row in rows), RecallOutcome.TAKEN)
        return taken | dict.fromkeys((row.id for row in back), RecallOutcome.RESTORED)
