"""Table entities as plain JSON and back, without losing a digit: pure.

Rules of this file: a value keeps its EDM type and, where Python would round it (times have
100 ns), the service's own text; what is written back is what was read.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final, Self
from uuid import UUID

from azure.data.tables import EdmType, EntityProperty

from migrator.errors import StoreError
from migrator.nservicebus.timeouts import NO_SAGA, TimeoutId

OWNER: Final = "OwningTimeoutManager"
HIDDEN: Final = "__hidden__"
"""How the owner of a time entry begins that the vendor's tool has moved, or is moving."""
EVIDENCE: Final = "migrator."
"""How the row key of our evidence begins; a timeout manager asks for the empty row key alone."""
GUID: Final = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.IGNORECASE)
_KEYS: Final = ("PartitionKey", "RowKey")
_TICK_DIGITS: Final = 6
"""Digits of a second that Python keeps; .NET has seven."""

Entity = Mapping[str, Any]
"""As Azure's client returns it, with ``metadata`` beside."""
Properties = dict[str, list[Any]]
"""JSON: name to type and value."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    """One entity as the ledger keeps it."""

    partition: str
    row: str
    etag: str
    properties: Properties

    @classmethod
    def of(cls, found: Mapping[str, Any] | None) -> Self | None:
        """Return an entity that was kept as JSON; None: there was none."""
        return None if found is None else cls(**found)

    def entity(self) -> dict[str, Any]:
        """Return the entity as Azure's client takes it."""
        values = {name: _to_azure(*value) for name, value in self.properties.items()}
        return {"PartitionKey": self.partition, "RowKey": self.row, **values}


def kept(entity: Any) -> Kept:
    """Return *entity*, as Azure's client read it, as the ledger keeps it."""
    return Kept(
        partition=entity["PartitionKey"],
        row=entity["RowKey"],
        etag=entity.metadata["etag"],
        properties={
            name: _from_azure(value) for name, value in entity.items() if name not in _KEYS
        },
    )


def due_of(entity: Entity) -> datetime | None:
    """Return when a timeout is due, never earlier than stored; None: it has no time."""
    moment = entity.get("Time")
    if not isinstance(moment, datetime):
        return None
    raw = getattr(moment, "tables_service_value", "")
    plain = datetime(*moment.timetuple()[:6], moment.microsecond, tzinfo=UTC)
    rest = raw.rstrip("Z").partition(".")[2][_TICK_DIGITS:].strip("0")
    is_last = plain == datetime.max.replace(tzinfo=UTC)  # nothing to round up to
    return plain + timedelta(microseconds=1) if rest and not is_last else plain


def saga_of(entity: Entity) -> str | None:
    """Return the saga of a timeout as its saga entry's partition key; None: it has none.

    What is no GUID is none: no persistence wrote an entry for it, and not every text may be asked
    for as a key.
    """
    saga = str(entity.get("SagaId") or NO_SAGA).lower()
    return saga if GUID.fullmatch(saga) and saga != NO_SAGA else None


def text_of(entity: Entity, name: str) -> str | None:
    """Return a property that should be text; None: it is not there, or something else."""
    found = entity.get(name)
    return found if isinstance(found, str) else None


def blob_name(entity: Entity, timeout: TimeoutId) -> str:
    """Return where a timeout's body is."""
    return text_of(entity, "StateAddress") or timeout


def dumped(extra: Mapping[str, Any]) -> str:
    """Return *extra* as JSON that any database takes as text."""
    return json.dumps(extra, separators=(",", ":"), sort_keys=True)


def loaded(timeout: TimeoutId, extra: str) -> Mapping[str, Any]:
    """Return what ``dumped`` was given.

    Raises:
        StoreError: It is not ours.
    """
    try:
        found = json.loads(extra)
        if isinstance(found, dict) and "main" in found:
            return found
    except ValueError:
        pass
    raise StoreError(f"the ledger does not tell how timeout {timeout} was stored in Azure")


def _from_azure(value: Any) -> list[Any]:
    if isinstance(value, EntityProperty):
        return [EdmType(value.edm_type).value, str(value.value)]
    if isinstance(value, bool):
        return [EdmType.BOOLEAN.value, value]
    if isinstance(value, int):
        return [EdmType.INT32.value, value]
    if isinstance(value, float):
        return [EdmType.DOUBLE.value, repr(value)]
    if isinstance(value, datetime):
        return [EdmType.DATETIME.value, getattr(value, "tables_service_value", "")]
    if isinstance(value, UUID):
        return [EdmType.GUID.value, str(value)]
    if isinstance(value, bytes):
        return [EdmType.BINARY.value, base64.b64encode(value).decode()]
    return [EdmType.STRING.value, str(value)]


def _to_azure(kind: str, value: Any) -> Any:
    edm = EdmType(kind)
    if edm is EdmType.BINARY:
        return base64.b64decode(value)
    if edm is EdmType.DOUBLE:
        return float(value)
    if edm in (EdmType.BOOLEAN, EdmType.INT32, EdmType.STRING):
        return value
    if edm is EdmType.INT64:
        return EntityProperty(int(value), edm)
    return EntityProperty(value, edm)
