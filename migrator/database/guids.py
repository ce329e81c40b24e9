"""GUIDs in columns of sixteen bytes, the first three groups of which are little-endian.

It is what ``Guid.ToByteArray`` returns, so ``RAW(16)`` and ``BINARY(16)`` do not begin with the
GUID's own text. Python sees lower-case text with hyphens; statements that move rows have the
database convert. Source: reference ``legacy-stores.md`` 2.1.
"""

from __future__ import annotations

from typing import Any, Final
from uuid import UUID

from sqlalchemy import Dialect, LargeBinary, Text
from sqlalchemy.dialects import mysql, oracle
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.compiler import SQLCompiler
from sqlalchemy.sql.functions import FunctionElement
from sqlalchemy.types import TypeDecorator, TypeEngine

GUID_TEXT: Final = "migrator_guid_text"
"""SQLite only: the function (bytes) -> text."""
GUID_BYTES: Final = "migrator_guid_bytes"
"""SQLite only: the function (text) -> bytes."""
_SIZE: Final = 16
_HEX_OF_TEXT: Final = ((7, 2), (5, 2), (3, 2), (1, 2), (12, 2), (10, 2), (17, 2), (15, 2))
"""Where the hex digits of bytes 0 to 7 are in the text, each as start and length."""
_REST_OF_TEXT: Final = ((20, 4), (25, 12))
_TEXT_OF_HEX: Final = (
    ((7, 2), (5, 2), (3, 2), (1, 2)),
    ((11, 2), (9, 2)),
    ((15, 2), (13, 2)),
    ((17, 4),),
    ((21, 12),),
)
"""Where the digits of the text's five groups are in the hex of the bytes."""


class GuidBytes(TypeDecorator[str]):
    """A GUID as text in Python, and as sixteen bytes in the database."""

    impl = LargeBinary
    cache_ok = True

    def load_dialect_impl(self, dialect: Dialect) -> TypeEngine[Any]:
        """Return the column type of *dialect*."""
        found: TypeEngine[Any] = LargeBinary()
        if dialect.name == "mysql":
            found = mysql.BINARY(_SIZE)
        elif dialect.name == "oracle":
            found = oracle.RAW(_SIZE)
        return dialect.type_descriptor(found)

    def process_bind_param(self, value: str | None, dialect: Dialect) -> bytes | None:
        """Return the bytes of the GUID *value*."""
        del dialect
        return guid_bytes(value)

    def process_result_value(self, value: bytes | None, dialect: Dialect) -> str | None:
        """Return the GUID that the driver read."""
        del dialect
        return guid_text(value)


def guid_text(value: bytes | None) -> str | None:
    """Return sixteen bytes as a GUID; others as hex, so that no two of them look the same."""
    if value is None:
        return None
    return str(UUID(bytes_le=bytes(value))) if len(value) == _SIZE else value.hex()


def guid_bytes(value: str | None) -> bytes | None:
    """Return what ``guid_text`` was made of."""
    if value is None:
        return None
    try:
        return UUID(value).bytes_le if "-" in value else bytes.fromhex(value)
    except ValueError as exc:
        raise ValueError(f"{value[:50]!r} is no GUID") from exc


class guid_as_text(FunctionElement[str]):
    """The text of a GUID in a column of bytes, computed by the database; NULL stays NULL."""

    type = Text()
    inherit_cache = True


class guid_as_bytes(FunctionElement[bytes]):
    """The bytes of a GUID in a column of text, computed by the database; NULL stays NULL."""

    type = LargeBinary()
    inherit_cache = True


@compiles(guid_as_text, "sqlite")
def _text_on_sqlite(element: guid_as_text, compiler: SQLCompiler, **kw: Any) -> str:
    return f"{GUID_TEXT}({compiler.process(element.clauses, **kw)})"


@compiles(guid_as_bytes, "sqlite")
def _bytes_on_sqlite(element: guid_as_bytes, compiler: SQLCompiler, **kw: Any) -> str:
    return f"{GUID_BYTES}({compiler.process(element.clauses, **kw)})"


@compiles(guid_as_text, "postgresql")
def _text_on_postgresql(element: guid_as_text, compiler: SQLCompiler, **kw: Any) -> str:
    digits = f"encode({compiler.process(element.clauses, **kw)}, 'hex')"
    return _joined(digits, " || ")


@compiles(guid_as_bytes, "postgresql")
def _bytes_on_postgresql(element: guid_as_bytes, compiler: SQLCompiler, **kw: Any) -> str:
    text = compiler.process(element.clauses, **kw)
    return f"decode({_digits(text, ' || ')}, 'hex')"


@compiles(guid_as_text, "mysql")
def _text_on_mysql(element: guid_as_text, compiler: SQLCompiler, **kw: Any) -> str:
    digits = f"hex({compiler.process(element.clauses, **kw)})"
    return f"lower(concat({_joined(digits, ', ')}))"


@compiles(guid_as_bytes, "mysql")
def _bytes_on_mysql(element: guid_as_bytes, compiler: SQLCompiler, **kw: Any) -> str:
    text = compiler.process(element.clauses, **kw)
    return f"unhex(concat({_digits(text, ', ')}))"


@compiles(guid_as_text, "oracle")
def _text_on_oracle(element: guid_as_text, compiler: SQLCompiler, **kw: Any) -> str:
    column = compiler.process(element.clauses, **kw)
    # joining NULLs gives hyphens there, not NULL
    return f"nvl2({column}, lower({_joined(f'rawtohex({column})', ' || ')}), NULL)"


@compiles(guid_as_bytes, "oracle")
def _bytes_on_oracle(element: guid_as_bytes, compiler: SQLCompiler, **kw: Any) -> str:
    text = compiler.process(element.clauses, **kw)
    return f"hextoraw({_digits(text, ' || ')})"


def _joined(digits: str, glue: str) -> str:
    groups = [
        glue.join(f"substr({digits}, {start}, {length})" for start, length in group)
        for group in _TEXT_OF_HEX
    ]
    return f"{glue}'-'{glue}".join(groups)


def _digits(text: str, glue: str) -> str:
    places = (*_HEX_OF_TEXT, *_REST_OF_TEXT)
    return glue.join(f"substr({text}, {start}, {length})" for start, length in places)
