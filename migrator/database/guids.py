"""GUIDs in columns of sixteen bytes, the first three groups of which are little-endian.

It is what ``Guid.ToByteArray`` returns, so ``RAW(16)`` and ``BINARY(16)`` do not begin with the
GUID's own text. Python sees lower-case text with hyphens; statements that move rows have the
database convert. Source: reference ``legacy-stores.md`` 2.1.
"""

from __future__ import annotations

from typing import Any, Final
from uuid import UUID

import sqlalchemy as sa
from sqlalchemy.dialects import mysql, oracle
from sqlalchemy.sql.functions import FunctionElement
from sqlalchemy.types import TypeDecorator, TypeEngine

from migrator.database.types import spelled

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

    impl = sa.LargeBinary
    cache_ok = True

    def load_dialect_impl(self, dialect: sa.Dialect) -> TypeEngine[Any]:
        """Return the column type of *dialect*."""
        found: TypeEngine[Any] = sa.LargeBinary()
        if dialect.name == "mysql":
            found = mysql.BINARY(_SIZE)
        elif dialect.name == "oracle":
            found = oracle.RAW(_SIZE)
        return dialect.type_descriptor(found)

    def process_bind_param(self, value: str | None, dialect: sa.Dialect) -> bytes | None:
        """Return the bytes of the GUID *value*."""
        return guid_bytes(value)

    def process_result_value(self, value: bytes | None, dialect: sa.Dialect) -> str | None:
        """Return the GUID that the driver read."""
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

    type = sa.Text()
    inherit_cache = True


class guid_as_bytes(FunctionElement[bytes]):
    """The bytes of a GUID in a column of text, computed by the database; NULL stays NULL."""

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
