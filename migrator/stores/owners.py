"""Whose rows are in a table that endpoints share, asked so that a large one is not read whole."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from sqlalchemy import Connection, Table, false, func, literal, select, union_all

MOST_UNOWNED: Final = 10_000
"""Rows without owner are counted up to here."""
_PROBE: Final = ("a", "A")


def owners_in(connection: Connection, table: Table, *, is_indexed: bool) -> Sequence[str]:
    """Return each value of the column ``Endpoint``, one of those that the database finds equal.

    Neither NULL nor empty text is one.

    Args:
        connection: Whose transaction it is part of.
        table: The shared table.
        is_indexed: An index begins with the column: it is walked from name to name, one look
            each. Else the whole table is read, once.
    """
    found = _walked(connection, table) if is_indexed else _scanned(connection, table)
    return [owner for owner in found if owner]


def ignores_case(connection: Connection, table: Table) -> bool:
    """Return whether the database takes names for equal that differ in letter case alone.

    Asked of the column without looking at a row, so that the answer is always the same.
    """
    owner = table.c.Endpoint
    lower, upper = _PROBE
    one = select(owner.label("owner")).where(false())
    probe = union_all(one, select(literal(lower))).subquery("probe")
    return connection.scalar(select(func.count()).where(probe.c.owner == upper)) == 1


def unowned_rows(connection: Connection, table: Table) -> int:
    """Return how many rows belong to no endpoint; ``MOST_UNOWNED`` stands for more, too."""
    owner = table.c.Endpoint
    some = select(owner).where(owner.is_(None) | (owner == "")).limit(MOST_UNOWNED).subquery()
    return connection.execute(select(func.count()).select_from(some)).scalar_one()


def _walked(connection: Connection, table: Table) -> Sequence[str]:
    owner, found = table.c.Endpoint, list[str]()
    last: str | None = connection.scalar(select(func.min(owner)))
    while last is not None:
        found.append(last)
        last = connection.scalar(select(func.min(owner)).where(owner > last))
    return found


def _scanned(connection: Connection, table: Table) -> Sequence[str]:
    owner = table.c.Endpoint
    return connection.scalars(select(owner).where(owner.is_not(None)).distinct()).all()
