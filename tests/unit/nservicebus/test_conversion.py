"""Tests of ``migrator.nservicebus.conversion``."""

from __future__ import annotations

import hashlib
import json
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any, cast

import pika
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pika.frame import Header

from migrator.nservicebus import headers as h
from migrator.nservicebus.conversion import (
    X_DEATH_RESERVE_BYTES,
    BrokerLimits,
    Quarantine,
    Reason,
    convert,
    expires_at,
)
from migrator.nservicebus.timeouts import (
    MAX_DELAY_S,
    NativeMessage,
    StoredTimeout,
    content_hash,
)
from migrator.nservicebus.wiretime import build_wire_time, parse_wire_time, seconds_up
from tests.unit.nservicebus.samples import A_SECOND, DUE, HEADERS, NOW, captured, stored, without

RULES = BrokerLimits()
LIMIT = 131_072


def converted(timeout: StoredTimeout, **rules: Any) -> NativeMessage:
    """Return the message *timeout* becomes; it must not be quarantined."""
    found = convert(timeout, rules=replace(RULES, **rules), now=NOW)
    assert isinstance(found, NativeMessage), found
    return found


def reason(timeout: StoredTimeout, **rules: Any) -> Reason | None:
    """Return why *timeout* is quarantined; None: it is not."""
    found = convert(timeout, rules=replace(RULES, **rules), now=NOW)
    assert (found.row_index, found.timeout_id) == (timeout.row_index, timeout.id)
    if isinstance(found, NativeMessage):
        return None
    assert "swordfish" not in found.detail  # a header's value may be a secret
    return found.reason


# ── realistic ───────────────────────────────────────────────────────────────────────────────


def test_the_example_of_the_reference_becomes_the_message_of_the_reference() -> None:
    """Section 16 of the timeout manager's reference ends as section 11 of the native delays'."""
    message = NativeMessage(
        row_index=7,
        timeout_id=stored().id,
        message_id="5d0c1f5e-8f0a-4b5e-9a44-b1c200e1aa01",
        destination="Billing.Invoices",  # type: ignore[arg-type]  # a literal for once
        due_at=DUE,
        headers={
            **without(h.EXPIRE, h.ROUTE_EXPIRED_TO, h.CONFIRMATION_ID),
            h.RELATED_TO_TIMEOUT_ID: stored().id,
            h.DELIVER_AT: build_wire_time(DUE),
            h.DELAY_IN_SECONDS: 1_209_600,
        },
        type="Acme.Billing.InvoiceOverdue",
        correlation_id="0b7e0000-0000-4000-8000-000000000001",
        reply_to="Billing.Invoices",
        content_type="application/json",
        body=b'{"InvoiceId":"INV-1001"}',
    )
    assert converted(stored()) == message
    assert convert(stored(), rules=RULES, now=NOW + timedelta(days=3)) == message  # ids are stable


@pytest.mark.parametrize("entry", captured(), ids=lambda e: f"{e['core']}-{e['scenario']}")
def test_captured_messages_are_converted_whole(entry: dict[str, Any]) -> None:
    """Headers of core 5 to 10 survive, and TimeSent + DelayInSeconds is the due time rounded up."""
    given_headers: dict[str, str] = entry["headers"]
    due_at = parse_wire_time(given_headers[h.TIME_SENT]) + timedelta(days=14, microseconds=1)
    message = converted(stored(headers=dict(given_headers), due_at=due_at))
    dropped = {h.EXPIRE, h.ROUTE_EXPIRED_TO}
    replaced = {h.DELIVER_AT, h.RELATED_TO_TIMEOUT_ID}
    for key, value in given_headers.items():
        assert key in dropped | replaced or message.headers[key] == value
    assert not dropped & message.headers.keys()
    assert message.message_id == given_headers[h.MESSAGE_ID]
    assert message.type == given_headers[h.ENCLOSED_MESSAGE_TYPES].partition(",")[0]
    assert timedelta(0) <= _claimed_due(message) - message.due_at < A_SECOND


def _claimed_due(message: NativeMessage) -> datetime:
    sent, delay = message.headers[h.TIME_SENT], message.headers[h.DELAY_IN_SECONDS]
    assert isinstance(sent, str)
    assert isinstance(delay, int)
    return parse_wire_time(sent) + timedelta(seconds=delay)


def test_no_headers_at_all_still_make_a_message() -> None:
    """The column names the destination; everything else has a default."""
    message = converted(stored(headers_text=""))
    assert (message.message_id, message.type, message.reply_to) == (stored().id, None, None)
    assert message.content_type == "application/octet-stream"
    assert message.headers[h.TIME_SENT] == build_wire_time(NOW)
    assert message.headers[h.DELAY_IN_SECONDS] == seconds_up(DUE - NOW)


@pytest.mark.parametrize(
    ("changes", "name", "expected"),
    [
        ({h.MESSAGE_ID: " id "}, "message_id", "id"),
        *(({h.MESSAGE_ID: blank}, "message_id", stored().id) for blank in (None, "", "  ")),
        ({h.ENCLOSED_MESSAGE_TYPES: "Acme.Type"}, "type", "Acme.Type"),
        ({h.ENCLOSED_MESSAGE_TYPES: "Acme.A, Asm;Acme.B, Asm"}, "type", "Acme.A"),
        ({h.ENCLOSED_MESSAGE_TYPES: None}, "type", None),
        ({h.REPLY_TO_ADDRESS: "Billing@APP01@MORE"}, "reply_to", "Billing"),
        ({h.TIMEOUT_REPLY_TO: ""}, "reply_to", "Billing.Invoices"),
        ({h.REPLY_TO_ADDRESS: ""}, "reply_to", None),
        ({h.CONTENT_TYPE: ""}, "content_type", "application/octet-stream"),
    ],
)
def test_headers_become_properties(
    changes: dict[str, str | None], name: str, expected: str | None
) -> None:
    """Blank is as good as missing; the headers themselves stay as they were, null as null."""
    message = converted(stored(headers={**HEADERS, **changes, "X": None}))
    assert getattr(message, name) == expected
    kept = {**changes, "X": None}
    kept.pop(h.TIMEOUT_REPLY_TO, None)
    assert message.headers.items() >= kept.items()


@pytest.mark.parametrize(
    ("column", "headers", "expected"),
    [
        ("Billing", {}, "Billing"),
        (" Billing @APP01@MORE", {}, "Billing"),
        ("With Space", {}, "With Space"),
        ("Edited", {h.ROUTE_EXPIRED_TO: "Billing"}, "Edited"),
        (None, {h.ROUTE_EXPIRED_TO: "Billing@APP01"}, "Billing"),
        ("", {h.ROUTE_EXPIRED_TO: None, h.REPLY_TO_ADDRESS: "Client"}, "Client"),
        ("@APP01", {h.ROUTE_EXPIRED_TO: "Billing"}, "Billing"),
        ("Old@APP01", {}, "New"),
    ],
)
def test_the_column_wins_and_headers_fill_the_gap(
    column: str | None, headers: dict[str, str | None], expected: str
) -> None:
    """An operator may have edited it; --map sees the name without its machine."""
    row = stored(destination=column, headers=headers)
    assert converted(row, destination_map={"Old": "New"}).destination == expected


# ── due time, and TimeSent + DelayInSeconds ─────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("column", "expire", "expected"),
    [
        (DUE.replace(microsecond=0), build_wire_time(DUE), DUE),
        (DUE + A_SECOND, build_wire_time(DUE), DUE),
        (DUE - A_SECOND, build_wire_time(DUE), DUE),
        (DUE + 1.000001 * A_SECOND, build_wire_time(DUE), DUE + 1.000001 * A_SECOND),
        (DUE + timedelta(days=2), build_wire_time(DUE), DUE + timedelta(days=2)),
        *((DUE, unreadable, DUE) for unreadable in (None, "", "2026-03-15T08:00:00Z", "soon")),
    ],
)
def test_the_header_refines_a_rounded_column_only(
    column: datetime, expire: str | None, expected: datetime
) -> None:
    """Up to a second is rounding; more was edited by somebody, and the column counts."""
    message = converted(stored(due_at=column, headers={**HEADERS, h.EXPIRE: expire}))
    assert message.due_at == expected
    assert message.headers[h.DELIVER_AT] == build_wire_time(expected)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (json.dumps(HEADERS), DUE),
        *((text, None) for text in (json.dumps(without(h.EXPIRE)), "not JSON", None)),
    ],
)
def test_the_header_is_read_where_there_is_one(text: str | None, expected: datetime | None) -> None:
    """The zone of due times is found by comparing them with it."""
    assert expires_at(text) == expected


@pytest.mark.parametrize(
    ("sent", "is_kept"),
    [
        *((build_wire_time(DUE - timedelta(seconds=span)), True) for span in (0, 1, 2**31 - 1)),
        (None, False),
        ("", False),
        ("2026-03-01T08:00:00Z", False),
        (build_wire_time(DUE + timedelta(days=1)), False),  # sent after it is due
        (build_wire_time(DUE - timedelta(seconds=2**31)), False),  # more than an int32
    ],
)
def test_an_unusable_time_sent_is_replaced_by_now(sent: str | None, is_kept: bool) -> None:
    """The vendor's tools abort on a message whose sum does not come out."""
    message = converted(stored(headers={**HEADERS, h.TIME_SENT: sent}))
    assert message.headers[h.TIME_SENT] == (sent if is_kept else build_wire_time(NOW))
    assert timedelta(0) <= _claimed_due(message) - DUE < A_SECOND


MOMENTS = st.timedeltas(min_value=timedelta(days=-4000), max_value=timedelta(days=4000)).map(
    lambda span: NOW + span
)


@given(due_at=MOMENTS.filter(lambda at: at < NOW + timedelta(days=3100)), sent=MOMENTS)
def test_the_vendors_sum_comes_out_for_every_row_still_to_come(
    due_at: datetime, sent: datetime
) -> None:
    """TimeSent + DelayInSeconds is the due time, never early and less than a second late."""
    message = converted(stored(due_at=due_at, headers={h.TIME_SENT: build_wire_time(sent)}))
    if due_at > NOW or sent <= due_at:
        assert timedelta(0) <= _claimed_due(message) - due_at < A_SECOND
    else:
        assert message.headers[h.DELAY_IN_SECONDS] == 0


# ── what cannot be sent ─────────────────────────────────────────────────────────────────────


def with_header(key: str, value: str) -> StoredTimeout:
    """Return the example with another header."""
    return stored(headers={**HEADERS, key: value})


SECRET = "swordfish" * 40
MAP = {"Long": "q" * 200, "ToStaging": "migrator.staging.abc.0"}
LONGEST = NOW + timedelta(seconds=MAX_DELAY_S)
PROPERTIES = (
    *(h.MESSAGE_ID, h.ENCLOSED_MESSAGE_TYPES, h.CORRELATION_ID),
    *(h.REPLY_TO_ADDRESS, h.CONTENT_TYPE),
)


@pytest.mark.parametrize(
    ("timeout", "expected"),
    [
        *(
            (stored(destination=column, headers={}), Reason.NO_DESTINATION)
            for column in (None, "", " ", "@APP01")
        ),
        (stored(destination="q" * 199), None),
        (stored(destination="q" * 200), Reason.DESTINATION_NAME_TOO_LONG),
        (stored(destination="ü" * 99 + "q"), None),
        (stored(destination="ü" * 100), Reason.DESTINATION_NAME_TOO_LONG),
        *(
            (stored(destination=name), Reason.DESTINATION_INTERNAL)
            for name in (
                *("nsb.delay-level-03", "nsb.v2.delay-delivery", "amq.topic", "migrator.x"),
                *("migrator.staging.abc.0@APP01", "ToStaging"),
            )
        ),
        *((stored(destination=name), None) for name in ("nsb.Sales", "migrators", "amqp", "nsb")),
        (stored(destination="Long"), Reason.DESTINATION_NAME_TOO_LONG),
        *(
            (stored(destination=f"Bil{character}ling"), Reason.DESTINATION_UNUSABLE)
            for character in "\0\r\n\ud83d"
        ),
        (stored(destination="\nTrimmed@\0"), None),
        (stored(destination=cast("Any", 5)), Reason.UNPROCESSABLE),  # SQLite keeps what it is given
        (stored(destination="tab\tbed"), None),
        *((with_header(key, "a" * 255), None) for key in PROPERTIES),
        *((with_header(key, "a" * 256), Reason.PROPERTY_TOO_LONG) for key in PROPERTIES),
        (with_header(h.MESSAGE_ID, SECRET), Reason.PROPERTY_TOO_LONG),
        (with_header("k" * 255, "v"), None),
        (with_header("k" * 256, "v"), Reason.HEADER_KEY_TOO_LONG),
        (stored(body=b"x" * 1000), None),
        (stored(body=b"x" * 1001), Reason.BODY_TOO_LARGE),
        *(
            (stored(headers_text=text), Reason.UNREADABLE_HEADERS)
            for text in ("{", "[]", json.dumps({"a": {"b": SECRET}}), '{"a": "\\ud800"}')
        ),
        (stored(headers_text="[" * 10_000_000), Reason.HEADERS_TOO_LARGE),
        (stored(headers=without(h.EXPIRE), due_at=LONGEST), None),
        (stored(headers=without(h.EXPIRE), due_at=LONGEST + A_SECOND), Reason.DELAY_TOO_LONG),
    ],
)
def test_what_cannot_be_sent_is_quarantined(
    timeout: StoredTimeout, expected: Reason | None
) -> None:
    """Names and short strings by their bytes; a text that fits no frame is not even parsed.

    What no delay holds was claimed before a clock was set back; it must not stop its batch.
    """
    limits = {"body_max_bytes": 1000, "destination_map": MAP}
    assert reason(timeout, **limits) == expected


def test_headers_must_leave_room_for_the_brokers_own() -> None:
    """A content header must fit one frame even after 28 hops have added their marks."""
    low, high = 0, LIMIT
    while low < high:
        middle = (low + high + 1) // 2
        fits = reason(with_header("Big", "a" * middle)) is None
        low, high = (middle, high) if fits else (low, middle - 1)
    assert 0 < low < LIMIT - X_DEATH_RESERVE_BYTES
    assert reason(with_header("Big", "a" * (low + 1))) is Reason.HEADERS_TOO_LARGE
    assert reason(with_header("Big", "a" * 3_000_000), frame_max_bytes=0) is None  # unlimited


def test_sizes_are_told_in_the_style_of_all_numbers() -> None:
    """They stand in lists of the quarantine, beside numbers of rows."""
    found = convert(stored(body=b"x" * 1001), rules=replace(RULES, body_max_bytes=1000), now=NOW)
    assert isinstance(found, Quarantine)
    assert found.detail == "1 001 bytes; the broker takes 1 000"


@given(headers=st.dictionaries(st.text(max_size=40), st.none() | st.text(max_size=200)))
def test_what_fits_by_our_count_fits_as_encoded(headers: dict[str, str | None]) -> None:
    """The count is never below what the client library really puts on the wire."""
    found = convert(stored(headers=headers), rules=replace(RULES, frame_max_bytes=0), now=NOW)
    if isinstance(found, Quarantine):
        assert found.reason is not Reason.HEADERS_TOO_LARGE
        return
    tight = X_DEATH_RESERVE_BYTES + encoded_bytes(found, **{h.CONFIRMATION_ID: "27"}) - 1
    assert reason(stored(headers=headers), frame_max_bytes=tight) is not None


def encoded_bytes(message: NativeMessage, **more: str) -> int:
    """Return the size of a content header frame with a mark of ours, and *more* headers."""
    properties = pika.BasicProperties(
        message_id=message.message_id,
        type=message.type,
        correlation_id=message.correlation_id,
        reply_to=message.reply_to,
        content_type=message.content_type,
        delivery_mode=2,
        app_id="migrator/" + "z" * 40 + "/" + "9" * 18 + "." + "9" * 9 + "." + "9" * 9,
        headers={**message.headers, **more},
    )
    return len(Header(1, len(message.body), properties).marshal())


ANY_TEXT = st.text(st.characters(codec="utf-8"), max_size=300)
KNOWN_KEYS = st.sampled_from(sorted(HEADERS))


@given(
    text=ANY_TEXT | st.dictionaries(KNOWN_KEYS | ANY_TEXT, st.none() | ANY_TEXT).map(json.dumps),
    destination=st.none() | ANY_TEXT,
    due_at=MOMENTS,
)
def test_every_row_has_an_outcome(text: str, destination: str | None, due_at: datetime) -> None:
    """Whatever is stored, conversion returns a message or a reason, and never raises."""
    reason(stored(headers_text=text, destination=destination, due_at=due_at))


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
