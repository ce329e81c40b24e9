"""Rows as an endpoint would have stored them, and what became of them on the broker."""

from __future__ import annotations

import json
import random
import uuid
from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Self

import pika

from migrator.nservicebus.headers import RELATED_TO_TIMEOUT_ID
from migrator.nservicebus.wiretime import build_wire_time

NO_SAGA = uuid.UUID(int=0)


@dataclass(frozen=True, kw_only=True)
class Row:
    """One row of the legacy table."""

    id: str
    destination: str | None
    due_at: datetime
    body: bytes | None
    headers: str | None
    saga_id: uuid.UUID = NO_SAGA
    persistence_version: str = "6.6.5.0"


@dataclass(frozen=True, kw_only=True)
class Found:
    """One message that was found on the broker."""

    queue: str
    routing_key: str
    properties: pika.BasicProperties
    body: bytes

    @property
    def timeout_id(self) -> str:
        return str((self.properties.headers or {}).get(RELATED_TO_TIMEOUT_ID))


@dataclass(frozen=True, kw_only=True)
class Account:
    """What became of timeouts; those that are not as they should be by their ids."""

    attempted: int
    found: int
    lost: tuple[str, ...]
    duplicated: tuple[str, ...]
    foreign: tuple[str, ...]
    early: tuple[str, ...] = ()
    median_s: float = 0.0
    """Of the lateness of first copies, where it was measured."""
    worst_s: float = 0.0

    @classmethod
    def of(cls, expected: Collection[str], found: Counter[str], **more: Any) -> Self:
        """Return the account of what was *expected*, and how often each id was *found*."""
        return cls(
            **{"attempted": len(expected), **more},
            found=found.total(),
            lost=tuple(sorted(set(expected) - set(found))),
            duplicated=tuple(sorted(each for each, times in found.items() if times > 1)),
            foreign=tuple(sorted(set(found) - set(expected))),
        )

    def __str__(self) -> str:
        return (
            f"attempted {self.attempted}, found {self.found}, lost {len(self.lost)}, duplicated "
            f"{len(self.duplicated)}, foreign {len(self.foreign)}, early {len(self.early)}, "
            f"late {self.median_s:.3f} s (median), {self.worst_s:.3f} s (worst)"
        )


def usual_headers() -> dict[str, str | None]:
    """Return what a version 6 endpoint writes, but for times and destination; a new message."""
    message_id = str(uuid.uuid4())
    return {
        "NServiceBus.MessageId": message_id,
        "NServiceBus.MessageIntent": "Send",
        "NServiceBus.CorrelationId": message_id,
        "NServiceBus.ConversationId": str(uuid.uuid4()),
        "NServiceBus.OriginatingEndpoint": "Sales",
        "NServiceBus.OriginatingMachine": "APP01",
        "NServiceBus.ReplyToAddress": "Sales",
        "NServiceBus.ContentType": "application/json",
        "NServiceBus.EnclosedMessageTypes": "Acme.Billing.Remind, Acme.Billing, Version=1.0.0.0",
        "NServiceBus.Version": "6.5.10",
        "NServiceBus.NonDurableMessage": "False",
        "traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
        "tracestate": "vendor=1",
    }


def row(
    due_in: timedelta = timedelta(days=3),
    *,
    destination: str | None = "Billing",
    body: bytes | None = b'{"a": 1}',
    headers: dict[str, str | None] | None = None,
    **more: Any,
) -> Row:
    """Return a row as a version 6 endpoint would have stored it."""
    now = datetime.now(UTC)
    due_at = now + due_in
    usual = usual_headers() | {
        "NServiceBus.TimeSent": build_wire_time(now - timedelta(days=1)),
        "NServiceBus.Timeout.Expire": build_wire_time(due_at),
        "NServiceBus.Timeout.RouteExpiredTimeoutTo": destination,
    }
    return Row(
        id=str(uuid.uuid4()),
        destination=destination,
        due_at=due_at,
        body=body,
        headers=json.dumps(usual | (headers or {}), indent=2),
        **more,
    )


def nameless(destination: str, due_in: timedelta = timedelta(days=3), **more: Any) -> Row:
    """Return a row whose header alone says where it goes: in vain, it goes to quarantine."""
    header: dict[str, str | None] = {"NServiceBus.Timeout.RouteExpiredTimeoutTo": destination}
    return row(due_in, destination=None, headers=header, **more)


def chance(seed: int) -> random.Random:
    """Return a source of randomness that a failing test can be repeated with."""
    return random.Random(seed)
