"""A document's fields as values: times, bodies, addresses; and nothing believed."""

from __future__ import annotations

import base64
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from migrator.stores.ravendb.documents import (
    Unreadable,
    document_of,
    parse_time,
    restored,
    timeout_of,
)
from migrator.stores.ravendb.families import Modern, RawDocument


def raw(**content: Any) -> RawDocument:
    """Return a document with a due time."""
    return RawDocument(
        id="TimeoutDatas/34-A",
        version="A:812-abcDEF123",
        collection="TimeoutDatas",
        content={"Time": "2026-11-03T08:15:30.1224170Z", **content},
        metadata={"@collection": "TimeoutDatas", "@id": "TimeoutDatas/34-A"},
    )


AT = datetime(2026, 11, 3, 8, 15, 30, tzinfo=UTC)
MICROSECOND = timedelta(microseconds=1)
TIMES = {
    "2026-11-03T08:15:30.1224170Z": AT + 122_417 * MICROSECOND,
    "2026-11-03T08:15:30.1224171Z": AT + 122_418 * MICROSECOND,
    "2026-11-03T08:15:30.9999999Z": AT + timedelta(seconds=1),
    "2026-11-03T08:15:30Z": AT,
    "2026-11-03T08:15:30": AT,
    "2026-11-03T08:15:30.5": AT + timedelta(milliseconds=500),
    "2026-11-03T10:15:30+02:00": AT,
    "2026-11-03T02:45:30-05:30": AT,
    "9999-12-31T23:59:59.9999999Z": datetime.max.replace(tzinfo=UTC),
    "0001-01-01T00:00:00.0000000": datetime.min.replace(tzinfo=UTC),
}


@pytest.mark.parametrize("text", TIMES)
def test_a_due_time_is_never_before_what_is_stored(text: str) -> None:
    """Up to seven digits, any zone or none; what is finer than a microsecond is rounded up."""
    assert parse_time(text) == TIMES[text]


@pytest.mark.parametrize(
    "value",
    [None, 1, "", "soon", "2026-13-03T08:15:30Z", "2026-11-03T24:15:30Z", "2026-11-03",
     "2026-11-03T08:15:30+99:00", "0001-01-01T00:00:00+02:00", "\uff12026-11-03T08:15:30Z", {}],
)  # fmt: skip
def test_what_is_no_due_time_is_unreadable(value: object) -> None:
    """Nothing is guessed."""
    with pytest.raises(Unreadable):
        parse_time(value)


DESTINATIONS: dict[str, tuple[dict[str, Any], str | None]] = {
    "text": ({"Destination": "Billing"}, "Billing"),
    "with a machine": ({"Destination": "Billing@SRV"}, "Billing@SRV"),
    "object": ({"Destination": {"Queue": "billing", "Machine": "SRV"}}, "billing"),
    "object and header": (
        {
            "Destination": {"Queue": "billing", "Machine": "SRV"},
            "Headers": {"NServiceBus.Timeout.RouteExpiredTimeoutTo": "Billing"},
        },
        "Billing",
    ),
    "object and empty header": (
        {
            "Destination": {"Queue": "billing"},
            "Headers": {"NServiceBus.Timeout.RouteExpiredTimeoutTo": " @SRV"},
        },
        "billing",
    ),
    "none": ({}, None),
    "null": ({"Destination": None}, None),
    "odd object": ({"Destination": {"Queue": 7}}, None),
    "number": ({"Destination": 7}, None),
}


@pytest.mark.parametrize("name", DESTINATIONS)
def test_the_destination_is_a_queue(name: str) -> None:
    """The object of the oldest versions names a machine, which RabbitMQ has none of."""
    content, destination = DESTINATIONS[name]
    assert timeout_of(raw(**content)).destination == destination


@pytest.mark.parametrize(
    ("state", "body"), [(None, None), ("", b""), ("e30=", b"{}"), ("e3\r\n0=", b"{}")]
)
def test_the_body_is_base64(state: object, body: bytes | None) -> None:
    """Null is no body; .NET passes over white space."""
    assert timeout_of(raw(State=state)).body == body


@pytest.mark.parametrize("state", ["?", "e30", 7, ["e30="]])
def test_a_body_that_cannot_be_read_is_a_flaw(state: object) -> None:
    """A timeout manager could not send it either; it can be set aside, and restored as it was."""
    timeout = timeout_of(raw(State=state))
    assert timeout.body is None
    assert timeout.flaw is not None
    assert restored(document_of(timeout), Modern()).content["State"] == state


@pytest.mark.parametrize(
    ("more", "value"),
    [("@attachments", []), ("@counters", []), ("@timeseries", []), ("@archived", True)],
)
def test_what_would_not_come_back_is_not_taken(more: str, value: object) -> None:
    """Removing such a document would lose what no batch can store again."""
    document = raw()
    metadata = {**document.metadata, more: value}
    with pytest.raises(Unreadable):
        timeout_of(
            RawDocument(
                id=document.id,
                version=document.version,
                collection=document.collection,
                content=document.content,
                metadata=metadata,
            )
        )


def test_a_body_is_not_kept_twice() -> None:
    """It is in a column of the ledger's; what else there is tells how to restore."""
    document = document_of(timeout_of(raw(State="c2VjcmV0LWJvZHk=")))
    assert document.body == b"secret-body"
    assert "c2VjcmV0" not in document.extra


def test_every_database_takes_what_tells_how_to_restore() -> None:
    """Zero characters and halves of characters are escaped; the headers' column is not needed."""
    before = raw(Destination="\0", Headers={"\ud83d": "\0"}, State="e30=")
    document = document_of(timeout_of(before))
    assert document.extra.isascii()
    assert "\0" not in document.extra
    without = replace(document, destination=None, headers_text=None)
    assert restored(without, Modern()).content == before.content


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda children: (
        st.lists(children, max_size=3) | st.dictionaries(st.text(), children, max_size=3)
    ),
    max_leaves=6,
)


@given(
    st.dictionaries(
        st.text().filter(lambda key: key not in ("Time", "State", "@metadata")), JSON, max_size=5
    ),
    st.none() | st.binary(max_size=20),
    JSON,
)
def test_restored_undoes_document_of(more: dict[str, Any], body: bytes | None, head: Any) -> None:
    """Whatever else is in a document comes back as it was, in the same order."""
    state = None if body is None else base64.b64encode(body).decode()
    before = raw(**{**more, "State": state, "Headers": head})
    again = restored(document_of(timeout_of(before)), Modern())
    assert list(again.content.items()) == list(before.content.items())
    assert again.metadata == {"@collection": "TimeoutDatas"}
