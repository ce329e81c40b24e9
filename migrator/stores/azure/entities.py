"""Table entities as plain JSON and back, without losing a digit: pure.

Rules of this file: a value keeps its EDM type and, where Python would round it (times have
100 ns), the service's own text; what is written back is what was read.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final, Self

from migrator.errors import StoreError
from migrator.nservicebus.timeouts import NO_SAGA, TimeoutId
from migrator.stores.azure.http import Entity

OWNER: Final = "OwningTimeoutManager"
HIDDEN: Final = "__hidden__"
"""How the owner of a time entry begins that the vendor's tool has moved, or is moving."""
EVIDENCE: Final = "migrator."
"""How the row key of our evidence begins; a timeout manager asks for the empty row key alone."""
GUID: Final = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.IGNORECASE)
_NO_PROPERTIES: Final = frozenset({"PartitionKey", "RowKey", "Timestamp"})
TYPE: Final = "@odata.type"
_UNTYPED: Final = frozenset({"Edm.String", "Edm.Boolean", "Edm.Int32"})
"""Types that JSON tells by itself."""
_MICROS: Final = 6
"""Digits of a second that Python keeps; .NET has seven."""

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
        return None if found is None else cls(**found)

    def entity(self) -> dict[str, Any]:
        found: dict[str, Any] = {"PartitionKey": self.partition, "RowKey": self.row}
        for name, (kind, value) in self.properties.items():
            found[name] = _number(value) if kind == "Edm.Double" else value
            if kind not in _UNTYPED:
                found[name + TYPE] = kind
        return found


def kept(entity: Entity) -> Kept:
    """Return *entity*, as the service showed it, as the ledger keeps it."""
    return Kept(
        partition=entity["PartitionKey"],
        row=entity["RowKey"],
        etag=entity["odata.etag"],
        properties={
            name: _typed(value, entity.get(name + TYPE))
            for name, value in entity.items()
            if name not in _NO_PROPERTIES and "." not in name
        },
    )


def time_of(entity: Entity) -> datetime | None:
    """Return a timeout's time, aware, without what is less than a microsecond; None: it has none.

    Its partition goes by it.
    """
    if entity.get(f"Time{TYPE}") != "Edm.DateTime":
        return None
    try:
        return datetime.fromisoformat(entity["Time"]).replace(tzinfo=UTC)
    except ValueError:
        return None


def due_of(entity: Entity) -> datetime | None:
    """Return when a timeout is due, never earlier than stored; None: it has no time."""
    moment = time_of(entity)
    if moment is None:
        return None
    rest = entity["Time"].rstrip("Z").partition(".")[2][_MICROS:].strip("0")
    is_last = moment == datetime.max.replace(tzinfo=UTC)  # nothing to round up to
    return moment + timedelta(microseconds=1) if rest and not is_last else moment


def saga_of(entity: Entity) -> str | None:
    """Return the saga of a timeout as its saga entry's partition key; None: it has none.

    What is no GUID is none: no persistence wrote an entry for it, and not every text may be asked
    for as a key.
    """
    saga = str(entity.get("SagaId") or NO_SAGA).lower()
    return saga if GUID.fullmatch(saga) and saga != NO_SAGA else None


def text_of(entity: Entity, name: str) -> str | None:
    found = entity.get(name)
    return found if isinstance(found, str) else None


def blob_name(entity: Entity, timeout: TimeoutId) -> str:
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
    raise StoreError(f"the ledger does not have how timeout {timeout} was stored in Azure")


def _typed(value: Any, kind: str | None) -> list[Any]:
    if kind is None:
        if isinstance(value, bool):
            return ["Edm.Boolean", value]
        if isinstance(value, int):
            return ["Edm.Int32", value]
        kind = "Edm.Double" if isinstance(value, float) else "Edm.String"
    if kind == "Edm.Double":
        return [kind, repr(float(value))]
    return [kind, value if kind in _UNTYPED else str(value)]


def _number(value: str) -> float | str:
    """Return a number as JSON has it; text, if it is none."""
    found = float(value)
    if math.isfinite(found):
        return found
    return "NaN" if math.isnan(found) else f"{'-' if found < 0 else ''}Infinity"
