"""Tests of ``migrator.nservicebus.recoverability``."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pika
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pika.frame import Header

from migrator.nservicebus import headers as h
from migrator.nservicebus.incoming import IncomingMessage, RawMessage, normalised_headers
from migrator.nservicebus.recoverability import (
    IMMEDIATE_ATTEMPTS,
    OFTEN,
    RETRIES_HEADER,
    FailedAt,
    Failure,
    can_be_retried_later,
    failed_copy,
    is_renewed,
    is_worn,
    renewed_copy,
    retries_so_far,
    retry_copy,
)
from migrator.nservicebus.wiretime import build_wire_time
from tests.unit.nservicebus.samples import (
    HEADERS,
    NOW,
    QUEUE,
    captured,
    delivered,
    incoming,
    messages,
    without,
)

AT = FailedAt(
    queue=QUEUE,
    endpoint="Billing.Invoices",
    machine="APP01",
    host_id="4f0b6c2d9e8a41c7a1d2e3f405162738",
)
FAILURE = Failure(kind="migrator.StoreRefused", text="the row was refused")
FRAME_MAX = 131_072
FAULT_KEYS = {
    "NServiceBus.ExceptionInfo.ExceptionType",
    "NServiceBus.ExceptionInfo.Message",
    "NServiceBus.ExceptionInfo.StackTrace",
    "NServiceBus.ExceptionInfo.Source",
    "NServiceBus.ExceptionInfo.HelpLink",
    "NServiceBus.TimeOfFailure",
    "NServiceBus.FailedQ",
    "NServiceBus.ProcessingMachine",
    "NServiceBus.ProcessingEndpoint",
    "$.diagnostics.hostid",
    "$.diagnostics.hostdisplayname",
}


def failed(
    message: IncomingMessage, failure: Failure = FAILURE, *, frame_max_bytes: int = FRAME_MAX
) -> RawMessage:
    """Return the copy of *message* for the error queue."""
    return failed_copy(message, failure, at=AT, now=NOW, frame_max_bytes=frame_max_bytes)


def is_raw(envelope: RawMessage) -> bool:
    """Return whether *envelope* is a copy that changes nothing."""
    return envelope.raw_properties is not None and not envelope.headers


# ── counting ────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("0", 0),
        ("2", 2),
        (" 2 ", 2),
        ("007", 7),
        (2, 2),
        (b"2", 2),
        ("9", 9),
        ("10", 9),
        (10, 9),
        ("9" * 100_000, 9),
        (2**63 - 1, 9),
        ("-1", 0),
        (-1, 0),
        ("1.5", 0),
        (1.5, 0),
        ("", 0),
        ("many", 0),
        ("\u0665", 0),
        ("²", 0),
        (b"\xff", 0),
        (True, 0),
        (None, 0),
        ([2], 0),
        ({"2": 2}, 0),
    ],
)
def test_retries_are_counted_in_our_own_header(value: object, expected: int) -> None:
    """Strangers can write it, so it is held to its limits."""
    assert retries_so_far(incoming({RETRIES_HEADER: value}), limit=9) == expected


def test_a_new_message_was_never_retried() -> None:
    """It has no such header."""
    assert retries_so_far(incoming(), limit=9) == 0
    assert IMMEDIATE_ATTEMPTS == 5


# ── retry copies ────────────────────────────────────────────────────────────────────────────


def test_a_retry_copy_keeps_everything_but_the_count() -> None:
    """Properties as they were, headers as they are read, the body untouched."""
    message = incoming(correlation_id="c", type="t", reply_to="r", delivery_mode=1)
    assert retry_copy(message, retries=3) == RawMessage(
        message_id=message.message_id,
        correlation_id="c",
        type="t",
        reply_to="r",
        content_type="application/json",
        headers={**normalised_headers(message), RETRIES_HEADER: "3"},
        body=message.body,
    )


@given(message=messages(), retries=st.integers(0, 9))
def test_a_count_comes_back_and_goes_on(message: IncomingMessage, retries: int) -> None:
    """However often a message is retried, only its count changes."""
    once = retry_copy(message, retries=retries)
    again = delivered(once)
    assert retries_so_far(again, limit=9) == retries
    twice = retry_copy(again, retries=retries + 1)
    assert twice.headers == {**once.headers, RETRIES_HEADER: str(retries + 1)}
    assert replace(twice, headers={}) == replace(once, headers={})


def test_what_could_not_be_read_is_copied_as_it_came() -> None:
    """Its properties go out byte for byte."""
    message = incoming({}, problem="unknown field type", raw_properties=b"\x80\x00raw")
    for copy in (retry_copy(message, retries=1), failed(message)):
        assert is_raw(copy)
        assert (copy.raw_properties, copy.body) == (b"\x80\x00raw", message.body)


@pytest.mark.parametrize(
    ("message", "frame_max_bytes", "expected"),
    [
        (incoming(), FRAME_MAX, True),
        (incoming({"Big": "a" * 120_000}), FRAME_MAX, True),
        (incoming({"Big": "a" * 127_000}), FRAME_MAX, False),
        (incoming({"Big": "a" * 127_000}), 0, True),
        (incoming({}, problem="cut short"), FRAME_MAX, False),
    ],
)
def test_what_would_not_come_back_is_not_sent_to_a_retry_queue(
    message: IncomingMessage, frame_max_bytes: int, expected: bool
) -> None:
    """A frame that grew too large on its way breaks the connection of whoever consumes it."""
    assert can_be_retried_later(message, frame_max_bytes=frame_max_bytes) is expected


# ── failed copies ───────────────────────────────────────────────────────────────────────────


def test_a_failed_message_says_what_happened_and_where() -> None:
    """Section 12, as versions 6 and 7 write it."""
    copy = failed(incoming())
    assert copy.headers == {
        **without(h.CONFIRMATION_ID),
        "NServiceBus.ExceptionInfo.ExceptionType": "migrator.StoreRefused",
        "NServiceBus.ExceptionInfo.Message": "the row was refused",
        "NServiceBus.ExceptionInfo.StackTrace": "migrator.StoreRefused: the row was refused",
        "NServiceBus.ExceptionInfo.Source": "migrator",
        "NServiceBus.ExceptionInfo.HelpLink": None,
        "NServiceBus.TimeOfFailure": build_wire_time(NOW),
        "NServiceBus.FailedQ": "Billing.Invoices.Timeouts",
        "NServiceBus.ProcessingMachine": "APP01",
        "NServiceBus.ProcessingEndpoint": "Billing.Invoices",
        "$.diagnostics.hostid": "4f0b6c2d9e8a41c7a1d2e3f405162738",
        "$.diagnostics.hostdisplayname": "APP01",
    }
    assert copy.message_id == HEADERS[h.MESSAGE_ID]
    assert copy.body == incoming().body


@pytest.mark.parametrize("entry", captured(), ids=lambda e: f"{e['core']}-{e['scenario']}")
def test_captured_messages_fail_with_all_they_had(entry: dict[str, Any]) -> None:
    """Errors of core 5 to 10 have the same headers as ours; an older failure's make way."""
    headers: dict[str, str] = entry["headers"]
    copy = failed(incoming(headers))
    for key in headers.keys() - FAULT_KEYS:
        assert copy.headers[key] == headers[key]
    if entry["scenario"].startswith("Error"):
        assert {key for key in headers if "ExceptionInfo" in key} <= copy.headers.keys()
    assert copy.headers.keys() >= FAULT_KEYS


def test_what_an_earlier_failure_left_is_gone() -> None:
    """Counts begin anew when somebody retries it, and no stack trace is mixed with another."""
    left = {
        "NServiceBus.Retries": "2",
        "NServiceBus.FLRetries": "4",
        RETRIES_HEADER: "3",
        "NServiceBus.ExceptionInfo.InnerExceptionType": "Acme.Inner",
        "NServiceBus.ExceptionInfo.Data.Handler": "Acme.Handler",
        "NServiceBus.FailedQ": "Old",
    }
    copy = failed(incoming({**HEADERS, **left, "NServiceBus.Retries.Timestamp": "stays"}))
    assert not copy.headers.keys() & (left.keys() - {"NServiceBus.FailedQ"})
    assert copy.headers["NServiceBus.FailedQ"] == QUEUE
    assert copy.headers["NServiceBus.Retries.Timestamp"] == "stays"


@pytest.mark.parametrize(
    ("header", "message_id", "told"),
    [
        ("logical", "logical", "logical"),
        (None, "native", "native"),
        ("", "native", "native"),
        (" ", "native", "native"),
        ("l" * 255, "l" * 255, "l" * 255),
        ("l" * 256, "native", "l" * 256),
        ("ü" * 128, "native", "ü" * 128),
    ],
)
def test_the_logical_id_is_the_message_id(header: str | None, message_id: str, told: str) -> None:
    """It is added where it was missing; a property has no room for more than 255 bytes."""
    copy = failed(incoming({h.MESSAGE_ID: header}, message_id="native"))
    assert (copy.message_id, copy.headers[h.MESSAGE_ID]) == (message_id, told)


def test_a_control_message_gains_a_message_id() -> None:
    """Control messages of versions 6 and 7 have none of their own."""
    copy = failed(incoming({"Timeout.Id": "x"}, message_id="native", body=b""))
    assert copy.headers[h.MESSAGE_ID] == "native"


@pytest.mark.parametrize("message_id", [None, "", " "])
def test_a_message_without_any_id_says_where_it_failed(message_id: str | None) -> None:
    """It is known by its header; never by a copy of properties that might lead elsewhere."""
    copy = failed(incoming(message_id=message_id))
    assert not is_raw(copy)
    assert copy.message_id == HEADERS["NServiceBus.MessageId"]
    assert copy.headers["NServiceBus.FailedQ"]
    nameless = failed(incoming({"a": "b"}, message_id=message_id))
    assert nameless.message_id is None
    assert "NServiceBus.MessageId" not in nameless.headers


@pytest.mark.parametrize(
    "raw_properties",
    [
        b"\x01\x00\x0560000",  # expiration: the copy would vanish from the error queue
        b"\x00\x10\x05guest",  # user-id: the broker would refuse it, and end the channel
        b"\x20\x00\x00\x00\x00\x20\x02CCA\x00",  # CC: it would reach other queues as well
        b"\x20\x00\x00\x00\x00\x20\x03BCCA\x00",
        b"",
    ],
)
def test_properties_that_do_harm_are_not_copied_unread(raw_properties: bytes) -> None:
    """What could not be read keeps its body, and says where it failed."""
    message = incoming({}, problem="unknown field type", raw_properties=raw_properties)
    copy = failed(message)
    assert copy.raw_properties is None
    assert copy.body == message.body
    assert copy.headers["NServiceBus.FailedQ"]


# ── room in the frame ───────────────────────────────────────────────────────────────────────


def test_a_long_text_is_cut_where_endpoints_cut_it() -> None:
    """The message has 16384 characters at most; the stack trace has all of it."""
    copy = failed(incoming(), Failure(kind="migrator.Error", text="x" * 20_000))
    assert copy.headers["NServiceBus.ExceptionInfo.Message"] == "x" * 16_384
    trace = copy.headers["NServiceBus.ExceptionInfo.StackTrace"]
    assert trace == "migrator.Error: " + "x" * 20_000


def test_the_stack_trace_is_cut_before_the_message() -> None:
    """The message says most in the fewest words."""
    big = incoming({**HEADERS, "Big": "a" * 110_000})
    copy = failed(big, Failure(kind="migrator.Error", text="ü" * 5_000))
    assert copy.headers["NServiceBus.ExceptionInfo.Message"] == "ü" * 5_000
    trace = copy.headers["NServiceBus.ExceptionInfo.StackTrace"]
    assert isinstance(trace, str)
    assert 0 < len(trace) < 5_000
    assert set(trace.removeprefix("migrator.Error: ")) <= {"ü"}


def test_the_message_is_cut_when_that_is_not_enough() -> None:
    """Where it failed is still told."""
    big = incoming({**HEADERS, "Big": "a" * 122_000})
    copy = failed(big, Failure(kind="migrator.Error", text="x" * 10_000))
    assert copy.headers["NServiceBus.ExceptionInfo.StackTrace"] == ""
    text = copy.headers["NServiceBus.ExceptionInfo.Message"]
    assert isinstance(text, str)
    assert 0 < len(text) < 10_000
    assert copy.headers["NServiceBus.FailedQ"] == QUEUE


def test_without_room_for_where_it_failed_a_message_is_copied_as_it_came() -> None:
    """It fitted when it came, so it fits again; a frame too large would end the connection."""
    big = incoming({**HEADERS, "Big": "a" * 129_000}, raw_properties=b"\x80\x00raw")
    assert is_raw(failed(big))


def test_an_unlimited_frame_cuts_nothing() -> None:
    """A broker that negotiates 0 takes headers of any size."""
    copy = failed(incoming({**HEADERS, "Big": "a" * 3_000_000}), frame_max_bytes=0)
    assert copy.headers["NServiceBus.ExceptionInfo.Message"] == "the row was refused"


@given(message=messages(), text=st.text(max_size=3_000), frame_max=st.integers(2_000, 9_000))
def test_a_failed_message_always_fits_its_frame(
    message: IncomingMessage, text: str, frame_max: int
) -> None:
    """As the client library really encodes it; the rest is a copy that fitted before."""
    copy = failed(message, Failure(kind="migrator.Error", text=text), frame_max_bytes=frame_max)
    if is_raw(copy):
        return
    properties = pika.BasicProperties(
        message_id=copy.message_id,
        correlation_id=copy.correlation_id,
        type=copy.type,
        reply_to=copy.reply_to,
        content_type=copy.content_type,
        delivery_mode=2,
        headers=dict(copy.headers),
    )
    assert len(Header(1, len(copy.body), properties).marshal()) <= frame_max
    assert all(value is None or isinstance(value, str) for value in copy.headers.values())


# ── messages that came back often ───────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("count", "expected"),
    [(None, False), (0, False), (OFTEN - 1, False), (OFTEN, True), ("99", False)],
)
def test_what_came_back_often_is_worn(count: object, expected: bool) -> None:
    """Only a quorum queue counts, and it does so with a number."""
    message = incoming(headers={**HEADERS, "x-delivery-count": count})
    assert is_worn(message, frame_max_bytes=FRAME_MAX) is expected


def test_what_cannot_be_copied_is_not_worn() -> None:
    """What could not be read, or leaves no room in its frame, stays what it is."""
    message = incoming(headers={**HEADERS, "x-delivery-count": OFTEN})
    assert not is_worn(replace(message, problem="bad table"), frame_max_bytes=FRAME_MAX)
    assert not is_worn(message, frame_max_bytes=4096)


def test_the_copy_asks_for_the_same_and_begins_to_count_anew() -> None:
    """Its headers are the message's, but for the broker's count and our mark."""
    message = incoming(headers={**HEADERS, "x-delivery-count": OFTEN, h.OUR_RETRIES: "3"})
    envelope = renewed_copy(message)
    assert "x-delivery-count" not in envelope.headers
    copy = delivered(envelope)
    assert normalised_headers(copy) == normalised_headers(message)
    assert copy.body == message.body
    assert retries_so_far(copy, limit=10) == 3
    assert is_renewed(copy)
    assert not is_renewed(message)
