"""Invented timeouts and the captured fixtures, for the tests of this folder."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from hypothesis import strategies as st

from migrator.nservicebus.incoming import IncomingMessage, OutgoingMessage
from migrator.nservicebus.timeouts import QueueName, StoredTimeout, TimeoutId
from migrator.nservicebus.wiretime import build_wire_time

QUEUE = QueueName("Billing.Invoices.Timeouts")
FIXTURES = Path(__file__).parents[2] / "fixtures"
NOW = datetime(2026, 3, 10, 9, 30, tzinfo=UTC)
DUE = datetime(2026, 3, 15, 8, 0, 0, 123456, tzinfo=UTC)
SENT = datetime(2026, 3, 1, 8, 0, 0, 123456, tzinfo=UTC)

HEADERS: dict[str, str | None] = {
    "NServiceBus.MessageId": "5d0c1f5e-8f0a-4b5e-9a44-b1c200e1aa01",
    "NServiceBus.MessageIntent": "Send",
    "NServiceBus.CorrelationId": "0b7e0000-0000-4000-8000-000000000001",
    "NServiceBus.ReplyToAddress": "Billing.Invoices",
    "NServiceBus.ContentType": "application/json",
    "NServiceBus.EnclosedMessageTypes": "Acme.Billing.InvoiceOverdue, Acme.Billing, Version=1.0",
    "NServiceBus.SagaId": "9a1e0c52-3f77-4c1e-8d31-b1c200e1a900",
    "NServiceBus.IsSagaTimeoutMessage": "True",
    "NServiceBus.Version": "6.5.10",
    "NServiceBus.TimeSent": build_wire_time(SENT),
    "NServiceBus.Timeout.Expire": build_wire_time(DUE),
    "NServiceBus.Timeout.RouteExpiredTimeoutTo": "Billing.Invoices",
    "NServiceBus.Transport.RabbitMQ.ConfirmationId": "42",
    "NServiceBus.NonDurableMessage": "False",
}
"""The example of reference ``timeout-manager.md`` section 16."""


def captured() -> list[dict[str, Any]]:
    """Return the headers that real endpoints wrote, one entry per core version and scenario."""
    found: list[dict[str, Any]] = json.loads((FIXTURES / "captured-headers.json").read_text())
    return found


def vectors() -> list[dict[str, Any]]:
    """Return delays with the routing keys the vendor's own code makes of them."""
    found: list[dict[str, Any]] = json.loads((FIXTURES / "routing-vectors.json").read_text())
    return found


def stored(
    *,
    headers: dict[str, str | None] | None = None,
    headers_text: str | None = None,
    destination: str | None = "Billing.Invoices",
    due_at: datetime = DUE,
    body: bytes = b'{"InvoiceId":"INV-1001"}',
    id: str = "3f2b0000-0000-4000-8000-0000000000c1",
) -> StoredTimeout:
    """Return a row as a store holds it; *headers* are written as JSON unless a text is given."""
    text = json.dumps(HEADERS if headers is None else headers)
    return StoredTimeout(
        id=TimeoutId(id),
        row_index=7,
        destination=destination,
        due_at=due_at,
        body=body,
        headers_text=text if headers_text is None else headers_text,
    )


def incoming(headers: Mapping[str, object] | None = None, **changes: Any) -> IncomingMessage:
    """Return a message as a broker delivers it: the example's headers, and few properties."""
    fields: dict[str, Any] = {
        "message_id": "5d0c1f5e-8f0a-4b5e-9a44-b1c200e1aa01",
        "correlation_id": None,
        "type": None,
        "reply_to": None,
        "content_type": "application/json",
        "delivery_mode": 2,
        "raw_headers": HEADERS if headers is None else headers,
        "body": b'{"InvoiceId":"INV-1001"}',
        "raw_properties": b"\x00\x00",
    }
    return IncomingMessage(**{**fields, **changes})


def delivered(envelope: OutgoingMessage) -> IncomingMessage:
    """Return *envelope* as a retry queue brings it back: sorted, and marked by the broker."""
    marks = {
        "x-death": [{"count": 1, "queue": "migrator.retry.Billing.Invoices.Timeouts.10"}],
        "x-first-death-queue": "migrator.retry.Billing.Invoices.Timeouts.10",
        "x-last-death-queue": "migrator.retry.Billing.Invoices.Timeouts.10",
        "x-delivery-count": 3,
        "x-acquired-count": 4,
    }
    return IncomingMessage(
        message_id=envelope.message_id,
        correlation_id=envelope.correlation_id,
        type=envelope.type,
        reply_to=envelope.reply_to,
        content_type=envelope.content_type,
        delivery_mode=2,
        raw_headers=dict(sorted({**envelope.headers, **marks}.items())),
        body=envelope.body,
        raw_properties=b"\x00\x00",
    )


def amqp_headers() -> st.SearchStrategy[dict[str, object]]:
    """Return header tables of every kind of value that AMQP knows, and some that it does not."""
    text = st.text(max_size=12)
    plain: st.SearchStrategy[object] = st.one_of(
        st.none(),
        st.booleans(),
        st.integers(-(2**63), 2**63),
        st.floats(),
        st.decimals(allow_nan=False, places=2, min_value=-(10**9), max_value=10**9),
        st.datetimes(timezones=st.just(UTC)),
        st.binary(max_size=12),
        text,
    )
    nested = st.recursive(
        plain,
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(text, inner, max_size=3),
        max_leaves=8,
    )
    known = st.sampled_from([*HEADERS, "NServiceBus.RabbitMQ.CallbackQueue", "x-death", "CC"])
    return st.dictionaries(known | text, nested, max_size=8)


def messages() -> st.SearchStrategy[IncomingMessage]:
    """Return messages with any headers and any properties."""
    prop = st.none() | st.text(max_size=12)
    return st.builds(
        IncomingMessage,
        message_id=st.text(min_size=1, max_size=12).filter(str.strip),
        correlation_id=prop,
        type=prop,
        reply_to=prop,
        content_type=prop,
        delivery_mode=st.none() | st.integers(0, 3),
        raw_headers=amqp_headers(),
        body=st.binary(max_size=12),
        raw_properties=st.just(b""),
    )


def without(*keys: str) -> dict[str, str | None]:
    """Return the example's headers without *keys*."""
    return {key: value for key, value in HEADERS.items() if key not in keys}


A_SECOND = timedelta(seconds=1)
