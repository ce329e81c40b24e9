"""Partitions of Azure Storage Persistence: a due time in a .NET format, ``yyyyMMddHH`` by default.

Source: reference ``legacy-stores.md`` 4.1.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import datetime
from typing import Final

_FIELDS: Final = {
    "yyyy": ("year", 4),
    "MM": ("month", 2),
    "dd": ("day", 2),
    "HH": ("hour", 2),
    "mm": ("minute", 2),
}
"""What a format may have, from the largest: a name and its digits."""
_PART: Final = re.compile("|".join([*_FIELDS, "[-_]"]))


@dataclass(frozen=True, slots=True)
class PartitionScope:
    """A format in its parts."""

    parts: tuple[str, ...]

    def key_of(self, moment: datetime) -> str:
        """Return the partition key of what is due at *moment*, which is in UTC."""
        return "".join(self._written(part, moment) for part in self.parts)

    @property
    def is_ascending(self) -> bool:
        """Whether keys sort as their times do: largest first, and nothing left out between."""
        fields = [part for part in self.parts if part in _FIELDS]
        return fields == list(_FIELDS)[: len(fields)]

    def _written(self, part: str, moment: datetime) -> str:
        if part not in _FIELDS:
            return part
        name, digits = _FIELDS[part]
        return f"{getattr(moment, name):0{digits}d}"


def parse_scope(text: str) -> PartitionScope:
    """Return the scope that *text* says.

    Raises:
        ValueError: It is no such format, or has no year; says what it may have.
    """
    parts = _PART.findall(text)
    if "".join(parts) != text or "yyyy" not in parts:
        raise ValueError("must be made of yyyy, MM, dd, HH, mm, - and _, such as yyyyMMddHH")
    return PartitionScope(tuple(parts))
