"""Partitions of Azure Storage Persistence: a due time in a .NET format, ``yyyyMMddHH`` by default.

Source: reference ``legacy-stores.md`` 4.1.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import datetime
from typing import Final

_FIELDS: Final = {"yyyy": "%Y", "MM": "%m", "dd": "%d", "HH": "%H", "mm": "%M"}
"""What a format may have, from the largest, and how Python writes it."""
_PART: Final = re.compile("|".join([*_FIELDS, "[-_]"]))


@dataclass(frozen=True, slots=True)
class PartitionScope:
    """A format of Python's, and whether keys sort as their times do."""

    format: str
    is_ascending: bool
    """Largest first, and nothing left out between."""

    def key_of(self, moment: datetime) -> str:
        """Return the partition key of what is due at *moment*, which is in UTC."""
        return moment.strftime(self.format)


def parse_scope(text: str) -> PartitionScope:
    """Return the scope that *text* says.

    Raises:
        ValueError: It is no such format, or has no year; says what it may have.
    """
    parts = _PART.findall(text)
    if "".join(parts) != text or "yyyy" not in parts:
        raise ValueError("must be made of yyyy, MM, dd, HH, mm, - and _, such as yyyyMMddHH")
    fields = [part for part in parts if part in _FIELDS]
    return PartitionScope(
        format="".join(_FIELDS.get(part, part) for part in parts),
        is_ascending=fields == list(_FIELDS)[: len(fields)],
    )
