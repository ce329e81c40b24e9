"""Times, hashes and GUIDs as every dialect stores them.

Rules of this file: Python sees aware UTC datetimes only; a naive one is refused, never guessed.
SQLAlchemy's dialects are imported where they are used: all of them together take a tenth of a short
verb's start.

GUIDs are in columns of sixteen bytes, the first three groups of which are little-endian, as by
``Guid.ToByteArray``. So ``RAW(16)`` and ``BINARY(16)`` do not begin with the GUID's own text.
Python sees lower-case text with hyphens; the database converts in statements that move rows.
Source: reference ``legacy-stores.md`` 2.1.
"""

from __future__ import annotations

import hashlib
from datetime import UTC, datetime, timedelta
from typing import Any, Final
from uuid import UUID

import sqlalchemy as sa
from sqlalchemy.exc import CompileError
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.compiler import SQLCompiler
from sqlalchemy.sql.functions import FunctionElement
from sqlalchemy.types import TypeDecorator, TypeEngine

_TEXT_FORMAT_CHARS: Final = 26
"""``YYYY-MM-DD HH:MM:SS.ffffff``: compares as text in the order of time."""
_FRACTION_DIGITS: Final = 6
_WITHOUT_ZONE: Final = frozenset({"sqlite", "mysql", "mssql", "oracle"})
_NO_TIME: Final = "0000-00-00"
"""MySQL may contain this invalid date, which its driver returns as text."""

_BINARY_ORDER: Final = "Latin1_General_100_BIN2"
"""SQL Server ignores case by default, by which names of queues differ."""

KEY_CHARS: Final = 255
"""The longest text of an indexed column, where the database needs a limit."""


class LongText(TypeDecorator[str]):
    impl = sa.Text
    cache_ok = True

    def load_dialect_impl(self, dialect: sa.Dialect) -> TypeEngine[Any]:
        found: TypeEngine[Any] = sa.Text()
        if dialect.name == "mysql":
            from sqlalchemy.dialects.mysql import LONGTEXT

            found = LONGTEXT()
        elif dialect.name == "mssql":
            found = sa.NVARCHAR(collation=_BINARY_ORDER)
        return dialect.type_descriptor(found)


class KeyText(TypeDecorator[str]):
    """Indexed text."""

    impl = sa.Text
    cache_ok = True

    def __init__(self, chars: int = KEY_CHARS) -> None:
        super().__init__()
        self.chars = chars

    def load_dialect_impl(self, dialect: sa.Dialect) -> TypeEngine[Any]:
        found: TypeEngine[Any] = sa.Text()
        if dialect.name == "mysql":
            found = sa.VARCHAR(self.chars)
        elif dialect.name == "mssql":
            found = sa.NVARCHAR(self.chars, collation=_BINARY_ORDER)
        elif dialect.name == "oracle":
            found = _varchar2(self.chars)
        return dialect.type_descriptor(found)


class AsciiText(TypeDecorator[str]):
    """Short ASCII text: VARCHAR, on SQL Server also as a parameter.

    With an NVARCHAR parameter and a ``SQL_…`` collation, the server converts the column: it reads
    every row to find one, and waits for every lock on them.
    """

    impl = sa.String
    cache_ok = True

    def __init__(self, chars: int) -> None:
        super().__init__(chars)
        self.chars = chars

    def load_dialect_impl(self, dialect: sa.Dialect) -> TypeEngine[Any]:
        # as it is: what ``type_descriptor`` makes of VARCHAR is bound like any other text
        return sa.VARCHAR(self.chars) if dialect.name == "mssql" else sa.String(self.chars)


class Line(LongText):
    """Text that is compared and grouped by, which Oracle cannot do with a CLOB."""

    cache_ok = True

    def load_dialect_impl(self, dialect: sa.Dialect) -> TypeEngine[Any]:
        if dialect.name == "oracle":
            return dialect.type_descriptor(_varchar2(1024))
        return super().load_dialect_impl(dialect)


class LongBytes(TypeDecorator[bytes]):
    impl = sa.LargeBinary
    cache_ok = True

    def load_dialect_impl(self, dialect: sa.Dialect) -> TypeEngine[Any]:
        found: TypeEngine[Any] = sa.LargeBinary()
        if dialect.name == "mysql":
            from sqlalchemy.dialects.mysql import LONGBLOB

            found = LONGBLOB()
        elif dialect.name == "mssql":
            from sqlalchemy.dialects.mssql import VARBINARY

            found = VARBINARY("max")  # type: ignore[no-untyped-call] # SQLAlchemy's
        return dialect.type_descriptor(found)


LONG_TEXT: Final = LongText()
LINE: Final = Line()
BYTES: Final = LongBytes()


def _varchar2(chars: int) -> TypeEngine[Any]:
    from sqlalchemy.dialects.oracle import VARCHAR2

    return VARCHAR2(chars)


def _date_time(dialect: str, *, with_zone: bool) -> TypeEngine[Any]:
    if dialect == "mysql":
        from sqlalchemy.dialects.mysql import DATETIME

        return DATETIME(fsp=_FRACTION_DIGITS)
    if dialect == "mssql":
        from sqlalchemy.dialects.mssql import DATETIME2

        return DATETIME2(_FRACTION_DIGITS)  # type: ignore[no-untyped-call] # SQLAlchemy's
    if dialect == "oracle":
        from sqlalchemy.dialects.oracle import TIMESTAMP

        return TIMESTAMP()  # six digits, too
    return sa.String(_TEXT_FORMAT_CHARS) if dialect == "sqlite" else sa.DateTime(with_zone)


def _in_utc(moment: datetime) -> datetime:
    if moment.tzinfo is None:
        raise ValueError("a naive datetime has no meaning here; give it a time zone")
    return moment.astimezone(UTC)


class UtcDateTime(TypeDecorator[datetime]):
    """An aware UTC datetime; ISO text on SQLite, without a zone on other servers than PostgreSQL.

    ``with_zone=False``: a legacy column of PostgreSQL with implicit UTC. *fraction_digits* is what
    a legacy column keeps of a second; nothing is rounded here.
    """

    impl = sa.DateTime
    cache_ok = True

    def __init__(self, *, with_zone: bool = True, fraction_digits: int = _FRACTION_DIGITS) -> None:
        super().__init__()
        self.with_zone = with_zone
        self.fraction_digits = fraction_digits

    def load_dialect_impl(self, dialect: sa.Dialect) -> TypeEngine[Any]:
        return dialect.type_descriptor(_date_time(dialect.name, with_zone=self.with_zone))

    def process_bind_param(self, value: datetime | None, dialect: sa.Dialect) -> Any:
        if value is None:
            return None
        utc = _in_utc(value)
        if dialect.name == "sqlite":
            return utc.replace(tzinfo=None).isoformat(" ", "microseconds")
        has_zone = self.with_zone and dialect.name not in _WITHOUT_ZONE
        return utc if has_zone else utc.replace(tzinfo=None)

    def process_result_value(self, value: Any, dialect: sa.Dialect) -> datetime | None:
        if value is None or (isinstance(value, str) and value.startswith(_NO_TIME)):
            return None
        moment = datetime.fromisoformat(value) if isinstance(value, str) else value
        if moment.tzinfo is None:
            return moment.replace(tzinfo=UTC)
        return moment.astimezone(UTC)


class ColumnTime(TypeDecorator[datetime]):
    """UTC in a legacy column of SQL Server or Oracle, compared in the column's own type.

    Both would otherwise convert the column, row by row, and use no index. A moment is rounded as
    the column rounds it: to 1/300 s by ``datetime``, down to whole seconds by ``DATE``.
    Source: SQL Server documentation, "Data type precedence", "datetime"; Oracle documentation,
    "Data conversion".
    """

    impl = sa.DateTime
    cache_ok = True
    EARLIEST: Final = datetime(1753, 1, 1)  # noqa: DTZ001 - as the column keeps it, in UTC
    """``datetime`` begins here, and so does the timeout manager's search (reference 1.4)."""
    LATEST: Final = datetime(9999, 12, 31, 23, 59, 59, 997_000)  # noqa: DTZ001 - the same
    """Of ``datetime``, and so ``DateTime.MaxValue`` there."""

    def __init__(self, found: TypeEngine[Any]) -> None:
        super().__init__()
        self.found = found
        self.kind: str = found.__visit_name__

    def load_dialect_impl(self, dialect: sa.Dialect) -> TypeEngine[Any]:
        return dialect.type_descriptor(self.found)

    def process_bind_param(self, value: datetime | None, dialect: sa.Dialect) -> Any:
        if value is None:
            return None
        naive, kind = max(_in_utc(value).replace(tzinfo=None), self.EARLIEST), self.kind
        if kind == "DATE":  # Oracle's, which has a time of day
            return naive.replace(microsecond=0)
        return min(naive, self.LATEST) if kind == "DATETIME" else naive

    def bind_expression(self, bindvalue: sa.BindParameter[Any]) -> sa.ColumnElement[Any]:
        return sa.cast(bindvalue, self.found)

    def process_result_value(self, value: Any, dialect: sa.Dialect) -> datetime | None:
        return None if value is None else value.replace(tzinfo=UTC)


class HashedBody(TypeDecorator[str]):
    impl = sa.LargeBinary
    cache_ok = True

    def process_result_value(self, value: bytes | None, dialect: sa.Dialect) -> str:
        return hashlib.sha256(value or b"").hexdigest()


def rounded_up(moment: datetime, step: timedelta) -> datetime:
    """Round *moment* up to a whole number of *step*; down at the end of the calendar."""
    past = timedelta(microseconds=moment.microsecond) % step
    try:
        return moment + (step - past) if past else moment
    except OverflowError:
        return moment - past


def spelled(kind: type[FunctionElement[Any]], **templates: str) -> None:
    """Compile *kind* to the template of the dialect, or to ``default``.

    ``{0}`` is its argument; a dialect without a template does not compile.
    """

    @compiles(kind)
    def _write(element: FunctionElement[Any], compiler: SQLCompiler, **kw: Any) -> str:
        template = templates.get(compiler.dialect.name) or templates.get("default")
        if template is None:
            raise CompileError(f"{kind.__name__} is not written for {compiler.dialect.name}")
        return template.format(compiler.process(element.clauses, **kw))


class database_now(FunctionElement[datetime]):
    """The database's clock at this instant, also in the middle of a transaction."""

    type = UtcDateTime()
    inherit_cache = True


spelled(
    database_now,
    postgresql="clock_timestamp()",
    # when the statement began; SYSDATE() may be set wrong, and no index is searched with it
    mysql="utc_timestamp(6)",
    # SQLite counts milliseconds; the zeros make it compare with microseconds as text
    sqlite="strftime('%Y-%m-%d %H:%M:%f000', 'now')",
    mssql="SYSUTCDATETIME()",
    oracle="SYS_EXTRACT_UTC(SYSTIMESTAMP)",
)


class byte_length(FunctionElement[int]):
    """0 for NULL; two per character of text on SQL Server, and of a CLOB on Oracle."""

    type = sa.Integer()
    inherit_cache = True


spelled(
    byte_length,
    default="coalesce(octet_length({0}), 0)",
    # length() of text counts characters, and only up to a NUL
    sqlite="coalesce(length(CAST({0} AS BLOB)), 0)",
    mssql="coalesce(DATALENGTH({0}), 0)",
)


@compiles(byte_length, "oracle")
def _byte_length_on_oracle(element: byte_length, compiler: SQLCompiler, **kw: Any) -> str:
    # of a CLOB it counts characters; LENGTHB takes none in a Unicode database
    column = next(iter(element.clauses))
    factor = "" if isinstance(column.type, sa.LargeBinary | LongBytes) else "2 * "
    return f"coalesce({factor}DBMS_LOB.GETLENGTH({compiler.process(column, **kw)}), 0)"


SHOWN_TEXT: Final = "migrator_shown_text"


class shown_text(FunctionElement[str]):
    type = sa.Text()
    inherit_cache = True


spelled(
    shown_text,
    default="{0}",
    postgresql="CASE WHEN getdatabaseencoding() = 'SQL_ASCII' "
    "THEN encode(convert_to({0}, 'SQL_ASCII'), 'escape') ELSE {0} END",
    sqlite=f"{SHOWN_TEXT}(CAST({{0}} AS BLOB))",
)


class utf8_length(FunctionElement[int]):
    """Bytes of an ASCII text in UTF-8, 0 for NULL; approximate for other text."""

    type = sa.Integer()
    inherit_cache = True


spelled(
    utf8_length,
    default="coalesce(octet_length({0}), 0)",
    sqlite="coalesce(length(CAST({0} AS BLOB)), 0)",
    mssql="coalesce(DATALENGTH({0}) / 2, 0)",
    oracle="coalesce(DBMS_LOB.GETLENGTH({0}), 0)",
)


class minute_of(FunctionElement[datetime]):
    type = UtcDateTime()
    inherit_cache = True


spelled(
    minute_of,
    postgresql="date_trunc('minute', {0})",
    # as text, which Python reads as well
    mysql="left(CAST({0} AS CHAR), 16)",
    sqlite="substr({0}, 1, 16)",
    mssql="CONVERT(char(16), {0}, 120)",
    oracle="TO_CHAR({0}, 'YYYY-MM-DD HH24:MI')",
)


class second_of(FunctionElement[datetime]):
    type = UtcDateTime()
    inherit_cache = True


spelled(
    second_of,
    postgresql="date_trunc('second', {0})",
    mysql="left(CAST({0} AS CHAR), 19)",
    sqlite="substr({0}, 1, 19)",
    mssql="CONVERT(char(19), {0}, 120)",
    oracle="TO_CHAR({0}, 'YYYY-MM-DD HH24:MI:SS')",
)


class exactly(FunctionElement[str]):
    type = sa.Text()
    inherit_cache = True


spelled(
    exactly,
    default="{0}",
    mysql="CAST({0} AS CHAR) COLLATE utf8mb4_bin",
    mssql=f"{{0}} COLLATE {_BINARY_ORDER}",
)


class uuid_as_text(FunctionElement[str]):
    type = sa.String()
    inherit_cache = True


spelled(
    uuid_as_text,
    default="CAST({0} AS TEXT)",
    mysql="CAST({0} AS CHAR)",
    # it writes upper case, and .NET, which made the id, does not
    mssql="lower(CAST({0} AS CHAR(36)))",
)


# ── GUIDs in columns of sixteen bytes ─────────────────────────────────────────────────────────────

GUID_TEXT: Final = "migrator_guid_text"
GUID_BYTES: Final = "migrator_guid_bytes"
_SIZE: Final = 16
_HEX_OF_TEXT: Final = ((7, 2), (5, 2), (3, 2), (1, 2), (12, 2), (10, 2), (17, 2), (15, 2))
_REST_OF_TEXT: Final = ((20, 4), (25, 12))
_TEXT_OF_HEX: Final = (
    ((7, 2), (5, 2), (3, 2), (1, 2)),
    ((11, 2), (9, 2)),
    ((15, 2), (13, 2)),
    ((17, 4),),
    ((21, 12),),
)
"""Each digit as start and length, as in ``_HEX_OF_TEXT``."""


class GuidBytes(TypeDecorator[str]):
    impl = sa.LargeBinary
    cache_ok = True

    def load_dialect_impl(self, dialect: sa.Dialect) -> TypeEngine[Any]:
        found: TypeEngine[Any] = sa.LargeBinary()
        if dialect.name == "mysql":
            found = sa.BINARY(_SIZE)
        elif dialect.name == "oracle":
            from sqlalchemy.dialects.oracle import RAW

            found = RAW(_SIZE)
        return dialect.type_descriptor(found)

    def process_bind_param(self, value: str | None, dialect: sa.Dialect) -> bytes | None:
        return guid_bytes(value)

    def process_result_value(self, value: bytes | None, dialect: sa.Dialect) -> str | None:
        return guid_text(value)


def guid_text(value: bytes | None) -> str | None:
    """Return sixteen bytes as a GUID; others as hex, so that no two of them look the same."""
    if value is None:
        return None
    return str(UUID(bytes_le=bytes(value))) if len(value) == _SIZE else value.hex()


def guid_bytes(value: str | None) -> bytes | None:
    if value is None:
        return None
    try:
        return UUID(value).bytes_le if "-" in value else bytes.fromhex(value)
    except ValueError as exc:
        raise ValueError(f"{value[:50]!r} is not a GUID") from exc


class guid_as_text(FunctionElement[str]):
    type = sa.Text()
    inherit_cache = True


class guid_as_bytes(FunctionElement[bytes]):
    """As ``guid_as_text``, the database computes it, and NULL stays NULL."""

    type = sa.LargeBinary()
    inherit_cache = True


def _joined(digits: str, glue: str) -> str:
    groups = [
        glue.join(f"substr({digits}, {start}, {length})" for start, length in group)
        for group in _TEXT_OF_HEX
    ]
    return f"{glue}'-'{glue}".join(groups)


def _digits(glue: str) -> str:
    places = (*_HEX_OF_TEXT, *_REST_OF_TEXT)
    return glue.join(f"substr({{0}}, {start}, {length})" for start, length in places)


spelled(
    guid_as_text,
    sqlite=f"{GUID_TEXT}({{0}})",
    postgresql=_joined("encode({0}, 'hex')", " || "),
    mysql=f"lower(concat({_joined('hex({0})', ', ')}))",
    # joining NULLs gives hyphens there, not NULL
    oracle=f"nvl2({{0}}, lower({_joined('rawtohex({0})', ' || ')}), NULL)",
)
spelled(
    guid_as_bytes,
    sqlite=f"{GUID_BYTES}({{0}})",
    postgresql=f"decode({_digits(' || ')}, 'hex')",
    mysql=f"unhex(concat({_digits(', ')}))",
    oracle=f"hextoraw({_digits(' || ')})",
)
