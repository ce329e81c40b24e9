"""One timeout read whole: main entry, time entry, saga entry and blob.

Rules of this file: a timeout is live while it has a main entry and a time entry that the vendor's
tool has not hidden; all that belongs to it is read with its version, so that only what was read
is ever removed.
"""

from __future__ import annotations

from typing import Any

from azure.core.exceptions import ResourceNotFoundError

from migrator.domain.partitions import PartitionScope
from migrator.domain.timeouts import TimeoutId
from migrator.ports.documents import Document
from migrator.stores.azure.account import Account, asking
from migrator.stores.azure.entities import (
    OWNER,
    Kept,
    blob_name,
    due_of,
    dumped,
    kept,
    saga_of,
    text_of,
)

_SETTINGS = (
    "content_type",
    "content_encoding",
    "content_language",
    "content_disposition",
    "cache_control",
)


class TimeoutReader:
    """Reads timeouts of one account."""

    def __init__(self, account: Account, scope: PartitionScope) -> None:
        """Read from *account*, whose time entries are partitioned by *scope*."""
        self._account = account
        self._scope = scope

    def read(self, owner: str, timeout: TimeoutId) -> Document | None:
        """Return a live timeout of *owner*; None: there is none."""
        main = self.entity(timeout, "")
        if main is None or main.get(OWNER) != owner:
            return None
        due_at = due_of(main)
        if due_at is None:
            return None
        time_entry = self.entity(self._scope.key_of(main["Time"]), timeout)
        if time_entry is None or time_entry.get(OWNER) != owner:
            return None
        saga = saga_of(main)
        saga_entry = None if saga is None else self.entity(saga, timeout)
        name = blob_name(main, timeout)
        body, blob = self._blob(name)
        own = kept(main)
        extra = {
            "main": own.to_json(),
            "time": kept(time_entry).to_json(),
            "saga": None if saga_entry is None else kept(saga_entry).to_json(),
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
            flaw=None if blob is not None else f"blob {name[:200]!r} is not in the container",
        )

    def entity(self, partition: str, row: str) -> Any:
        """Return one entity of the timeouts' table; None: it is not there."""
        table = self._account.table
        with asking("reading a timeout", place=f"table {table.table_name}"):
            try:
                return table.get_entity(partition, row)
            except ResourceNotFoundError as exc:
                if not _is_entity(exc):
                    raise
                return None

    def has(self, entry: Kept) -> bool:
        """Return whether *entry* is there, in whatever version."""
        return self.entity(entry.partition, entry.row) is not None

    def _blob(self, name: str) -> tuple[bytes | None, dict[str, Any] | None]:
        container = self._account.container
        with asking("reading a body", place=f"container {container.container_name}"):
            try:
                found = container.download_blob(name)
                body = found.readall()
            except ResourceNotFoundError as exc:
                if not _is_blob(exc):
                    raise
                return None, None
        settings = found.properties.content_settings
        return body, {
            "name": name,
            "etag": found.properties.etag,
            "metadata": dict(found.properties.metadata or {}),
            "settings": {key: getattr(settings, key) for key in _SETTINGS},
        }


def _is_entity(exc: ResourceNotFoundError) -> bool:
    return _code(exc) in {"ResourceNotFound", "EntityNotFound"}


def _is_blob(exc: ResourceNotFoundError) -> bool:
    return _code(exc) == "BlobNotFound"


def _code(exc: ResourceNotFoundError) -> str:
    code = getattr(exc, "error_code", "")
    return str(getattr(code, "value", code))
