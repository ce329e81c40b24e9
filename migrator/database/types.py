"""Times and hashes as every dialect stores them.

Rules of this file: Python sees aware UTC datetimes only; a naive one is refused, never guessed.
"""

from __future__ import annotations

import hashlib
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from sqlalchemy import (
    BindParameter,
    ColumnElement,
    DateTime,
    Dialect,
    Integer,
    LargeBinary,
    String,
    Text,
    cast,
)
from sqlalchemy.dialects import mssql, mysql, oracle
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.compiler import SQLCompiler
from sqlalchemy.sql.functions import FunctionElement
from sqlalchemy.types import TypeDecorator, TypeEngine

_TEXT_FORMAT_CHARS: Final = 26
"""``YYYY-MM-DD HH:MM:SS.ffffff``: compares as text in the order of time."""
_FRACTION_DIGITS: Final = 6
_WITHOUT_ZONE: Final = frozenset({"mysql", "mssql", "oracle"})
_DATETIME2: Final[TypeEngine[datetime]] = mssql.DATETIME2(_FRACTION_DIGITS)  # type: ignore[no-untyped-call] # SQLAlchemy's
_NO_TIME: Final = "0000-00-00"
"""MySQL may hold a date that is none; its driver gives it back as text."""

_BINARY_ORDER: Final = "Latin1_General_100_BIN2"
"""SQL Server compares without case by default; names of queues differ by it."""

LONG_TEXT: Final = (
    Text()
    .with_variant(mysql.LONGTEXT(), "mysql")
    .with_variant(mssql.NVARCHAR(collation=_BINARY_ORDER), "mssql")
)
"""Text of any length; MySQL's ``TEXT`` ends at 64 KiB."""
LINE: Final = LONG_TEXT.with_variant(oracle.VARCHAR2(1024), "oracle")
"""Text of a row that is compared and grouped by: Oracle does neither with a CLOB."""
BYTES: Final = (
    LargeBinary()
    .with_variant(mysql.LONGBLOB(), "mysql")
    .with_variant(mssql.VARBINARY("max"), "mssql")  # type: ignore[no-untyped-call] # SQLAlchemy's
)


KEY_CHARS: Final = 255
"""The longest text of a column that is searched for, where the database wants to know it."""


def key_text(chars: int = KEY_CHARS) -> TypeEngine[str]:
    """Return the type of text that is in an index: most databases want to know its longest."""
    return (
        Text()
        .with_variant(mysql.VARCHAR(chars), "mysql")
        .with_variant(mssql.NVARCHAR(chars, collation=_BINARY_ORDER), "mssql")
        .with_variant(oracle.VARCHAR2(chars), "oracle")
    )


class UtcDateTime(TypeDecorator[datetime]):
    """An aware UTC datetime; ISO text on SQLite, which has no type of its own for it.

    MariaDB, MySQL, SQL Server and Oracle keep it without a zone. ``with_zone=False`` is for legacy
    columns that hold UTC without saying so.
    """

    impl = DateTime
    cache_ok = True

    def __init__(self, *, with_zone: bool = True, fraction_digits: int = _FRACTION_DIGITS) -> None:
        """Choose between ``timestamp with time zone`` and without.

        *fraction_digits* tells what a legacy column keeps of a second; nothing is rounded here.
        """
        super().__init__()
        self.with_zone = with_zone
        self.fraction_digits = fraction_digits

    def load_dialect_impl(self, dialect: Dialect) -> TypeEngine[Any]:
        """Return the column type of *dialect*."""
        if dialect.name == "sqlite":
            return dialect.type_descriptor(String(_TEXT_FORMAT_CHARS))
        if dialect.name == "mysql":
            return dialect.type_descriptor(mysql.DATETIME(fsp=_FRACTION_DIGITS))
        if dialect.name == "mssql":
            return dialect.type_descriptor(_DATETIME2)
        if dialect.name == "oracle":
            return dialect.type_descriptor(oracle.TIMESTAMP())  # six digits, too
        return dialect.type_descriptor(DateTime(timezone=self.with_zone))

    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> Any:
        """Return *value* as the driver takes it; refuse a naive one."""
        if value is None:
            return None
        if value.tzinfo is None:
            raise ValueError("a naive datetime has no meaning here; give it a time zone")
        utc = value.astimezone(UTC)
        if dialect.name == "sqlite":
            return utc.replace(tzinfo=None).isoformat(" ", "microseconds")
        has_zone = self.with_zone and dialect.name not in _WITHOUT_ZONE
        return utc if has_zone else utc.replace(tzinfo=None)

    def process_result_value(self, value: Any, dialect: Dialect) -> datetime | None:
        """Return what the driver read as an aware datetime in UTC."""
        if value is None or (isinstance(value, str) and value.startswith(_NO_TIME)):
            return None
        moment = datetime.fromisoformat(value) if isinstance(value, str) else value
        if moment.tzinfo is None:
            return moment.replace(tzinfo=UTC)
        return moment.astimezone(UTC)


class ColumnTime(TypeDecorator[datetime]):
    """UTC in a legacy column of SQL Server or Oracle, compared as what the column is.

    Both would otherwise convert the column, row by row, and walk no index. A moment is rounded as
    the column rounds it: to 1/300 s by ``datetime``, down to whole seconds by ``DATE``.
    Source: SQL Server documentation, "Data type precedence", "datetime"; Oracle documentation,
    "Data conversion".
    """

    impl = DateTime
    cache_ok = True
    EARLIEST: Final = datetime(1753, 1, 1)  # noqa: DTZ001 - as the column keeps it, in UTC
    """``datetime`` begins here, and so does the timeout manager's search (reference 1.4)."""
    LATEST: Final = datetime(9999, 12, 31, 23, 59, 59)  # noqa: DTZ001 - as the column keeps it

    def __init__(self, found: TypeEngine[Any]) -> None:
        """Be the type that was *found*, without a zone."""
        super().__init__()
        self.found = found

    def load_dialect_impl(self, dialect: Dialect) -> TypeEngine[Any]:
        """Return the column's own type."""
        return dialect.type_descriptor(self.found)

    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> Any:
        """Return *value* as the driver takes it; refuse a naive one."""
        del dialect
        if value is None:
            return None
        if value.tzinfo is None:
            raise ValueError("a naive datetime has no meaning here; give it a time zone")
        naive = min(max(value.astimezone(UTC).replace(tzinfo=None), self.EARLIEST), self.LATEST)
        return naive.replace(microsecond=0) if isinstance(self.found, oracle.DATE) else naive

    def bind_expression(self, bindvalue: BindParameter[Any]) -> ColumnElement[Any]:
        """Return the parameter as what the column is."""
        return cast(bindvalue, self.found)

    def process_result_value(self, value: Any, dialect: Dialect) -> datetime | None:
        """Return what the driver read as an aware datetime in UTC."""
        del dialect
        return None if value is None else value.replace(tzinfo=UTC)


class HashedBody(TypeDecorator[str]):
    """The hex SHA-256 of a body, made while it is read; NULL counts as empty."""

    impl = LargeBinary
    cache_ok = True

    def process_result_value(self, value: bytes | None, dialect: Dialect) -> str:
        """Return the hash."""
        del dialect
        return hashlib.sha256(value or b"").hexdigest()


def rounded_up(moment: datetime, step: timedelta) -> datetime:
    """Return *moment*, or the next one that is a whole number of *step* within its second.

    At the end of the calendar there is no next one: there, the last one is returned.
    """
    past = timedelta(microseconds=moment.microsecond) % step
    try:
        return moment + (step - past) if past else moment
    except OverflowError:
        return moment - past


class database_now(FunctionElement[datetime]):
    """The database's clock at this instant, also in the middle of a transaction."""

    type = UtcDateTime()
    inherit_cache = True


@compiles(database_now, "postgresql")
def _now_on_postgresql(_element: database_now, _compiler: SQLCompiler, **_kw: object) -> str:
    return "clock_timestamp()"


@compiles(database_now, "mysql")
def _now_on_mysql(_element: database_now, _compiler: SQLCompiler, **_kw: object) -> str:
    # when the statement began; SYSDATE() may be told to lie, and no index is searched with it
    return "utc_timestamp(6)"


@compiles(database_now, "sqlite")
def _now_on_sqlite(_element: database_now, _compiler: SQLCompiler, **_kw: object) -> str:
    # SQLite counts milliseconds; the zeros make it compare with microseconds as text
    return "strftime('%Y-%m-%d %H:%M:%f000', 'now')"


@compiles(database_now, "mssql")
def _now_on_mssql(_element: database_now, _compiler: SQLCompiler, **_kw: object) -> str:
    return "SYSUTCDATETIME()"


@compiles(database_now, "oracle")
def _now_on_oracle(_element: database_now, _compiler: SQLCompiler, **_kw: object) -> str:
    return "SYS_EXTRACT_UTC(SYSTIMESTAMP)"


class byte_length(FunctionElement[int]):
    """Bytes of a text or blob, 0 for NULL; where possible without reading it.

    Of a text, as the database keeps it: SQL Server, and Oracle in a CLOB, take two per character.
    """

    type = Integer()
    inherit_cache = True


@compiles(byte_length)
def _byte_length(element: byte_length, compiler: SQLCompiler, **kw: Any) -> str:
    return f"coalesce(octet_length({compiler.process(element.clauses, **kw)}), 0)"


@compiles(byte_length, "sqlite")
def _byte_length_on_sqlite(element: byte_length, compiler: SQLCompiler, **kw: Any) -> str:
    # length() of text counts characters, and only up to a NUL
    return f"coalesce(length(CAST({compiler.process(element.clauses, **kw)} AS BLOB)), 0)"


class exactly(FunctionElement[str]):
    """A text, to be compared letter by letter, whatever a legacy column's collation says."""

    type = Text()
    inherit_cache = True


@compiles(exactly)
def _exactly(element: exactly, compiler: SQLCompiler, **kw: Any) -> str:
    return compiler.process(element.clauses, **kw)


@compiles(exactly, "mysql")
def _exactly_on_mysql(element: exactly, compiler: SQLCompiler, **kw: Any) -> str:
    return f"CAST({compiler.process(element.clauses, **kw)} AS CHAR) COLLATE utf8mb4_bin"


@compiles(exactly, "mssql")
def _exactly_on_mssql(element: exactly, compiler: SQLCompiler, **kw: Any) -> str:
    return f"{compiler.process(element.clauses, **kw)} COLLATE {_BINARY_ORDER}"


@compiles(byte_length, "mssql")
def _byte_length_on_mssql(element: byte_length, compiler: SQLCompiler, **kw: Any) -> str:
    return f"coalesce(DATALENGTH({compiler.process(element.clauses, **kw)}), 0)"


@compiles(byte_length, "oracle")
def _byte_length_on_oracle(element: byte_length, compiler: SQLCompiler, **kw: Any) -> str:
    # of a CLOB it counts characters; LENGTHB takes none in a Unicode database
    column = next(iter(element.clauses))
    factor = "" if isinstance(column.type, LargeBinary) else "2 * "
    return f"coalesce({factor}DBMS_LOB.GETLENGTH({compiler.process(column, **kw)}), 0)"


class uuid_as_text(FunctionElement[str]):
    """A row's id or a saga's, as text: a GUID is written in lower case, with hyphens."""

    type = String()
    inherit_cache = True


@compiles(uuid_as_text)
def _uuid_as_text(element: uuid_as_text, compiler: SQLCompiler, **kw: Any) -> str:
    return compiler.process(cast(next(iter(element.clauses)), Text), **kw)


@compiles(uuid_as_text, "mssql")
def _uuid_as_text_on_mssql(element: uuid_as_text, compiler: SQLCompiler, **kw: Any) -> str:
    # it writes upper case, and .NET, which made the id, does not
    return f"lower(CAST({compiler.process(element.clauses, **kw)} AS CHAR(36)))"
