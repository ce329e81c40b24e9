"""Removing and restoring timeouts, each with evidence in the same atomic operation.

Rules of this file: the main entry decides, and our evidence lies in its partition, so one entity
group transaction changes both or neither. Saga entry, time entry and blob go after the main entry
and come back before it; they are only removed in the version that was read, so a request that
comes late cannot touch what was restored meanwhile. Many go in one request where the service takes
that; what it did not do is asked for one by one. Source: docs/adr/0008-two-step-claims.md.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import partial
from typing import Any, Final, TypeVar

from azure.core import MatchConditions
from azure.core.exceptions import (
    HttpResponseError,
    ResourceExistsError,
)
from azure.storage.blob import ContentSettings

from migrator.errors import StoreError, StoreUnavailable
from migrator.nservicebus.timeouts import TimeoutId
from migrator.stores.azure.account import Account, is_about_one, is_code_about_one, may_pass
from migrator.stores.azure.entities import EVIDENCE, TYPE, Kept, loaded
from migrator.stores.azure.http import Operation
from migrator.stores.azure.reading import TimeoutReader
from migrator.stores.documents.ports import Document, IsMeant, Mark

_PROBE: Final = "migrator-probe"
_CLEARING: Final = "cleaning up after a claim"
_log = logging.getLogger(__name__)
T = TypeVar("T")
ENTITIES: Final = 100
"""Entities of one partition that a transaction takes; the service takes no more."""
BLOBS: Final = 256
"""Blobs that a batch takes; the service takes no more."""
Blob = dict[str, Any]
"""As ``reading`` keeps it: its name and its version, at least."""


class Changes:
    def __init__(self, account: Account, reader: TimeoutReader) -> None:
        self._account = account
        self._reader = reader
        self._takes_batches = True

    def take(self, mark: Mark, documents: Sequence[Document]) -> Collection[TimeoutId]:
        """Remove unchanged timeouts; return those claimed.

        All main entries are removed first, each with its evidence, the other entries after them.
        """
        taken = self._each(partial(self._take, mark), documents)
        self._clear([each for each in documents if each.id in taken])
        return taken

    def put_back(
        self, mark: Mark, documents: Sequence[Document], is_meant: IsMeant
    ) -> Collection[TimeoutId]:
        opened = [*self._account.each(lambda each: self._opened(each.id, mark), documents)]
        if not is_meant():  # another one did it all before the evidence was opened here
            return ()
        versions = {each.id: version for each, version in zip(documents, opened, strict=True)}
        return self._each(partial(self._put_back, mark, versions), documents)

    def forget(self, mark: Mark, ids: Collection[TimeoutId]) -> None:
        def forget(timeout: TimeoutId) -> None:
            with self._account.at_table("forgetting a claim"), tolerating():
                self._account.tables.delete(self._account.table, timeout, EVIDENCE + mark)

        for _ in self._account.each(forget, ids):
            pass

    def probe(self) -> None:
        """Request changes that cannot happen: a missing right is refused before that."""
        container = self._account.container
        version = "W/\"datetime'2000-01-01T00%3A00%3A00.0000000Z'\""
        with self._account.at_table("a trial claim"):
            self._transact(
                [self._deleting(_PROBE, version), self._closed(_PROBE, EVIDENCE + "probe")]
            )
        with self._account.at_container("a trial claim of a body"):
            with tolerating():
                container.get_blob_client(_PROBE).get_blob_properties()
            with tolerating():
                container.delete_blob(_PROBE, **as_read('"0x0"'))
            with tolerating():
                container.upload_blob(_PROBE, b"", overwrite=True, **as_read('"0x0"'))

    # ── one timeout ─────────────────────────────────────────────────────────────────────────

    def _take(self, mark: Mark, document: Document) -> bool:
        """Remove the main entry; return whether it is ours now, or was before."""
        loaded(document.id, document.extra)  # what could not be restored is not taken
        operations = [
            self._deleting(document.id, document.version),
            self._closed(document.id, EVIDENCE + mark),
        ]
        with self._account.at_table("claiming a timeout"):
            is_ours = self._transact(operations)
        return is_ours or self._has_evidence(document.id, mark)

    def _put_back(
        self, mark: Mark, versions: Mapping[TimeoutId, str | None], document: Document
    ) -> bool:
        extra = loaded(document.id, document.extra)
        main = Kept.of(extra["main"])
        if main is None:
            raise StoreError(f"the ledger does not have timeout {document.id} as it was stored")
        opened = versions[document.id]
        if opened is None:
            return True
        is_free = not self._reader.has(main) and self._restore_body(extra["blob"], document.body)
        with self._account.at_table("restoring a timeout"):
            if is_free:
                for entry in (Kept.of(extra["time"]), Kept.of(extra["saga"])):
                    if entry is not None:
                        self._account.tables.upsert(self._account.table, entry.entity())
                if self._transact(
                    [self._creating(main), self._closing(document.id, EVIDENCE + mark, opened)]
                ):
                    return True
        return self._is_closed(document.id, mark, opened)

    def _opened(self, timeout: TimeoutId, mark: Mark) -> str | None:
        """Return the version of the open evidence, written if missing; None: it is closed.

        A restoration needs open evidence in this version: a request that comes late finds none
        and does nothing.
        """
        evidence = _evidence(timeout, EVIDENCE + mark, "open")
        with self._account.at_table("restoring a timeout"), tolerating():
            return self._account.tables.create(self._account.table, evidence)
        found = self._reader.entity(timeout, EVIDENCE + mark)
        if found is None:
            raise StoreUnavailable(f"the evidence of restoring {timeout} is gone; try again")
        return None if found["Step"] == "closed" else str(found["odata.etag"])

    def _is_closed(self, timeout: TimeoutId, mark: Mark, opened: str) -> bool:
        """Return whether an earlier request restored it; else remove the open evidence.

        The removal names the version: an earlier request has closed the evidence before it, or
        finds none and does nothing.
        """
        entry = Kept(partition=timeout, row=EVIDENCE + mark, etag=opened, properties={})
        with self._account.at_table("cleaning up after a restoration"), tolerating():
            self._remove(entry)
        found = self._reader.entity(timeout, EVIDENCE + mark)
        return found is not None and found["Step"] == "closed"

    def _restore_body(self, blob: Any, body: bytes | None) -> bool:
        if blob is None:
            return True
        container, content = self._account.container, body or b""
        with self._account.at_container("restoring a body"):
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

    def _deleting(self, timeout: str, version: str) -> Operation:
        return self._account.tables.deleting(self._account.table, timeout, "", version)

    def _creating(self, main: Kept) -> Operation:
        return self._account.tables.creating(self._account.table, main.entity())

    def _closed(self, timeout: str, row: str) -> Operation:
        evidence = _evidence(timeout, row, "closed")
        return self._account.tables.creating(self._account.table, evidence)

    def _closing(self, timeout: str, row: str, version: str) -> Operation:
        evidence = _evidence(timeout, row, "closed")
        return self._account.tables.replacing(self._account.table, evidence, version)

    def _transact(self, operations: Sequence[Operation]) -> bool:
        """Do all *operations* or none; return False when one does not fit what is there."""
        try:
            self._account.tables.transact(operations)
        except HttpResponseError as exc:
            if not is_about_one(exc):
                raise
            return False
        return True

    # ── what is left of a claimed one ─────────────────────────────────────────────────────────

    def _clear(self, documents: Sequence[Document]) -> None:
        """Remove the other entries of *documents*, then their blobs, unless these are kept.

        Repeating is harmless. What cannot be removed (a leased blob) stays and is logged; the
        timeout is sent all the same.
        """
        extras = [loaded(each.id, each.extra) for each in documents]
        entries = (Kept.of(each[name]) for name in ("saga", "time") for each in extras)
        self._all(self._remove_entries, _by_partition(each for each in entries if each is not None))
        if self._account.settings.keeps_bodies:
            return
        blobs = [each["blob"] for each in extras if each["blob"] is not None]
        self._all(self._remove_blobs, _slices(blobs, BLOBS))

    def _all(self, work: Callable[[Sequence[T]], None], groups: Iterable[Sequence[T]]) -> None:
        for _ in self._account.each(work, groups):
            pass

    # ── entries ─────────────────────────────────────────────────────────────────────────────

    def _remove_entries(self, entries: Sequence[Kept]) -> None:
        """Remove *entries* of one partition: in one transaction, or else one by one."""
        if len(entries) > 1 and self._went_at_once(entries):
            return
        for entry in entries:
            where = f"{entry.partition}/{entry.row}"
            with _left_alone(where), self._account.at_table(_CLEARING), tolerating():
                self._remove(entry)

    def _went_at_once(self, entries: Sequence[Kept]) -> bool:
        """Return whether all *entries* went in one transaction; else nothing was changed."""
        tables, table = self._account.tables, self._account.table
        operations = [
            tables.deleting(table, each.partition, each.row, each.etag) for each in entries
        ]
        with self._account.at_table(_CLEARING):
            try:
                tables.transact(operations)
            except HttpResponseError as exc:
                if may_pass(exc):
                    raise
                return False  # one is gone, or was changed; or it is too much at a time
        return True

    def _remove(self, entry: Kept) -> None:
        """Remove one entity in the version that was read; Azure's own errors pass."""
        tables, table = self._account.tables, self._account.table
        tables.delete(table, entry.partition, entry.row, entry.etag)

    # ── blobs ───────────────────────────────────────────────────────────────────────────────

    def _remove_blobs(self, blobs: Sequence[Blob]) -> None:
        left = self._not_removed_at_once(blobs) if len(blobs) > 1 else blobs
        for blob in left:
            at_container = self._account.at_container("removing a body")
            with _left_alone(f"blob {blob['name']}"), at_container, tolerating():
                self._account.container.delete_blob(
                    blob["name"], delete_snapshots="include", **as_read(blob["etag"])
                )

    def _not_removed_at_once(self, blobs: Sequence[Blob]) -> Sequence[Blob]:
        """Ask for *blobs* in one request; return those that are to be asked for one by one."""
        if not self._takes_batches:
            return blobs
        wanted = [(each["name"], each["etag"]) for each in blobs]
        with self._account.at_container("removing a body"):
            try:
                parts = self._account.bodies.delete(wanted)
            except HttpResponseError as exc:
                if may_pass(exc):
                    raise
                self._takes_batches = False  # a signature without the right, or no such service
                return blobs
        # answers may come in another order than requests, so they do not tell which one it was
        is_done = len(parts) == len(blobs) and all(map(_went_or_is_not_ours, parts))
        return () if is_done else blobs


def _evidence(partition: str, row: str, step: str) -> dict[str, Any]:
    # without an owner, so that no timeout manager and no tool takes it for a timeout
    at = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    keys = {"PartitionKey": partition, "RowKey": row}
    return {**keys, "Step": step, "At": at, f"At{TYPE}": "Edm.DateTime"}


@contextmanager
def tolerating() -> Iterator[None]:
    """Let what is gone, or is not any more as it was, be: it is not ours to change."""
    try:
        yield
    except HttpResponseError as exc:
        if not is_about_one(exc):
            raise


def as_read(etag: str) -> dict[str, Any]:
    return {"etag": etag, "match_condition": MatchConditions.IfNotModified}


@contextmanager
def _left_alone(what: str) -> Iterator[None]:
    """Leave *what* where it is, and say so, when it cannot be removed: a lease, or a policy."""
    try:
        yield
    except StoreUnavailable:
        raise
    except StoreError as exc:
        _log.warning(
            "part of a claimed timeout stays in the account; nothing reads it any more",
            extra={"action": "remains_left", "what": what[:300], "error": str(exc)},
        )


def _went_or_is_not_ours(part: tuple[int, str | None]) -> bool:
    """Return whether one answer of a batch of blobs leaves nothing to be done."""
    status, code = part
    return status < 300 or is_code_about_one(status, code)


def _by_partition(entries: Iterable[Kept]) -> Iterator[Sequence[Kept]]:
    """Yield *entries* in groups that a transaction can take."""
    groups: defaultdict[str, list[Kept]] = defaultdict(list)
    for entry in entries:
        groups[entry.partition].append(entry)
    for group in groups.values():
        yield from _slices(group, ENTITIES)


def _slices(items: Sequence[T], size: int) -> Iterator[Sequence[T]]:
    return (items[start : start + size] for start in range(0, len(items), size))
