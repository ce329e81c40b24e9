"""Tests of ``migrator.dispatcher.rules``: dispatched, passed on, forwarded."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

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
    DUE,
    HEADERS,
    NOW,
    QUEUE,
    captured,
    incoming,
    stored,
    without,
)
from tests.unit.nservicebus.test_conversion import encoded_bytes

OWN = QueueName("Billing.Invoices")
RULES = BrokerLimits(own_queue=OWN)
DELAYED = [entry for entry in captured() if h.EXPIRE in entry["headers"]]


def delayed(headers: dict[str, Any] | None = None, **changes: Any) -> DelayedMessage:
    """Return a delayed message as it is read from ``.Timeouts``."""
    found = read_delayed(incoming(headers, **changes), queue=QUEUE)
    assert isinstance(found, DelayedMessage)
    return found


def as_row(message: DelayedMessage) -> StoredTimeout:
    """Return *message* as it is stored."""
    return StoredTimeout(
        id=message.id,
        row_index=0,
        destination=message.destination,
        due_at=message.due_at,
        body=message.body,
        headers_text=message.headers_text,
    )


def dispatched(timeout: StoredTimeout, **rules: Any) -> NativeMessage:
    """Return the message *timeout* becomes when it is due; it must become one."""
    return _sent(to_dispatch(timeout, rules=replace(RULES, **rules)))


def _sent(found: NativeMessage | Quarantine) -> NativeMessage:
    assert isinstance(found, NativeMessage), found
    return found


@pytest.mark.parametrize("entry", captured(), ids=lambda e: f"{e['core']}-{e['scenario']}")
def test_what_is_dispatched_is_converted_but_for_its_delay(entry: dict[str, Any]) -> None:
    """With its own headers and the id of the original; the time of sending is set last."""
    row = stored(headers=entry["headers"], due_at=DUE.replace(microsecond=0))
    of_delay = (h.DELIVER_AT, h.DELAY_IN_SECONDS, h.TIME_SENT)
    converted, message = _sent(convert(row, rules=RULES, now=NOW)), dispatched(row)
    undelayed = {key: value for key, value in converted.headers.items() if key not in of_delay}
    own = {key: value for key, value in entry["headers"].items() if key in of_delay}
    own.pop(h.DELAY_IN_SECONDS, None)
    assert message == replace(converted, headers=undelayed | own)
    sent = sent_at(message, NOW)
    assert sent == replace(message, headers={**message.headers, h.TIME_SENT: build_wire_time(NOW)})


@pytest.mark.parametrize("entry", DELAYED, ids=lambda e: f"{e['core']}-{e['scenario']}")
def test_what_is_passed_on_is_as_it_came(entry: dict[str, Any]) -> None:
    """TimeSent is not touched, and no timeout is named: none was ever stored."""
    headers: dict[str, Any] = entry["headers"]
    message = _sent(to_pass_on(delayed(headers, message_id="native"), rules=RULES))
    dropped = {h.EXPIRE, h.ROUTE_EXPIRED_TO}
    expected = {key: value for key, value in headers.items() if key not in dropped}
    assert message.headers == {**expected, h.NON_DURABLE: "False"}
    assert message.message_id == "native"
    assert message.destination == headers[h.ROUTE_EXPIRED_TO].partition("@")[0]
    assert message.due_at == parse_wire_time(headers[h.EXPIRE])
    assert message.reply_to == headers[h.REPLY_TO_ADDRESS].partition("@")[0]


@pytest.mark.parametrize("entry", DELAYED, ids=lambda e: f"{e['core']}-{e['scenario']}")
def test_what_is_forwarded_is_a_converted_row_that_never_was_stored(entry: dict[str, Any]) -> None:
    """The same in every way, its delay too, but not related to a timeout."""
    message = delayed(entry["headers"])
    converted = _sent(convert(as_row(message), rules=RULES, now=NOW))
    found = _sent(to_forward(message, rules=RULES, now=NOW))
    related = {h.RELATED_TO_TIMEOUT_ID: message.headers.get(h.RELATED_TO_TIMEOUT_ID)}
    assert {**related, **found.headers} == {**converted.headers, **related}
    assert replace(found, headers={}) == replace(converted, headers={})


def test_without_a_message_id_the_amqp_one_is_used() -> None:
    """It is what the receiver would have known the message by."""
    unnamed = delayed(without(h.MESSAGE_ID), message_id="native")
    message = _sent(to_forward(unnamed, rules=RULES, now=NOW))
    assert message.message_id == "native"
    assert h.RELATED_TO_TIMEOUT_ID not in message.headers


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({h.TIMEOUT_REPLY_TO: "Web@APP01", h.REPLY_TO_ADDRESS: "Sales"}, "Web"),
        ({h.REPLY_TO_ADDRESS: "Sales@APP01", h.VERSION: "5.2.26"}, "Sales"),
        *(({h.VERSION: old}, OWN) for old in ("5.2.26", "4.6.0", "3.3.8")),
        *(
            ({h.VERSION: other}, None)
            for other in ("6.5.10", "10.2.0", "50.0", "five", "\u0665.0", "-5.0", None)
        ),
        ({}, None),
    ],
)
def test_where_replies_go(changes: dict[str, str | None], expected: str | None) -> None:
    """Version 5 kept the address aside, and without one gave its own queue."""
    headers = {**without(h.REPLY_TO_ADDRESS, h.VERSION), **changes}
    row, message = stored(headers=headers), delayed(headers)
    for found in (
        convert(row, rules=RULES, now=NOW),
        to_dispatch(row, rules=RULES),
        to_pass_on(message, rules=RULES),
        to_forward(message, rules=RULES, now=NOW),
    ):
        assert _sent(found).reply_to == expected
        assert h.TIMEOUT_REPLY_TO not in _sent(found).headers


# ── what cannot be sent ─────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("changes", "rules", "undelayed", "forward"),
    [
        ({}, {}, None, None),
        ({"New": "q" * 200}, {}, None, Reason.DESTINATION_NAME_TOO_LONG),
        ({"New": "q" * 256}, {}, *[Reason.DESTINATION_NAME_TOO_LONG] * 2),
        ({"New": "a\0b"}, {}, *[Reason.DESTINATION_UNUSABLE] * 2),
        ({"New": "migrator.staging.abc.0"}, {}, *[Reason.DESTINATION_INTERNAL] * 2),
        ({"Big": "a" * 120_000}, {}, None, Reason.HEADERS_TOO_LARGE),
        ({"Big": "a" * 131_000}, {}, *[Reason.HEADERS_TOO_LARGE] * 2),
        ({}, {"body_max_bytes": 1}, *[Reason.BODY_TOO_LARGE] * 2),
        ({h.CORRELATION_ID: "a" * 256}, {}, *[Reason.PROPERTY_TOO_LONG] * 2),
    ],
)
def test_what_cannot_be_sent_is_told(
    changes: dict[str, str], rules: dict[str, Any], undelayed: Reason | None, forward: Reason | None
) -> None:
    """Only a delay takes its share of the name and of the frame; names are those after --map."""
    message = delayed({**HEADERS, **changes})
    renamed = {"Billing.Invoices": changes.get("New", "Sales")}
    limits = replace(RULES, destination_map=renamed, **rules)
    found = (
        to_dispatch(as_row(message), rules=limits),
        to_pass_on(message, rules=limits),
        to_forward(message, rules=limits, now=NOW),
    )
    reasons = [each.reason if isinstance(each, Quarantine) else None for each in found]
    assert reasons == [undelayed, undelayed, forward]


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
    frame_max = UNDELAYED_RESERVE_BYTES + encoded_bytes(unlimited) + to_spare
    found = to_dispatch(row, rules=BrokerLimits(frame_max_bytes=frame_max))
    assert isinstance(found, Quarantine) or encoded_bytes(sent_at(found, NOW)) <= frame_max


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
