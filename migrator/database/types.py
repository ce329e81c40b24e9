"""Times and hashes as every dialect stores them.

Rules of this file: Python sees aware UTC datetimes only; a naive one is refused, never guessed.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any, Final

from sqlalchemy import DateTime, Dialect, Integer, LargeBinary, String, Text
from sqlalchemy.dialects import mysql
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.compiler import SQLCompiler
from sqlalchemy.sql.functions import FunctionElement
from sqlalchemy.types import TypeDecorator, TypeEngine

_TEXT_FORMAT_CHARS: Final = 26
"""``YYYY-MM-DD HH:MM:SS.ffffff``: compares as text in the order of time."""
_FRACTION_DIGITS: Final = 6
_NO_TIME: Final = "0000-00-00"
"""MySQL may hold a date that is none; its driver gives it back as text."""

LONG_TEXT: Final = Text().with_variant(mysql.LONGTEXT(), "mysql")
"""Text of any length; MySQL's ``TEXT`` ends at 64 KiB."""
BYTES: Final = LargeBinary().with_variant(mysql.LONGBLOB(), "mysql")


def key_text(chars: int = 255) -> TypeEngine[str]:
    """Return the type of text that is in an index: MySQL wants to know the longest there can be."""
    return Text().with_variant(mysql.VARCHAR(chars), "mysql")


class UtcDateTime(TypeDecorator[datetime]):
    """An aware UTC datetime; ISO text on SQLite, which has no type of its own for it.

    MariaDB and MySQL keep it without a zone. ``with_zone=False`` is for legacy columns that hold
    UTC without saying so.
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
        has_zone = self.with_zone and dialect.name != "mysql"
        return utc if has_zone else utc.replace(tzinfo=None)

    def process_result_value(self, value: Any, dialect: Dialect) -> datetime | None:
        """Return what the driver read as an aware datetime in UTC."""
        if value is None or (isinstance(value, str) and value.startswith(_NO_TIME)):
            return None
        moment = datetime.fromisoformat(value) if isinstance(value, str) else value
        if moment.tzinfo is None:
            return moment.replace(tzinfo=UTC)
        return moment.astimezone(UTC)


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


class byte_length(FunctionElement[int]):
    """Bytes of a text or blob, 0 for NULL; where possible without reading it."""

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
