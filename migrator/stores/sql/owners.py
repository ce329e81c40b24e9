"""Whose rows are in a table that endpoints share, asked so that a large one is not read whole."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from sqlalchemy import Connection, Select, Table, func, literal, literal_column, select, union_all

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
    return bool(connection.scalar(case_probe(table)))


def case_probe(table: Table) -> Select[Any]:
    """Return what counts 1 where the column's comparison ignores letter case, else 0."""
    owner = table.c.Endpoint
    lower, upper = _PROBE
    one = select(owner.label("owner")).where(literal_column("1") == literal_column("0"))
    # of the column's own type: Oracle mixes no national text with other text
    probe = union_all(one, select(literal(lower, owner.type))).subquery("probe")
    return select(func.count()).where(probe.c.owner == upper)


def owner_after(table: Table, last: str | None) -> Select[Any]:
    """Return what finds the first owner behind *last*; None: the very first."""
    owner = table.c.Endpoint
    query = select(func.min(owner))
    return query if last is None else query.where(owner > last)


def unowned_rows(connection: Connection, table: Table) -> int:
    """Return how many rows belong to no endpoint; ``MOST_UNOWNED`` stands for more, too."""
    owner = table.c.Endpoint
    some = select(owner).where(owner.is_(None) | (owner == "")).limit(MOST_UNOWNED).subquery()
    return connection.execute(select(func.count()).select_from(some)).scalar_one()


def _walked(connection: Connection, table: Table) -> Sequence[str]:
    found = list[str]()
    last: str | None = connection.scalar(owner_after(table, None))
    while last is not None:
        found.append(last)
        last = connection.scalar(owner_after(table, last))
    return found


def _scanned(connection: Connection, table: Table) -> Sequence[str]:
    owner = table.c.Endpoint
    return connection.scalars(select(owner).where(owner.is_not(None)).distinct()).all()
