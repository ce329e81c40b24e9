"""What is published of a stored timeout is what ``convert`` says, in pika's own bytes."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pika import frame, spec

from migrator.handover import encoding
from migrator.handover.encoding import encode
from migrator.nservicebus import headers as h
from migrator.nservicebus.conversion import BrokerLimits, Quarantine, Reason, convert
from migrator.nservicebus.timeouts import (
    MAX_DELAY_S,
    EncodedTimeout,
    NativeMessage,
    QueueName,
    StoredTimeout,
    TimeoutId,
)
from migrator.nservicebus.wiretime import build_wire_time
from migrator.rabbitmq.messages import encode_fields, encode_publish, tagged_properties
from tests.e2e.rows import usual_headers
from tests.reference.captured import timeouts
from tests.unit.nservicebus.samples import DUE, HEADERS, NOW, SENT, captured, stored

_LEVEL = {h.CONFIRMATION_ID: "17"}
_TAG = "migrator/abc123/12.3.4"
_OWN = QueueName("Own.Queue")
_RULES = (
    BrokerLimits(own_queue=_OWN, destination_map={"Old": "New"}),
    BrokerLimits(own_queue=_OWN, frame_max_bytes=19_000, body_max_bytes=100),
    BrokerLimits(frame_max_bytes=0),
)


def _by_pika(message: NativeMessage, more: dict[str, str]) -> bytes:
    properties = spec.BasicProperties(
        content_type=message.content_type,
        headers={**message.headers, **more},
        delivery_mode=2,
        correlation_id=message.correlation_id,
        reply_to=message.reply_to,
        message_id=message.message_id,
        type=message.type,
        app_id=_TAG,
    )
    method = spec.Basic.Publish(exchange="ex", routing_key="a.b", mandatory=True)
    frames = [frame.Method(7, method), frame.Header(7, len(message.body), properties)]
    frames += [frame.Body(7, message.body)] if message.body else []
    return b"".join(each.marshal() for each in frames)


def _published(message: EncodedTimeout, more: dict[str, str]) -> bytes:
    properties = tagged_properties(message, _TAG, encode_fields(more))
    pieces = encode_publish(7, "ex", "a.b", properties, message.body, frame_max_bytes=0)
    return b"".join(pieces)


def assert_as_converted(rows: Sequence[StoredTimeout], rules: BrokerLimits) -> None:
    """Demand what ``convert`` returns for each row, and the frames that pika makes of it."""
    for row, found in zip(rows, encode(rows, rules=rules, now=NOW), strict=True):
        expected = convert(row, rules=rules, now=NOW)
        if isinstance(expected, Quarantine):
            assert found == expected
            continue
        assert isinstance(found, EncodedTimeout), found
        for name in ("row_index", "timeout_id", "message_id", "destination", "due_at", "body"):
            assert getattr(found, name) == getattr(expected, name)
        for more in ({}, _LEVEL):
            assert _published(found, more) == _by_pika(expected, more)


# ── what endpoints wrote ────────────────────────────────────────────────────────────────────


def test_what_real_endpoints_wrote_is_encoded_as_it_is_converted() -> None:
    """Captured headers of core 5 to 10, and rows of real timeout managers, each twice."""
    rows = [stored(headers=dict(each["headers"])) for each in captured()]
    rows += [
        stored(headers_text=each.row.headers, destination=each.row.destination)
        for each in timeouts()
    ]
    assert_as_converted(rows * 2, _RULES[0])


def test_rows_alike_are_converted_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """The readable way is taken for the first of a kind; else nothing would be faster."""
    taken = []

    def counted(row: StoredTimeout, **more: Any) -> NativeMessage | Quarantine:
        taken.append(row.destination)
        return convert(row, **more)

    monkeypatch.setattr(encoding, "convert", counted)
    usual = [_usual(random.Random(1), number) for number in range(100)]
    rows = [replace(row, destination=f"to-{n % 4}") for n, row in enumerate(usual)]
    assert_as_converted(rows, _RULES[0])
    assert taken == ["to-0", "to-1", "to-2", "to-3"]


# ── generated ───────────────────────────────────────────────────────────────────────────────

_NAMES = (
    *(getattr(h, name) for name in dir(h) if isinstance(getattr(h, name), str) and name.isupper()),
    *("x-death", "X", "CC", "BCC", "$.diagnostics", "Zürich", "", "k" * 255, "k" * 256, "é" * 128),
)
_VALUES: tuple[object, ...] = (
    *(None, "", " ", "True", "a@B", "x" * 255, "x" * 256, "ü" * 200, "y" * 3000, "\0", "\u2028"),
    *(5, 1.5, True, False, [], {}, [["a"]], {"a": "b"}, 10**30, float("nan"), float("inf")),
    *("3.3.1", "3.0", "5.2.0", "6.5.10", "30.1", "10", "\ud800", "😀", '"\\/'),
    *(build_wire_time(DUE + timedelta(seconds=s)) for s in (-1, -0.3, 0, 0.5, 1, 1.1, 9, 2**31)),
    *(build_wire_time(SENT).replace(":123456", ".123456"), "0000" + build_wire_time(SENT)[4:]),
    build_wire_time(SENT - timedelta(days=30_000)),
)
_TEXTS = (None, "", " \n", "null", "[]", "{}", '"a"', "5", "{", "\ufeff{}", '{"a":"b",}', "{} x")
_PLACES = (
    *(None, "", "Billing", "Old@APP01", "@APP01", "q" * 199, "q" * 200, "ä" * 100, " Two "),
    *(cast("Any", 5), "N\0L", "\0", "CR\rLF", "\nTrimmed\n", "half \ud83d", "Two@\0", "\t"),
    *("migrator.staging.a.0", "nsb.v2.delay-delivery"),
)


def _usual(chance: random.Random, number: int) -> StoredTimeout:
    due_at = DUE + timedelta(microseconds=chance.randrange(10**13))
    headers = usual_headers() | {
        h.TIME_SENT: build_wire_time(SENT),
        h.EXPIRE: build_wire_time(due_at),
        h.ROUTE_EXPIRED_TO: "Billing",
    }
    text = json.dumps(headers, indent=chance.choice([None, 2]))
    return StoredTimeout(
        id=TimeoutId(f"id-{number}"),
        row_index=number,
        destination="Billing",
        due_at=due_at,
        body=b"x" * chance.choice([0, 20, 101]),
        headers_text=text,
    )


def _changed(chance: random.Random, row: StoredTimeout) -> StoredTimeout:
    """Return *row* with something unusual, now and then with several things."""
    headers: dict[str, Any] = json.loads(row.headers_text or "{}")
    due_at, text = row.due_at, None
    while True:
        match chance.randrange(9):
            case 0:
                text = chance.choice(_TEXTS)
                return replace(row, headers_text=text)
            case 1:
                row = replace(row, destination=chance.choice(_PLACES))
            case 2:
                headers.pop(chance.choice(list(headers) or [""]), None)
            case 3:
                seconds = chance.choice([-0.4, 1, 1.1, MAX_DELAY_S, -(10**9)])
                due_at += timedelta(seconds=seconds)
            case 4:
                headers = dict(chance.sample(list(headers.items()), len(headers)))
            case _:
                headers[chance.choice(_NAMES)] = chance.choice(_VALUES)
        if chance.random() < 0.6:
            break
    text = json.dumps(headers, ensure_ascii=chance.random() < 0.5)
    if chance.random() < 0.1 and headers:  # a key twice
        text = f'{text[:-1]}, "{chance.choice([h.MESSAGE_ID, "X", h.EXPIRE])}": "again"}}'
    return replace(row, due_at=due_at, headers_text=text)


_MANY = 100_000
"""Of which some go to quarantine for each reason, whatever the names of headers are."""


@pytest.mark.parametrize("count", [2_000, pytest.param(_MANY, marks=pytest.mark.slow)])
def test_generated_rows_are_encoded_as_they_are_converted(count: int) -> None:
    """Usual rows, and rows with anything wrong that we could think of, in any mixture."""
    chance = random.Random(16)
    reasons = set[Reason]()
    left = count
    while left > 0:
        size, oddity = min(chance.randrange(1, 100), left), chance.random() ** 2
        rows = [
            _changed(chance, row) if chance.random() < oddity else row
            for row in (_usual(chance, number) for number in range(size))
        ]
        rules = chance.choice(_RULES)
        assert_as_converted(rows, rules)
        found = (convert(row, rules=rules, now=NOW) for row in rows)
        reasons |= {each.reason for each in found if isinstance(each, Quarantine)}
        left -= size
    assert count < _MANY or reasons >= {
        Reason.UNREADABLE_HEADERS,
        Reason.NO_DESTINATION,
        Reason.DESTINATION_INTERNAL,
        Reason.DESTINATION_NAME_TOO_LONG,
        Reason.DESTINATION_UNUSABLE,
        Reason.UNPROCESSABLE,
        Reason.PROPERTY_TOO_LONG,
        Reason.HEADER_KEY_TOO_LONG,
        Reason.HEADERS_TOO_LARGE,
        Reason.BODY_TOO_LARGE,
        Reason.DELAY_TOO_LONG,
    }


_JSON = st.recursive(
    st.none() | st.text(st.characters(), max_size=8) | st.integers() | st.floats() | st.booleans(),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=4,
)
_TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=30)


@given(
    more=st.dictionaries(st.sampled_from(_NAMES) | _TEXT, _JSON | _TEXT, max_size=4),
    around=st.tuples(_TEXT, _TEXT) | st.just(("", "")),
    ensure_ascii=st.booleans(),
    rules=st.sampled_from(_RULES),
)
def test_any_text_is_encoded_as_it_is_converted(
    more: dict[str, Any], around: tuple[str, str], ensure_ascii: bool, rules: BrokerLimits
) -> None:
    """The two JSON readers agree on what they take, whatever stands in a header or around it."""
    text = json.dumps({**HEADERS, **more}, ensure_ascii=ensure_ascii)
    row = stored(headers_text=f"{around[0]}{text}{around[1]}")
    assert_as_converted([stored(), row, row], rules)


def test_a_due_time_at_the_limit_is_judged_as_by_conversion() -> None:
    """The longest delay fits, to the microsecond; one more goes to quarantine."""
    longest = NOW + timedelta(seconds=MAX_DELAY_S)
    dues: list[datetime] = [longest + timedelta(microseconds=n) for n in (-1, 0, 1)]
    headers: dict[str, str | None] = {h.TIME_SENT: build_wire_time(SENT)}
    rows = [stored(headers=headers)] + [stored(headers=headers, due_at=due) for due in dues]
    assert_as_converted(rows, _RULES[0])
    assert isinstance(encode(rows, rules=_RULES[0], now=NOW)[-1], Quarantine)
