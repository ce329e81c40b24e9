"""Removing and restoring timeouts, each with evidence in the same atomic operation.

Rules of this file: the main entry decides, and our evidence lies in its partition, so one entity
group transaction changes both or neither. Saga entry, time entry and blob go after the main entry
and come back before it; they are only removed in the version that was read, so a request that
comes late cannot touch what was restored meanwhile. Source: docs/adr/0008-two-step-claims.md.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from datetime import UTC, datetime
from functools import partial
from typing import Any, Final

from azure.core import MatchConditions
from azure.core.exceptions import (
    HttpResponseError,
    ResourceExistsError,
    ResourceModifiedError,
    ResourceNotFoundError,
)
from azure.data.tables import UpdateMode
from azure.storage.blob import ContentSettings

from migrator.domain.timeouts import TimeoutId
from migrator.errors import StoreError
from migrator.ports.documents import Document, Mark
from migrator.stores.azure.account import Account, asking, is_about_one
from migrator.stores.azure.entities import EVIDENCE, Kept, kept_from_json, loaded
from migrator.stores.azure.reading import TimeoutReader

_NOT_AS_THOUGHT: Final = (ResourceExistsError, ResourceModifiedError, ResourceNotFoundError)
_PROBE: Final = "migrator-probe"


class Changes:
    """What changes timeouts of one account; several at a time."""

    def __init__(self, account: Account, reader: TimeoutReader) -> None:
        """Change *account*; *reader* looks at what is there."""
        self._account = account
        self._reader = reader

    def take(self, mark: Mark, documents: Sequence[Document]) -> Collection[TimeoutId]:
        """Remove what is unchanged; return what is ours."""
        return self._each(partial(self._take, mark), documents)

    def put_back(self, mark: Mark, documents: Sequence[Document]) -> Collection[TimeoutId]:
        """Restore what nobody has stored again; return what is restored."""
        return self._each(partial(self._put_back, mark), documents)

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
                _tolerantly(attempt)

    # ── one timeout ─────────────────────────────────────────────────────────────────────────

    def _take(self, mark: Mark, document: Document) -> bool:
        extra = loaded(document.id, document.extra)
        with self._asking("claiming a timeout"):
            is_ours = self._transact(
                [
                    _deleting(document.id, "", document.version),
                    _creating(document.id, EVIDENCE + mark),
                ]
            )
        if not is_ours and not self._has_evidence(document.id, mark):
            return False
        self._remove_rest(extra)
        return True

    def _remove_rest(self, extra: Any) -> None:
        """Remove what a timeout manager no longer looks at, in the versions that were read."""
        with self._asking("clearing up after a claim"):
            for entry in (kept_from_json(extra["saga"]), kept_from_json(extra["time"])):
                if entry is not None:
                    _tolerantly(partial(self._delete, entry))
        blob = extra["blob"]
        if blob is None:
            return
        container = self._account.container
        with asking("removing a body", place=f"container {container.container_name}"):
            _tolerantly(
                lambda: container.delete_blob(
                    blob["name"],
                    delete_snapshots="include",
                    etag=blob["etag"],
                    match_condition=MatchConditions.IfNotModified,
                )
            )

    def _put_back(self, mark: Mark, document: Document) -> bool:
        extra = loaded(document.id, document.extra)
        main = kept_from_json(extra["main"])
        if main is None:
            raise StoreError(f"the ledger does not have timeout {document.id} as it was stored")
        if self._has_evidence(document.id, mark):
            return True
        if self._reader.has(main):
            return False  # somebody has stored this id again
        if not self._restore_body(extra["blob"], document.body):
            return False
        with self._asking("restoring a timeout"):
            for entry in (kept_from_json(extra["time"]), kept_from_json(extra["saga"])):
                if entry is not None:
                    self._account.table.upsert_entity(entry.entity(), mode=UpdateMode.REPLACE)
            is_back = self._transact(
                [("create", main.entity()), _creating(document.id, EVIDENCE + mark)]
            )
        return is_back or self._has_evidence(document.id, mark)

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

    def _delete(self, entry: Kept) -> None:
        self._account.table.delete_entity(
            entry.partition,
            entry.row,
            etag=entry.etag,
            match_condition=MatchConditions.IfNotModified,
        )

    def _asking(self, doing: str) -> Any:
        return asking(doing, place=f"table {self._account.table.table_name}")


def _deleting(partition: str, row: str, version: str) -> Any:
    condition = {"etag": version, "match_condition": MatchConditions.IfNotModified}
    return ("delete", {"PartitionKey": partition, "RowKey": row}, condition)


def _creating(partition: str, row: str) -> Any:
    # without an owner, so that no timeout manager and no tool takes it for a timeout
    return ("create", {"PartitionKey": partition, "RowKey": row, "At": datetime.now(UTC)})


def _tolerantly(work: Callable[[], object]) -> None:
    """Do *work*; what is gone, or is not any more as it was, is not ours to change."""
    try:
        work()
    except HttpResponseError as exc:
        if not is_about_one(exc):
            raise
