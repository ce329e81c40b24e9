"""Inserting rows that are not there, where the database cannot do it with one statement.

Rules of this file: the caller's look at what is there keeps those rows as they are until the end
of the transaction, so what is inserted was absent.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from typing import Any

from sqlalchemy import Connection, Select, Table, insert

from migrator.database.portable import MOST_IN_LIST
from migrator.database.types import rounded_up

Looking = Callable[[Table, Sequence[str]], Select[Any]]
"""Returns what finds and locks those rows of a table that are there, by their ids."""


def insert_absent(
    connection: Connection,
    table: Table,
    rows: Sequence[Mapping[str, Any]],
    *,
    looking: Looking,
    step: timedelta,
) -> Sequence[str]:
    """Look, waiting for whoever is just removing one of them, and insert the others.

    Due times are rounded up to a whole number of *step* within their second, so that the column
    keeps them and none is too early. Returns the ids that were inserted.
    """
    absent = {row["Id"]: {**row, "Time": rounded_up(row["Time"], step)} for row in rows}
    ids = list(absent)
    for start in range(0, len(ids), MOST_IN_LIST):
        there = connection.scalars(looking(table, ids[start : start + MOST_IN_LIST])).all()
        for each in there:
            absent.pop(each, None)
    if absent:
        connection.execute(insert(table), list(absent.values()))
    return list(absent)
