"""Tests of ``migrator.database.types``."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sqlalchemy import column
from sqlalchemy.dialects import mysql, oracle

from migrator.database.types import (
    guid_as_bytes,
    guid_as_text,
    guid_bytes,
    guid_text,
)

MYSQL: Any = mysql.dialect
ORACLE: Any = oracle.dialect
STORED = bytes.fromhex("521B0C7D4F9E3B4AB1C0011D9E215A77")
TEXT = "7d0c1b52-9e4f-4a3b-b1c0-011d9e215a77"


def test_the_first_three_groups_are_little_endian() -> None:
    """As ``Guid.ToByteArray`` writes them; the example is that of the reference."""
    assert guid_text(STORED) == TEXT
    assert guid_bytes(TEXT) == guid_bytes(TEXT.upper()) == STORED
    assert (guid_text(None), guid_bytes(None)) == (None, None)


@given(st.binary())
def test_no_two_values_look_the_same(stored: bytes) -> None:
    """Not even those that are no GUID: each is given back as it was."""
    assert guid_bytes(guid_text(stored)) == stored


def test_what_is_no_guid_is_told() -> None:
    """With what it was."""
    with pytest.raises(ValueError, match="'saga' is not a GUID"):
        guid_bytes("saga")


def test_oracle_is_told_where_each_digit_is() -> None:
    """There is no Oracle here: the statement is looked at, and its places are tried in Python."""
    text = str(guid_as_bytes(column("x")).compile(dialect=ORACLE()))
    places = [part.split(",") for part in text.split("substr(x,")[1:]]
    digits = "".join(
        TEXT[int(start) - 1 :][: int(length.partition(")")[0])] for start, length in places
    )
    assert bytes.fromhex(digits) == STORED
    text = str(guid_as_text(column("x")).compile(dialect=ORACLE()))
    assert text.startswith("nvl2(x, lower(substr(rawtohex(x), 7, 2) || ")
    assert text.endswith(" || '-' || substr(rawtohex(x), 21, 12)), NULL)")
