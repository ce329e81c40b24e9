"""Messages, settings and a plain reader for the tests of the broker."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import pika

from dev.servers import RabbitNode
from migrator.delays.routing import DelaysVersion
from migrator.errors import TargetUnavailable
from migrator.handover.encoding import encode_message
from migrator.handover.link import LinkSettings, RabbitLink, open_lane
from migrator.handover.ports import Delayed
from migrator.nservicebus.tags import Attempt
from migrator.nservicebus.timeouts import BatchId, Lane, NativeMessage, QueueName, TimeoutId
from migrator.rabbitmq.addresses import parse_addresses
from migrator.rabbitmq.connection import ConnectionSettings, TlsFiles
from migrator.rabbitmq.management import ManagementApi, management_settings
from migrator.rabbitmq.publisher import WindowLimits, in_chunks
from tests.conftest import Vhost
from tests.support.levels import make_levels

LEDGER = "abc123"
V1, V2 = DelaysVersion.V1, DelaysVersion.V2


@contextmanager
def vhost_with_levels(node: RabbitNode) -> Iterator[str]:
    """Make a virtual host with the levels of v2, for several tests; yield its address."""
    if not node.running:
        node.start()
    name = f"shared-{secrets.token_hex(6)}"
    node.create_vhost(name)
    try:
        make_levels(node.management_url, name)
        yield node.amqp_url(name)
    finally:
        if node.running:
            node.delete_vhost(name)


def an_attempt(batch: int = 1, attempt: int = 1) -> Attempt:
    """Return an attempt by its numbers."""
    return Attempt(batch=BatchId(batch), number=attempt)


def message(
    row_index: int = 0, *, destination: str = "Sales.Orders", body: bytes = b"{}", **changes: Any
) -> NativeMessage:
    """Return a message as conversion would make it."""
    fields: dict[str, Any] = {
        "row_index": row_index,
        "timeout_id": TimeoutId(f"t-{row_index}"),
        "message_id": f"5d0c1f5e-8f0a-4b5e-9a44-{row_index:012d}",
        "destination": QueueName(destination),
        "due_at": datetime(2026, 3, 10, 9, 30, tzinfo=UTC),
        "headers": {
            "NServiceBus.MessageId": f"5d0c1f5e-8f0a-4b5e-9a44-{row_index:012d}",
            "NServiceBus.EnclosedMessageTypes": "Acme.Billing.InvoiceOverdue, Acme",
            "NServiceBus.Umlaut": "Zürich ☃",
            "NServiceBus.Nothing": None,
            "NServiceBus.Transport.RabbitMQ.DelayInSeconds": 1_209_600,
        },
        "type": "Acme.Billing.InvoiceOverdue",
        "correlation_id": "0b7e",
        "reply_to": "Billing.Invoices",
        "content_type": "application/json",
        "body": body,
    }
    return NativeMessage(**(fields | changes))


def delayed(delay_s: int, row_index: int = 0, **changes: Any) -> Delayed:
    """Return a message with a delay."""
    return encode_message(message(row_index, **changes)), delay_s


def chunks(messages: Iterable[Delayed]) -> Iterator[Sequence[Delayed]]:
    """Yield *messages* as a hand-over does."""
    return in_chunks(messages, bytes_of=lambda each: len(each[0].body))


def connection(url: str, **changes: Any) -> ConnectionSettings:
    """Return settings for a connection to *url*."""
    return ConnectionSettings(nodes=parse_addresses(url), **changes)


def api_of(vhost: Vhost, url: str | None = None) -> ManagementApi:
    """Return the management API of a virtual host, to be closed."""
    address = connection(vhost.amqp_url).address
    return ManagementApi(management_settings(address, url or vhost.node.management_url, TlsFiles()))


def link_settings(
    url: str,
    *,
    version: DelaysVersion = V2,
    ledger_id: str = LEDGER,
    use_entries: bool = True,
    limits: WindowLimits | None = None,
    **changes: Any,
) -> LinkSettings:
    """Return settings for links to *url*."""
    return LinkSettings(
        connection=connection(url, **changes),
        version=version,
        ledger_id=ledger_id,
        use_entries=use_entries,
        limits=limits or WindowLimits(confirm_deadline_s=5),
    )


@contextmanager
def opened(
    settings: LinkSettings,
    *,
    lane: int = 0,
    prefetch: int = 2000,
    guard: Callable[[], None] = lambda: None,
    patience_s: float = 10.0,
) -> Iterator[RabbitLink]:
    """Open a link and close it afterwards; the broker may not have noticed the last one's end."""

    def attempt() -> RabbitLink:
        return open_lane(settings, lane=Lane(lane), owner="tester", prefetch=prefetch, guard=guard)

    link = _in_the_end(attempt, patience_s)
    try:
        yield link
    finally:
        link.close()


def _in_the_end(attempt: Callable[[], RabbitLink], patience_s: float) -> RabbitLink:
    ends_s = time.monotonic() + patience_s
    while True:
        try:
            return attempt()
        except TargetUnavailable as exc:
            if "still holds lane" not in str(exc) or time.monotonic() >= ends_s:
                raise
            time.sleep(0.1)


@dataclass(frozen=True, slots=True)
class Received:
    """One message taken out of a queue."""

    routing_key: str
    properties: Any
    body: bytes
    at_s: float


@contextmanager
def plain_channel(url: str) -> Iterator[Any]:
    """Open a pika channel of the test's own."""
    client = pika.BlockingConnection(pika.URLParameters(url))
    try:
        yield client.channel()
    finally:
        if client.is_open:
            client.close()


def take(url: str, queue: str, count: int, *, timeout_s: float = 30.0) -> list[Received]:
    """Consume *count* messages from *queue*, or as many as come within the timeout."""
    received: list[Received] = []
    deadline_s = time.monotonic() + timeout_s
    with plain_channel(url) as channel:
        for method, properties, body in channel.consume(queue, inactivity_timeout=0.02):
            if method is not None:
                at_s = time.monotonic()
                received.append(Received(method.routing_key, properties, body, at_s))
                channel.basic_ack(method.delivery_tag)
            if len(received) == count or time.monotonic() > deadline_s:
                break
        channel.cancel()
    return received


def wait_until(condition: Any, *, seconds: float = 30.0) -> None:
    """Poll until *condition* holds."""
    deadline_s = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline_s, "it did not happen in time"
        time.sleep(0.02)


def in_time(attempt: Callable[[], bool], *, times: int = 5) -> bool:
    """Return whether *attempt* once came in time: a busy machine makes any of them late."""
    return any(attempt() for _ in range(times))
