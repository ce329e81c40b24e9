"""Whatever bytes a content header holds, reading it ends with values or with a reason."""

from __future__ import annotations

import math
import struct
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pika import spec

from migrator.rabbitmq.properties import Properties, PropertyValues
from tests.unit.rabbitmq.test_messages import properties_of

MOST_LEVELS = 16  # the header table is the first
_SHORT = st.text(max_size=60)
_VALUE = st.recursive(
    st.one_of(
        st.none(),
        st.booleans(),
        st.text(max_size=80),
        st.binary(max_size=80),
        st.integers(-(2**63), 2**63 - 1),
        st.datetimes(
            datetime(1970, 1, 1),  # noqa: DTZ001  # the time zone is given apart
            datetime(9999, 12, 31),  # noqa: DTZ001
            timezones=st.just(UTC),
        ).map(lambda found: found.replace(microsecond=0)),
        st.decimals(-1000, 1000, places=3),
    ),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(_SHORT, inner, max_size=4),
    max_leaves=12,
)
_TABLE = st.dictionaries(_SHORT, _VALUE, max_size=6)


def _encoded(**properties: Any) -> bytes:
    return b"".join(spec.BasicProperties(**properties).encode())


def _headers(table: bytes) -> bytes:
    """Return properties that are nothing but a header table of these bytes."""
    return b"\x20\x00" + struct.pack(">I", len(table)) + table


def _field(kind: bytes, value: bytes, key: bytes = b"k") -> bytes:
    return _headers(bytes((len(key),)) + key + kind + value)


def _problem(data: bytes) -> str:
    found = Properties(data).values
    assert found == PropertyValues(problem=found.problem)
    return found.problem or ""


@given(properties_of(_TABLE))
def test_what_pika_wrote_reads_back(given_properties: dict[str, Any]) -> None:
    """Every property that is wanted, and any header table, reads as it was written."""
    data = _encoded(**given_properties)
    found = Properties(data).values
    assert found.problem is None
    assert found.headers == given_properties.get("headers", {})
    for name in ("content_type", "correlation_id", "reply_to", "message_id", "type"):
        assert getattr(found, name) == given_properties.get(name)
    assert found.delivery_mode == given_properties.get("delivery_mode")


@given(properties_of(_TABLE), st.data())
def test_one_header_is_found_without_the_others(
    given_properties: dict[str, Any], draw: st.DataObject
) -> None:
    """It is what reading all of them says, also of damaged properties; else there is none."""
    data = _encoded(**given_properties)
    names = [*given_properties.get("headers", {}), "absent"]
    name = draw.draw(st.sampled_from(names))
    assert Properties(data).header(name) == Properties(data).values.headers.get(name)
    damaged = bytearray(data)
    damaged[draw.draw(st.integers(0, len(damaged) - 1))] = draw.draw(st.integers(0, 255))
    whole = Properties(bytes(damaged)).values
    if whole.problem is None:
        assert Properties(bytes(damaged)).header(name) == whole.headers.get(name)


@pytest.mark.parametrize(
    ("kind", "value", "expected"),
    [
        (b"t", b"\x02", True),
        (b"b", b"\xff", -1),
        (b"B", b"\xff", 255),
        (b"s", b"\xff\xfe", -2),
        (b"U", b"\xff\xfe", -2),
        (b"u", b"\xff\xfe", 65_534),
        (b"I", b"\xff\xff\xff\xfe", -2),
        (b"i", b"\xff\xff\xff\xfe", 2**32 - 2),
        (b"l", b"\xff" * 7 + b"\xfe", -2),
        (b"L", b"\xff" * 7 + b"\xfe", -2),
        (b"f", struct.pack(">f", 0.5), 0.5),
        (b"d", struct.pack(">d", 0.1), 0.1),
        (b"d", struct.pack(">d", math.inf), math.inf),
        (b"D", b"\x02\x00\x00\x04\xd2", Decimal("12.34")),
        (b"D", b"\xff\x00\x00\x00\x01", Decimal("1E-255")),
        (b"T", struct.pack(">Q", 86_400), datetime(1970, 1, 2, tzinfo=UTC)),
        (b"V", b"", None),
        (b"S", b"\0\0\0\x03\xe2\x98\x83", "☃"),
        (b"S", b"\0\0\0\x02\xc3\x28", b"\xc3\x28"),
        (b"x", b"\0\0\0\x01a", b"a"),
        (b"A", b"\0\0\0\x04t\x01t\x00", [True, False]),
        (b"F", b"\0\0\0\x03\x01kV", {"k": None}),
    ],
)
def test_each_type_is_read(kind: bytes, value: bytes, expected: object) -> None:
    """Every type of RabbitMQ's table gives its value."""
    found = Properties(_field(kind, value)).values.headers["k"]
    assert found == expected
    assert type(found) is type(expected)


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(b"", id="nothing"),
        pytest.param(b"\x80\x00\x05ab", id="cut property"),
        pytest.param(b"\x80\x00\x02\xc3\x28", id="property not UTF-8"),
        pytest.param(b"\x00\x01\x00\x00", id="second word of flags"),
        pytest.param(b"\x00\x00a", id="more than the flags say"),
        pytest.param(_field(b"I", b"\x01"), id="cut number"),
        pytest.param(_field(b"S", b"\xff\xff\xff\xff"), id="text longer than all there is"),
        pytest.param(_field(b"?", b"\x01"), id="unknown type"),
        pytest.param(_field(b"V", b"", key=b"\xff"), id="name not UTF-8"),
        pytest.param(b"\x20\x00\x00\x00\x00\xff\x01kV", id="table longer than all there is"),
        pytest.param(
            b"\x20\x80\0\0\0\x07\x01kF\0\0\0\x06" + b"\x05abcde", id="inner table longer than outer"
        ),
    ],
)
def test_what_cannot_be_read_has_a_reason(data: bytes) -> None:
    """Each kind of damage is told, and no field is filled."""
    assert _problem(data).startswith("unreadable properties: ")


@pytest.mark.parametrize("seconds", [253_402_300_800, 2**63, 2**64 - 1])
def test_a_time_beyond_the_calendar_is_a_number(seconds: int) -> None:
    """A timestamp that no calendar has keeps the rest of the message readable."""
    assert Properties(_field(b"T", struct.pack(">Q", seconds))).values.headers == {"k": seconds}
    data = b"\x00\xc0\x01a" + struct.pack(">Q", seconds)
    assert Properties(data).values.message_id == "a"


@pytest.mark.parametrize("kind", [b"F", b"A"])
def test_nesting_is_bounded(kind: bytes) -> None:
    """Tables and lists are read to their bound and refused beyond it, whatever their depth."""

    def nested(levels: int) -> bytes:
        """Return headers of so many tables or lists within the header table."""
        value = struct.pack(">I", 0)
        for _ in range(levels - 1):
            inside = (b"\x01k" if kind == b"F" else b"") + kind + value
            value = struct.pack(">I", len(inside)) + inside
        return _field(kind, value)

    assert Properties(nested(MOST_LEVELS - 1)).values.problem is None
    assert "nested tables" in _problem(nested(MOST_LEVELS))
    assert "nested tables" in _problem(nested(5000))
