"""Tests of ``migrator.nservicebus.satellites``."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given

from migrator.nservicebus import headers as h
from migrator.nservicebus.incoming import IncomingMessage, normalised_headers
from migrator.nservicebus.recoverability import retry_copy
from migrator.nservicebus.satellites import (
    CLEAR_TIMEOUTS,
    TIMEOUT_ID,
    ClearTimeouts,
    DelayedMessage,
    NotUnderstood,
    build_headers_text,
    read_control,
    read_delayed,
    read_guid,
)
from migrator.nservicebus.timeouts import NO_SAGA, QueueName
from migrator.nservicebus.wiretime import parse_wire_time
from tests.unit.nservicebus.samples import (
    DUE,
    HEADERS,
    QUEUE,
    captured,
    delivered,
    incoming,
    messages,
    without,
)

SAGA = "9a1e0c52-3f77-4c1e-8d31-b1c200e1a900"
DELAYED = [entry for entry in captured() if h.EXPIRE in entry["headers"]]


def delayed(message: IncomingMessage, queue: QueueName = QUEUE) -> DelayedMessage:
    """Return the delayed message that *message* must be."""
    found = read_delayed(message, queue=queue)
    assert isinstance(found, DelayedMessage)
    return found


# ── realistic ───────────────────────────────────────────────────────────────────────────────


def test_the_example_of_the_reference_is_a_delayed_message() -> None:
    """Section 16: what is stored of it."""
    found = delayed(incoming())
    assert (found.destination, found.saga_id, found.due_at) == ("Billing.Invoices", SAGA, DUE)
    assert found.native_id == "5d0c1f5e-8f0a-4b5e-9a44-b1c200e1aa01"
    assert found.headers == without(h.CONFIRMATION_ID)
    assert found.body == b'{"InvoiceId":"INV-1001"}'


@pytest.mark.parametrize("entry", DELAYED, ids=lambda e: f"{e['core']}-{e['scenario']}")
def test_captured_messages_are_understood(entry: dict[str, Any]) -> None:
    """Defers and saga timeouts of core 5 and 6; they also carry machine names."""
    found = delayed(incoming(entry["headers"]))
    headers = entry["headers"]
    assert found.destination == headers[h.ROUTE_EXPIRED_TO].partition("@")[0]
    assert found.due_at == parse_wire_time(headers[h.EXPIRE])
    assert found.saga_id == headers.get(h.SAGA_ID, NO_SAGA)
    assert found.headers == {**headers, h.NON_DURABLE: "False"}
    assert h.parse_headers(found.headers_text) == found.headers


# ── clear timeouts ──────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("value", ["True", "False", "", None])
@pytest.mark.parametrize("others", [{}, HEADERS])
def test_clearing_is_asked_for_by_the_presence_of_a_header(
    value: str | None, others: dict[str, str | None]
) -> None:
    """Its value was never looked at; it wins over a due time."""
    message = incoming({**others, h.SAGA_ID: SAGA.upper(), CLEAR_TIMEOUTS: value}, body=b"")
    assert read_delayed(message, queue=QUEUE) == ClearTimeouts(saga_id=SAGA)


# ── saga ids ────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    "text",
    [
        SAGA,
        SAGA.upper(),
        SAGA.replace("-", ""),
        "{" + SAGA + "}",
        "(" + SAGA + ")",
        f"  {SAGA}\n",
    ],
)
def test_every_usual_form_of_a_guid_is_read(text: str) -> None:
    """Forms D, N, B and P, with white space around."""
    assert read_guid(text) == SAGA
    assert delayed(incoming({**HEADERS, h.SAGA_ID: text})).saga_id == SAGA


# ── due time ────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        *((f"2026-03-15{each}", DUE) for each in (" 08:00:00:123456 Z", "T08:00:00.1234567Z")),
        ("2026/03/15 08.00.00.123456 Z", DUE),
        ("9999-12-31 23:59:59:999999 Z", datetime.max.replace(tzinfo=UTC)),
    ],
)
def test_separators_of_a_due_time_do_not_matter(text: str, expected: datetime) -> None:
    """Readers since version 6 never looked at them, so some senders write others."""
    assert delayed(incoming({**HEADERS, h.EXPIRE: text})).due_at == expected


# ── destination ─────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({h.ROUTE_EXPIRED_TO: "Sales@APP01", h.REPLY_TO_ADDRESS: "Web"}, "Sales"),
        ({h.REPLY_TO_ADDRESS: "Web@APP01"}, "Web"),
        ({h.ROUTE_EXPIRED_TO: " Sales \t"}, "Sales"),
        ({h.ROUTE_EXPIRED_TO: "q" * 200}, "q" * 200),
        ({h.ROUTE_EXPIRED_TO: "q" * 200 + "@APP01"}, "q" * 200),
        ({h.ROUTE_EXPIRED_TO: "ü" * 200}, "ü" * 200),
    ],
)
def test_the_destination_is_named_by_a_header(changes: dict[str, str], expected: str) -> None:
    """The route decides; the reply address fills the gap; machines are cut off."""
    headers = {**without(h.ROUTE_EXPIRED_TO, h.REPLY_TO_ADDRESS), **changes}
    assert delayed(incoming(headers)).destination == expected


# ── what can never be carried out ───────────────────────────────────────────────────────────

NO_GUID = [
    *("", None, "saga", SAGA[:-1], SAGA + "0", "{" + SAGA, "{" + SAGA + ")", SAGA + "}"),
    *("{" + SAGA.replace("-", "") + "}", SAGA.replace("-", "", 1), SAGA + "\0"),
    *(SAGA.replace("9", "g"), SAGA.replace("9", "\uff19")),
]
NO_MOMENT = [
    "2026-02-30 08:00:00:123456 Z",
    "2026-03-15 24:00:00:123456 Z",
    "2026-03-15T10:00:00.12+02:00",
    "2026-03-15 08:00:00:12345\uff16 Z",
    "0000-03-15 08:00:00:123456 Z",
    "x" * 28,
    "\ud800" * 28,
]
OTHER_LENGTHS = [
    None,
    "",
    "soon",
    "2026-03-15T08:00:00.123456Z",
    "2026-03-15T08:00:00.123456+00:00",
]
BARE = without(h.ROUTE_EXPIRED_TO, h.REPLY_TO_ADDRESS)
NOWHERE: list[tuple[dict[str, Any], str]] = [
    *(({**HEADERS, h.ROUTE_EXPIRED_TO: to}, h.ROUTE_EXPIRED_TO) for to in ("", None, "@APP01")),
    ({**BARE, h.ROUTE_EXPIRED_TO: None, h.REPLY_TO_ADDRESS: " "}, h.ROUTE_EXPIRED_TO),
    ({**BARE, h.REPLY_TO_ADDRESS: " "}, h.REPLY_TO_ADDRESS),
    (BARE, h.REPLY_TO_ADDRESS),
]
REFUSED = [
    *(
        (incoming(message_id=each), "property message-id is missing or blank")
        for each in [None, "", " \t"]
    ),
    (incoming(problem="unknown field type"), "properties cannot be read: unknown field type"),
    *(
        (
            incoming({**each, CLEAR_TIMEOUTS: "True"}),
            f"header {CLEAR_TIMEOUTS} without the id of a saga",
        )
        for each in ({}, {h.SAGA_ID: NO_SAGA})
    ),
    *((incoming({**HEADERS, h.SAGA_ID: s}), f"header {h.SAGA_ID} is not a GUID") for s in NO_GUID),
    (incoming(without(h.EXPIRE)), f"header {h.EXPIRE} is missing: this is not a delayed message"),
    *((incoming({**HEADERS, h.EXPIRE: t}), f"header {h.EXPIRE} is not a date") for t in NO_MOMENT),
    *(
        (
            incoming({**HEADERS, h.EXPIRE: each}),
            f"header {h.EXPIRE} is not a date: {len(each or '')} characters, not 28",
        )
        for each in OTHER_LENGTHS
    ),
    *(
        (incoming(headers), f"no destination: header {key} is missing or names no queue")
        for headers, key in NOWHERE
    ),
    (
        incoming({**HEADERS, h.ROUTE_EXPIRED_TO: "q" * 201}),
        f"the destination in header {h.ROUTE_EXPIRED_TO} has 201 characters; the store can hold "
        "200",
    ),
    (
        incoming({**HEADERS, h.ROUTE_EXPIRED_TO: "Sales\0"}),
        f"the destination in header {h.ROUTE_EXPIRED_TO} contains a NUL character",
    ),
]


@pytest.mark.parametrize(("message", "expected"), REFUSED)
def test_what_can_never_be_carried_out_is_told(message: IncomingMessage, expected: str) -> None:
    """The text says which header, and nothing of what is in it: it may be somebody's secret."""
    with pytest.raises(NotUnderstood) as caught:
        read_delayed(message, queue=QUEUE)
    assert str(caught.value) == expected


@given(message=messages())
def test_any_message_is_understood_or_not(message: IncomingMessage) -> None:
    """There is no third outcome, and what is understood can be stored."""
    try:
        found = read_delayed(message, queue=QUEUE)
    except NotUnderstood as exc:
        assert len(str(exc)) < 300  # noqa: PT017 - the only claim about this outcome
        return
    assert isinstance(found, ClearTimeouts) or h.parse_headers(found.headers_text) == found.headers


# ── headers as text ─────────────────────────────────────────────────────────────────────────


def test_headers_are_written_as_the_persistence_writes_them() -> None:
    """Indented by two, null as null, nothing but what must be is escaped."""
    headers = {
        "plain": "a/b <c> & 'd' é€😀 \x7f",
        "null": None,
        "escaped": 'quote " backslash \\ \b\f\n\r\t',
        "control": "\0\x01\x1f",
        "lines\u2028": "\u0085\u2028\u2029",
    }
    assert build_headers_text(headers) == (
        "{\n"
        '  "plain": "a/b <c> & \'d\' é€😀 \x7f",\n'
        '  "null": null,\n'
        '  "escaped": "quote \\" backslash \\\\ \\b\\f\\n\\r\\t",\n'
        '  "control": "\\u0000\\u0001\\u001f",\n'
        '  "lines\\u2028": "\\u0085\\u2028\\u2029"\n'
        "}"
    )
    assert build_headers_text({}) == "{}"


def test_halves_of_characters_never_reach_the_database() -> None:
    """They become U+FFFD, as .NET reads them."""
    found = delayed(incoming({**HEADERS, "X\udfff": "a\ud800", "Y": b"\xed\xa0\x80"}))
    assert found.headers["X\ufffd"] == "a\ufffd"
    assert found.headers_text.encode()


# ── ids ─────────────────────────────────────────────────────────────────────────────────────


def test_an_id_is_the_same_in_every_release() -> None:
    """A changed rule would store twice what was redelivered across an upgrade."""
    assert delayed(incoming()).id == "6c112d83-4a02-0512-1501-079446ba2862"


@pytest.mark.parametrize(
    "changed",
    [
        incoming(message_id="another"),
        incoming({**HEADERS, h.EXPIRE: "2026-03-15 08:00:00:123457 Z"}),
        incoming({**HEADERS, h.ROUTE_EXPIRED_TO: "Sales"}),
        incoming({**HEADERS, "NServiceBus.Retries": "2"}),
        incoming({**HEADERS, "X": None}),
        incoming({**HEADERS, "X": ""}),
        incoming(body=b""),
        incoming(reply_to="Web"),
    ],
)
def test_another_message_has_another_id(changed: IncomingMessage) -> None:
    """The id of a message alone is shared by its delayed retries; a queue has ids of its own."""
    assert delayed(changed).id != delayed(incoming()).id
    assert delayed(changed, QueueName("Other.Timeouts")).id != delayed(changed).id


def test_what_brokers_add_does_not_change_an_id() -> None:
    """Newer ones add what nobody knows of today."""
    stamped = incoming({**HEADERS, "x-new-stamp": 7, "x-delivery-count": 3})
    assert delayed(stamped).id == delayed(incoming()).id


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({"a": "bc"}, {"ab": "c"}),
        ({"a": "b", "c": "d"}, {"a": "bcd"}),
        ({"a": "=b"}, {"a=": "b"}),
        ({"a": None}, {"a": ""}),
    ],
)
def test_moving_a_boundary_changes_an_id(one: dict[str, str], other: dict[str, str]) -> None:
    """Lengths keep the parts apart, and null is not empty."""
    assert delayed(incoming({**HEADERS, **one})).id != delayed(incoming({**HEADERS, **other})).id


@given(message=messages())
def test_a_retried_message_keeps_its_id(message: IncomingMessage) -> None:
    """A retry queue sorts headers and adds its own; the row must still be the same."""
    whole = replace(message, raw_headers={**message.raw_headers, **HEADERS})
    again = delivered(retry_copy(whole, retries=1))
    assert delayed(again).id == delayed(whole).id
    assert normalised_headers(again) == delayed(whole).headers


# ── control messages ────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("value", [SAGA, SAGA.upper(), SAGA.encode(), f" {SAGA} "])
def test_a_control_message_names_a_timeout(value: object) -> None:
    """Section 9: the only header that counts."""
    message = incoming({TIMEOUT_ID: value, "NServiceBus.ControlMessage": "True"}, body=b"")
    assert read_control(message) == SAGA


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        (incoming({}), "header Timeout.Id is missing or blank"),
        (incoming({TIMEOUT_ID: None}), "header Timeout.Id is missing or blank"),
        (incoming({TIMEOUT_ID: "  "}), "header Timeout.Id is missing or blank"),
        (incoming({TIMEOUT_ID: "TimeoutDatas/1"}), "header Timeout.Id is not a GUID"),
        (incoming({TIMEOUT_ID: SAGA}, message_id=""), "property message-id is missing or blank"),
        (incoming({}, problem="cut short"), "properties cannot be read: cut short"),
    ],
)
def test_other_control_messages_are_refused(message: IncomingMessage, expected: str) -> None:
    """No store of ours could have such an id; asking the database would be an error."""
    with pytest.raises(NotUnderstood, match=f"^{expected}$"):
        read_control(message)
