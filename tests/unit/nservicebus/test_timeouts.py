"""Tests of ``migrator.nservicebus.timeouts``."""

from __future__ import annotations

import hashlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from migrator.nservicebus.timeouts import content_hash


@pytest.mark.parametrize(
    ("headers", "body", "content"),
    [
        ("{}", b"body", b"{}\0body"),
        ('{"a":"ü"}', b"", '{"a":"ü"}'.encode() + b"\0"),
        (None, None, b"\0"),
        ("", b"", b"\0"),
    ],
)
def test_the_hash_is_documented(headers: str | None, body: bytes | None, content: bytes) -> None:
    """Headers as UTF-8, one zero byte, the body: SQL computes the same."""
    assert content_hash(headers, body) == hashlib.sha256(content).hexdigest()


@given(
    first=st.tuples(st.text(st.characters(codec="utf-8", exclude_characters="\0")), st.binary()),
    second=st.tuples(st.text(st.characters(codec="utf-8", exclude_characters="\0")), st.binary()),
)
def test_moving_bytes_between_headers_and_body_changes_the_hash(
    first: tuple[str, bytes], second: tuple[str, bytes]
) -> None:
    """The zero byte, which JSON text cannot hold, keeps the two apart."""
    assert (content_hash(*first) == content_hash(*second)) == (first == second)
