"""Restoring handed-over timeouts into a document store, in two recorded steps.

Rules of this file: the recall's lease is proven first; a row is recorded as going back before
anything is asked of the store, and as recalled after the store has it; until then its message is
held, so a crash in between leaves a copy that the next recall takes away.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from typing import Any

from sqlalchemy import Engine, Row

from migrator.database.engine import writing
from migrator.database.failures import translating
from migrator.errors import LedgerError, SourceGone
from migrator.ledger.claims import hold_lease
from migrator.ledger.states import RowState
from migrator.ledger.tables import LedgerTables
from migrator.ledger.work import FaultPoint, Lease
from migrator.recall.forecast import LedgerForecasts
from migrator.recall.ports import Sighting
from migrator.recall.rules import RecallOutcome, RecallScope
from migrator.recall.sightings import judge, key_of, rows_of
from migrator.stores.documents.claims import DocumentClaims
from migrator.stores.documents.ledger import DocumentLedger, KeptRow

_log = logging.getLogger(__name__)

_Found = tuple[Mapping[Sighting, RecallOutcome], Mapping[Sighting, KeptRow]]


class DocumentRecalls(LedgerForecasts):
    """Implements ``ports.Recalls`` over a ledger and a document store."""

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
        """Restore what is meant and say what each sighting is; see ``ports.Recalls``.

        What came from a store that is gone stays with the broker, and all else goes on.

        When it raises ``StoreUnavailable``, some rows may be restored and not yet recorded as
        that: calling it again with the same messages records them.
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
        with translating(LedgerError, doing=doing), writing(self._engine) as connection:
            hold_lease(connection, self._ledger, lease)
            known = rows_of(connection, self._ledger, sightings, scope)
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
