"""Claiming from a document store, and putting back, in two recorded steps each.

Rules of this file: the ledger records what is about to happen, the store does it and keeps the
evidence, the ledger records what the store did, and then the evidence goes. Whatever stops this
in between, the ledger names the step, and that step is done again. Source:
docs/adr/0008-two-step-claims.md.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from typing import Final

from migrator.errors import IllegalTransition, StoreError
from migrator.ledger.report import ANY_QUARANTINED, QuarantineFilter
from migrator.ledger.states import BatchState, RowState
from migrator.ledger.work import Batch, FaultPoint, Lease, StoreEndpoint, no_fault
from migrator.nservicebus.timeouts import EndpointName, TimeoutId
from migrator.stores.documents.ledger import DocumentLedger, KeptRow
from migrator.stores.documents.ports import (
    NONEXISTENT_ID,
    Document,
    DocumentStore,
    DueRange,
    Entry,
    Mark,
    claim_mark,
    release_mark,
    return_mark,
)
from migrator.stores.ports import returned
from migrator.stores.requests import Claim, ClaimRequest, Cursor

_log = logging.getLogger(__name__)

_MORE: Final = 4
"""How much further the next listing goes when nothing of the last one could be claimed."""
_TRIES: Final = 5
"""How often others may be faster before a claim says that there is nothing."""
_SIDE_BY_SIDE: Final = 8
"""Rows put back at the same time, each for itself."""
_TICK: Final = timedelta(microseconds=1)
_BEGINNING: Final = datetime.min.replace(tzinfo=UTC)


class DocumentClaims:
    """Implements ``Claims`` over a ledger and a document store.

    *ledger_id* is in the marks, unless the batch names the one it was begun under.
    """

    can_seek = False
    is_atomic = False

    def __init__(
        self,
        records: DocumentLedger,
        documents: DocumentStore,
        *,
        ledger_id: str,
        fault: FaultPoint = no_fault,
    ) -> None:
        self._records = records
        self._documents = documents
        self._ledger_id = ledger_id
        self._fault = fault

    def claim(self, request: ClaimRequest) -> Claim | None:
        for _ in range(_TRIES):
            chosen, cursor = self._chosen(request)
            if cursor is None:
                return None
            recorded = self._records.record_claim(request, chosen)
            if recorded is None:
                continue  # another claimer was faster
            self._fault("claim.recorded")
            batch, documents = recorded
            claimed = self._finish_claim(batch, request.endpoint, documents, request.lease)
            if claimed is not None:
                return Claim(batch=claimed, cursor=cursor)
        return None

    def promising(self, requests: Sequence[ClaimRequest]) -> Sequence[ClaimRequest]:
        return requests

    def unclaimed(self, request: ClaimRequest) -> int:
        return 0

    def unclaimable(self) -> Mapping[str, Mapping[str, str]]:
        return {}

    def resume(self, batch: Batch, lease: Lease) -> Batch | None:
        if batch.state is BatchState.RELEASING:
            self._finish_release(batch, lease)
            return None
        if batch.state is not BatchState.CLAIMING:
            raise IllegalTransition(f"a batch that is {batch.state} is not half-done")
        documents = [row.document for row in self._records.rows_of(batch)]
        return self._finish_claim(batch, _endpoint_of(batch), documents, lease)

    def release(self, batch: Batch, lease: Lease) -> int:
        """A timeout whose id the store has again stays in the ledger, in quarantine."""
        if batch.state is not BatchState.RELEASING:
            batch = self._records.begin_release(batch, lease)
            self._fault("release.recorded")
        return self._finish_release(batch, lease)

    def release_quarantined(
        self, endpoint: StoreEndpoint | None, which: QuarantineFilter = ANY_QUARANTINED
    ) -> int:
        sources = (
            self._records.quarantined_sources(which) if endpoint is None else [endpoint.source]
        )
        return returned(sources, lambda source: self._release_quarantined_of(source, which))

    def _release_quarantined_of(self, source: str, which: QuarantineFilter) -> int:
        # a release that cannot be finished is not begun: a missing place says so for any id
        self.count_there(StoreEndpoint(name=EndpointName(""), source=source), [NONEXISTENT_ID])
        last = back = 0
        while rows := self._records.begin_return(source, which, after=last):
            self._fault("return.recorded")
            back += self.bring_back(rows, RowState.RELEASED)
            last = rows[-1].id
        return back

    def count_taken(self, source: str) -> int:
        return 0

    def still_there(self, batch: Batch) -> int:
        """Return how many timeouts of a half-done batch the store has.

        Raises:
            SourceGone: The place does not exist.
        """
        ids = [row.document.id for row in self._records.rows_of(batch)]
        return self.count_there(_endpoint_of(batch), ids)

    def count_there(self, endpoint: StoreEndpoint, ids: Collection[TimeoutId]) -> int:
        return sum(1 for _ in self._documents.read(endpoint, ids))

    def bring_back(self, rows: Sequence[KeptRow], towards: RowState) -> int:
        """Put back *rows* that are recorded as going; return how many became *towards*.

        Each has its own mark, so that any number of them may be repeated.
        """
        restored = self.restore_singly(rows, towards)
        self._fault("return.restored")
        back = self._records.confirm_return(rows, restored, towards)
        self._fault("return.confirmed")
        self.forget_singly([row for row in rows if row.document.id in restored])
        return back

    def restore_singly(self, rows: Sequence[KeptRow], towards: RowState) -> Collection[TimeoutId]:
        """Restore the document of each row under the row's own mark; return those restored.

        Rows that no longer go back when it is their turn are left out: another one was faster.
        """

        def restore(row: KeptRow) -> Collection[TimeoutId]:
            mark = return_mark(row.ledger_id or self._ledger_id, row.id)
            return self._documents.put_back(
                row.endpoint,
                mark,
                [row.document],
                is_meant=lambda: self._records.find_going_back(row, towards),
            )

        with ThreadPoolExecutor(_SIDE_BY_SIDE, thread_name_prefix="put-back") as pool:
            return {each for restored in pool.map(restore, rows) for each in restored}

    def forget_singly(self, rows: Sequence[KeptRow]) -> None:
        def forget(row: KeptRow) -> None:
            mark = return_mark(row.ledger_id or self._ledger_id, row.id)
            self._forget(row.endpoint, mark, [row.document.id])

        with ThreadPoolExecutor(_SIDE_BY_SIDE, thread_name_prefix="put-back") as pool:
            list(pool.map(forget, rows))

    # ── the two second steps ────────────────────────────────────────────────────────────────

    def _finish_claim(
        self, batch: Batch, endpoint: StoreEndpoint, documents: Sequence[Document], lease: Lease
    ) -> Batch | None:
        """Take what a batch that is ``claiming`` names; None: others had all of it."""
        mark = claim_mark(self._ledger_of(batch), batch.id)
        taken = self._documents.take(endpoint, mark, documents)
        self._fault("claim.taken")
        claimed = self._records.confirm_claim(batch, taken, lease)
        self._fault("claim.confirmed")
        self._forget(endpoint, mark, taken)
        return claimed

    def _finish_release(self, batch: Batch, lease: Lease) -> int:
        endpoint = _endpoint_of(batch)
        mark = release_mark(self._ledger_of(batch), batch.id)
        documents = [row.document for row in self._records.rows_of(batch)]
        restored = self._documents.put_back(
            endpoint, mark, documents, is_meant=lambda: self._records.demand_releasing(batch)
        )
        self._fault("release.restored")
        back = self._records.confirm_release(batch, restored, lease)
        self._fault("release.confirmed")
        self._forget(endpoint, mark, restored)
        return back

    def _ledger_of(self, batch: Batch) -> str:
        return batch.ledger_id or self._ledger_id

    def _forget(self, endpoint: StoreEndpoint, mark: Mark, ids: Collection[TimeoutId]) -> None:
        """Remove evidence that is not needed again; evidence that cannot be removed is harmless."""
        try:
            self._documents.forget(endpoint, mark, ids)
        except StoreError as exc:
            _log.warning(
                "evidence of a claim stays in the store; it is no longer needed",
                extra={"action": "evidence_left", "mark": mark, "error": str(exc)},
            )

    # ── choosing ────────────────────────────────────────────────────────────────────────────

    def _chosen(self, request: ClaimRequest) -> tuple[Sequence[Document], Cursor | None]:
        """Return the soonest claimable documents within the request's limits, and the next cursor.

        The cursor is behind the last document as listed: it may have been changed since to be due
        later, and what lies between is not claimed yet. None: there is no document.
        """
        at_most = request.max_rows
        while True:
            due = DueRange(_after(request), request.due_until)
            listed = self._documents.soonest(request.endpoint, due, at_most)
            chosen = self._read(request, self._free(request, listed))
            if chosen:
                last = next(each for each in listed if each.id == chosen[-1].id)
                return chosen, Cursor(due_at=last.due_at, id=last.id)
            if len(listed) < at_most:
                return (), None
            at_most *= _MORE

    def _free(self, request: ClaimRequest, listed: Sequence[Entry]) -> Sequence[TimeoutId]:
        fit = [each.id for each in listed if request.only is None or each.id in request.only]
        known = self._records.known(request.endpoint.source, fit)
        return [each for each in fit if each not in known]

    def _read(self, request: ClaimRequest, wanted: Sequence[TimeoutId]) -> Sequence[Document]:
        """Return as many of *wanted* as a batch may have; skip documents that are gone."""
        found: list[Document] = []
        size, due = 0, DueRange(request.due_after, request.due_until)
        for document in self._documents.read(request.endpoint, wanted):
            if document.due_at not in due:
                continue  # it was changed since it was listed
            size += len(document.body or b"") + len((document.headers_text or "").encode())
            if found and size > request.max_bytes:
                break
            found.append(document)
            if len(found) == request.max_rows:
                break
        return found


def _endpoint_of(batch: Batch) -> StoreEndpoint:
    return StoreEndpoint(name=batch.endpoint, source=batch.source)


def _after(request: ClaimRequest) -> datetime | None:
    if request.cursor is None or request.cursor.due_at == _BEGINNING:
        return request.due_after
    inclusive = request.cursor.due_at - _TICK
    return inclusive if request.due_after is None else max(inclusive, request.due_after)
