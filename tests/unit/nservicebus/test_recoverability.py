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
from migrator.nservicebus.incoming import IncomingMessage, OutgoingMessage, normalised_headers
from migrator.nservicebus.recoverability import (
    OFTEN,
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
FRAME_MAX = 131_072
INFO = "NServiceBus.ExceptionInfo."
FAULTS: dict[str, str | None] = {
    f"{INFO}ExceptionType": "migrator.StoreRefused",
    f"{INFO}Message": "the row was refused",
    f"{INFO}StackTrace": "migrator.StoreRefused: the row was refused",
    f"{INFO}Source": "migrator",
    f"{INFO}HelpLink": None,
    "NServiceBus.TimeOfFailure": build_wire_time(NOW),
    "NServiceBus.FailedQ": "Billing.Invoices.Timeouts",
    "NServiceBus.ProcessingMachine": "APP01",
    "NServiceBus.ProcessingEndpoint": "Billing.Invoices",
    "$.diagnostics.hostid": "4f0b6c2d9e8a41c7a1d2e3f405162738",
    "$.diagnostics.hostdisplayname": "APP01",
}
"""As versions 6 and 7 write them: reference ``timeout-manager.md`` section 12."""


def failed(
    message: IncomingMessage,
    text: str = "the row was refused",
    *,
    frame_max_bytes: int = FRAME_MAX,
) -> OutgoingMessage:
    """Return the copy of *message* for the error queue."""
    failure = Failure(kind="migrator.StoreRefused", text=text)
    return failed_copy(message, failure, at=AT, now=NOW, frame_max_bytes=frame_max_bytes)


def is_raw(envelope: OutgoingMessage) -> bool:
    """Return whether *envelope* is a copy that changes nothing."""
    return envelope.raw_properties is not None and not envelope.headers


# ── retry copies ────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        *(("0", 0), ("2", 2), (" 2 ", 2), ("007", 7), (2, 2), (b"2", 2), ("9", 9)),
        *((high, 9) for high in ("10", 10, "9" * 100_000, 2**63 - 1)),
        *((low, 0) for low in ("-1", -1, "1.5", 1.5, "", "many", "\u0665", "²", b"\xff")),
        *((other, 0) for other in (True, None, [2], {"2": 2})),
    ],
)
def test_retries_are_counted_in_our_own_header(value: object, expected: int) -> None:
    """Strangers can write it, so it is held to its limits."""
    assert retries_so_far(incoming({h.OUR_RETRIES: value}), limit=9) == expected
    assert retries_so_far(incoming(), limit=9) == 0


@given(message=messages(), retries=st.integers(0, 9))
def test_a_retry_copy_keeps_everything_but_the_count(
    message: IncomingMessage, retries: int
) -> None:
    """Properties as they were, headers as they are read, the body untouched, however often."""
    once = retry_copy(message, retries=retries)
    assert once.headers == {**normalised_headers(message), h.OUR_RETRIES: str(retries)}
    assert once.body == message.body
    for name in ("message_id", "correlation_id", "type", "reply_to", "content_type"):
        assert getattr(once, name) == getattr(message, name)
    again = delivered(once)
    assert retries_so_far(again, limit=9) == retries
    twice = retry_copy(again, retries=retries + 1)
    assert twice.headers == {**once.headers, h.OUR_RETRIES: str(retries + 1)}
    assert replace(twice, headers={}) == replace(once, headers={})


@pytest.mark.parametrize(
    ("message", "frame_max_bytes", "expected"),
    [
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


@pytest.mark.parametrize(
    ("count", "frame_max_bytes", "problem", "expected"),
    [
        *((count, FRAME_MAX, None, False) for count in (None, 0, OFTEN - 1, "99")),
        (OFTEN, FRAME_MAX, None, True),
        (OFTEN, FRAME_MAX, "bad table", False),
        (OFTEN, 4096, None, False),
    ],
)
def test_what_came_back_often_is_worn(
    count: object, frame_max_bytes: int, problem: str | None, expected: bool
) -> None:
    """Only a quorum queue counts, with a number; what cannot be copied stays what it is."""
    message = incoming(headers={**HEADERS, "x-delivery-count": count}, problem=problem)
    assert is_worn(message, frame_max_bytes=frame_max_bytes) is expected


def test_the_copy_that_takes_over_asks_for_the_same_and_begins_to_count_anew() -> None:
    """Its headers are the message's, but for the broker's count and our mark."""
    message = incoming(headers={**HEADERS, "x-delivery-count": OFTEN, h.OUR_RETRIES: "3"})
    envelope = renewed_copy(message)
    assert "x-delivery-count" not in envelope.headers
    copy = delivered(envelope)
    assert normalised_headers(copy) == normalised_headers(message)
    assert copy.body == message.body
    assert retries_so_far(copy, limit=10) == 3
    assert (is_renewed(copy), is_renewed(message)) == (True, False)


# ── failed copies ───────────────────────────────────────────────────────────────────────────


def test_a_failed_message_says_what_happened_and_where() -> None:
    """Whatever an earlier failure left is gone, so that no stack trace is mixed with another.

    Counts begin anew when somebody retries it.
    """
    left = {
        "NServiceBus.Retries": "2",
        "NServiceBus.FLRetries": "4",
        h.OUR_RETRIES: "3",
        f"{INFO}InnerExceptionType": "Acme.Inner",
        f"{INFO}Data.Handler": "Acme.Handler",
        "NServiceBus.FailedQ": "Old",
    }
    copy = failed(incoming({**HEADERS, **left, "NServiceBus.Retries.Timestamp": "stays"}))
    stays = {"NServiceBus.Retries.Timestamp": "stays"}
    assert copy.headers == {**without(h.CONFIRMATION_ID), **FAULTS, **stays}
    assert copy.message_id == HEADERS[h.MESSAGE_ID]
    assert copy.body == incoming().body


@pytest.mark.parametrize("entry", captured(), ids=lambda e: f"{e['core']}-{e['scenario']}")
def test_captured_messages_fail_with_all_they_had(entry: dict[str, Any]) -> None:
    """Errors of core 5 to 10 have the same headers as ours; an older failure's make way."""
    headers: dict[str, str] = entry["headers"]
    copy = failed(incoming(headers))
    for key in headers.keys() - FAULTS.keys():
        assert copy.headers[key] == headers[key]
    if entry["scenario"].startswith("Error"):
        assert {key for key in headers if "ExceptionInfo" in key} <= copy.headers.keys()
    assert copy.headers.items() >= FAULTS.items()


@pytest.mark.parametrize(
    ("header", "native", "message_id", "told"),
    [
        ("logical", "native", "logical", "logical"),
        *((blank, "native", "native", "native") for blank in (None, "", " ")),
        ("l" * 255, "native", "l" * 255, "l" * 255),
        ("l" * 256, "native", "native", "l" * 256),
        ("ü" * 128, "native", "native", "ü" * 128),
        *(("logical", blank, "logical", "logical") for blank in (None, "", " ")),
        *((None, blank, None, None) for blank in (None, "", " ")),
    ],
)
def test_the_logical_id_is_the_message_id(
    header: str | None, native: str | None, message_id: str | None, told: str | None
) -> None:
    """Added where it was missing; never by a copy of properties that might lead elsewhere.

    A property has no room for more than 255 bytes.
    """
    copy = failed(incoming({h.MESSAGE_ID: header, "a": "b"}, message_id=native))
    assert (copy.message_id, copy.headers[h.MESSAGE_ID]) == (message_id, told)
    assert not is_raw(copy)


@pytest.mark.parametrize(
    ("raw_properties", "is_copied"),
    [
        (b"\x80\x00raw", True),
        (b"\x01\x00\x0560000", False),  # expiration: it would vanish from the error queue
        (b"\x00\x10\x05guest", False),  # user-id: the broker would refuse it, and end the channel
        (b"\x20\x00\x00\x00\x00\x20\x02CCA\x00", False),  # CC: it would reach other queues as well
        (b"\x20\x00\x00\x00\x00\x20\x03BCCA\x00", False),
        (b"", False),
    ],
)
def test_what_could_not_be_read_is_copied_as_it_came_where_that_does_no_harm(
    raw_properties: bytes, is_copied: bool
) -> None:
    """Else it keeps its body, and says where it failed."""
    message = incoming({}, problem="unknown field type", raw_properties=raw_properties)
    copy = failed(message)
    assert copy.raw_properties == (raw_properties if is_copied else None)
    assert copy.headers == ({} if is_copied else FAULTS)
    assert copy.body == message.body
    assert retry_copy(message, retries=1).raw_properties == raw_properties


@pytest.mark.parametrize(
    ("others", "text", "message_chars", "trace_chars"),
    [
        (0, "x" * 20_000, 16_384, 20_023),  # where endpoints cut it
        (110_000, "ü" * 5_000, 5_000, range(24, 5_000)),
        (122_000, "x" * 10_000, range(1, 10_000), 0),
    ],
)
def test_the_stack_trace_is_cut_before_the_message(
    others: int, text: str, message_chars: int | range, trace_chars: int | range
) -> None:
    """The message says most in the fewest words; where it failed is always told."""
    headers = failed(incoming({**HEADERS, "Big": "a" * others}), text).headers
    message, trace = str(headers[f"{INFO}Message"]), str(headers[f"{INFO}StackTrace"])
    for found, expected in ((message, message_chars), (trace, trace_chars)):
        assert len(found) in (expected if isinstance(expected, range) else [expected])
    assert f"migrator.StoreRefused: {text}".startswith(trace)
    assert text.startswith(message)
    assert headers["NServiceBus.FailedQ"] == QUEUE


@pytest.mark.parametrize(("frame_max_bytes", "is_cut"), [(FRAME_MAX, True), (0, False)])
def test_without_room_for_where_it_failed_a_message_is_copied_as_it_came(
    frame_max_bytes: int, is_cut: bool
) -> None:
    """It fitted when it came; a broker that negotiates 0 takes headers of any size."""
    big = incoming({**HEADERS, "Big": "a" * 129_000}, raw_properties=b"\x80\x00raw")
    assert is_raw(failed(big, frame_max_bytes=frame_max_bytes)) is is_cut


@given(message=messages(), text=st.text(max_size=3_000), frame_max=st.integers(2_000, 9_000))
def test_a_failed_message_always_fits_its_frame(
    message: IncomingMessage, text: str, frame_max: int
) -> None:
    """As the client library really encodes it; the rest is a copy that fitted before."""
    copy = failed(message, text, frame_max_bytes=frame_max)
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
