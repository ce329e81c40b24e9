"""Tests of ``migrator.nservicebus.conversion``."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

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
    due_offset,
)
from migrator.nservicebus.timeouts import MAX_DELAY_S, NativeMessage, StoredTimeout
from migrator.nservicebus.wiretime import build_wire_time, parse_wire_time, seconds_up
from tests.unit.nservicebus.samples import (
    A_SECOND,
    DUE,
    HEADERS,
    NOW,
    SENT,
    captured,
    stored,
    without,
)

RULES = BrokerLimits()


def converted(timeout: StoredTimeout, **rules: Any) -> NativeMessage:
    """Return the message *timeout* becomes; it must not be quarantined."""
    found = convert(timeout, rules=replace(RULES, **rules), now=NOW)
    assert isinstance(found, NativeMessage), found
    return found


def quarantined(timeout: StoredTimeout, **rules: Any) -> Quarantine:
    """Return why *timeout* is quarantined; it must be."""
    found = convert(timeout, rules=replace(RULES, **rules), now=NOW)
    assert isinstance(found, Quarantine), found
    return found


# ── realistic ───────────────────────────────────────────────────────────────────────────────


def test_the_example_of_the_reference_becomes_the_message_of_the_reference() -> None:
    """Section 16 of the timeout manager's reference ends as section 11 of the native delays'."""
    assert converted(stored()) == NativeMessage(
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


def test_ids_are_stable_over_reruns() -> None:
    """A second conversion, later, yields the same message id."""
    later = convert(stored(), rules=RULES, now=NOW + timedelta(days=3))
    assert later == converted(stored())


@pytest.mark.parametrize("message_id", [None, "", "   "])
def test_without_a_message_id_the_timeouts_own_is_used(message_id: str | None) -> None:
    """It is unique and the same on every run."""
    message = converted(stored(headers={**HEADERS, h.MESSAGE_ID: message_id}))
    assert message.message_id == stored().id
    assert message.headers[h.MESSAGE_ID] == message_id


def test_no_headers_at_all_still_make_a_message() -> None:
    """The column names the destination; everything else has a default."""
    message = converted(stored(headers_text=""))
    assert (message.message_id, message.type, message.reply_to) == (stored().id, None, None)
    assert message.content_type == "application/octet-stream"
    assert message.headers[h.TIME_SENT] == build_wire_time(NOW)
    assert message.headers[h.DELAY_IN_SECONDS] == seconds_up(DUE - NOW)


def test_null_values_stay_null() -> None:
    """A header without a value goes out as void."""
    assert converted(stored(headers={**HEADERS, "X": None})).headers["X"] is None


# ── destination ─────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("column", "headers", "expected"),
    [
        ("Billing", {}, "Billing"),
        ("Billing@APP01", {}, "Billing"),
        ("Edited", {h.ROUTE_EXPIRED_TO: "Billing"}, "Edited"),
        (None, {h.ROUTE_EXPIRED_TO: "Billing@APP01"}, "Billing"),
        ("", {h.ROUTE_EXPIRED_TO: None, h.REPLY_TO_ADDRESS: "Client"}, "Client"),
        ("@APP01", {h.ROUTE_EXPIRED_TO: "Billing"}, "Billing"),
    ],
)
def test_the_column_wins_and_headers_fill_the_gap(
    column: str | None, headers: dict[str, str | None], expected: str
) -> None:
    """The timeout manager obeys the column, which an operator may have edited."""
    assert converted(stored(destination=column, headers=headers)).destination == expected


def test_renaming_works_on_the_bare_queue_name() -> None:
    """--map sees the name without its machine."""
    message = converted(stored(destination="Old@APP01"), destination_map={"Old": "New"})
    assert message.destination == "New"


@pytest.mark.parametrize("column", [None, "", " ", "@APP01"])
def test_no_destination_anywhere_is_quarantined(column: str | None) -> None:
    """Nobody could say where to send it."""
    found = quarantined(stored(destination=column, headers={}))
    assert (found.reason, found.row_index) == (Reason.NO_DESTINATION, 7)


@pytest.mark.parametrize(("name", "fits"), [("q" * 199, True), ("q" * 200, False)])
def test_names_have_199_bytes_at_most(name: str, fits: bool) -> None:
    """The routing key leaves 199 bytes."""
    _fits_or(Reason.DESTINATION_NAME_TOO_LONG, stored(destination=name), fits=fits)


@pytest.mark.parametrize(("name", "fits"), [("ü" * 99 + "q", True), ("ü" * 100, False)])
def test_names_are_measured_in_bytes(name: str, fits: bool) -> None:
    """A character may take several bytes."""
    _fits_or(Reason.DESTINATION_NAME_TOO_LONG, stored(destination=name), fits=fits)


def test_a_name_that_renaming_makes_too_long_is_quarantined() -> None:
    """The new name counts."""
    found = quarantined(stored(), destination_map={"Billing.Invoices": "q" * 200})
    assert found.reason is Reason.DESTINATION_NAME_TOO_LONG


def _fits_or(reason: Reason, timeout: StoredTimeout, *, fits: bool, **rules: Any) -> None:
    found = convert(timeout, rules=replace(RULES, **rules), now=NOW)
    assert (found.reason if isinstance(found, Quarantine) else None) == (None if fits else reason)


# ── due time ────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("column", "expected"),
    [
        (DUE, DUE),
        (DUE.replace(microsecond=0), DUE),
        (DUE + A_SECOND, DUE),
        (DUE - A_SECOND, DUE),
        (DUE + A_SECOND + timedelta(microseconds=1), DUE + A_SECOND + timedelta(microseconds=1)),
        (DUE + timedelta(days=2), DUE + timedelta(days=2)),
    ],
)
def test_the_header_refines_a_rounded_column_only(column: datetime, expected: datetime) -> None:
    """Up to a second is rounding; more was edited by somebody, and the column counts."""
    message = converted(stored(due_at=column))
    assert message.due_at == expected
    assert message.headers[h.DELIVER_AT] == build_wire_time(expected)


@pytest.mark.parametrize("expire", [None, "", "2026-03-15T08:00:00Z", "soon"])
def test_without_a_readable_header_the_column_counts(expire: str | None) -> None:
    """A malformed Expire is no reason to lose a timeout."""
    assert converted(stored(headers={**HEADERS, h.EXPIRE: expire})).due_at == DUE


@pytest.mark.parametrize(
    ("column", "text", "expected"),
    [
        (DUE + timedelta(hours=1), json.dumps(HEADERS), timedelta(hours=1)),
        (DUE, json.dumps(HEADERS), timedelta(0)),
        (DUE, json.dumps(without(h.EXPIRE)), timedelta(0)),
        (DUE, "not JSON", timedelta(0)),
        (DUE, None, timedelta(0)),
    ],
)
def test_the_offset_of_a_column_from_its_header(
    column: datetime, text: str | None, expected: timedelta
) -> None:
    """Zero where there is nothing to compare with."""
    assert due_offset(column, text) == expected


# ── TimeSent + DelayInSeconds = due ─────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    "sent",
    [
        None,
        "",
        "2026-03-01T08:00:00Z",
        build_wire_time(DUE + timedelta(days=1)),  # sent after it is due
        build_wire_time(DUE - timedelta(seconds=2**31 + 1)),  # more than an int32 of seconds ago
    ],
)
def test_an_unusable_time_sent_is_replaced_by_now(sent: str | None) -> None:
    """The vendor's tools abort on a message whose sum does not come out."""
    message = converted(stored(headers={**HEADERS, h.TIME_SENT: sent}))
    assert message.headers[h.TIME_SENT] == build_wire_time(NOW)
    assert message.headers[h.DELAY_IN_SECONDS] == seconds_up(DUE - NOW)


@pytest.mark.parametrize("span_s", [0, 1, 2**31 - 1])
def test_a_usable_time_sent_is_kept(span_s: int) -> None:
    """Anything from 0 to the largest int32 is a usable delay."""
    sent = build_wire_time(DUE - timedelta(seconds=span_s))
    message = converted(stored(headers={**HEADERS, h.TIME_SENT: sent}))
    assert message.headers[h.TIME_SENT] == sent
    assert message.headers[h.DELAY_IN_SECONDS] == span_s


def test_an_overdue_row_without_time_sent_has_no_delay() -> None:
    """It goes out at once; a negative delay would be nonsense."""
    past = NOW - timedelta(days=1)
    message = converted(stored(due_at=past, headers={}))
    assert message.headers[h.DELAY_IN_SECONDS] == 0


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


# ── properties and sizes ────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    "key",
    [
        h.MESSAGE_ID,
        h.ENCLOSED_MESSAGE_TYPES,
        h.CORRELATION_ID,
        h.REPLY_TO_ADDRESS,
        h.CONTENT_TYPE,
    ],
)
@pytest.mark.parametrize(("size", "fits"), [(255, True), (256, False)])
def test_properties_have_255_bytes_at_most(key: str, size: int, fits: bool) -> None:
    """AMQP's short strings hold no more; a longer one would break the connection."""
    timeout = stored(headers={**HEADERS, key: "a" * size})
    _fits_or(Reason.PROPERTY_TOO_LONG, timeout, fits=fits)


@pytest.mark.parametrize(("size", "fits"), [(255, True), (256, False)])
def test_header_keys_have_255_bytes_at_most(size: int, fits: bool) -> None:
    """A key is a short string, too."""
    timeout = stored(headers={**HEADERS, "k" * size: "v"})
    _fits_or(Reason.HEADER_KEY_TOO_LONG, timeout, fits=fits)


@pytest.mark.parametrize(("over", "fits"), [(0, True), (1, False)])
def test_headers_must_leave_room_for_the_brokers_own(over: int, fits: bool) -> None:
    """A content header must fit one frame even after 28 hops have added their marks."""
    frame_max = 131_072
    room = frame_max - X_DEATH_RESERVE_BYTES
    largest = _largest_value(frame_max)
    assert largest < room
    timeout = stored(headers={**HEADERS, "Big": "a" * (largest + over)})
    _fits_or(Reason.HEADERS_TOO_LARGE, timeout, fits=fits, frame_max_bytes=frame_max)


def _largest_value(frame_max: int) -> int:
    low, high = 0, frame_max
    while low < high:
        middle = (low + high + 1) // 2
        timeout = stored(headers={**HEADERS, "Big": "a" * middle})
        found = convert(timeout, rules=replace(RULES, frame_max_bytes=frame_max), now=NOW)
        low, high = (low, middle - 1) if isinstance(found, Quarantine) else (middle, high)
    return low


@given(headers=st.dictionaries(st.text(max_size=40), st.none() | st.text(max_size=200)))
def test_what_fits_by_our_count_fits_as_encoded(headers: dict[str, str | None]) -> None:
    """The count is never below what the client library really puts on the wire."""
    found = convert(stored(headers=headers), rules=replace(RULES, frame_max_bytes=0), now=NOW)
    if isinstance(found, Quarantine):
        assert found.reason is not Reason.HEADERS_TOO_LARGE
        return
    encoded = len(Header(1, len(found.body), _properties(found)).marshal())
    tight = BrokerLimits(frame_max_bytes=X_DEATH_RESERVE_BYTES + encoded - 1)
    assert isinstance(convert(stored(headers=headers), rules=tight, now=NOW), Quarantine)


def _properties(message: NativeMessage) -> pika.BasicProperties:
    return pika.BasicProperties(
        message_id=message.message_id,
        type=message.type,
        correlation_id=message.correlation_id,
        reply_to=message.reply_to,
        content_type=message.content_type,
        delivery_mode=2,
        app_id="migrator/" + "z" * 40 + "/" + "9" * 18 + "." + "9" * 9 + "." + "9" * 9,
        headers={**message.headers, h.CONFIRMATION_ID: "27"},
    )


def test_an_unlimited_frame_limits_nothing() -> None:
    """A broker that negotiates 0 takes headers of any size."""
    timeout = stored(headers={**HEADERS, "Big": "a" * 3_000_000})
    assert converted(timeout, frame_max_bytes=0).headers["Big"] == "a" * 3_000_000


def test_a_huge_text_is_not_even_parsed() -> None:
    """Megabytes of headers cannot fit a frame however they are escaped."""
    found = quarantined(stored(headers_text="[" * 10_000_000))
    assert found.reason is Reason.HEADERS_TOO_LARGE
    assert found.detail == "10000000 characters"


@pytest.mark.parametrize(("size", "fits"), [(1000, True), (1001, False)])
def test_bodies_are_held_to_the_brokers_limit(size: int, fits: bool) -> None:
    """A larger body would be refused and close the channel."""
    timeout = stored(body=b"x" * size)
    _fits_or(Reason.BODY_TOO_LARGE, timeout, fits=fits, body_max_bytes=1000)


# ── pathological ────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("text", ["{", "[]", '{"a": 1}', '{"a": "\\ud800"}', "[" * 100_000])
def test_unreadable_headers_are_quarantined(text: str) -> None:
    """The row keeps its bytes in the ledger, and its batch goes on."""
    found = quarantined(stored(headers_text=text))
    assert (found.reason, found.timeout_id) == (Reason.UNREADABLE_HEADERS, stored().id)


def test_details_carry_no_values() -> None:
    """A header's value may be a secret of somebody's business."""
    secret = "swordfish" * 40
    found = quarantined(stored(headers={**HEADERS, h.MESSAGE_ID: secret}))
    assert "swordfish" not in found.detail
    found = quarantined(stored(headers_text=json.dumps({"a": {"b": secret}})))
    assert "swordfish" not in found.detail


ANY_TEXT = st.text(st.characters(codec="utf-8"), max_size=300)
KNOWN_KEYS = st.sampled_from(sorted(HEADERS))


@given(
    text=ANY_TEXT | st.dictionaries(KNOWN_KEYS | ANY_TEXT, st.none() | ANY_TEXT).map(json.dumps),
    destination=st.none() | ANY_TEXT,
    due_at=MOMENTS,
)
def test_every_row_has_an_outcome(text: str, destination: str | None, due_at: datetime) -> None:
    """Whatever is stored, conversion returns a message or a reason, and never raises."""
    timeout = stored(headers_text=text, destination=destination, due_at=due_at)
    found = convert(timeout, rules=RULES, now=NOW)
    assert found.row_index == timeout.row_index
    assert found.timeout_id == timeout.id


def test_sent_is_before_due() -> None:
    """The example makes sense."""
    assert SENT < NOW < DUE


def test_what_no_delay_holds_is_quarantined() -> None:
    """A clock that was set back after the claim must not stop the rest of a batch."""
    longest = NOW + timedelta(seconds=MAX_DELAY_S)
    headers = without(h.EXPIRE)
    assert converted(replace(stored(headers=headers), due_at=longest)).due_at == longest
    found = quarantined(replace(stored(headers=headers), due_at=longest + A_SECOND))
    assert found.reason is Reason.DELAY_TOO_LONG
