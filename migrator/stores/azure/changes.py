"""Removing and restoring timeouts, each with evidence in the same atomic operation.

Rules of this file: the main entry decides, and our evidence lies in its partition, so one entity
group transaction changes both or neither. Saga entry, time entry and blob go after the main entry
and come back before it; they are only removed in the version that was read, so a request that
comes late cannot touch what was restored meanwhile. Source: docs/adr/0008-two-step-claims.md.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from functools import partial
from typing import Any, Final

from azure.core import MatchConditions
from azure.core.exceptions import (
    HttpResponseError,
    ResourceExistsError,
)
from azure.data.tables import UpdateMode
from azure.storage.blob import ContentSettings

from migrator.errors import StoreError, StoreUnavailable
from migrator.nservicebus.timeouts import TimeoutId
from migrator.stores.azure.account import Account, asking, is_about_one
from migrator.stores.azure.clearing import Clearing, as_read, tolerantly
from migrator.stores.azure.entities import EVIDENCE, Kept, kept_from_json, loaded
from migrator.stores.azure.reading import TimeoutReader
from migrator.stores.documents.ports import Document, IsMeant, Mark

_PROBE: Final = "migrator-probe"


class Changes:
    """What changes timeouts of one account; several at a time."""

    def __init__(self, account: Account, reader: TimeoutReader) -> None:
        """Change *account*; *reader* looks at what is there."""
        self._account = account
        self._reader = reader
        self._clearing = Clearing(account)

    def take(self, mark: Mark, documents: Sequence[Document]) -> Collection[TimeoutId]:
        """Remove what is unchanged; return what is ours.

        All main entries go first, each with its evidence; what else there is of ours after them.
        """
        taken = self._each(partial(self._take, mark), documents)
        self._clearing.clear([each for each in documents if each.id in taken])
        return taken

    def put_back(
        self, mark: Mark, documents: Sequence[Document], is_meant: IsMeant
    ) -> Collection[TimeoutId]:
        """Restore what nobody has stored again; return what is restored."""
        opened = [*self._account.each(lambda each: self._opened(each.id, mark), documents)]
        if not is_meant():  # another one did it all before the evidence was opened here
            return ()
        versions = {each.id: version for each, version in zip(documents, opened, strict=True)}
        return self._each(partial(self._put_back, mark, versions), documents)

    def forget(self, mark: Mark, ids: Collection[TimeoutId]) -> None:
        """Remove the evidence *mark* of each of *ids*."""

        def forget(timeout: TimeoutId) -> None:
            with self._asking("forgetting a claim"):
                self._account.table.delete_entity(timeout, EVIDENCE + mark)

        for _ in self._account.each(forget, ids):
            pass

    def probe(self) -> None:
        """Ask for changes that cannot happen: whoever lacks the right is told so first."""
        container = self._account.container
        version = "W/\"datetime'2000-01-01T00%3A00%3A00.0000000Z'\""
        with self._asking("a trial claim"):
            self._transact([_deleting(_PROBE, "", version), _creating(_PROBE, EVIDENCE + "probe")])
        place = f"container {container.container_name}"
        with asking("a trial claim of a body", place=place):
            for attempt in (
                lambda: container.get_blob_client(_PROBE).get_blob_properties(),
                lambda: container.delete_blob(
                    _PROBE, etag='"0x0"', match_condition=MatchConditions.IfNotModified
                ),
                lambda: container.upload_blob(
                    _PROBE,
                    b"",
                    overwrite=True,
                    etag='"0x0"',
                    match_condition=MatchConditions.IfNotModified,
                ),
            ):
                tolerantly(attempt)

    # ── one timeout ─────────────────────────────────────────────────────────────────────────

    def _take(self, mark: Mark, document: Document) -> bool:
        """Remove the main entry; return whether it is ours now, or was before."""
        loaded(document.id, document.extra)  # what could not be restored is not taken
        operations = [
            _deleting(document.id, "", document.version),
            _creating(document.id, EVIDENCE + mark),
        ]
        with self._asking("claiming a timeout"):
            is_ours = self._transact(operations)
        return is_ours or self._has_evidence(document.id, mark)

    def _put_back(
        self, mark: Mark, versions: Mapping[TimeoutId, str | None], document: Document
    ) -> bool:
        extra = loaded(document.id, document.extra)
        main = kept_from_json(extra["main"])
        if main is None:
            raise StoreError(f"the ledger does not have timeout {document.id} as it was stored")
        opened = versions[document.id]
        if opened is None:
            return True
        is_free = not self._reader.has(main) and self._restore_body(extra["blob"], document.body)
        with self._asking("restoring a timeout"):
            if is_free:
                for entry in (kept_from_json(extra["time"]), kept_from_json(extra["saga"])):
                    if entry is not None:
                        self._account.table.upsert_entity(entry.entity(), mode=UpdateMode.REPLACE)
                if self._transact(
                    [("create", main.entity()), _closing(document.id, EVIDENCE + mark, opened)]
                ):
                    return True
        return self._is_closed(document.id, mark, opened)

    def _opened(self, timeout: TimeoutId, mark: Mark) -> str | None:
        """Return the version of our open evidence, written if need be; None: it is closed.

        A restoration is only done while its evidence is open, in this version: a request that
        comes late, after all was done and forgotten, finds none and does nothing.
        """
        with self._asking("restoring a timeout"), suppress(ResourceExistsError):
            made = self._account.table.create_entity(_evidence(timeout, EVIDENCE + mark, "open"))
            return str(made["etag"])
        found = self._reader.entity(timeout, EVIDENCE + mark)
        if found is None:
            raise StoreUnavailable(f"the evidence of restoring {timeout} is gone; try again")
        return None if found["Step"] == "closed" else str(found.metadata["etag"])

    def _is_closed(self, timeout: TimeoutId, mark: Mark, opened: str) -> bool:
        """Return whether an earlier request restored it; else take the open evidence away.

        The removal comes first, and goes by the version: a request that is still under way has
        closed the evidence before, and it stays and tells so, or finds none and does nothing.
        """
        entry = Kept(partition=timeout, row=EVIDENCE + mark, etag=opened, properties={})
        with self._asking("clearing up after a restoration"):
            tolerantly(partial(self._clearing.remove, entry))
        found = self._reader.entity(timeout, EVIDENCE + mark)
        return found is not None and found["Step"] == "closed"

    def _restore_body(self, blob: Any, body: bytes | None) -> bool:
        """Write the blob unless it is there; return False when it is there with other content."""
        if blob is None:
            return True
        container, content = self._account.container, body or b""
        with asking("restoring a body", place=f"container {container.container_name}"):
            try:
                container.upload_blob(
                    blob["name"],
                    content,
                    metadata=blob["metadata"],
                    content_settings=ContentSettings(**blob["settings"]),
                )
            except ResourceExistsError:
                found: bytes = container.download_blob(blob["name"]).readall()
                return found == content
        return True

    # ── parts ───────────────────────────────────────────────────────────────────────────────

    def _each(
        self, work: Callable[[Document], bool], documents: Sequence[Document]
    ) -> Collection[TimeoutId]:
        done = self._account.each(work, documents)
        return {document.id for document, yes in zip(documents, done, strict=True) if yes}

    def _has_evidence(self, timeout: TimeoutId, mark: Mark) -> bool:
        return self._reader.entity(timeout, EVIDENCE + mark) is not None

    def _transact(self, operations: Sequence[Any]) -> bool:
        """Do all *operations* or none; return False when one does not fit what is there."""
        try:
            self._account.table.submit_transaction(operations)
        except HttpResponseError as exc:
            if not is_about_one(exc):
                raise
            return False
        return True

    def _asking(self, doing: str) -> Any:
        return asking(doing, place=f"table {self._account.table.table_name}")


def _deleting(partition: str, row: str, version: str) -> Any:
    return ("delete", {"PartitionKey": partition, "RowKey": row}, as_read(version))


def _creating(partition: str, row: str) -> Any:
    return ("create", _evidence(partition, row, "closed"))


def _closing(partition: str, row: str, version: str) -> Any:
    condition = {**as_read(version), "mode": UpdateMode.REPLACE}
    return ("update", _evidence(partition, row, "closed"), condition)


def _evidence(partition: str, row: str, step: str) -> dict[str, Any]:
    # without an owner, so that no timeout manager and no tool takes it for a timeout
    return {"PartitionKey": partition, "RowKey": row, "Step": step, "At": datetime.now(UTC)}
