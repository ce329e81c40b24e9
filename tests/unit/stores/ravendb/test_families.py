"""Both families' requests, compared with the reference's table, and answers that are none."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from migrator.stores.ravendb.families import (
    DEEPEST,
    BadAnswer,
    Classic,
    Family,
    Inexact,
    Modern,
    Remove,
    family_of,
    parsed,
    why_not_kept,
)

ETAG = "01000000-0000-0009-0000-00000000002A"
VECTOR = "A:812-abcDEF123"


def test_many_ids_are_asked_for_in_bodies_and_in_parts() -> None:
    """Every id once, however long: what is in a URL is bounded by whatever is between."""
    ids = [f"TimeoutDatas/{n}-A ü{'x' * 400}" for n in range(500)]
    modern, classic = list(Modern().reads(ids)), list(Classic().reads(ids))
    assert [id_ for request in modern for id_ in request.body["Ids"]] == ids
    assert [id_ for request in classic for id_ in request.body] == ids
    assert (len(modern), len(classic)) == (4, 4)
    assert not any(request.query for request in (*modern, *classic))


def test_a_collection_may_be_called_anything() -> None:
    """Its name is text in a query."""
    asked = Modern().part_of_collection("It's \\", start=7, size=2)
    assert asked is not None
    assert asked.query == (("query", "from 'It\\'s \\\\'"), ("start", "7"), ("pageSize", "2"))


ANSWERS: dict[str, tuple[Family, Any, tuple[Any, ...]]] = {
    "3.5 page": (
        Classic(),
        [{"Time": "t", "@metadata": {"Raven-Entity-Name": "C", "@id": "T/33", "@etag": ETAG}}],
        ("T/33", ETAG, "C", {"Time": "t"}),
    ),
    "3.5 read": (
        Classic(),
        {"Results": [None, {"@metadata": {"@id": "T/3", "@etag": ETAG}}], "Includes": []},
        ("T/3", ETAG, "", {}),
    ),
    "4": (
        Modern(),
        {"Results": [{"a": 1, "@metadata": {"@collection": "C", "@id": "T/34-A",
                      "@change-vector": VECTOR}}, None]},
        ("T/34-A", VECTOR, "C", {"a": 1}),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", ANSWERS)
def test_an_answer_tells_id_version_collection_and_content(name: str) -> None:
    """Absent documents are null in an answer, and left out."""
    family, answer, expected = ANSWERS[name]
    (found,) = family.documents(answer)
    assert (found.id, found.version, found.collection, found.content) == expected


@pytest.mark.parametrize("family", [Classic(), Modern()], ids=["3.5", "4"])
@pytest.mark.parametrize(
    "answer",
    [None, 1, "x", {}, {"Results": None}, {"Results": [1]}, {"Results": [{}]},
     {"Results": [{"@metadata": {"@id": "T/1"}}]},
     {"Results": [{"@metadata": {"@id": 7, "@etag": ETAG, "@change-vector": VECTOR}}]}],
)  # fmt: skip
def test_what_is_no_answer_is_never_taken_for_an_empty_one(family: Family, answer: Any) -> None:
    """A strange answer is an error: an empty list would say that nothing is stored."""
    with pytest.raises(BadAnswer):
        family.documents(answer)


@pytest.mark.parametrize(
    ("version", "family"),
    [("3.5.9 / 5f2e3a /", "3.5"), ("3.0", "3.5"), ("4.2", "4"), ("5.4.112", "4"), ("7.1", "4")],
)
def test_the_family_is_told_by_the_product_version(version: str, family: str) -> None:
    """All from 4 on speak alike."""
    assert family_of({"ProductVersion": version, "BuildVersion": 1}).name == family


@pytest.mark.parametrize("build", [None, [], {}, {"ProductVersion": "2.5"}])
def test_an_unknown_version_is_no_guess(build: Any) -> None:
    """Older servers, and what is no RavenDB, are refused."""
    with pytest.raises(BadAnswer):
        family_of(build)


def test_metadata_is_kept_but_for_what_the_server_writes_itself() -> None:
    """The collection, the type and NServiceBus' schema version come back with the document."""
    kept = {"Raven-Clr-Type": "N.TimeoutData, N", "NServiceBus-X-SchemaVersion": "1.0.0"}
    own_4 = {"@id": "T/1", "@change-vector": "A:1", "@last-modified": "x"}
    assert Modern().kept_metadata({**kept, "@collection": "C", **own_4}) == {
        **kept,
        "@collection": "C",
    }
    own_3 = {"@id": "T/1", "@etag": "e", "Last-Modified": "x", "Raven-Last-Modified": "x"}
    assert Classic().kept_metadata({**kept, "Raven-Entity-Name": "C", **own_3}) == {
        **kept,
        "Raven-Entity-Name": "C",
    }


@pytest.mark.parametrize(("results", "is_done"), [(0, False), (1, False), (2, True), (4, True)])
def test_a_batch_is_done_that_was_told_twice(results: int, is_done: bool) -> None:
    """As 4.1 tells a batch that it began again; fewer results than commands are no answer."""
    family = Modern()
    batch = family.batch([Remove(id="a", expected=None), Remove(id="b", expected=None)])
    assert family.is_done(batch, {"Results": [{"Type": "DELETE"}] * results}) is is_done


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
    assert why_not_kept(told) == "it has a number that could not be stored again unchanged"


NO_JSON = [b"", b"<html>", b"[" * 5_000, b"[" * 5_000 + b"]", b"\xff\xfe\xfd"]


@pytest.mark.parametrize("raw", NO_JSON)
def test_what_is_no_json_is_told(raw: bytes) -> None:
    """A proxy's page, or an answer that was cut off."""
    with pytest.raises(ValueError, match=r"Expecting|codec|ends too early"):
        parsed(raw)
