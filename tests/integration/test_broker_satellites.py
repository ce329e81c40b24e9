"""A dispatcher's link on a real broker: what comes in, what leaves, and what ends it."""

from __future__ import annotations

import struct
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from migrator.delays.routing import address, has_delay
from migrator.delays.topology import create_delays
from migrator.dispatcher.link import Delivery, RabbitSatelliteLink, Routed, open_satellite_link
from migrator.dispatcher.routes import Route
from migrator.errors import TargetError, TargetUnavailable
from migrator.nservicebus.incoming import RawMessage
from migrator.nservicebus.timeouts import QueueName
from migrator.rabbitmq.event_loop import Connection, EventLoop
from migrator.rabbitmq.messages import EncodedMessage, PublishResult
from migrator.rabbitmq.publisher import Publisher, WindowLimits
from tests.conftest import Vhost
from tests.support.proxy import Proxy
from tests.unit.rabbitmq.material import (
    V2,
    an_attempt,
    connection,
    delayed,
    message,
    plain_channel,
    take,
    wait_until,
)

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


def _envelope(body: bytes = b"{}", **changes: Any) -> RawMessage:
    fields: dict[str, Any] = {
        "message_id": "m-1",
        "correlation_id": None,
        "type": None,
        "reply_to": None,
        "content_type": "text/xml",
        "headers": {"NServiceBus.MessageId": "m-1", "Nothing": None, "Number": 7},
        "body": body,
    }
    return RawMessage(**(fields | changes))


def _to(queue: str, *, exchange: str = "", **changes: Any) -> Routed:
    return Route(exchange=exchange, routing_key=queue), _envelope(**changes)


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
    """Of ten messages every third is settled, out of order; the next link gets the others."""
    bodies = [str(number).encode() for number in range(10)]
    _put(url, *bodies)
    with _opened(url) as link:
        link.consume(QUEUE, prefetch=20)
        found = _receive(link, 10)
        assert [each.message.body for each in found] == bodies
        assert {each.queue for each in found} == {QUEUE}
        assert len({each.tag for each in found}) == 10
        link.acknowledge(found[number].tag for number in (9, 3, 0, 6))
    with _opened(url) as link:
        link.consume(QUEUE, prefetch=20)
        again = [each.message.body for each in _receive(link, 6)]
        assert sorted(again) == sorted(bodies[number] for number in (1, 2, 4, 5, 7, 8))
        assert _receive(link, 1, seconds=0.5) == []


def test_a_message_arrives_as_it_was_sent(url: str) -> None:
    """Properties, headers of every kind, and a body of many frames are all there."""
    body = bytes(range(256)) * 4000
    with _opened(url) as link:
        link.publish(
            [_to(QUEUE, body=body, correlation_id="c", type="T", reply_to="R")], PublishResult()
        )
        link.consume(QUEUE, prefetch=1)
        (found,) = _receive(link, 1)
        got = found.message
        assert (got.message_id, got.correlation_id, got.type) == ("m-1", "c", "T")
        assert (got.reply_to, got.content_type, got.delivery_mode) == ("R", "text/xml", 2)
        assert got.raw_headers == {"NServiceBus.MessageId": "m-1", "Nothing": None, "Number": 7}
        assert got.body == body
        assert got.problem is None


def test_tags_of_two_queues_are_told_apart(url: str) -> None:
    """Deliveries of two consumers have different tags; settling one leaves the other's."""
    with plain_channel(url) as channel:
        channel.queue_declare("Control", durable=True)
    _put(url, b"one", b"two")
    _put(url, b"control", queue="Control")
    with _opened(url) as link:
        link.consume(QUEUE, prefetch=10)
        link.consume(QueueName("Control"), prefetch=10)
        found = {each.message.body: each for each in _receive(link, 3)}
        assert len({each.tag for each in found.values()}) == 3
        assert found[b"control"].queue == "Control"
        link.acknowledge([found[b"one"].tag, found[b"control"].tag])
    wait_until(lambda: (_ready(url), _ready(url, "Control")) == (1, 0))


def test_no_more_is_delivered_than_asked_for(url: str) -> None:
    """The prefetch holds for each queue; settling one message makes room for one."""
    _put(url, *(str(number).encode() for number in range(8)))
    with _opened(url) as link:
        link.consume(QUEUE, prefetch=3)
        found = _receive(link, 4, seconds=1)
        assert len(found) == 3
        link.acknowledge([found[0].tag])
        assert len(_receive(link, 2, seconds=1)) == 1


def test_a_missing_queue_is_named(url: str) -> None:
    """Consuming what does not exist tells which queue, and is no network problem."""
    with _opened(url) as link, pytest.raises(TargetError, match="no queue 'Nowhere'") as told:
        link.consume(QueueName("Nowhere"), prefetch=1)
    assert not isinstance(told.value, TargetUnavailable)


def test_a_queue_that_is_deleted_ends_the_link(url: str) -> None:
    """When the broker ends the consumer, the link dies and names the queue."""
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


POISON = {
    "time beyond the calendar": _table(b"\x01kT" + b"\x7f" + b"\xff" * 7),
    "infinite float": _table(b"\x01kd" + struct.pack(">d", float("inf"))),
    "no number": _table(b"\x01kd" + struct.pack(">d", float("nan"))),
    "name that is not UTF-8": _table(b"\x02\xc3\x28V"),
    "text that is not UTF-8": _table(b"\x01kS\x00\x00\x00\x02\xc3\x28"),
    "id that is not UTF-8": b"\x00\x80\x02\xc3\x28",
    "40 tables inside each other": _nested(40),
    "1500 tables inside each other": _nested(1500),
}


@pytest.mark.parametrize("kind", POISON)
def test_no_properties_end_the_link(url: str, kind: str) -> None:
    """What the broker passes on of a stranger's bytes is delivered, and can be copied as it is.

    What the broker itself cannot read ends the stranger's own connection and no other.
    """
    raw = POISON[kind]
    with _opened(url) as stranger:
        try:
            stranger.publish([_to(QUEUE, raw_properties=raw)], PublishResult())
        except TargetError:
            assert kind in REFUSED_BY_THE_BROKER
            return
    assert kind not in REFUSED_BY_THE_BROKER
    with _opened(url) as link:
        link.consume(QUEUE, prefetch=10)
        (found,) = _receive(link, 1)
        assert found.message.raw_properties == raw
        assert (found.message.problem is not None) == (kind in UNREADABLE)
        answers = PublishResult()
        copy = _to("nowhere", raw_properties=found.message.raw_properties)
        link.publish([_to(QUEUE, raw_properties=raw), copy], answers)
        assert answers == PublishResult(confirmed={0}, returned={1})
        link.acknowledge([found.tag])
        (again,) = _receive(link, 1)
        assert again.message.raw_properties == raw


REFUSED_BY_THE_BROKER = {"infinite float", "no number"}
UNREADABLE = {
    "name that is not UTF-8",
    "id that is not UTF-8",
    "40 tables inside each other",
    "1500 tables inside each other",
}


# ── publishing ──────────────────────────────────────────────────────────────────────────────


def test_messages_without_a_queue_are_returned(url: str) -> None:
    """A missing queue and an exchange without bindings give messages back; others arrive."""
    with plain_channel(url) as channel:
        channel.exchange_declare("bare", "fanout", durable=True)
    messages = [
        _to(("nowhere", QUEUE, "")[key % 3], exchange=("", "", "bare")[key % 3])
        for key in range(300)
    ]
    answers = PublishResult()
    with _opened(url) as link:
        link.publish(messages, answers)
    assert answers.confirmed == set(range(1, 300, 3))
    assert answers.returned == set(range(300)) - answers.confirmed
    assert _ready(url) == 100


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


def test_a_native_message_leaves_without_a_mark(url: str) -> None:
    """A timeout that is due arrives at its destination with all its headers and no app-id."""
    native = message(destination="Sales")
    with plain_channel(url) as channel:
        channel.queue_declare("Sales", durable=True)
    with _opened(url) as link:
        answers = PublishResult()
        link.publish(
            [(Route(exchange="", routing_key="Sales"), native)],
            answers,
        )
    assert answers.confirmed == {0}
    (found,) = take(url, "Sales", 1)
    assert found.properties.app_id is None
    assert found.properties.headers == native.headers
    assert found.properties.message_id == native.message_id


def test_a_missing_exchange_ends_the_link_and_answers_stay(url: str) -> None:
    """The broker closes the channel; what was confirmed before stays told, nothing else is."""

    def messages() -> Iterator[Routed]:
        yield from (_to(QUEUE) for _ in range(64))
        while len(answers.confirmed) < 64:
            link.idle(0.05)
        yield _to("", exchange="absent")

    answers = PublishResult()
    with _opened(url) as link:
        with pytest.raises(TargetError, match="no exchange 'absent'"):
            link.publish(messages(), answers)
        with pytest.raises(TargetError):
            link.idle(0)
    assert answers == PublishResult(confirmed=set(range(64)))
    assert _ready(url) == 64


def test_a_level_without_its_queue_ends_the_link(url: str) -> None:
    """A message with a native delay is returned for no destination's fault: the link dies."""
    create_delays(connection(url), V2)
    with plain_channel(url) as channel:
        channel.queue_unbind(
            "nsb.v2.delay-level-05",
            "nsb.v2.delay-level-05",
            "*." * 22 + "1.#",
        )
    sent, delay_s = delayed(32)
    where = address(V2, delay_s, sent.destination)
    route = Route(exchange=where.exchange, routing_key=where.routing_key)
    answers = PublishResult()
    with _opened(url) as link, pytest.raises(TargetUnavailable, match="leads to no queue"):
        link.publish([(route, sent)], answers)
    assert answers == PublishResult()


def test_a_cut_wire_leaves_the_truth(url: str, proxy: PlaceProxy) -> None:
    """After a cut every message that is told confirmed is in the broker; all deliveries return."""
    _put(url, b"unsettled")
    line = proxy(url)
    answers = PublishResult()
    with _opened(line.url(url)) as link:
        link.consume(QUEUE, prefetch=1)
        (found,) = _receive(link, 1)
        with plain_channel(url) as channel:
            channel.queue_declare("Sales", durable=True)
        line.cut_after_bytes(30_000)
        with pytest.raises(TargetUnavailable):
            link.publish((_to("Sales") for _ in range(2000)), answers)
        with pytest.raises(TargetUnavailable):
            link.acknowledge([found.tag])
    assert not answers.returned
    wait_until(lambda: _ready(url, "Sales") >= len(answers.confirmed))
    wait_until(lambda: _ready(url) == 1)


# ── waiting ─────────────────────────────────────────────────────────────────────────────────


def _seconds(call: Callable[[], object]) -> float:
    began_s = time.monotonic()
    call()
    return time.monotonic() - began_s


def test_another_thread_ends_a_wait(url: str) -> None:
    """Waking ends idle early, once; before idle it is remembered; after close it is harmless."""
    with _opened(url) as link:
        helper = threading.Timer(0.2, link.wake)
        helper.start()
        assert _seconds(lambda: link.idle(60)) < 30
        helper.join()
        assert _seconds(lambda: link.idle(0.3)) >= 0.29
        link.wake()
        assert _seconds(lambda: link.idle(60)) < 30
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


def test_a_delivery_ends_a_wait(url: str) -> None:
    """What arrives ends idle early; what was received before and not drained holds up nothing."""
    with _opened(url) as link:
        link.consume(QUEUE, prefetch=10)
        helper = threading.Timer(0.2, _put, (url, b"x"))
        helper.start()
        assert _seconds(lambda: link.idle(60)) < 30
        helper.join()
        assert [each.message.body for each in link.received()] == [b"x"]
        assert link.received() == []


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


def test_a_stalled_wire_does_not_hold_up_closing(url: str, proxy: PlaceProxy) -> None:
    """Closing takes about two seconds at most, and twice is fine."""
    line = proxy(url)
    with _opened(line.url(url)) as link:
        line.stall("to_client")
        assert _seconds(link.close) < 8
        link.close()
        with pytest.raises(TargetUnavailable, match="closed"):
            link.idle(0)


def test_reading_properties_changes_nothing_for_marks(url: str) -> None:
    """A wire that reads nothing but the mark still matches returned messages to their rows."""
    pump = EventLoop()
    try:
        wire = Connection(pump, connection(url), "marks")
        settled = PublishResult()
        raw = b"\x00\x08" + bytes([len(b"migrator/a/1.1.4")]) + b"migrator/a/1.1.4"
        Publisher(wire, WindowLimits(), has_delay=has_delay).publish(
            an_attempt(), [EncodedMessage(4, "", "nowhere", raw, b"")], settled
        )
        assert settled.returned == {4}
    finally:
        pump.close()
