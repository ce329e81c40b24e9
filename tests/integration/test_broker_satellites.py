"""A dispatcher's link on a real broker: what comes in, what leaves, and what ends it."""

from __future__ import annotations

import struct
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from math import inf
from typing import Any

import pytest

from dev.servers import RabbitNode
from migrator.dispatcher.link import (
    Delivery,
    RabbitSatelliteLink,
    Route,
    Routed,
    declare_retry_queues,
    open_satellite_link,
)
from migrator.errors import EntityMismatch, TargetError, TargetUnavailable
from migrator.nservicebus.incoming import OutgoingMessage
from migrator.nservicebus.timeouts import QueueName
from migrator.rabbitmq.admin import admin_session
from migrator.rabbitmq.messages import PublishResult
from migrator.rabbitmq.names import retry_queue
from migrator.rabbitmq.publisher import CHUNK_MESSAGES, WindowLimits
from tests.conftest import Vhost
from tests.support.proxy import Proxy
from tests.unit.rabbitmq.material import connection, plain_channel, wait_until

QUEUE = QueueName("Billing.Timeouts")
PlaceProxy = Callable[[str], Proxy]


@pytest.fixture
def url(vhost: Vhost) -> str:
    """A virtual host with one durable queue that is consumed."""
    with plain_channel(vhost.amqp_url) as channel:
        channel.queue_declare(QUEUE, durable=True, arguments={"x-queue-type": "quorum"})
    return vhost.amqp_url


@contextmanager
def _opened(url: str, **limits: Any) -> Iterator[RabbitSatelliteLink]:
    given = WindowLimits(**({"confirm_deadline_s": 5} | limits))
    link = open_satellite_link(connection(url), endpoint="Billing", owner="tester", limits=given)
    try:
        yield link
    finally:
        link.close()


def _message(body: bytes = b"{}", **changes: Any) -> OutgoingMessage:
    fields: dict[str, Any] = {
        "message_id": "m-1",
        "correlation_id": None,
        "type": None,
        "reply_to": None,
        "content_type": "text/xml",
        "headers": {"NServiceBus.MessageId": "m-1", "Nothing": None, "Number": 7},
        "body": body,
    }
    return OutgoingMessage(**(fields | changes))


def _to(queue: str, *, exchange: str = "", **changes: Any) -> Routed:
    return Route(exchange=exchange, routing_key=queue), _message(**changes)


def _put(url: str, *bodies: bytes, queue: str = QUEUE) -> None:
    with _opened(url) as link:
        answers = PublishResult()
        link.publish([_to(queue, body=body) for body in bodies], answers)
        assert answers.confirmed == set(range(len(bodies)))


def _receive(link: RabbitSatelliteLink, count: int, *, seconds: float = 30.0) -> list[Delivery]:
    found: list[Delivery] = []
    deadline_s = time.monotonic() + seconds
    while len(found) < count and time.monotonic() < deadline_s:
        link.idle(0.1)
        found += link.received()
    return found


def _ready(url: str, queue: str = QUEUE) -> int:
    with plain_channel(url) as channel:
        return int(channel.queue_declare(queue, passive=True).method.message_count)


# ── consuming ───────────────────────────────────────────────────────────────────────────────


def test_what_is_acknowledged_never_comes_back_and_all_else_does(url: str) -> None:
    """Of ten messages every third is settled, out of order; the next link gets the others.

    A delivery of another queue has a tag of its own. No more is delivered than asked for.
    """
    with plain_channel(url) as channel:
        channel.queue_declare("Control", durable=True)
    bodies = [str(number).encode() for number in range(10)]
    _put(url, *bodies)
    _put(url, b"control", queue="Control")
    with _opened(url) as link:
        link.consume(QueueName("Control"), prefetch=20)
        link.consume(QUEUE, prefetch=20)
        found = sorted(_receive(link, 11), key=lambda each: (each.queue, each.tag))
        assert [each.message.body for each in found] == [*bodies, b"control"]
        assert {each.queue for each in found[:10]} == {QUEUE}
        assert len({each.tag for each in found}) == 11
        link.acknowledge(found[number].tag for number in (9, 3, 0, 10, 6))
    with _opened(url) as link:
        link.consume(QUEUE, prefetch=5)
        again = _receive(link, 6, seconds=1)
        assert len(again) == 5
        link.acknowledge([again[0].tag])  # which makes room for one
        again += _receive(link, 2, seconds=1)
        left = sorted(bodies[number] for number in (1, 2, 4, 5, 7, 8))
        assert sorted(each.message.body for each in again) == left
    assert _ready(url, "Control") == 0


def test_a_queue_that_is_not_there_is_named(url: str) -> None:
    """At once, which is no network problem; or when it is deleted, which ends the link."""
    with _opened(url) as link, pytest.raises(TargetError, match="no queue 'Nowhere'") as told:
        link.consume(QueueName("Nowhere"), prefetch=1)
    assert not isinstance(told.value, TargetUnavailable)
    with _opened(url) as link:
        link.consume(QUEUE, prefetch=1)
        with plain_channel(url) as channel:
            channel.queue_delete(QUEUE)
        with pytest.raises(TargetUnavailable, match=r"Billing\.Timeouts"):
            link.idle(10)
        with pytest.raises(TargetUnavailable):
            link.publish([_to(QUEUE)], PublishResult())


# ── what cannot be read ─────────────────────────────────────────────────────────────────────


def _table(field: bytes) -> bytes:
    return b"\x20\x00" + struct.pack(">I", len(field)) + field


def _nested(levels: int) -> bytes:
    value = struct.pack(">I", 0)
    for _ in range(levels):
        value = struct.pack(">I", len(value) + 3) + b"\x01kF" + value
    return b"\x20\x00" + value


@pytest.mark.parametrize(
    ("raw", "fate"),
    [
        pytest.param(_table(b"\x01kT\x7f" + b"\xff" * 7), "read", id="time beyond the calendar"),
        pytest.param(_table(b"\x01kd" + struct.pack(">d", inf)), "refused", id="infinite float"),
        pytest.param(_table(b"\x02\xc3\x28V"), "unreadable", id="name that is not UTF-8"),
        pytest.param(_table(b"\x01kS\0\0\0\x02\xc3\x28"), "read", id="text that is not UTF-8"),
        pytest.param(b"\x00\x80\x02\xc3\x28", "unreadable", id="id that is not UTF-8"),
        pytest.param(_nested(1500), "unreadable", id="1500 nested tables"),
    ],
)
def test_no_properties_end_the_link(url: str, raw: bytes, fate: str) -> None:
    """What the broker passes on of a stranger's bytes is delivered, and can be copied as it is.

    What the broker itself cannot read ends the stranger's own connection and no other.
    """
    is_refused = False
    with _opened(url) as stranger:
        try:
            stranger.publish([_to(QUEUE, raw_properties=raw)], PublishResult())
        except TargetError:
            is_refused = True
    assert is_refused is (fate == "refused")
    if is_refused:
        return
    with _opened(url) as link:
        link.consume(QUEUE, prefetch=10)
        (found,) = _receive(link, 1)
        assert found.message.raw_properties == raw
        assert (found.message.problem is not None) == (fate == "unreadable")
        answers = PublishResult()
        copy = _to("nowhere", raw_properties=found.message.raw_properties)
        link.publish([_to(QUEUE, raw_properties=raw), copy], answers)
        assert answers == PublishResult(confirmed={0}, returned={1})
        link.acknowledge([found.tag])
        (again,) = _receive(link, 1)
        assert again.message.raw_properties == raw


# ── publishing ──────────────────────────────────────────────────────────────────────────────


def test_messages_that_share_everything_are_counted(url: str) -> None:
    """Copies of one message for a missing queue are all returned, also in later calls."""
    with _opened(url) as link:
        for _ in range(3):
            answers = PublishResult()
            link.publish([_to("nowhere") for _ in range(50)], answers)
            assert answers.returned | answers.confirmed <= set(range(50))
            assert not answers.confirmed
        answers = PublishResult()
        link.publish([_to(QUEUE), _to("nowhere")], answers)
        assert answers == PublishResult(confirmed={0}, returned={1})


def test_a_missing_exchange_ends_the_link_and_answers_stay(url: str) -> None:
    """The broker closes the channel; what was confirmed before stays told, nothing else is."""

    def messages() -> Iterator[Routed]:
        yield from (_to(QUEUE) for _ in range(CHUNK_MESSAGES))
        while len(answers.confirmed) < CHUNK_MESSAGES:
            link.idle(0.05)
        yield _to("", exchange="absent")

    answers = PublishResult()
    with _opened(url) as link:
        with pytest.raises(TargetError, match="no exchange 'absent'"):
            link.publish(messages(), answers)
        with pytest.raises(TargetError):
            link.idle(0)
    assert answers == PublishResult(confirmed=set(range(CHUNK_MESSAGES)))
    assert _ready(url) == CHUNK_MESSAGES


# ── waiting ─────────────────────────────────────────────────────────────────────────────────


def test_a_wait_ends_by_a_delivery(url: str) -> None:
    """Else it lasts as long as it was told; waking after close is harmless."""
    with _opened(url) as link:
        link.consume(QUEUE, prefetch=10)
        helper = threading.Timer(0.2, _put, [url, b"x"])
        helper.start()
        began_s = time.monotonic()
        link.idle(60)
        assert time.monotonic() - began_s < 30
        helper.join()
        assert [each.message.body for each in link.received()] == [b"x"]
        began_s = time.monotonic()
        link.idle(0.3)
        assert time.monotonic() - began_s >= 0.29
    link.wake()


def test_no_wake_is_lost(url: str) -> None:
    """However a wake falls between two waits, one of them ends early."""
    seen, lost, stop = 0, 0, threading.Event()
    with _opened(url) as link:

        def keep_waking() -> None:
            nonlocal lost
            for _ in range(2000):
                before = seen
                link.wake()
                deadline_s = time.monotonic() + 15
                while seen == before and not lost:
                    lost += time.monotonic() > deadline_s
            stop.set()
            link.wake()

        helper = threading.Thread(target=keep_waking)
        helper.start()
        while not stop.is_set():
            link.idle(60)
            seen += 1
        helper.join()
    assert lost == 0


@pytest.mark.slow
def test_a_caller_that_takes_nothing_still_keeps_its_connections(url: str) -> None:
    """Deliveries that nobody fetches do not keep idle from serving heartbeats."""
    _put(url, b"x")
    with _opened(url) as link:
        link.consume(QUEUE, prefetch=10)
        wait_until(lambda: _ready(url) == 0)
        deadline_s = time.monotonic() + 16  # the broker gives up after three heartbeats of 5 s
        while time.monotonic() < deadline_s:
            link.idle(0.2)
            time.sleep(0.02)
        (found,) = link.received()
        answers = PublishResult()
        link.publish([_to(QUEUE)], answers)
        link.acknowledge([found.tag])
        assert answers.confirmed == {0}
        assert len(_receive(link, 1)) == 1


# ── retry queues ────────────────────────────────────────────────────────────────────────────

RETRY_ARGUMENTS = {
    "x-queue-type": "quorum",
    "x-message-ttl": 1000,
    "x-dead-letter-exchange": "",
    "x-dead-letter-routing-key": QUEUE,
    "x-dead-letter-strategy": "at-least-once",
    "x-overflow": "reject-publish",
}


def _declare(url: str, *delays_s: int) -> tuple[str, ...]:
    with admin_session(connection(url), purpose="test") as admin:
        return declare_retry_queues(admin, QUEUE, delays_s)


def test_a_message_comes_back_after_its_delay(url: str) -> None:
    """Body, properties and headers are what they were; the broker adds its marks, no more.

    It goes round again as often as it is put there: no round is taken for an endless circle. One
    with a longer delay, which is in a queue of its own, holds up nothing.
    """
    short, long = _declare(url, 1, 60)
    body = bytes(range(256)) * 4000  # many frames
    headers: dict[str, str | int | None] = {"Umlaut": "Zürich ☃", "Nothing": None, "Number": 7}
    changes: dict[str, Any] = {
        "correlation_id": "c",
        "type": "T",
        "reply_to": "R",
        "headers": headers,
    }
    with _opened(url) as link:
        link.consume(QUEUE, prefetch=10)
        _put(url, b"later", queue=long)
        for _ in range(2):
            sent_s = time.monotonic()
            link.publish([_to(short, body=body, **changes)], PublishResult())
            (found,) = _receive(link, 1)
            assert time.monotonic() - sent_s > 0.9
            got = found.message
            kept = {
                key: value
                for key, value in got.raw_headers.items()
                if key != "x-death" and not key.startswith(("x-first-death", "x-last-death"))
            }
            assert kept == headers
            deaths = got.raw_headers["x-death"]
            assert isinstance(deaths, list)
            assert [(each["queue"], each["reason"]) for each in deaths] == [(short, "expired")]
            assert (got.body, got.problem) == (body, None)
            assert (got.message_id, got.correlation_id, got.type) == ("m-1", "c", "T")
            assert (got.reply_to, got.content_type, got.delivery_mode) == ("R", "text/xml", 2)
            link.acknowledge([found.tag])


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
        _put(url, b"a", b"b", queue=queue)
        time.sleep(1.5)
        with plain_channel(url) as channel:
            channel.queue_declare(QUEUE, durable=True)
        wait_until(lambda: _ready(url) == 2, seconds=60)
    finally:
        rabbit_node.evaluate(setting.format(180_000))


def test_a_queue_with_other_arguments_is_told(url: str) -> None:
    """Ours may be declared again; somebody's under the name of ours is not silently used."""
    names = tuple(retry_queue(QUEUE, delay_s) for delay_s in (1, 10))
    assert _declare(url, 1, 10) == _declare(url, 1, 10) == names
    with plain_channel(url) as channel:  # raises when an argument is another one
        channel.queue_declare(names[0], durable=True, arguments=RETRY_ARGUMENTS)
        channel.queue_declare(retry_queue(QUEUE, 60), durable=True)
    with pytest.raises(EntityMismatch):
        _declare(url, 60)


def test_bytes_in_hand_are_bounded_whatever_the_prefetch(url: str) -> None:
    """What has no room goes back to its place; all come in order, and a few MB are in memory."""
    bodies = [b"%02d" % number + bytes(400_000) for number in range(30)]
    _put(url, *bodies)
    few = replace(connection(url), prefetch_bytes=1_000_000)
    found: list[Delivery] = []
    most = 0
    link = open_satellite_link(few, endpoint="Sales", owner="tester", limits=WindowLimits())
    try:
        link.consume(QUEUE, prefetch=500)
        deadline_s = time.monotonic() + 60
        while len(found) < 30 and time.monotonic() < deadline_s:
            in_hand: list[Delivery] = []
            for _ in range(3):
                link.idle(0.1)
                in_hand += link.received()
            most = max(most, sum(len(each.message.body) for each in in_hand))
            found += in_hand
            link.acknowledge(each.tag for each in in_hand)
    finally:
        link.close()
    assert [each.message.body[:2] for each in found] == [body[:2] for body in bodies]
    assert most <= 1_400_012
    assert _ready(url) == 0


def test_after_large_messages_small_ones_come_as_fast_as_before(url: str) -> None:
    """Room for one message at a time is room for many again once they are small."""
    _put(url, *[bytes(900_000)] * 3, *[b"small"] * 300)
    few = replace(connection(url), prefetch_bytes=1_000_000)
    link = open_satellite_link(few, endpoint="Sales", owner="tester", limits=WindowLimits())
    try:
        link.consume(QUEUE, prefetch=100)
        found: list[Delivery] = []
        while len(found) < 203:
            link.idle(0.1)
            new = link.received()
            link.acknowledge(each.tag for each in new)
            found += new
        deadline_s = time.monotonic() + 30
        while _ready(url) and time.monotonic() < deadline_s:
            link.idle(0.1)
            assert len(link.received()) <= 100
        assert _ready(url) == 0  # a hundred are in hand
    finally:
        link.close()
