"""Tests of ``migrator.dispatcher.rules``."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pika
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pika.frame import Header

from migrator.dispatcher.rules import (
    UNDELAYED_RESERVE_BYTES,
    sent_at,
    to_dispatch,
    to_forward,
    to_pass_on,
)
from migrator.nservicebus import headers as h
from migrator.nservicebus.conversion import BrokerLimits, Quarantine, Reason, convert
from migrator.nservicebus.satellites import DelayedMessage, read_delayed
from migrator.nservicebus.timeouts import NativeMessage, QueueName, StoredTimeout
from migrator.nservicebus.wiretime import build_wire_time, parse_wire_time
from tests.unit.nservicebus.samples import (
    A_SECOND,
    DUE,
    HEADERS,
    NOW,
    QUEUE,
    captured,
    incoming,
    stored,
    without,
)

OWN = QueueName("Billing.Invoices")
RULES = BrokerLimits(own_queue=OWN)
DELAYED = [entry for entry in captured() if h.EXPIRE in entry["headers"]]
INSTRUCTIONS = (h.EXPIRE, h.ROUTE_EXPIRED_TO, h.CONFIRMATION_ID)


def dispatched(timeout: StoredTimeout, **rules: Any) -> NativeMessage:
    """Return the message *timeout* becomes when it is due; it must become one."""
    return _sent(to_dispatch(timeout, rules=replace(RULES, **rules)))


def delayed(headers: dict[str, Any] | None = None, **changes: Any) -> DelayedMessage:
    """Return a delayed message as it is read from ``.Timeouts``."""
    found = read_delayed(incoming(headers, **changes), queue=QUEUE)
    assert isinstance(found, DelayedMessage)
    return found


def passed_on(message: DelayedMessage, **rules: Any) -> NativeMessage:
    """Return what is passed on; it must not be refused."""
    return _sent(to_pass_on(message, rules=replace(RULES, **rules)))


def forwarded(message: DelayedMessage, **rules: Any) -> NativeMessage:
    """Return what is forwarded; it must not be refused."""
    return _sent(to_forward(message, rules=replace(RULES, **rules), now=NOW))


def _sent(found: NativeMessage | Quarantine) -> NativeMessage:
    assert isinstance(found, NativeMessage), found
    return found


# ── dispatched: realistic ───────────────────────────────────────────────────────────────────


def test_the_example_of_the_reference_is_dispatched() -> None:
    """As section 16 ends, but with the AMQP id of the original and without instructions."""
    assert dispatched(stored()) == NativeMessage(
        row_index=7,
        timeout_id=stored().id,
        message_id="5d0c1f5e-8f0a-4b5e-9a44-b1c200e1aa01",
        destination=QueueName("Billing.Invoices"),
        due_at=DUE,
        headers={**without(*INSTRUCTIONS), h.RELATED_TO_TIMEOUT_ID: stored().id},
        type="Acme.Billing.InvoiceOverdue",
        correlation_id="0b7e0000-0000-4000-8000-000000000001",
        reply_to="Billing.Invoices",
        content_type="application/json",
        body=b'{"InvoiceId":"INV-1001"}',
    )


@pytest.mark.parametrize("entry", captured(), ids=lambda e: f"{e['core']}-{e['scenario']}")
def test_captured_messages_are_dispatched_whole(entry: dict[str, Any]) -> None:
    """Everything but the timeout manager's instructions arrives as it was sent."""
    headers: dict[str, str | None] = entry["headers"]
    message = dispatched(stored(headers=headers))
    for key in headers.keys() - {*INSTRUCTIONS, h.RELATED_TO_TIMEOUT_ID}:
        assert message.headers[key] == headers[key]
    assert not message.headers.keys() & {h.EXPIRE, h.ROUTE_EXPIRED_TO, h.DELAY_IN_SECONDS}
    assert (h.DELIVER_AT in message.headers) == (h.DELIVER_AT in headers)
    assert message.headers[h.RELATED_TO_TIMEOUT_ID] == stored().id
    assert message.message_id == headers[h.MESSAGE_ID]


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({h.TIMEOUT_REPLY_TO: "Web@APP01", h.REPLY_TO_ADDRESS: "Sales"}, "Web"),
        ({h.REPLY_TO_ADDRESS: "Sales@APP01", h.VERSION: "5.2.26"}, "Sales"),
        ({h.VERSION: "5.2.26"}, OWN),
        ({h.VERSION: "4.6.0"}, OWN),
        ({h.VERSION: "3.3.8"}, OWN),
        ({h.VERSION: "6.5.10"}, None),
        ({h.VERSION: "10.2.0"}, None),
        ({h.VERSION: "50.0"}, None),
        ({h.VERSION: "five"}, None),
        ({h.VERSION: "\u0665.0"}, None),
        ({h.VERSION: "-5.0"}, None),
        ({h.VERSION: None}, None),
        ({}, None),
    ],
)
def test_where_replies_go(changes: dict[str, str | None], expected: str | None) -> None:
    """Version 5 kept the address aside, and without one gave its own queue."""
    headers = {**without(h.REPLY_TO_ADDRESS, h.VERSION), **changes}
    row, message = stored(headers=headers), delayed(headers)
    moved = _sent(convert(row, rules=RULES, now=NOW))
    for sent in (moved, dispatched(row), passed_on(message), forwarded(message)):
        assert sent.reply_to == expected
        assert h.TIMEOUT_REPLY_TO not in sent.headers


def test_a_saga_timeout_of_version_3_stays_one() -> None:
    """It was recognised by the due time, which goes."""
    headers = {**without(h.IS_SAGA_TIMEOUT), h.VERSION: "3.3.8"}
    assert dispatched(stored(headers=headers)).headers[h.IS_SAGA_TIMEOUT] == "True"


@pytest.mark.parametrize("message_id", [None, "", " "])
def test_without_a_message_id_the_timeouts_own_is_used(message_id: str | None) -> None:
    """As version 5 did; it is the same on every run."""
    message = dispatched(stored(headers={**HEADERS, h.MESSAGE_ID: message_id}))
    assert message.message_id == stored().id


def test_the_due_time_is_refined_and_the_destination_renamed() -> None:
    """As when it is handed over."""
    row = stored(due_at=DUE.replace(microsecond=0), destination="Old@APP01")
    message = dispatched(row, destination_map={"Old": "New"})
    assert (message.due_at, message.destination) == (DUE, "New")


# ── sent ────────────────────────────────────────────────────────────────────────────────────


def test_the_time_of_sending_is_set_last() -> None:
    """Nothing else changes, and the message that waited stays as it was."""
    waiting = dispatched(stored())
    sent = sent_at(waiting, NOW)
    assert sent.headers == {**waiting.headers, h.TIME_SENT: build_wire_time(NOW)}
    assert replace(sent, headers=waiting.headers) == waiting
    assert waiting.headers[h.TIME_SENT] == HEADERS[h.TIME_SENT]


# ── passed on ───────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("entry", DELAYED, ids=lambda e: f"{e['core']}-{e['scenario']}")
def test_captured_messages_are_passed_on_as_they_came(entry: dict[str, Any]) -> None:
    """TimeSent is not touched, and no timeout is named: none was ever stored."""
    headers: dict[str, Any] = entry["headers"]
    message = passed_on(delayed(headers, message_id="native"))
    dropped = {h.EXPIRE, h.ROUTE_EXPIRED_TO}
    expected = {key: value for key, value in headers.items() if key not in dropped}
    assert message.headers == {**expected, h.NON_DURABLE: "False"}
    assert message.message_id == "native"
    assert message.destination == headers[h.ROUTE_EXPIRED_TO].partition("@")[0]
    assert message.due_at == parse_wire_time(headers[h.EXPIRE])
    assert message.reply_to == headers[h.REPLY_TO_ADDRESS].partition("@")[0]


def test_a_message_is_passed_on_to_a_renamed_queue() -> None:
    """--map holds for every way out."""
    assert passed_on(delayed(), destination_map={"Billing.Invoices": "New"}).destination == "New"


# ── forwarded ───────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("entry", DELAYED, ids=lambda e: f"{e['core']}-{e['scenario']}")
def test_a_forwarded_message_is_a_converted_one_that_never_was_stored(
    entry: dict[str, Any],
) -> None:
    """The same in every way, but not related to a timeout."""
    message = delayed(entry["headers"])
    row = StoredTimeout(
        id=message.id,
        row_index=0,
        destination=message.destination,
        due_at=message.due_at,
        body=message.body,
        headers_text=message.headers_text,
    )
    converted = convert(row, rules=RULES, now=NOW)
    assert isinstance(converted, NativeMessage)
    related = {h.RELATED_TO_TIMEOUT_ID: message.headers.get(h.RELATED_TO_TIMEOUT_ID)}
    found = forwarded(message)
    assert {**related, **found.headers} == {**converted.headers, **related}
    assert replace(found, headers={}) == replace(converted, headers={})


def test_without_a_message_id_the_amqp_one_is_used() -> None:
    """It is what the receiver would have known the message by."""
    message = forwarded(delayed(without(h.MESSAGE_ID), message_id="native"))
    assert message.message_id == "native"
    assert h.RELATED_TO_TIMEOUT_ID not in message.headers


def test_a_forwarded_message_says_how_long_it_waits() -> None:
    """TimeSent + DelayInSeconds is the due time, rounded up."""
    message = forwarded(delayed())
    delay = message.headers[h.DELAY_IN_SECONDS]
    assert isinstance(delay, int)
    sent = parse_wire_time(str(message.headers[h.TIME_SENT]))
    assert timedelta(0) <= sent + timedelta(seconds=delay) - DUE < A_SECOND
    assert message.headers[h.DELIVER_AT] == build_wire_time(DUE)


# ── what cannot be sent ─────────────────────────────────────────────────────────────────────


def _reason(found: NativeMessage | Quarantine) -> Reason | None:
    return found.reason if isinstance(found, Quarantine) else None


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        (stored(headers_text="{"), Reason.UNREADABLE_HEADERS),
        (stored(destination=None, headers={}), Reason.NO_DESTINATION),
        (stored(destination="q" * 255), None),
        (stored(destination="q" * 256), Reason.DESTINATION_NAME_TOO_LONG),
        (stored(headers={**HEADERS, h.MESSAGE_ID: "a" * 256}), Reason.PROPERTY_TOO_LONG),
        (stored(headers={**HEADERS, "k" * 256: "v"}), Reason.HEADER_KEY_TOO_LONG),
        (stored(headers={**HEADERS, "Big": "a" * 131_072}), Reason.HEADERS_TOO_LARGE),
        (stored(headers={**HEADERS, "Big": "a" * 125_000}), None),
        (stored(body=b"x" * 1001), Reason.BODY_TOO_LARGE),
    ],
)
def test_what_cannot_be_dispatched_is_quarantined(
    row: StoredTimeout, reason: Reason | None
) -> None:
    """Limits are AMQP's and the broker's; no delay takes its share of name or frame."""
    found = to_dispatch(row, rules=BrokerLimits(body_max_bytes=1000))
    assert _reason(found) == reason
    assert (found.row_index, found.timeout_id) == (7, row.id)


@pytest.mark.parametrize(
    ("changes", "rules", "pass_on", "forward"),
    [
        ({}, {}, None, None),
        (
            {},
            {"destination_map": {"Billing.Invoices": "q" * 200}},
            None,
            Reason.DESTINATION_NAME_TOO_LONG,
        ),
        ({"Big": "a" * 120_000}, {}, None, Reason.HEADERS_TOO_LARGE),
        ({"Big": "a" * 131_000}, {}, Reason.HEADERS_TOO_LARGE, Reason.HEADERS_TOO_LARGE),
        ({}, {"body_max_bytes": 1}, Reason.BODY_TOO_LARGE, Reason.BODY_TOO_LARGE),
        ({h.MESSAGE_ID: "a" * 256}, {}, None, Reason.PROPERTY_TOO_LONG),
    ],
)
def test_what_cannot_be_passed_on_or_forwarded_is_told(
    changes: dict[str, str],
    rules: dict[str, Any],
    pass_on: Reason | None,
    forward: Reason | None,
) -> None:
    """A delay takes its share of the name and of the frame."""
    message = delayed({**HEADERS, **changes})
    limits = replace(RULES, **rules)
    assert _reason(to_pass_on(message, rules=limits)) == pass_on
    assert _reason(to_forward(message, rules=limits, now=NOW)) == forward


@given(
    headers=st.dictionaries(st.text(max_size=40), st.text(max_size=200)),
    to_spare=st.integers(-40, 4000),
)
def test_what_is_sent_fits_a_frame(headers: dict[str, str], to_spare: int) -> None:
    """With the time of sending and the mark of ours that are added last."""
    row = stored(headers={key: value for key, value in headers.items() if key != h.TIME_SENT})
    unlimited = to_dispatch(row, rules=BrokerLimits(frame_max_bytes=0))
    if isinstance(unlimited, Quarantine):
        return
    frame_max = UNDELAYED_RESERVE_BYTES + _encoded_bytes(unlimited) + to_spare
    found = to_dispatch(row, rules=BrokerLimits(frame_max_bytes=frame_max))
    assert isinstance(found, Quarantine) or _encoded_bytes(sent_at(found, NOW)) <= frame_max


def _encoded_bytes(message: NativeMessage) -> int:
    properties = pika.BasicProperties(
        message_id=message.message_id,
        type=message.type,
        correlation_id=message.correlation_id,
        reply_to=message.reply_to,
        content_type=message.content_type,
        delivery_mode=2,
        app_id="migrator/" + "z" * 40 + "/" + "9" * 18 + "." + "9" * 9 + "." + "9" * 9,
        headers=message.headers,
    )
    return len(Header(1, len(message.body), properties).marshal())


ANY_TEXT = st.text(st.characters(codec="utf-8"), max_size=300)


@given(headers=st.dictionaries(st.sampled_from(sorted(HEADERS)) | ANY_TEXT, ANY_TEXT))
def test_every_row_and_every_message_has_an_outcome(headers: dict[str, str]) -> None:
    """Whatever came, it is sent or there is a reason; nothing raises."""
    message = replace(delayed(), headers=headers)
    row = stored(headers={**headers})
    outcomes = (
        to_dispatch(row, rules=RULES),
        to_pass_on(message, rules=RULES),
        to_forward(message, rules=RULES, now=NOW),
    )
    assert [found.timeout_id for found in outcomes] == [row.id, message.id, message.id]
