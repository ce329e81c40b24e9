"""The connections of a transfer, on a real broker."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

import pika
import pytest

from dev.servers import RabbitNode
from migrator.delays.routing import address
from migrator.delays.scan import LevelMessage, utc_now
from migrator.nservicebus.timeouts import QueueName
from migrator.rabbitmq.messages import PublishResult
from migrator.rabbitmq.properties import read_properties
from migrator.rabbitmq.server import is_our_clock
from migrator.transfer.broker import (
    LinkSettings,
    Move,
    Side,
    TransferLink,
    is_same_place,
    open_link,
)
from tests.unit.rabbitmq.material import V2, connection, plain_channel, take, vhost_with_levels


@pytest.fixture(scope="module")
def url(rabbit_node: RabbitNode) -> Iterator[str]:
    """A virtual host with the levels of v2 and two destinations, one of which leads nowhere."""
    with vhost_with_levels(rabbit_node) as found:
        with plain_channel(found) as channel:
            channel.queue_declare("Billing", durable=True)
            channel.queue_bind("Billing", "nsb.v2.delay-delivery", "#.Billing")
        yield found


@contextmanager
def _opened(url: str, **changes: Any) -> Iterator[TransferLink]:
    side = Side(connection=connection(url), version=V2)
    link = open_link(LinkSettings(source=side, target=side, **changes))
    try:
        yield link
    finally:
        link.close()


def _message(tag: int = 1, **properties: Any) -> LevelMessage:
    given = {"message_id": f"m-{tag}", "headers": {"x-death": [], "kept": 1}} | properties
    raw = b"".join(pika.BasicProperties(**given).encode())
    found = read_properties(raw)
    return LevelMessage(
        tag=tag,
        routing_key="odd",
        seen_at=datetime.now(UTC),
        headers=found.headers,
        message_id=found.message_id,
        raw_properties=raw,
        body=b"body",
    )


def _move(key: int, to: str, delay_s: int = 0, **properties: Any) -> Move:
    return Move(
        key=key,
        message=_message(key, **properties),
        address=address(V2, delay_s, QueueName(to)),
        delay_s=delay_s,
        headers={"set": "x"},
    )


def test_what_finds_no_queue_is_told_apart(url: str) -> None:
    """Of messages without a delay, those for a bound destination arrive, others come back."""
    answers = PublishResult()
    with _opened(url) as link:
        link.move([_move(n, "Billing" if n % 2 else "Blind") for n in range(20)], answers)
        link.serve()
        assert link.largest_header_bytes > 100_000
    assert answers.returned == set(range(0, 20, 2))
    assert answers.confirmed == set(range(1, 20, 2))
    got = take(url, "Billing", 10)
    assert [each.properties.message_id for each in got] == [f"m-{n}" for n in range(1, 20, 2)]
    assert all(each.properties.headers == {"kept": 1, "set": "x"} for each in got)


def test_a_delay_is_entered_by_its_level(url: str) -> None:
    """By our entries and by the native exchanges alike; strangers' user ids do not matter."""
    for use_entries in (True, False):
        answers = PublishResult()
        with _opened(url, use_entries=use_entries) as link:
            link.move([_move(1, "Billing", 1, user_id="somebody", expiration="1")], answers)
        assert answers.confirmed == {1}
    got = take(url, "Billing", 2)
    assert [each.properties.user_id for each in got] == [None, None]


def test_entries_that_may_not_be_made_are_done_without(url: str, rabbit_node: RabbitNode) -> None:
    """A user who may only write publishes by the native exchanges."""
    vhost = url.rpartition("/")[2]
    rabbit_node.add_user("mover", "pw")
    rabbit_node.set_permissions(vhost, "mover", configure="^$", write=".*", read=".*")
    answers = PublishResult()
    with _opened(rabbit_node.amqp_url(vhost, user="mover", password="pw")) as link:
        link.move([_move(1, "Billing")], answers)
    assert answers.confirmed == {1}
    assert len(take(url, "Billing", 1)) == 1


def test_poison_copies_tell_where_they_were_found(url: str) -> None:
    """Key and reason come as headers before their own."""
    answers = PublishResult()
    with _opened(url) as link:
        link.publish_poison("migrator.poison.test", [_message(1, user_id="x")], answers)
        link.publish_poison("migrator.poison.test", [_message(3)], answers)
    assert answers.confirmed == {1, 3}
    first, _ = take(url, "migrator.poison.test", 2)
    headers = first.properties.headers
    assert headers["Migrator.Found.RoutingKey"] == "odd"
    assert headers["Migrator.Found.Problem"] == "routing key"
    assert headers["kept"] == 1


def test_one_place_is_known_by_any_name(url: str, rabbit_node: RabbitNode) -> None:
    """A queue of a moment tells; nothing of it stays."""
    other = rabbit_node.amqp_url("/")
    assert is_same_place(connection(url), connection(url.replace("127.0.0.1", "localhost")))
    assert not is_same_place(connection(url), connection(other))


def test_a_clock_that_differs_is_noticed(url: str) -> None:
    """Ten seconds to either side; ours is that of the broker on the same machine."""
    assert is_our_clock(connection(url), utc_now)
    for seconds in (-10, 10):
        shift = timedelta(seconds=seconds)
        assert is_our_clock(connection(url), lambda shift=shift: utc_now() + shift) is False  # type: ignore[misc]  # mypy cannot type a lambda's default
