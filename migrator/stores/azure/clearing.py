"""Removing what a claimed timeout leaves behind: saga and time entry, then the blob.

Rules of this file: the main entry is gone before anything here begins, so nobody looks at these
any more; each is only removed in the version that was read, so that what comes late fits nothing
that was restored meanwhile; many go in one request where the service takes that, and whatever such
a request did not do is asked for one by one. Source: docs/adr/0008-two-step-claims.md.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any, Final, TypeVar

from azure.core import MatchConditions
from azure.core.exceptions import HttpResponseError

from migrator.errors import StoreError, StoreUnavailable
from migrator.stores.azure.account import Account, asking, is_about_one, is_code_about_one, may_pass
from migrator.stores.azure.entities import Kept, kept_from_json, loaded
from migrator.stores.documents.ports import Document

_log = logging.getLogger(__name__)

T = TypeVar("T")

ENTITIES: Final = 100
"""Entities of one partition that a transaction takes; the service takes no more."""
BLOBS: Final = 256
"""Blobs that a batch takes; the service takes no more."""

Blob = dict[str, Any]
"""As ``reading`` keeps it: its name and its version, at least."""


class Clearing:
    """Removes the rest of timeouts whose main entries are gone; several requests at a time."""

    def __init__(self, account: Account) -> None:
        """Remove from *account*."""
        self._account = account
        self._takes_batches = True

    def clear(self, documents: Sequence[Document]) -> None:
        """Remove the other entries of *documents*, and then their blobs; repeating is harmless.

        What cannot be removed (a blob is leased, say) stays, and a log line says so: it is no
        reason not to send the timeout.

        Raises:
            StoreUnavailable: Some may be removed; repeat the call.
        """
        extras = [loaded(each.id, each.extra) for each in documents]
        entries = (kept_from_json(each[name]) for name in ("saga", "time") for each in extras)
        self._all(self._remove_entries, _by_partition(each for each in entries if each is not None))
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
            with _left_alone(f"{entry.partition}/{entry.row}"), self._asking_table():
                tolerantly(lambda: self.remove(entry))  # noqa: B023 - called at once

    def _went_at_once(self, entries: Sequence[Kept]) -> bool:
        """Return whether all *entries* went in one transaction; else nothing was changed."""
        operations: list[Any] = [
            ("delete", {"PartitionKey": each.partition, "RowKey": each.row}, as_read(each.etag))
            for each in entries
        ]
        with self._asking_table():
            try:
                self._account.table.submit_transaction(operations)
            except HttpResponseError as exc:
                if may_pass(exc):
                    raise
                return False  # one is gone, or was changed; or it is too much at a time
        return True

    def remove(self, entry: Kept) -> None:
        """Remove one entity in the version that was read; Azure's own errors pass."""
        self._account.table.delete_entity(entry.partition, entry.row, **as_read(entry.etag))

    # ── blobs ───────────────────────────────────────────────────────────────────────────────

    def _remove_blobs(self, blobs: Sequence[Blob]) -> None:
        left = self._not_removed_at_once(blobs) if len(blobs) > 1 else blobs
        for blob in left:
            with _left_alone(f"blob {blob['name']}"), self._asking_container():
                tolerantly(lambda: self._remove_blob(blob))  # noqa: B023 - called at once

    def _not_removed_at_once(self, blobs: Sequence[Blob]) -> Sequence[Blob]:
        """Ask for *blobs* in one request; return those that are to be asked for one by one."""
        if not self._takes_batches:
            return blobs
        wanted = [
            {"name": each["name"], "delete_snapshots": "include", **as_read(each["etag"])}
            for each in blobs
        ]
        with self._asking_container():
            try:
                parts = list(self._account.container.delete_blobs(*wanted, **_EACH_ANSWERS))
            except HttpResponseError as exc:
                if may_pass(exc):
                    raise
                self._takes_batches = False  # a signature without the right, or no such service
                return blobs
        # answers may come in another order than requests, so they do not tell which one it was
        is_done = len(parts) == len(blobs) and all(map(_went_or_is_not_ours, parts))
        return () if is_done else blobs

    def _remove_blob(self, blob: Blob) -> None:
        self._account.container.delete_blob(
            blob["name"], delete_snapshots="include", **as_read(blob["etag"])
        )

    # ── parts ───────────────────────────────────────────────────────────────────────────────

    def _asking_table(self) -> AbstractContextManager[None]:
        return asking("clearing up after a claim", place=f"table {self._account.table.table_name}")

    def _asking_container(self) -> AbstractContextManager[None]:
        place = f"container {self._account.container.container_name}"
        return asking("removing a body", place=place)


_EACH_ANSWERS: Final[dict[str, Any]] = {"raise_on_any_failure": False}


def tolerantly(work: Callable[[], object]) -> None:
    """Do *work*; what is gone, or is not any more as it was, is not ours to change."""
    try:
        work()
    except HttpResponseError as exc:
        if not is_about_one(exc):
            raise


def as_read(etag: str) -> dict[str, Any]:
    """Return the condition that something is in the version that was read."""
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
            "something of a claimed timeout stays in the account; nobody looks at it any more",
            extra={"action": "remains_left", "what": what[:300], "error": str(exc)},
        )


def _went_or_is_not_ours(part: Any) -> bool:
    """Return whether one answer of a batch of blobs leaves nothing to be done."""
    if 200 <= part.status_code < 300:
        return True
    return is_code_about_one(part.status_code, part.headers.get("x-ms-error-code"))


def _by_partition(entries: Iterable[Kept]) -> Iterator[Sequence[Kept]]:
    """Yield *entries* in groups that a transaction can take."""
    groups: defaultdict[str, list[Kept]] = defaultdict(list)
    for entry in entries:
        groups[entry.partition].append(entry)
    for group in groups.values():
        yield from _slices(group, ENTITIES)


def _slices(items: Sequence[T], size: int) -> Iterator[Sequence[T]]:
    return (items[start : start + size] for start in range(0, len(items), size))
