"""Answers that Python's parser gives up on, or would not write again as they were."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from migrator.stores.ravendb.families import DEEPEST, Inexact, parsed, why_not_kept

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=20,
)


@given(VALUES)
def test_what_json_tells_is_told(value: Any) -> None:
    """In whichever of its forms."""
    assert parsed(json.dumps(value).encode()) == value
    assert parsed(json.dumps(value, ensure_ascii=False).encode("utf-8", "surrogatepass")) == value


@pytest.mark.parametrize("depth", [900, 5_000, 200_000])
@pytest.mark.parametrize(("opens", "closes"), [("[", "]"), ('{"[\\"{": ', "}")])
def test_one_deep_document_hides_no_other(depth: int, opens: str, closes: str) -> None:
    """The others are as they are; that one is still too deep for the ledger, its id is there."""
    deep = opens * depth + "1" + closes * depth
    other = '{"State": "]}[{\\\\\\"", "@metadata": {"@id": "T/2"}}'
    first = f'{{"Odd": {deep}, "@metadata": {{"@id": "T/1"}}}}'
    answer = f'{{"Results": [{first}, {other}], "Includes": {{}}}}'
    odd, whole = parsed(answer.encode())["Results"]
    assert odd["@metadata"] == {"@id": "T/1"}
    assert whole == json.loads(other)
    assert why_not_kept(odd) == f"it is nested more than {DEEPEST} deep"
    assert why_not_kept(whole) is None


def test_what_is_just_not_too_deep_can_be_written_again() -> None:
    """One level more cannot be counted on: how deep the stack is already, nobody knows here."""
    value: Any = {}
    for _ in range(DEEPEST - 2):
        value = {"a": value}
    assert why_not_kept({"Odd": value}) is None
    assert why_not_kept({"Odd": {"a": value}}) is not None


NUMBERS = ["1e400", "-1E400", "1.50", "0.10000000000000000001", "-0", "9" * 401, "1" * 10_000]


@pytest.mark.parametrize("text", NUMBERS)
def test_a_number_that_python_would_change_is_no_number(text: str) -> None:
    """Written again it would be another; and no page is lost by it."""
    told = parsed(f'{{"N": [{text}], "M": [1.5, -3, 1e+22]}}'.encode())
    assert told == {"N": [Inexact(text)], "M": [1.5, -3, 1e22]}
    assert why_not_kept(told) == "it has a number that would not be stored again as it is"


NO_JSON = [b"", b"<html>", b"[" * 5_000, b"[" * 5_000 + b"]", b"\xff\xfe\xfd"]


@pytest.mark.parametrize("raw", NO_JSON)
def test_what_is_no_json_is_told(raw: bytes) -> None:
    """A proxy's page, or an answer that was cut off."""
    with pytest.raises(ValueError, match=r"Expecting|codec|ends too early"):
        parsed(raw)
