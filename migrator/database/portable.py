"""Ways to say in SQL what every kind of database understands.

Rules of this file: a lock that was asked for is never left out in silence (SQLAlchemy does so for
SQL Server); a condition is selected as a number, because SQL Server and Oracle before 23ai have no
boolean columns; what PostgreSQL gets is what it got before.

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

    From 5000 locks on, that server locks a whole table, and every lane would wait. The ledger's is
    made with LOCK_ESCALATION = DISABLE, which its documentation promises for most cases only.
    """
    return min(rows, _MOST_LOCKED.get(dialect, rows))


def prefer_indexes(connection: sa.Connection) -> None:
    """Have this transaction look rows up by their index, whatever statistics say.

    Those of PostgreSQL are old where a table has just been filled, and it may read all of one, or
    of another index, for each batch.
    """
    if connection.dialect.name == "postgresql":
        connection.execute(_BY_INDEX)


def for_update(query: S, table: sa.FromClause, *, shared: bool = False) -> S:
    """Return *query* so that the rows of *table* it finds stay as they are until the end.

    Args:
        query: Reads *table*, perhaps joined with others, whose rows are not locked.
        table: Whose rows.
        shared: Only keep the key from changing, where a database can tell that from other
            changes (PostgreSQL); elsewhere the lock is exclusive, and so merely waits longer.
    """
    # Oracle wants a column, the others make a table of it
    column = next(iter(table.primary_key))
    return query.with_hint(table, "WITH (UPDLOCK, ROWLOCK)", "mssql").with_for_update(
        of=column, read=shared, key_share=shared
    )


def row_by_row(change: C, *, past_locked: bool = False) -> C:
    """Return *change*, which locks rows and no pages on SQL Server.

    Claims read past locked rows, not past locked pages.

    Args:
        change: Its table takes no hint that names an index or forces a seek.
        past_locked: Pass over rows that others have locked: all that are meant are locked by this
            transaction already, in the index by which they are found as well, and the caller counts
            them. Should the server read the whole table, it waits for nobody's.
    """
    hint = "ROWLOCK, READPAST, READCOMMITTEDLOCK" if past_locked else "ROWLOCK"
    return change.with_hint(f"WITH ({hint})", dialect_name="mssql")


def first_for_update(query: S, table: sa.Table, *, at_most: int, dialect: str) -> S:
    """Return *query* so that it locks and returns its first *at_most* rows.

    Oracle refuses FETCH FIRST together with FOR UPDATE (ORA-02014): there, the rows are chosen by
    a subquery, and those that no longer meet the conditions once they are locked are left out.
    """
    if dialect != "oracle":
        return for_update(query.limit(at_most), table)
    chosen = query.with_only_columns(table.c.id, maintain_column_froms=True).limit(at_most)
    return for_update(query.where(table.c.id.in_(chosen.correlate(None))), table)


def flag(condition: sa.ColumnElement[bool]) -> sa.ColumnElement[int]:
    """Return 1 where *condition* holds, else 0, to be selected or compared."""
    if isinstance(condition, True_ | False_):  # which Oracle cannot tell from a number
        return sa.literal_column("1" if isinstance(condition, True_) else "0")
    one: sa.ColumnElement[int] = sa.literal_column("1")
    return sa.case((condition, one), else_=sa.literal_column("0"))


def among(column: sa.ColumnElement[V], names: Collection[V]) -> sa.ColumnElement[bool]:
    """Return the condition that *column* is one of *names*, however many there are.

    Beyond ``MOST_IN_LIST`` they are several lists, and no parameters: SQLite takes 32 766 of
    those in a statement, PostgreSQL 65 535, SQL Server 2100.
    """
    wanted = sorted(names)
    if len(wanted) <= MOST_IN_LIST:
        return column.in_(wanted)
    return sa.or_(*(column.in_(_written_out(some, column)) for some in in_lists(wanted)))


def in_lists(values: Sequence[T]) -> Iterator[Sequence[T]]:
    """Yield *values* in parts that one ``IN`` takes."""
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
    """Return the condition under which both columns together are one of *keys*.

    SQL Server compares no pairs: there, the second column is compared for each value of the first.
    """
    if dialect != "mssql":
        return sa.tuple_(first, second).in_(sorted(keys))
    of_first = defaultdict[int, list[int]](list)
    for one, other in sorted(keys):
        of_first[one].append(other)
    found = [sa.and_(first == one, second.in_(others)) for one, others in of_first.items()]
    return sa.or_(sa.false(), *found)
