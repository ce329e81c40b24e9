"""How fast do messages move from the delays v1 to v2?

    .venv/bin/python -m benchmarks.transfer --messages 20000

Starts a private RabbitMQ, fills the levels of v1 with the same messages twice, and runs the real
`migrator delays migrate` on one half. The reference, measured in the same run on the same broker,
moves the other half as the vendor's tool does: get one, publish it, wait for the confirm,
acknowledge it.
"""

from __future__ import annotations

import argparse
import contextlib
import random
import secrets
import time
from dataclasses import dataclass
from datetime import UTC, datetime

import pika
from rich.console import Console
from rich.table import Table

from benchmarks.plain_publisher import headers
from dev.rabbit import RabbitNode
from migrator.delays.routing import DelaysVersion, address, delay_s, level_name, parse_routing_key
from migrator.delays.topology import create_delays
from migrator.nservicebus.headers import DELAY_IN_SECONDS
from migrator.nservicebus.timeouts import QueueName
from migrator.transfer.rules import FoundMessage, due_of
from tests.e2e.rig import Rig
from tests.unit.rabbitmq.material import connection

V1, V2 = DelaysVersion.V1, DelaysVersion.V2
DAY_S = 86_400
BILLING = QueueName("Billing")


@dataclass(frozen=True, kw_only=True)
class Measured:
    """One way of moving."""

    name: str
    seconds: float
    messages: int


def prepared(node: RabbitNode, messages: int, body_bytes: int) -> str:
    """Return the address of a virtual host with *messages* in the levels of v1."""
    name = f"bench-{secrets.token_hex(4)}"
    node.create_vhost(name)
    url = node.amqp_url(name)
    for version in (V1, V2):
        create_delays(connection(url), version)
    dice = random.Random(1)
    client = pika.BlockingConnection(pika.URLParameters(url))
    with contextlib.closing(client):
        channel = client.channel()
        channel.queue_declare(BILLING, durable=True)
        for _ in range(messages):
            wait_s = dice.randrange(DAY_S, 900 * DAY_S)
            to = address(V1, wait_s, BILLING)
            given = headers() | {DELAY_IN_SECONDS: wait_s}
            properties = pika.BasicProperties(
                headers=given,
                message_id=str(given["NServiceBus.MessageId"]),
                delivery_mode=2,
                content_type="application/json",
                type="Acme.Billing.Remind",
            )
            channel.basic_publish(to.exchange, to.routing_key, b"x" * body_bytes, properties)
        channel.confirm_delivery()
        channel.basic_publish("", "nobody", b"")
    return url


def waiting(url: str, version: DelaysVersion) -> int:
    """Return how many messages are in the levels."""
    client = pika.BlockingConnection(pika.URLParameters(url))
    with contextlib.closing(client):
        channel = client.channel()
        names = [level_name(version, level) for level in range(28)]
        found = [channel.queue_declare(name, passive=True).method for name in names]
        return sum(each.message_count for each in found)


def ours(url: str, messages: int) -> list[Measured]:
    """Run the real program; return it with and without what it needs to start."""
    rig = Rig(database_url="sqlite:///nowhere.db", broker_url=url)
    idle_s = _run(rig, "--dry-run", "--distrust-headers", "--help")
    whole_s = _run(rig, "--yes")
    if waiting(url, V2) != messages or waiting(url, V1):
        raise SystemExit("not everything was moved")
    return [
        Measured(name="migrator delays migrate, whole process", seconds=whole_s, messages=messages),
        Measured(
            name="migrator delays migrate, without starting Python",
            seconds=whole_s - idle_s,
            messages=messages,
        ),
    ]


def _run(rig: Rig, *args: str) -> float:
    began = time.perf_counter()
    rig.must("delays", "migrate", *args, timeout=600)
    return time.perf_counter() - began


def one_by_one(url: str, messages: int) -> Measured:
    """Move as the vendor's tool does; the rule for what is due is ours."""
    moved = 0
    client = pika.BlockingConnection(pika.URLParameters(url))
    with contextlib.closing(client):
        taking, giving = client.channel(), client.channel()
        giving.confirm_delivery()
        giving.queue_bind(BILLING, "nsb.v2.delay-delivery", f"#.{BILLING}")
        began = time.perf_counter()
        for level in range(27, -1, -1):
            while True:
                method, properties, body = taking.basic_get(level_name(V1, level))
                if method is None:
                    break
                key, destination = parse_routing_key(method.routing_key)
                now = datetime.now(UTC)
                seen = FoundMessage(
                    version=V1, level=level, delay_s=key, seen_at=now, headers=properties.headers
                )
                due_at = due_of(seen).at
                to = address(V2, delay_s(due_at, now=now), destination)
                giving.basic_publish(to.exchange, to.routing_key, body, properties)
                taking.basic_ack(method.delivery_tag)
                moved += 1
        seconds = time.perf_counter() - began
    if moved != messages:
        raise SystemExit(f"{moved} of {messages} were moved one by one")
    return Measured(name="one by one, as the vendor's tool", seconds=seconds, messages=messages)


def table(measured: list[Measured], reference: Measured) -> Table:
    """Return the one table this benchmark prints."""
    shown = Table(title=f"{reference.messages} messages; one machine runs program and broker")
    for column in ("", "messages/s", "seconds", "ratio"):
        shown.add_column(column, justify="left" if not column else "right")
    for each in measured:
        shown.add_row(
            each.name,
            f"{each.messages / each.seconds:,.0f}",
            f"{each.seconds:.1f}",
            f"{reference.seconds / each.seconds:.1f}",
        )
    return shown


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--messages", type=int, default=20_000)
    parser.add_argument("--body-bytes", type=int, default=500)
    given = parser.parse_args()
    with RabbitNode() as node:
        moved = ours(prepared(node, given.messages, given.body_bytes), given.messages)
        reference = one_by_one(prepared(node, given.messages, given.body_bytes), given.messages)
        Console(width=110).print(table([*moved, reference], reference))


if __name__ == "__main__":
    main()
