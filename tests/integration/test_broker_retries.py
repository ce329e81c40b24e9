"""Retry queues on a real broker: what is put there comes back by itself, whole and in time."""

from __future__ import annotations

import time

import pytest

from dev.servers import RabbitNode
from migrator.dispatcher.link import (
    Delivery,
    RabbitSatelliteLink,
    declare_retry_queues,
    open_satellite_link,
)
from migrator.dispatcher.routes import Route
from migrator.errors import EntityMismatch
from migrator.nservicebus.incoming import RawMessage
from migrator.nservicebus.timeouts import QueueName
from migrator.rabbitmq.admin import admin_session
from migrator.rabbitmq.messages import PublishResult
from migrator.rabbitmq.names import retry_queue
from migrator.rabbitmq.publisher import WindowLimits
from tests.conftest import Vhost
from tests.unit.rabbitmq.material import connection, plain_channel, wait_until

QUEUE = QueueName("Billing.Timeouts")
ARGUMENTS = {
    "x-queue-type": "quorum",
    "x-message-ttl": 1000,
    "x-dead-letter-exchange": "",
    "x-dead-letter-routing-key": QUEUE,
    "x-dead-letter-strategy": "at-least-once",
    "x-overflow": "reject-publish",
}
HEADERS: dict[str, str | int | None] = {
    "NServiceBus.MessageId": "m-1",
    "Migrator.Retries": "1",
    "Umlaut": "Zürich ☃",
    "Nothing": None,
}


@pytest.fixture
def url(vhost: Vhost) -> str:
    """A virtual host with the queue that messages come back to."""
    with plain_channel(vhost.amqp_url) as channel:
        channel.queue_declare(QUEUE, durable=True)
    return vhost.amqp_url


def _declare(url: str, *delays_s: int) -> tuple[str, ...]:
    with admin_session(connection(url), purpose="test") as admin:
        return declare_retry_queues(admin, QUEUE, delays_s)


def _open(url: str) -> RabbitSatelliteLink:
    limits = WindowLimits(confirm_deadline_s=5)
    return open_satellite_link(connection(url), endpoint="Billing", owner="tester", limits=limits)


def _envelope(body: bytes, headers: dict[str, str | int | None]) -> RawMessage:
    return RawMessage(
        message_id="m-1",
        correlation_id="c-1",
        type="Acme.Overdue",
        reply_to="Sales",
        content_type="text/xml",
        headers=headers,
        body=body,
    )


def _put(link: RabbitSatelliteLink, queue: str, *bodies: bytes) -> None:
    answers = PublishResult()
    link.publish(
        [(Route(exchange="", routing_key=queue), _envelope(body, HEADERS)) for body in bodies],
        answers,
    )
    assert answers == PublishResult(confirmed=set(range(len(bodies))))


def _receive(link: RabbitSatelliteLink, count: int) -> list[Delivery]:
    found: list[Delivery] = []
    deadline_s = time.monotonic() + 30
    while len(found) < count and time.monotonic() < deadline_s:
        link.idle(0.1)
        found += link.received()
    return found


def test_a_message_comes_back_after_its_delay(url: str) -> None:
    """Body, properties and headers are what they were; the broker adds its marks, no more.

    It goes round again as often as it is put there: no round is taken for an endless circle.
    """
    (queue,) = _declare(url, 1)
    body = bytes(range(256)) * 1000
    link = _open(url)
    try:
        link.consume(QUEUE, prefetch=10)
        for _ in range(3):
            sent_s = time.monotonic()
            _put(link, queue, body)
            (found,) = _receive(link, 1)
            assert time.monotonic() - sent_s > 0.9
            got = found.message
            kept = {
                key: value
                for key, value in got.raw_headers.items()
                if key != "x-death" and not key.startswith(("x-first-death", "x-last-death"))
            }
            assert kept == HEADERS
            deaths = got.raw_headers["x-death"]
            assert isinstance(deaths, list)
            assert [(each["queue"], each["reason"]) for each in deaths] == [(queue, "expired")]
            assert got.body == body
            assert (got.message_id, got.correlation_id) == ("m-1", "c-1")
            assert (got.type, got.reply_to) == ("Acme.Overdue", "Sales")
            assert (got.content_type, got.delivery_mode) == ("text/xml", 2)
            link.acknowledge([found.tag])
    finally:
        link.close()


def test_a_short_delay_does_not_wait_for_a_long_one(url: str) -> None:
    """Each delay has a queue of its own."""
    short, long = _declare(url, 1, 60)
    link = _open(url)
    try:
        link.consume(QUEUE, prefetch=10)
        _put(link, long, b"long")
        _put(link, short, b"short")
        assert [each.message.body for each in _receive(link, 1)] == [b"short"]
    finally:
        link.close()


def test_messages_wait_for_a_queue_that_is_away(rabbit_node: RabbitNode, url: str) -> None:
    """What expires while its queue does not exist is kept, and arrives when there is one again.

    The broker tries again when a confirm is overdue: every three minutes, here every second.
    """
    setting = "application:set_env(rabbit, dead_letter_worker_publisher_confirm_timeout, {})."
    rabbit_node.evaluate(setting.format(1000))
    try:
        (queue,) = _declare(url, 1)
        with plain_channel(url) as channel:
            channel.queue_delete(QUEUE)
        link = _open(url)
        try:
            _put(link, queue, b"a", b"b")
        finally:
            link.close()
        time.sleep(1.5)
        with plain_channel(url) as channel:
            channel.queue_declare(QUEUE, durable=True)
        wait_until(lambda: _ready(url) == 2, seconds=60)
    finally:
        rabbit_node.evaluate(setting.format(180_000))


def _ready(url: str) -> int:
    with plain_channel(url) as channel:
        return int(channel.queue_declare(QUEUE, passive=True).method.message_count)


def test_declaring_is_repeatable_and_names_are_told(url: str) -> None:
    """The names come in the order of the delays, and a second call changes nothing."""
    expected = tuple(retry_queue(QUEUE, delay_s) for delay_s in (1, 10, 60))
    assert _declare(url, 1, 10, 60) == expected
    assert _declare(url, 1, 10, 60) == expected
    assert _declare(url) == ()
    with plain_channel(url) as channel:  # raises when an argument is another one
        channel.queue_declare(expected[0], durable=True, arguments=ARGUMENTS)


def test_a_queue_with_other_arguments_is_told(url: str) -> None:
    """Somebody's queue under the name of ours is not silently used."""
    with plain_channel(url) as channel:
        channel.queue_declare(retry_queue(QUEUE, 1), durable=True)
    with pytest.raises(EntityMismatch):
        _declare(url, 1)
