"""How many rows wait in a table, and for how long: bounded, for a page that is looked at.

Rules of this file: no more than so many rows are read of a table; a larger one is told by the
database's own estimate, and said to be one.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any, Final

from sqlalchemy import Connection, Engine, case, func, select

from migrator.database.engine import reading
from migrator.database.failures import translating
from migrator.errors import StoreError
from migrator.stores.measuring_ports import TableCount
from migrator.stores.sql.claims import LegacyTables
from migrator.stores.sql.dialects import dialect_for
from migrator.stores.sql.legacy_table import LegacyTable
from migrator.stores.sql.local_time import due_of

MOST_ROWS: Final = 200_000
_SPANS: Final = (
    ("overdue", timedelta(0)),
    ("up to 1m", timedelta(minutes=1)),
    ("up to 1h", timedelta(hours=1)),
    ("up to 1d", timedelta(days=1)),
    ("up to 7d", timedelta(days=7)),
    ("up to 30d", timedelta(days=30)),
    ("up to 365d", timedelta(days=365)),
)
_LATER: Final = "later"


def span_names() -> list[str]:
    """Return what the spans are called by which counts tell how soon rows are due."""
    return [*(name for name, _ in _SPANS), _LATER]


def span_of(left: timedelta) -> int:
    """Return into which span falls what is due in *left*."""
    return next((index for index, (_, span) in enumerate(_SPANS) if left <= span), len(_SPANS))


class SqlCounting:
    """Counts in the database of the legacy tables."""

    def __init__(self, engine: Engine, legacy: LegacyTables) -> None:
        """Count in the *legacy* tables in the database of *engine*."""
        self._engine = engine
        self._legacy = legacy

    def count(self, source: str, now: datetime, *, most: int = MOST_ROWS) -> TableCount:
        """Return how many rows *source* has, and how soon they are due, as of *now*.

        Raises:
            StoreError: The table is gone, or the database cannot be asked.
        """
        legacy = self._legacy.legacy_table(source)
        doing = f"counting the rows of {source}"
        with translating(StoreError, doing=doing), reading(self._engine) as connection:
            found = dict(_by_span(connection, legacy, now, most))
            rows = sum(found.values())
            is_all = rows <= most
            if not is_all:
                estimate = dialect_for(connection.dialect.name).estimated_rows
                rows = max(rows, estimate(connection, legacy))
        names = span_names()
        due = [(names[index], found[index]) for index in sorted(found)]
        return TableCount(rows=rows, is_all=is_all, due=due)


def _by_span(
    connection: Connection, legacy: LegacyTable, now: datetime, most: int
) -> list[tuple[int, int]]:
    due = due_of(legacy.table.c).label("due")
    some = select(due).where(*legacy.is_owned).limit(most + 1).subquery()
    ends: list[tuple[Any, Any]] = [
        (some.c.due <= now + span, index) for index, (_, span) in enumerate(_SPANS)
    ]
    # by a column, not by an expression: a driver that numbers its parameters makes another
    # expression of it each time it is written
    spans = select(case(*ends, else_=len(_SPANS)).label("span")).subquery()
    query = select(spans.c.span, func.count()).group_by(spans.c.span)
    return [(int(index), int(rows)) for index, rows in connection.execute(query)]
