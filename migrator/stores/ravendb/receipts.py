"""Takes documents and puts them back, so that it can be told ever after what was done.

Each change is one batch transaction that also stores a *receipt*: a document named after the mark,
with the ids of the change. A batch names the receipt that it expects. So after a lost answer, a
late request or a repeated one, the receipt proves the outcome; without a receipt nothing was done.
Source: docs/adr/0008-two-step-claims.md.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Final

from migrator.errors import StoreError, StoreUnavailable
from migrator.nservicebus.timeouts import TimeoutId
from migrator.stores.documents.ports import Document, IsMeant, Mark
from migrator.stores.ravendb.documents import collection_of, restored
from migrator.stores.ravendb.families import MUST_BE_NEW, Family, Put, RawDocument, Remove
from migrator.stores.ravendb.http import Conflict, RavenHttp, UnreadableAnswer
from migrator.stores.ravendb.listing import RavenReader
from migrator.text import counted

COLLECTION: Final = "MigratorReceipts"
_ROUNDS: Final = 10
"""How often a batch is tried while others change its documents."""
_PAUSE_S: Final = 0.05
"""Before a batch that was refused, though nothing seems to have changed, is sent again."""

Fits = Callable[[TimeoutId, RawDocument | None], bool]
"""Whether a document, or its absence, still allows what shall be done for the id."""


class _OvertakenError(Exception):
    """Another batch has stored the receipt."""

    def __init__(self, receipt: RawDocument) -> None:
        super().__init__(receipt.id)
        self.receipt = receipt


class Receipts:
    def __init__(self, http: RavenHttp, family: Family, reader: RavenReader) -> None:
        self._http = http
        self._family = family
        self._reader = reader

    def take(self, mark: Mark, documents: Sequence[Document]) -> Collection[TimeoutId]:
        if not documents:
            return ()
        versions = {document.id: document.version for document in documents}
        removals = {
            document.id: Remove(
                id=document.id, expected=document.version, collection=collection_of(document)
            )
            for document in documents
        }

        def fits(id_: TimeoutId, found: RawDocument | None) -> bool:
            return (
                found is not None
                and found.version == versions[id_]
                and self._family.is_settled(found)
            )

        try:
            return self._settled(claim_receipt(mark), MUST_BE_NEW, (), removals, fits)
        except _OvertakenError as overtaken:
            return ids_in(overtaken.receipt)

    def put_back(
        self, mark: Mark, documents: Sequence[Document], is_meant: IsMeant
    ) -> Collection[TimeoutId]:
        """The receipt is opened first; the batch that restores replaces it.

        A late batch finds another receipt, or none, and does nothing, even if its documents were
        restored, sent and removed meanwhile and the receipt is forgotten. Documents left out may
        be tried again under the same mark.
        """
        if not documents:
            return ()
        receipt = restore_receipt(mark)
        puts = {document.id: restored(document, self._family) for document in documents}
        for _ in range(_ROUNDS):
            opened = self._opened(receipt)
            if not is_meant():  # another one did it all before the receipt was opened here
                return ()
            done = ids_in(opened)
            wanted = {id_: put for id_, put in puts.items() if id_ not in done}
            if not wanted:
                return done
            with contextlib.suppress(_OvertakenError):
                back = self._settled(receipt, opened.version, done, wanted, _is_absent)
                if not back:
                    self._drop_empty(receipt)
                return back
        raise StoreUnavailable(
            f"{self._http.where}: other processes keep changing the receipt {receipt!r}"
        )

    def _drop_empty(self, receipt: str) -> None:
        """Remove an empty receipt, unless a later change replaced it."""
        found = self._find(receipt)
        if found is not None and not ids_in(found):
            with contextlib.suppress(StoreError):
                self._send([Remove(id=receipt, expected=found.version, collection=COLLECTION)])

    def forget(self, mark: Mark, ids: Collection[TimeoutId]) -> None:
        """Remove the receipts of *mark*, once all that they tell of is among *ids*."""
        receipts = (claim_receipt(mark), restore_receipt(mark))
        found = list(self._reader.by_id(receipts))
        done = [each for each in found if set(ids_in(each)) <= set(ids)]
        if done:
            try:
                self._send([Remove(id=each.id, expected=None) for each in done])
            except Conflict as exc:
                raise StoreUnavailable(f"{self._http.where}: a receipt is in use") from exc

    def probe(self) -> None:
        """Prove the right to change documents, by removing one that there never is."""
        self._send([Remove(id="migrator/probe", expected=None)])

    def _opened(self, receipt: str) -> RawDocument:
        found = self._find(receipt)
        if found is None:
            with contextlib.suppress(Conflict):  # an earlier request was faster
                self._send([self._receipt(receipt, MUST_BE_NEW, ())])
            found = self._find(receipt)
        if found is None:
            raise StoreUnavailable(f"{self._http.where}: the receipt {receipt!r} is not there yet")
        return found

    def _settled(
        self,
        receipt: str,
        expected: str,
        done: Collection[TimeoutId],
        commands: Mapping[TimeoutId, Put | Remove],
        fits: Fits,
    ) -> Collection[TimeoutId]:
        """Do the *commands* that fit, in one batch with the receipt; return *done* and their ids.

        Even without commands the receipt is stored: it stops a request still under way.
        """
        left = dict(commands)
        for _ in range(_ROUNDS):
            ids = (*done, *left)
            try:
                # The receipt first: another node of the server is told in this order.
                self._send([self._receipt(receipt, expected, ids), *left.values()])
            except Conflict:
                # Documents first, then the receipt: of what our own earlier request changed in
                # between, the receipt tells.
                found = {raw.id.lower(): raw for raw in self._reader.by_id(left)}
                current = self._find(receipt)
                if current is not None and current.version != expected:
                    raise _OvertakenError(current) from None
                fitting = {id_: c for id_, c in left.items() if fits(id_, found.get(id_.lower()))}
                if len(fitting) == len(left):
                    time.sleep(_PAUSE_S)
                left = fitting
            else:
                return ids
        timeouts = counted(len(commands), "timeout")
        raise StoreUnavailable(
            f"{self._http.where}: other processes kept changing {timeouts} of {receipt!r}; nothing "
            "was done"
        )

    def _receipt(self, receipt: str, expected: str, ids: Sequence[TimeoutId]) -> Put:
        return Put(
            id=receipt,
            content={"Ids": list(ids)},
            metadata=self._family.metadata_of(COLLECTION),
            expected=expected,
        )

    def _find(self, receipt: str) -> RawDocument | None:
        return next(iter(self._reader.by_id((receipt,))), None)

    def _send(self, commands: Sequence[Put | Remove]) -> None:
        request = self._family.batch(commands)
        try:
            is_done = self._family.is_done(request, self._http.send(request))
        except UnreadableAnswer as exc:
            raise StoreUnavailable(f"{exc}; the batch may or may not have been done") from exc
        if not is_done:  # a proxy's page, say: whether a batch was done is not for it to tell
            raise StoreUnavailable(
                f"{self._http.where}: the answer to a batch is not RavenDB's; the batch may or "
                "may not have been done"
            )


def claim_receipt(mark: Mark) -> str:
    return f"migrator/claims/{mark}"


def restore_receipt(mark: Mark) -> str:
    return f"migrator/restores/{mark}"


def ids_in(receipt: RawDocument) -> Collection[TimeoutId]:
    """Return what was done by the batches that stored a receipt.

    Raises:
        StoreError: Another program wrote it.
    """
    told = receipt.content.get("Ids")
    if not isinstance(told, list) or not all(isinstance(each, str) for each in told):
        raise StoreError(f"{receipt.id!r} is not a receipt of migrator's")
    return tuple(TimeoutId(each) for each in told)


def _is_absent(_: TimeoutId, found: RawDocument | None) -> bool:
    return found is None
