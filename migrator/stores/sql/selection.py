"""Which rows of a legacy table a claim asks for, as conditions on its columns."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Final
from uuid import UUID

from sqlalchemy import ColumnElement, or_
from sqlalchemy.types import Uuid

from migrator.database.guids import GuidBytes
from migrator.database.portable import not_among
from migrator.database.types import exactly
from migrator.stores.ports import ClaimRequest
from migrator.stores.sql.legacy_table import EARLIEST, LegacyTable
from migrator.stores.sql.local_time import due_after, due_from, due_until

_NUL: Final = "\0"


def wanted(legacy: LegacyTable, request: ClaimRequest) -> list[ColumnElement[bool]]:
    """Return the conditions a row must meet; a lock and the ledger may still stand against it."""
    found = [*legacy.is_owned, *_in_range(legacy, request)]
    if request.only is not None:
        found += _called(legacy, request.only)
    not_for = sorted(filter(is_storable, request.not_for))
    if not_for:
        destination = legacy.table.c.Destination
        found.append(destination.is_(None) | not_among(exactly(destination), not_for))
    return found


def ids_for(legacy: LegacyTable, ids: Iterable[str]) -> Collection[str]:
    """Return how rows called *ids* would be found by the table's key; without those it cannot have.

    A GUID may be written in any letter case. Where the key is text, the text itself counts, too.
    """
    is_guid = isinstance(legacy.table.c.Id.type, Uuid | GuidBytes)
    found: set[str] = set()
    for each in ids:
        guid = guid_text(each)
        if guid is not None:
            found.add(guid)
        if not is_guid and is_storable(each):
            found.add(each)
    return sorted(found)


def _called(legacy: LegacyTable, ids: Collection[str]) -> list[ColumnElement[bool]]:
    """Return the conditions on rows that are called one of *ids*.

    The key is searched by its own collation; text that is no GUID is then compared letter by
    letter, so that a row is not taken for another one of almost that name.
    """
    key, wanted_ids = legacy.table.c.Id, ids_for(legacy, ids)
    texts = [each for each in wanted_ids if guid_text(each) is None]
    if not texts:
        return [key.in_(wanted_ids)]
    guids = [each for each in wanted_ids if guid_text(each) is not None]
    return [key.in_(wanted_ids), or_(key.in_(guids), exactly(key).in_(texts))]


def guid_text(text: str) -> str | None:
    """Return a GUID as databases write it (lower case, hyphens), or None when *text* is none."""
    try:
        return str(UUID(text))
    except ValueError:
        return None


def is_storable(text: str) -> bool:
    """Return whether a database's text may be *text*: no NUL, and nothing that is no character."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return _NUL not in text


def _in_range(legacy: LegacyTable, request: ClaimRequest) -> list[ColumnElement[bool]]:
    """Return the conditions on ``Time``; they also leave out NULL and both infinities."""
    row, after = legacy.table.c, request.due_after
    found = [
        due_until(row, request.due_until),
        due_from(row, EARLIEST) if after is None else due_after(row, after),
    ]
    if request.cursor is not None:
        found.append(due_from(row, request.cursor.due_at))
    return found
