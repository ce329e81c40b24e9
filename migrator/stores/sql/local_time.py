"""A due column with local time: what it means, and how it is searched.

With Npgsql 6 and later the vendor's persisters may write ``Time`` in the zone of their session
(reference ``legacy-stores.md`` 1.3). Rules of this file:

* PostgreSQL converts in both directions, by the rules that applied when the vendor wrote.
* Bounds are made local, never the column, so that its index is used.
* For the hour that occurs twice in autumn, the row's own Expire header decides. Without it, and for
  a time that the clocks skipped in spring, the later moment applies: never early.
* The ledger stores the column's own value, so that it goes back as it was.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any, Final

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import TIMESTAMP
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.compiler import SQLCompiler
from sqlalchemy.sql.functions import FunctionElement
from sqlalchemy.types import TypeDecorator, TypeEngine

from migrator.database.types import UtcDateTime

_SEPARATOR: Final = "chr(31)"
"""Between a row's spelling of its owner and its column; no endpoint's name contains it."""
_NOTHING: Final[sa.ColumnElement[str]] = sa.literal_column("''", sa.Text())
_NEAR: Final = "interval '4 hours'"
"""Longer than any change of clocks; no two changes are that near to each other."""


class LocalTime(TypeDecorator[datetime]):
    impl = sa.DateTime
    cache_ok = True
    with_zone = False

    def __init__(self, zone: str) -> None:
        super().__init__()
        self.zone = zone

    def load_dialect_impl(self, dialect: sa.Dialect) -> TypeEngine[Any]:
        return dialect.type_descriptor(sa.DateTime(timezone=True))

    def process_bind_param(self, value: datetime | None, dialect: sa.Dialect) -> Any:
        return UtcDateTime().process_bind_param(value, dialect)

    def bind_expression(self, bindvalue: sa.BindParameter[Any]) -> sa.ColumnElement[Any]:
        return sa.func.timezone(zone_name(self.zone), bindvalue)


class local_due(FunctionElement[datetime]):
    """The moment of a local time: its zone, the column, the row's headers."""

    type = UtcDateTime()
    inherit_cache = True


@compiles(local_due, "postgresql")
def _local_due(element: local_due, compiler: SQLCompiler, **kw: Any) -> str:
    zone, column, headers = (compiler.process(each, **kw) for each in element.clauses)
    later = f"timezone({zone}, {column})"  # of two, and of a time that was skipped
    before = f"timezone({zone}, {later} - {_NEAR}) + {_NEAR}"
    after = f"timezone({zone}, {later})"
    earlier = f"({later} - ({before} - {after}))"
    expire = (
        f"substring({headers} from "
        r"""'"NServiceBus\.Timeout\.Expire"\s*:\s*"(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d)') """
        'COLLATE "C"'
    )
    from_, until = (
        f"to_char(timezone('UTC', {earlier} {sign} interval '1 second'), 'YYYY-MM-DD HH24:MI:SS')"
        for sign in "-+"
    )
    return (
        f"CASE WHEN {before} > {after} THEN "  # clocks were put back within the hours before
        f"CASE WHEN timezone({zone}, {earlier}) = {column} AND {expire} BETWEEN {from_} AND {until}"
        f" THEN {earlier} ELSE {later} END ELSE {later} END"
    )


def zone_name(zone: str) -> sa.ColumnElement[str]:
    return sa.literal_column("'" + zone.replace("'", "''") + "'", sa.Text())


def zone_of(column: sa.ColumnElement[Any]) -> str | None:
    """None: the column has UTC, or stores its zone itself."""
    return column.type.zone if isinstance(column.type, LocalTime) else None


def due_of(row: Any) -> sa.ColumnElement[datetime]:
    zone = zone_of(row.Time)
    return row.Time if zone is None else local_due(zone_name(zone), row.Time, row.Headers)


def due_from(row: Any, moment: datetime) -> sa.ColumnElement[bool]:
    """Perhaps also a few due before: what is behind a cursor follows the column's order."""
    zone = zone_of(row.Time)
    column: sa.ColumnElement[Any] = row.Time
    return column >= (moment if zone is None else sa.func.least(*_local(zone, moment)))


def due_after(row: Any, moment: datetime) -> sa.ColumnElement[bool]:
    zone = zone_of(row.Time)
    column: sa.ColumnElement[Any] = row.Time
    if zone is None:
        return column > moment
    at = _local(zone, moment)
    is_after = sa.or_(
        sa.and_(_is_even(zone, moment), column > at[0]), due_of(row) > _moment(moment)
    )
    return sa.and_(column >= sa.func.least(*at), is_after)


def due_until(row: Any, moment: datetime) -> sa.ColumnElement[bool]:
    zone = zone_of(row.Time)
    column: sa.ColumnElement[Any] = row.Time
    if zone is None:
        return column <= moment
    is_until = sa.or_(_is_even(zone, moment), due_of(row) <= _moment(moment))
    return sa.and_(column <= sa.func.greatest(*_local(zone, moment)), is_until)


def kept_extra(row: Any) -> sa.ColumnElement[str]:
    owner = sa.func.coalesce(row.Endpoint, _NOTHING) if "Endpoint" in row else _NOTHING
    column = sa.func.to_char(row.Time, sa.literal_column("'YYYY-MM-DD HH24:MI:SS.US'"))
    return owner.concat(sa.literal_column(_SEPARATOR, sa.Text())).concat(column)


def kept_owner(extra: sa.ColumnElement[str]) -> sa.ColumnElement[str]:
    return sa.func.split_part(
        extra, sa.literal_column(_SEPARATOR), sa.literal_column("1"), type_=sa.Text()
    )


def kept_time(extra: sa.ColumnElement[str]) -> sa.ColumnElement[Any]:
    """NULL where the column had UTC."""
    kept = sa.func.split_part(extra, sa.literal_column(_SEPARATOR), sa.literal_column("2"))
    return sa.func.nullif(kept, _NOTHING, type_=sa.Text()).cast(TIMESTAMP())


def _moment(moment: datetime) -> sa.ColumnElement[datetime]:
    if isinstance(moment, sa.BindParameter):  # its value is given when it is carried out
        return sa.type_coerce(moment, UtcDateTime())
    return sa.literal(moment, UtcDateTime())


def _local(zone: str, moment: datetime) -> tuple[sa.ColumnElement[Any], ...]:
    """Return *moment* by the offset of the zone then, and by those of hours before and after."""
    at, name = _moment(moment), zone_name(zone)
    near: sa.ColumnElement[Any] = sa.literal_column(_NEAR)
    return (
        sa.func.timezone(name, at, type_=TIMESTAMP()),
        sa.func.timezone(name, at.op("-")(near), type_=TIMESTAMP()).op("+")(near),
        sa.func.timezone(name, at.op("+")(near), type_=TIMESTAMP()).op("-")(near),
    )


def _is_even(zone: str, moment: datetime) -> sa.ColumnElement[bool]:
    """Without a change of clocks around *moment*, the column is in the order of time."""
    _, before, after = _local(zone, moment)
    return before == after
