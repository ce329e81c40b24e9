"""SQL that every kind of database understands.

Rules of this file: a requested lock is never left out silently (SQLAlchemy does so for SQL Server).
A condition is selected as a number, because SQL Server and Oracle before 23ai have no boolean
columns.

Source: SQLAlchemy documentation, ``Select.with_for_update``; SQL Server documentation, "Table
hints"; Oracle documentation, SELECT, "Restrictions on the row_limiting_clause".
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Sequence
from typing import Any, Final, TypeVar

import sqlalchemy as sa
from sqlalchemy.sql.elements import False_, True_

S = TypeVar("S", bound=sa.Select[Any])
C = TypeVar("C", sa.Update, sa.Delete)
T = TypeVar("T")
V = TypeVar("V", str, int)

_BY_INDEX: Final = sa.text(
    "SELECT set_config('enable_seqscan', 'off', true), set_config('enable_bitmapscan', 'off', true)"
)
MOST_IN_LIST: Final = 1000
"""Values in one ``IN``: Oracle takes no more (ORA-01795), SQL Server 2100 in a statement."""

_MOST_LOCKED: Final = {"mssql": 2000}


def locked_at_once(rows: int, dialect: str) -> int:
    """Return how many of *rows* one transaction may change: all, but few on SQL Server.

    From 5000 locks on, that server locks a whole table, and every lane waits. LOCK_ESCALATION =
    DISABLE, which the ledger's tables have, prevents that in most cases only.
    """
    return min(rows, _MOST_LOCKED.get(dialect, rows))


def prefer_indexes(connection: sa.Connection) -> None:
    """PostgreSQL's statistics are old after a table was filled; it may then read a whole table."""
    if connection.dialect.name == "postgresql":
        connection.execute(_BY_INDEX)


def for_update(query: S, table: sa.FromClause, *, shared: bool = False) -> S:
    """Lock the rows of *table*, not those of joined tables.

    *shared*: only keep the key from changing, where the database distinguishes that (PostgreSQL).
    Elsewhere the lock is exclusive, and only waits longer.
    """
    # Oracle wants a column, the others make a table of it
    column = next(iter(table.primary_key))
    return query.with_hint(table, "WITH (UPDLOCK, ROWLOCK)", "mssql").with_for_update(
        of=column, read=shared, key_share=shared
    )


def row_by_row(change: C, *, past_locked: bool = False) -> C:
    """Return *change* with row locks on SQL Server: claims skip locked rows, not locked pages.

    *past_locked*: skip rows that other transactions have locked. This transaction must have locked
    all intended rows already, in the index that finds them, and the caller counts them. The table
    may have no hint that names an index or forces a seek.
    """
    hint = "ROWLOCK, READPAST, READCOMMITTEDLOCK" if past_locked else "ROWLOCK"
    return change.with_hint(f"WITH ({hint})", dialect_name="mssql")


def first_for_update(query: S, table: sa.Table, *, at_most: int, dialect: str) -> S:
    """Return *query* so that it locks and returns its first *at_most* rows.

    Oracle refuses FETCH FIRST together with FOR UPDATE (ORA-02014). There a subquery chooses the
    rows, and those that no longer meet the conditions once they are locked are left out.
    """
    if dialect != "oracle":
        return for_update(query.limit(at_most), table)
    chosen = query.with_only_columns(table.c.id, maintain_column_froms=True).limit(at_most)
    return for_update(query.where(table.c.id.in_(chosen.correlate(None))), table)


def flag(condition: sa.ColumnElement[bool]) -> sa.ColumnElement[int]:
    if isinstance(condition, True_ | False_):  # which Oracle cannot tell from a number
        return sa.literal_column("1" if isinstance(condition, True_) else "0")
    one: sa.ColumnElement[int] = sa.literal_column("1")
    return sa.case((condition, one), else_=sa.literal_column("0"))


def among(column: sa.ColumnElement[V], names: Collection[V]) -> sa.ColumnElement[bool]:
    """Return the condition that *column* is one of *names*, however many there are.

    Beyond ``MOST_IN_LIST`` they are several lists of literals: parameters are limited, too.
    """
    wanted = sorted(names)
    if len(wanted) <= MOST_IN_LIST:
        return column.in_(wanted)
    return sa.or_(*(column.in_(_written_out(some, column)) for some in in_lists(wanted)))


def in_lists(values: Sequence[T]) -> Iterator[Sequence[T]]:
    return (values[start : start + MOST_IN_LIST] for start in range(0, len(values), MOST_IN_LIST))


def _written_out(names: Sequence[V], column: sa.ColumnElement[V]) -> sa.BindParameter[Any]:
    return sa.bindparam(
        None, names, type_=column.type, unique=True, expanding=True, literal_execute=True
    )


def pair_in(
    first: sa.ColumnElement[int],
    second: sa.ColumnElement[int],
    keys: Collection[tuple[int, int]],
    *,
    dialect: str,
) -> sa.ColumnElement[bool]:
    if dialect != "mssql":
        return sa.tuple_(first, second).in_(sorted(keys))
    of_first = defaultdict[int, list[int]](list)
    for one, other in sorted(keys):
        of_first[one].append(other)
    found = [sa.and_(first == one, second.in_(others)) for one, others in of_first.items()]
    return sa.or_(sa.false(), *found)
