"""Invented timeouts and the captured fixtures, for the tests of this folder."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from migrator.domain.timeouts import StoredTimeout, TimeoutId
from migrator.domain.wiretime import build_wire_time

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


def without(*keys: str) -> dict[str, str | None]:
    """Return the example's headers without *keys*."""
    return {key: value for key, value in HEADERS.items() if key not in keys}


A_SECOND = timedelta(seconds=1)
