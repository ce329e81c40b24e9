"""Tests of ``migrator.nservicebus.incoming``."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from migrator.nservicebus import headers as h
from migrator.nservicebus.incoming import IncomingMessage, normalised_headers, unicode_text
from migrator.nservicebus.recoverability import retry_copy
from tests.unit.nservicebus.samples import delivered, incoming, messages

# ── realistic ───────────────────────────────────────────────────────────────────────────────


NOT_THE_SENDERS = (
    "NServiceBus.Transport.RabbitMQ.DelayInSeconds",
    "NServiceBus.Transport.RabbitMQ.ConfirmationId",
    *("Migrator.Retries", "Migrator.Renewed", "CC", "BCC"),
    *("x-death", "x-first-death-exchange", "x-first-death-queue", "x-first-death-reason"),
    *("x-last-death-exchange", "x-last-death-queue", "x-last-death-reason"),
    *("x-delivery-count", "x-acquired-count"),
)


@pytest.mark.parametrize("key", NOT_THE_SENDERS)
def test_what_belongs_to_transport_broker_and_us_is_removed(key: str) -> None:
    """Names are compared exactly: users have headers of their own."""
    similar = dict.fromkeys(("x-tenant", "cc", "X-Death", "x-death-count", ""), "a")
    found = normalised_headers(incoming({key: "a", **similar}))
    assert found == {**similar, h.NON_DURABLE: "False"}


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (None, None),
        ("text", "text"),
        ("", ""),
        ("ü€😀", "ü€😀"),
        (b"bytes", "bytes"),
        ("ü".encode(), "ü"),
        (b"\xff\xfe!", "\ufffd\ufffd!"),
        (True, "True"),
        (False, "False"),
        (0, "0"),
        (-(2**63), "-9223372036854775808"),
        (Decimal("1.50"), "1.50"),
        (Decimal("1E+2"), "100"),
        (datetime(2026, 3, 15, 8, 0, 0, tzinfo=UTC), "2026-03-15 08:00:00:000000 Z"),
        (datetime(2026, 3, 15, 8, 0, 0), "2026-03-15 08:00:00:000000 Z"),  # noqa: DTZ001 - as some clients read it
        ([], ""),
        (["a", 1, None, b"b", True], "a;1;;b;True"),
        ({}, ""),
        ({"a": 1, "b": None, "c": [1, 2]}, "a=1,b=,c=1;2"),
        (1.0, "1"),
        (0.1, "0.1"),
        (-2.5, "-2.5"),
        (0.0, "0"),
        (0.0001, "0.0001"),
        (0.00001, "1E-05"),
        (123456789012345.0, "123456789012345"),
        (1e15, "1E+15"),
        (1.2345678901234568e17, "1.2345678901234568E+17"),
        (5e-324, "5E-324"),
        (float("nan"), "NaN"),
        (float("inf"), "Infinity"),
        (float("-inf"), "-Infinity"),
    ],
)
def test_values_become_text_as_the_transport_writes_it(value: object, expected: str | None) -> None:
    """Other clients send numbers, tables and times; the transport stores text."""
    assert normalised_headers(incoming({"X": value}))["X"] == expected


# ── properties ──────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("headers", "properties", "name", "expected"),
    [
        ({h.REPLY_TO_ADDRESS: "Old"}, {"reply_to": "New"}, h.REPLY_TO_ADDRESS, "New"),
        ({h.CORRELATION_ID: "old"}, {"correlation_id": "new"}, h.CORRELATION_ID, "new"),
        ({h.CALLBACK_QUEUE: "Web.1"}, {"reply_to": "Web"}, h.REPLY_TO_ADDRESS, "Web.1"),
        ({}, {"type": "Acme.T"}, h.ENCLOSED_MESSAGE_TYPES, "Acme.T"),
        ({h.ENCLOSED_MESSAGE_TYPES: "B"}, {"type": "Acme.T"}, h.ENCLOSED_MESSAGE_TYPES, "B"),
        ({h.ENCLOSED_MESSAGE_TYPES: None}, {"type": "Acme.T"}, h.ENCLOSED_MESSAGE_TYPES, None),
    ],
)
def test_properties_become_headers(
    headers: dict[str, object], properties: dict[str, str], name: str, expected: str | None
) -> None:
    """They win, as AMQP tools set them; only the type fills a gap, since the header knows more."""
    assert normalised_headers(incoming(headers, **properties))[name] == expected


@pytest.mark.parametrize(
    ("mode", "header", "expected"),
    [
        (2, "True", "False"),
        (1, "False", "True"),
        (0, None, "False"),
        (None, None, "False"),
        (None, "True", "True"),
        (None, " true ", "True"),
        (None, "1", "False"),
    ],
)
def test_the_delivery_mode_is_told_in_a_header(
    mode: int | None, header: str | None, expected: str
) -> None:
    """The property decides; without one, the header does."""
    headers = {} if header is None else {h.NON_DURABLE: header}
    assert normalised_headers(incoming(headers, delivery_mode=mode))[h.NON_DURABLE] == expected


def test_a_retry_copy_says_what_the_original_was() -> None:
    """It is persistent itself; its row shall have the id that the original's has."""
    original = incoming({}, delivery_mode=1)
    once = delivered(retry_copy(original, retries=1))
    assert once.delivery_mode == 2
    assert normalised_headers(once) == normalised_headers(original) == {h.NON_DURABLE: "True"}


# ── pathological ────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a\ud800b", "a\ufffdb"),
        ("\udfff", "\ufffd"),
        ("\ud83d\ude00", "😀"),
        ("\0", "\0"),
    ],
)
def test_halves_of_characters_are_replaced(text: str, expected: str) -> None:
    """Neither a database nor a broker can carry them."""
    assert unicode_text(text) == expected
    found = normalised_headers(
        incoming({text: text, "list": [text], "table": {text: 1}}, reply_to=text)
    )
    assert found[expected] == found["list"] == found[h.REPLY_TO_ADDRESS] == expected
    assert found["table"] == f"{expected}=1"


def test_tables_in_tables_come_to_an_end() -> None:
    """A frame has room for tens of thousands of levels; nobody means them."""
    deep: list[object] = []
    for _ in range(100_000):
        deep = [deep]
    assert normalised_headers(incoming({"X": deep}))["X"] == "..."


@given(value=st.floats(allow_nan=False, allow_infinity=False))
def test_numbers_can_be_read_back(value: float) -> None:
    """Nothing of a number is lost."""
    text = normalised_headers(incoming({"X": value}))["X"]
    assert text is not None
    assert float(text) == value


@given(message=messages())
def test_everything_becomes_text_that_can_be_sent(message: IncomingMessage) -> None:
    """Whatever a stranger sent, the result is text in UTF-8, or null."""
    for key, value in normalised_headers(message).items():
        assert key.encode().decode() == key
        assert value is None or value.encode().decode() == value
