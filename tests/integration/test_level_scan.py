"""Going through a level queue of a real broker: each message once, and nothing disturbed."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pika
import pytest

from dev.servers import RabbitNode
from migrator.delays import scan as scan_module
from migrator.delays.routing import DelaysVersion, address, delivery_exchange, level_name
from migrator.delays.scan import LevelMessage, Levels, LevelScan, ScanEnd, ScanLimits
from migrator.delays.topology import create_delays, delivery_limit
from migrator.delays.walk import LevelAccess
from migrator.errors import DeliveryLimitNear, TargetError, TargetUnavailable
from migrator.nservicebus.timeouts import QueueName
from migrator.rabbitmq.entities import QueueFacts
from migrator.rabbitmq.event_loop import Connection, EventLoop
from migrator.rabbitmq.frames import keep_all
from tests.conftest import Vhost
from tests.support.proxy import Proxy
from tests.unit.rabbitmq.material import (
    V1,
    V2,
    connection,
    in_time,
    plain_channel,
    take,
    vhost_with_levels,
    wait_until,
)

DAY_S = 86_400
LEVEL = 16
BOTH = pytest.mark.parametrize("version", [V1, V2])


@pytest.fixture(scope="module")
def shared(rabbit_node: RabbitNode) -> Iterator[str]:
    """A virtual host with both generations, for all tests here."""
    with vhost_with_levels(rabbit_node) as found:
        create_delays(connection(found), V1)
        yield found


@pytest.fixture
def url(shared: str) -> str:
    """The same, with nothing in the level that is scanned, and nobody who has some of it."""
    with plain_channel(shared) as channel:
        for version in (V1, V2):
            name = level_name(version, LEVEL)

            def consumers(name: str = name) -> int:
                return int(channel.queue_declare(name, passive=True).method.consumer_count)

            wait_until(lambda: consumers() == 0)
            channel.queue_purge(name)
    return shared


@contextmanager
def _levels(url: str, version: DelaysVersion = V2, **more: Any) -> Iterator[Levels]:
    pump = EventLoop()
    try:
        wire = Connection(pump, connection(url), "scanner")
        yield Levels(wire, version, **more)
    finally:
        pump.close()


def _fill(url: str, count: int, version: DelaysVersion = V2, delay_s: int = DAY_S) -> None:
    to = address(version, delay_s, QueueName("Sales.Orders"))
    with plain_channel(url) as channel:
        channel.confirm_delivery()
        for number in range(count):
            properties = pika.BasicProperties(message_id=str(number), headers={"n": number})
            channel.basic_publish(to.exchange, to.routing_key, b"%d" % number, properties)


def _fill_quickly(url: str, count: int, version: DelaysVersion, *, body: bytes) -> None:
    """Fill a level without waiting for each answer."""
    to = address(version, DAY_S, QueueName("Sales.Orders"))
    with plain_channel(url) as channel:
        for _ in range(count):
            channel.basic_publish(to.exchange, to.routing_key, body)
        # a channel that closes drops what a busy quorum queue has not taken from it yet
        wait_until(lambda: _waiting(url, version) == count, seconds=30)


def _waiting(url: str, version: DelaysVersion = V2, level: int = LEVEL) -> int:
    with plain_channel(url) as channel:
        found = channel.queue_declare(level_name(version, level), passive=True)
        return int(found.method.message_count)


def _all(scan: LevelScan, at_most: int = 100) -> list[LevelMessage]:
    found: list[LevelMessage] = []
    while some := scan.receive(at_most=at_most):
        assert len(some) <= at_most
        found += some
    return found


@BOTH
def test_what_is_not_acknowledged_goes_back(url: str, version: DelaysVersion) -> None:
    """Every message comes once and in order; only those that were acknowledged are gone."""
    _fill(url, 50, version)
    with _levels(url, version) as levels:
        scan = levels.scan(LEVEL, ScanLimits(), keep_all)
        found = _all(scan)
        assert scan.end is ScanEnd.EMPTY
        values = [m.properties.values for m in found]
        assert [each.message_id for each in values] == [str(n) for n in range(50)]
        assert [each.headers for each in values] == [{"n": n} for n in range(50)]
        assert {m.routing_key[56:] for m in found} == {"Sales.Orders"}
        assert abs(found[0].seen_at - datetime.now(UTC)) < timedelta(minutes=5)
        scan.acknowledge(m.tag for m in found[::2])
        scan.close()
        scan.close()
        again = levels.scan(LEVEL, ScanLimits(), keep_all)
        assert [m.body for m in _all(again)] == [m.body for m in found[1::2]]
        again.close()
    wait_until(lambda: _waiting(url, version) == 25)


class Clock:
    """The monotonic clock of scans, which a test puts forward."""

    def __init__(self) -> None:
        self.ahead_s = 0.0

    def monotonic(self) -> float:
        return time.monotonic() + self.ahead_s


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """Time for scans."""
    made = Clock()
    monkeypatch.setattr("migrator.delays.scan.time", made)
    return made


def test_nothing_is_held_for_longer_than_allowed(url: str, clock: Clock) -> None:
    """When the time is over the scan ends, and a fresh one meets what is left."""
    _fill(url, 40)
    with _levels(url) as levels:
        scan = levels.scan(LEVEL, ScanLimits(hold_s=60), keep_all)
        found = [*scan.receive(at_most=10)]
        scan.acknowledge(m.tag for m in found[:5])
        clock.ahead_s += 61
        assert _all(scan) == []
        assert scan.end is ScanEnd.HELD_LONG_ENOUGH
        scan.close()
        assert scan.receive(at_most=1) == ()
        fresh = levels.scan(LEVEL, ScanLimits(), keep_all)
        assert len(_all(fresh)) == 35
        fresh.close()


def test_messages_that_are_taken_do_not_count_as_held(url: str, clock: Clock) -> None:
    """A scan that acknowledges all goes on past the hold time."""
    _fill(url, 30)
    with _levels(url) as levels:
        scan = levels.scan(LEVEL, ScanLimits(hold_s=60, prefetch=1), keep_all)
        found = 0
        while some := scan.receive(at_most=1):
            scan.acknowledge(m.tag for m in some)
            found += 1
            clock.ahead_s += 5
        assert (found, scan.end) == (30, ScanEnd.EMPTY)
        scan.close()


def test_a_level_into_which_others_publish_has_an_end(url: str) -> None:
    """A queue that is never silent is over once it was seen empty."""
    pump = EventLoop()
    wire = Connection(pump, connection(url), "scanner")
    publishing = pika.BlockingConnection(pika.URLParameters(url))
    channel = publishing.channel()
    to = address(V2, DAY_S, QueueName("Sales.Orders"))
    try:
        scan = Levels(wire, V2).scan(LEVEL, ScanLimits(quiet_s=0.1), keep_all)
        began_s = time.monotonic()
        channel.basic_publish(to.exchange, to.routing_key, b"")
        while some := scan.receive(at_most=100):
            scan.acknowledge(m.tag for m in some)
            channel.basic_publish(to.exchange, to.routing_key, b"")
            assert time.monotonic() - began_s < 60
        assert scan.end is ScanEnd.EMPTY
    finally:
        publishing.close()
        pump.close()


@pytest.mark.parametrize(("version", "pause_s"), [(V1, 0.0), (V2, 1.2)])
def test_a_slow_reader_gets_everything(url: str, version: DelaysVersion, pause_s: float) -> None:
    """Messages on their way to us are not ready any more, and are not taken for none."""
    _fill_quickly(url, 6000, version, body=b"x" * 2000)
    with _levels(url, version) as levels:
        scan = levels.scan(LEVEL, ScanLimits(prefetch=60_000, quiet_s=0.001), keep_all)
        found = [*scan.receive(at_most=1)]
        time.sleep(pause_s)
        found += _all(scan, at_most=500)
        assert (len(found), scan.end) == (6000, ScanEnd.EMPTY)
        scan.close()


@BOTH
def test_a_queue_that_somebody_else_consumes_is_never_told_to_be_empty(
    url: str, version: DelaysVersion
) -> None:
    """What they hold cannot be seen; once they are gone, what they held comes to us."""
    _fill(url, 6, version)
    with plain_channel(url) as channel, _levels(url, version) as levels:
        channel.basic_qos(prefetch_count=4)
        name = level_name(version, LEVEL)
        tag = channel.basic_consume(name, lambda *_: None)
        wait_until(lambda: _waiting(url, version) == 2)
        scan = levels.scan(LEVEL, ScanLimits(), keep_all)
        assert len(_all(scan)) == 2
        assert scan.end is ScanEnd.SHARED
        scan.close()
        later = levels.scan(LEVEL, ScanLimits(quiet_s=0.3), keep_all)
        channel.basic_cancel(tag)
        channel.close()
        assert len(_all(later)) == 6
        assert later.end is ScanEnd.EMPTY
        later.close()


def test_an_answer_that_does_not_know_us_is_none(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A broker under load tells that a quorum queue has neither messages nor consumers.

    Nor does a prefetch that is full of messages nobody acknowledged hide those behind.
    """
    asked = scan_module._facts
    answers = 0

    def hasty(wire: Connection, channel: Any, queue: str) -> QueueFacts:
        nonlocal answers
        answers += 1
        found = asked(wire, channel, queue)
        return replace(found, ready=0, consumers=0) if answers < 5 else found

    monkeypatch.setattr(scan_module, "_facts", hasty)
    _fill(url, 60)
    with _levels(url) as levels:
        scan = levels.scan(LEVEL, ScanLimits(prefetch=4, quiet_s=0.05), keep_all)
        assert len(_all(scan)) == 60
        assert scan.end is ScanEnd.EMPTY
        scan.close()


def test_our_own_scan_of_before_is_nobody_else(url: str) -> None:
    """The broker may learn late that its channel was closed."""
    _fill(url, 3)
    with _levels(url) as levels:
        for _ in range(5):
            scan = levels.scan(LEVEL, ScanLimits(prefetch=1, quiet_s=0.01), keep_all)
            assert len(_all(scan)) == 3
            assert scan.end is ScanEnd.EMPTY
            scan.close()


@pytest.mark.punctual
def test_what_was_borrowed_still_leaves_in_time(url: str) -> None:
    """A message that was held and went back keeps its expiry, in classic and quorum queues."""
    with plain_channel(url) as channel:
        channel.queue_declare("Sales.Orders", durable=True)
        for version in (V1, V2):
            channel.queue_bind("Sales.Orders", delivery_exchange(version), "#.Sales.Orders")

    def borrowed() -> bool:
        """Borrow messages; return whether they came before a delay that began at their return."""
        began_s = time.monotonic()
        for version in (V1, V2):
            _fill(url, 3, version, delay_s=2)
        time.sleep(0.5)
        returned_s, seen = time.monotonic(), 0
        for version in (V1, V2):
            with _levels(url, version) as levels:
                scan = levels.scan(1, ScanLimits(), keep_all)
                seen += len(_all(scan))
                scan.close()
        got = [each.at_s for each in take(url, "Sales.Orders", 6)]
        assert len(got) == 6
        assert min(got) - began_s >= 2
        return seen == 6 and max(got) - returned_s < 2

    assert in_time(borrowed)


def test_a_message_that_came_back_too_often_is_left_alone(url: str) -> None:
    """Near the delivery limit the scan refuses, before the broker would move the message on."""
    _fill(url, 3)
    with _levels(url, limit=6) as levels:
        for _ in range(4):
            scan = levels.scan(LEVEL, ScanLimits(), keep_all)
            assert len(_all(scan)) == 3
            scan.close()
        scan = levels.scan(LEVEL, ScanLimits(), keep_all)
        with pytest.raises(DeliveryLimitNear, match="come back 4 times"):
            _all(scan)
    wait_until(lambda: _waiting(url) == 3)


def test_levels_are_counted_without_touching_them(url: str, rabbit_node: RabbitNode) -> None:
    """Every level is told, also the empty ones.

    Before RabbitMQ 4 nothing limits how often messages come back; classic queues never do.
    """
    node_limit = 20 if rabbit_node.release >= (4,) else None
    assert [delivery_limit(connection(url), None, each) for each in (V1, V2)] == [None, node_limit]
    _fill(url, 7)
    with _levels(url) as levels:
        wait_until(lambda: levels.ready()[LEVEL] == 7)
        found = levels.ready()
    assert sum(found.values()) == 7
    assert len(found) == 28


@BOTH
def test_the_queues_tell_at_once_what_is_ready(url: str, version: DelaysVersion) -> None:
    """The management API would tell it seconds after it was confirmed."""
    access = LevelAccess(
        connection=connection(url), management=None, purpose="test", staging_queues=list
    )
    _fill(url, 5, version)
    assert access.ready(version)[LEVEL] == 5


def test_a_lost_connection_ends_the_scan(url: str, proxy: Callable[[str], Proxy]) -> None:
    """With an error that says so; what was held is in the queue again."""
    _fill(url, 5)
    line = proxy(url)
    with _levels(line.url(url)) as levels:
        scan = levels.scan(LEVEL, ScanLimits(), keep_all)
        assert scan.receive(at_most=2)
        line.cut()
        with pytest.raises(TargetUnavailable):
            _all(scan)
        scan.close()
    wait_until(lambda: _waiting(url) == 5)


def test_a_level_that_does_not_exist_is_refused(vhost: Vhost) -> None:
    """Nothing is declared."""
    with _levels(vhost.amqp_url) as levels, pytest.raises(TargetError, match="level-16"):
        levels.scan(LEVEL, ScanLimits(), keep_all)


def _kept(levels: Levels, *, again: int) -> tuple[list[int], list[ScanEnd]]:
    """Take all bodies out of a level; return how many each scan kept, and how it ended."""
    counts, ends, limits = list[int](), list[ScanEnd](), ScanLimits()
    for _ in range(again):
        scan = levels.scan(LEVEL, limits, keep_all)
        ends_s = time.monotonic() + 1.0
        while (left_s := ends_s - time.monotonic()) > 0:  # as many as may come
            levels.connection.loop.wait_for_event(left_s)
        counts.append(0)
        while found := scan.receive(at_most=100):
            assert all(each.body == b"x" * 300_000 for each in found)
            counts[-1] += len(found)
            scan.acknowledge(each.tag for each in found)
        scan.close()
        assert scan.end is not None
        ends.append(scan.end)
        if scan.end is ScanEnd.EMPTY:
            break
        limits = scan.fewer
    return counts, ends


@BOTH
def test_bodies_in_memory_are_bounded_by_their_bytes(url: str, version: DelaysVersion) -> None:
    """What comes beyond goes back; with fewer at a time, later scans take all the rest."""
    _fill_quickly(url, 40, version, body=b"x" * 300_000)
    few = replace(connection(url), prefetch_bytes=1_000_000)
    pump = EventLoop()
    try:
        levels = Levels(Connection(pump, few, "scanner"), version)
        counts, ends = _kept(levels, again=9)
    finally:
        pump.close()
    assert sum(counts) == 40
    assert counts[0] == 4  # the last one exceeds a million
    assert ends[-1] is ScanEnd.EMPTY
    assert set(ends[:-1]) == {ScanEnd.LARGE}
    assert _waiting(url, version) == 0
