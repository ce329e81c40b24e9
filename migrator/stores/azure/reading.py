"""One timeout read whole: main entry, time entry, saga entry and blob.

Rules of this file: a timeout is live while it has a main entry and a time entry that the vendor's
tool has not hidden; all that belongs to it is read with its version, so that only what was read
is ever removed.
"""

from __future__ import annotations

from dataclasses import asdict
from datetime import datetime, timedelta
from typing import Any, Final

from azure.core.exceptions import HttpResponseError, ResourceNotFoundError

from migrator.nservicebus.timeouts import TimeoutId
from migrator.stores.azure.account import Account, code_of
from migrator.stores.azure.entities import (
    OWNER,
    Kept,
    blob_name,
    due_of,
    dumped,
    kept,
    saga_of,
    text_of,
    time_of,
)
from migrator.stores.azure.http import Entity
from migrator.stores.azure.partitions import PartitionScope
from migrator.stores.documents.ports import Document

_SETTINGS = (
    "content_type",
    "content_encoding",
    "content_language",
    "content_disposition",
    "cache_control",
)
_METADATA: Final = "x-ms-meta-"
_CONFLICT: Final = 409
"""Reading a blob is refused so for the blob's own sake: it is archived, or has a key of its own."""
_NO_NAME: Final = frozenset({"InvalidUri", "InvalidResourceName", "OutOfRangeInput"})
"""Codes by which the service says that no blob is called so."""
_LONGEST_NAME: Final = 1024
"""Characters of a blob's name; the service knows no longer one."""
_STEPS: Final = frozenset({".", ".."})
"""Parts of a name that would lead elsewhere, as in a path: to a blob of another container."""
_ONE_WRITING: Final = timedelta(minutes=1)
"""All entries of a timeout are written one after the other."""
LARGEST_BODY: Final = 128 * 2**20
"""Bytes; RabbitMQ takes no more in a message unless it is told to."""


class TimeoutReader:
    def __init__(
        self, account: Account, scope: PartitionScope, *, largest_body: int = LARGEST_BODY
    ) -> None:
        self._largest_body = largest_body
        self._account = account
        self._scope = scope

    def read(self, owner: str, timeout: TimeoutId, listed: Entity | None = None) -> Document | None:
        """Return a live timeout of *owner*; None: there is none.

        *listed* is its time entry as a listing showed it a moment ago: it is not read again.
        """
        main = self.entity(timeout, "")
        if main is None or main.get(OWNER) != owner:
            return None
        moment, due_at = time_of(main), due_of(main)
        if moment is None or due_at is None:
            return None
        partition = self._scope.key_of(moment)
        if (
            listed is None
            or listed["PartitionKey"] != partition
            or not _were_written_together(listed, main)
        ):
            listed = self.entity(partition, timeout)
        if listed is None or listed.get(OWNER) != owner:
            return None
        saga = saga_of(main)
        saga_entry = None if saga is None else self.entity(saga, timeout)
        name = blob_name(main, timeout)
        body, blob, flaw = self._blob(name)
        own = kept(main)
        extra = {
            "main": asdict(own),
            "time": asdict(kept(listed)),
            "saga": None if saga_entry is None else asdict(kept(saga_entry)),
            "blob": blob,
        }
        return Document(
            id=timeout,
            destination=text_of(main, "Destination"),
            saga_id=saga,
            due_at=due_at,
            body=body,
            headers_text=text_of(main, "Headers"),
            version=own.etag,
            extra=dumped(extra),
            flaw=flaw,
        )

    def entity(self, partition: str, row: str) -> Entity | None:
        with self._account.at_table("reading a timeout"):
            try:
                return self._account.tables.entity(self._account.table, partition, row)
            except ResourceNotFoundError as exc:
                if code_of(exc) not in {"ResourceNotFound", "EntityNotFound"}:
                    raise
                return None

    def is_live(self, timeout: str) -> bool:
        return self.entity(timeout, "") is not None

    def has_time_entry(self, owner: str, timeout: TimeoutId) -> bool:
        """Return whether a timeout's time entry is where its main entry's due time says."""
        main = self.entity(timeout, "")
        moment = None if main is None else time_of(main)
        if moment is None:
            return False
        found = self.entity(self._scope.key_of(moment), timeout)
        return found is not None and found.get(OWNER) == owner and due_of(found) is not None

    def has(self, entry: Kept) -> bool:
        return self.entity(entry.partition, entry.row) is not None

    def _blob(self, name: str) -> tuple[bytes | None, dict[str, Any] | None, str | None]:
        """Return a body, what else there is of its blob, and why there is no body.

        A body that is too large to be held is not read, and one in the archive cannot be; their
        blobs are left where they are. A name that no blob can have is not asked for.
        """
        shown = repr(name[:200])
        if not _is_name(name):
            return None, None, f"{shown} is not a valid blob name"
        with self._account.at_container("reading a body"):
            try:
                found = self._account.bodies.read(name, most=self._largest_body)
            except ResourceNotFoundError as exc:
                if code_of(exc) != "BlobNotFound":
                    raise
                return None, None, f"blob {shown} does not exist in the container"
            except HttpResponseError as exc:
                if exc.status_code != _CONFLICT and code_of(exc) not in _NO_NAME:
                    raise
                return None, None, f"blob {shown} cannot be read: {code_of(exc)}"
        headers = found.headers
        if found.body is None:
            size = headers["Content-Length"]
            return None, None, f"blob {shown} has {size} bytes, too many to read"
        blob = {
            "name": name,
            "etag": headers["ETag"],
            "metadata": {
                key[len(_METADATA) :]: value
                for key, value in headers.items()
                if key.lower().startswith(_METADATA)
            },
            "settings": {key: headers.get(key.replace("_", "-")) for key in _SETTINGS},
        }
        return found.body, blob, None


def _were_written_together(entity: Entity, main: Entity) -> bool:
    """Return whether two entries are of one writing of a timeout, as far as their ages tell.

    Else the timeout was restored, or stored again, after the listing that showed the one.
    """
    try:
        first, second = (datetime.fromisoformat(each["Timestamp"]) for each in (entity, main))
    except (KeyError, ValueError):
        return False
    return abs(second - first) <= _ONE_WRITING


def _is_name(name: str) -> bool:
    return len(name) <= _LONGEST_NAME and _STEPS.isdisjoint(name.replace("\\", "/").split("/"))
