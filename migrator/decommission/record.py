"""What the audit trail keeps of a decommission, so that a killed one can be undone or go on."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from migrator.rabbitmq.entities import Binding, Entity, Kind

BEGUN: Final = "decommission_begun"
UNDONE: Final = "decommission_undone"
ENDED: Final = "decommissioned"
KINDS: Final = (BEGUN, UNDONE, ENDED)


def bindings_record(bindings: Iterable[Binding]) -> Sequence[Mapping[str, object]]:
    """Return *bindings* as JSON has them."""
    return [
        {
            "source": each.source,
            "target": each.target.name,
            "target_kind": str(each.target.kind),
            "key": each.key,
            "arguments": dict(each.arguments),
        }
        for each in bindings
    ]


def read_bindings(record: Iterable[Mapping[str, Any]]) -> tuple[Binding, ...]:
    """Return the bindings that ``bindings_record`` wrote."""
    return tuple(
        Binding(
            source=each["source"],
            target=Entity(kind=Kind(each["target_kind"]), name=each["target"]),
            key=each["key"],
            arguments=each["arguments"],
        )
        for each in record
    )
