"""Copies of properties: what must change changes, and nothing else does."""

from __future__ import annotations

import struct
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pika import spec

from migrator.rabbitmq.properties import Properties
from migrator.transfer.broker import moved_properties, poison_properties

_SHORT = st.text(max_size=20)
_VALUE = st.recursive(
    st.one_of(
        st.none(),
        st.booleans(),
        st.text(max_size=30),
        st.binary(max_size=30),
        st.integers(-(2**63), 2**63 - 1),
        st.decimals(-1000, 1000, places=3),
        st.just(datetime(2026, 3, 1, tzinfo=UTC)),
    ),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_SHORT, inner, max_size=3),
    max_leaves=8,
)
_PROPERTIES = st.fixed_dictionaries(
    {},
    optional={
        "content_type": _SHORT,
        "content_encoding": _SHORT,
        "headers": st.dictionaries(
            st.sampled_from(["x-death", "keep", "put", "Zürich"]), _VALUE, min_size=1
        ),
        "delivery_mode": st.sampled_from([1, 2]),
        "priority": st.integers(0, 255),
        "correlation_id": _SHORT,
        "reply_to": _SHORT,
        "expiration": st.just("1000"),
        "message_id": _SHORT,
        "timestamp": st.integers(0, 2**40),
        "type": _SHORT,
        "user_id": st.just("guest"),
        "app_id": _SHORT,
        "cluster_id": _SHORT,
    },
)


def _encoded(properties: dict[str, Any]) -> bytes:
    return b"".join(spec.BasicProperties(**properties).encode())


def _decoded(raw: bytes) -> dict[str, Any]:
    found = spec.BasicProperties()
    found.decode(raw)
    return {name: value for name, value in vars(found).items() if value is not None}


@given(_PROPERTIES)
def test_a_moved_message_keeps_all_but_what_must_change(properties: dict[str, Any]) -> None:
    """Dropped headers go, new ones come last, expiration and user id go; the rest is the same."""
    raw = _encoded(properties)
    moved = moved_properties(raw, drop={"x-death"}, put={"put": "new", "n": -5})
    expected = _decoded(raw)
    expected.pop("expiration", None)
    expected.pop("user_id", None)
    headers = {k: v for k, v in expected.get("headers", {}).items() if k not in ("x-death", "put")}
    assert _decoded(moved) == expected | {"headers": headers | {"put": "new", "n": -5}}
    assert list(_decoded(moved)["headers"])[-2:] == ["put", "n"]
    assert Properties(moved).values.problem is None


@given(_PROPERTIES)
def test_moving_without_a_change_changes_no_byte(properties: dict[str, Any]) -> None:
    """Types of values stay as the sender wrote them."""
    properties = {k: v for k, v in properties.items() if k not in ("expiration", "user_id")}
    raw = _encoded({"headers": {"a": 1}} | properties)
    assert moved_properties(raw, drop=(), put={}) == raw


@given(st.binary(max_size=60), st.booleans())
def test_a_poison_copy_needs_no_understanding(table: bytes, has_more: bool) -> None:
    """Whatever is in the header table stays behind what is added; the outer form is enough."""
    flags = 1 << 13 | (1 << 8 | 1 << 3 if has_more else 0)
    rest = b"\x041000\x03app" if has_more else b""
    raw = struct.pack(">HI", flags, len(table)) + table + rest
    aside = poison_properties(raw, put={"found": "x"})
    entry = b"\x05foundS\0\0\0\x01x"
    expected = struct.pack(">HI", flags & ~(1 << 8), len(entry) + len(table)) + entry + table
    assert aside == expected + (b"\x03app" if has_more else b"")


@pytest.mark.parametrize("raw", [b"", b"\x20", b"\x20\0", b"\x20\0\0\0\0\x09a", b"\x80\0\x05ab"])
def test_bytes_that_are_no_properties_are_copied_as_they_are(raw: bytes) -> None:
    """Nothing can be added to them."""
    assert poison_properties(raw, put={"found": "x"}) == raw
