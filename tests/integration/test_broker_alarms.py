"""Alarms, the clock, and what waits, as a real broker tells."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import asdict
from datetime import UTC, datetime, timedelta
from functools import partial
from types import SimpleNamespace
from typing import Any

import pika
import pytest

from dev.servers import wait_until
from migrator.delays.broker import BrokerFacts
from migrator.delays.routing import DelaysVersion, delays_prefix
from migrator.errors import TargetUnavailable
from migrator.nservicebus.timeouts import QueueName
from migrator.rabbitmq.addresses import parse_addresses
from migrator.rabbitmq.connection import ConnectionSettings
from migrator.rabbitmq.names import least_grants, looking
from migrator.rabbitmq.server import AlarmWatch, is_our_clock
from migrator.throttle.signals import DestinationBacklog, LevelBacklog, Limits
from tests.conftest import Vhost
from tests.support.proxy import Proxy


@pytest.fixture
def settings(vhost: Vhost) -> ConnectionSettings:
    """Where the test's virtual host is."""
    return ConnectionSettings(nodes=parse_addresses(vhost.amqp_url))


@pytest.fixture
def watch(settings: ConnectionSettings) -> Iterator[AlarmWatch]:
    """Looks for alarms."""
    made = AlarmWatch(settings, "test")
    yield made
    made.close()


def names(vhost: Vhost, kind: str) -> set[str]:
    """Return the names of our exchanges or queues of the virtual host."""
    told = vhost.node.api("GET", f"{kind}/{vhost.name}?columns=name")
    return {each["name"] for each in told if each["name"].startswith("migrator.")}


def test_an_alarm_is_heard_of_and_its_end(alarm_vhost: Vhost) -> None:
    """Though nothing else is published; nothing is left when it is over."""
    vhost = alarm_vhost
    settings = ConnectionSettings(nodes=parse_addresses(vhost.amqp_url))
    watch = AlarmWatch(settings, "test")
    assert watch.look() is None
    assert len(names(vhost, "exchanges")) == len(names(vhost, "queues")) == 1
    vhost.node.set_memory_limit(0)
    wait_until(lambda: "memory" in (watch.look() or ""), seconds=30, what="an alarm")
    again = AlarmWatch(settings, "another")
    wait_until(lambda: again.look() is not None, seconds=30, what="one that comes later")
    again.close()
    vhost.node.set_memory_limit()
    began_s = time.monotonic()
    wait_until(lambda: watch.look() is None, seconds=30, what="the end of it")
    print(f"the end of the alarm was heard of within {time.monotonic() - began_s:.1f} s")
    watch.close()
    wait_until(
        lambda: not names(vhost, "exchanges") | names(vhost, "queues"),
        seconds=30,
        what="nothing to be left",
    )


def test_looking_leaves_nothing_in_the_queues_of_others(watch: AlarmWatch, vhost: Vhost) -> None:
    """Whatever exchange or queue policies send to others what cannot be routed, or is dropped."""
    with pika.BlockingConnection(pika.URLParameters(vhost.amqp_url)) as connection:
        channel = connection.channel()
        channel.exchange_declare("others", "fanout", durable=True)
        channel.queue_declare("others", durable=True)
        channel.queue_bind("others", "others")
        vhost.node.set_policy(
            vhost.name,
            "all",
            pattern=".*",
            alternate_exchange="others",
            dead_letter_exchange="others",
            max_length=5,
            overflow="drop-head",
        )
        assert [watch.look() for _ in range(10)] == [None] * 10
        channel.confirm_delivery()
        channel.basic_publish("others", "", b"the only one", mandatory=True)
        assert channel.queue_declare("others", passive=True).method.message_count == 1
    watch.close()


def test_a_lost_connection_is_not_the_end_of_it(
    vhost: Vhost, proxy: Callable[[str], Proxy]
) -> None:
    """One look fails, because nobody knows; the next connects again."""
    line = proxy(vhost.amqp_url)
    watch = AlarmWatch(ConnectionSettings(nodes=parse_addresses(line.url(vhost.amqp_url))), "test")
    assert watch.look() is None
    line.cut()
    with pytest.raises(TargetUnavailable):
        watch.look()
    assert watch.look() is None
    watch.close()


@pytest.mark.parametrize("is_enough", [True, False], ids=["least rights", "no rights"])
def test_the_least_permissions_are_enough(
    vhost: Vhost, caplog: pytest.LogCaptureFixture, is_enough: bool
) -> None:
    """Who has fewer than `migrator db grants --broker` prints hears nothing; it is told once."""
    grants = least_grants(
        delays_prefix(DelaysVersion.V2), destinations=[], binds_destinations=False
    )
    rights = asdict(grants) if is_enough else {"configure": "^$", "write": "^$"}
    user = f"u-{vhost.name}"
    vhost.node.add_user(user, "secret")
    try:
        vhost.node.set_permissions(vhost.name, user, **rights)
        url = vhost.amqp_url.replace("guest:guest", f"{user}:secret")
        watch = AlarmWatch(ConnectionSettings(nodes=parse_addresses(url)), "test")
        assert [watch.look(), watch.look()] == [None, None]
        assert len(names(vhost, "exchanges")) == is_enough
        watch.close()
    finally:
        vhost.node.delete_user(user)
    told = [vars(each)["action"] for each in caplog.records if hasattr(each, "action")]
    assert told == ([] if is_enough else ["alarm_watch_refused"])


def test_what_waits_for_destinations_and_in_levels_is_counted(
    settings: ConnectionSettings, vhost: Vhost
) -> None:
    """The busiest destination counts; one that has no queue does not."""
    known = [QueueName(name) for name in ("Billing", "Shipping", "Nowhere")]
    facts, limits = BrokerFacts(settings, None), Limits(0, 0)
    bound: Any = SimpleNamespace(known=lambda: known)
    destinations = DestinationBacklog(limits, facts, bound)
    with pika.BlockingConnection(pika.URLParameters(vhost.amqp_url)) as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        for queue, count in (("Billing", 2), ("Shipping", 3), ("nsb.v2.delay-level-05", 4)):
            channel.queue_declare(queue, durable=True)
            for _ in range(count):
                channel.basic_publish("", queue, b"x")
        wait_until(
            lambda: destinations.measure()[None].text == "Shipping: 3 messages",
            seconds=30,
            what="the count of the broker",
        )
    assert LevelBacklog(limits, facts, DelaysVersion.V2).measure()[None].value == 4
    known.clear()
    assert destinations.measure()[None].value == 0


def test_a_clock_that_differs_is_noticed(vhost: Vhost) -> None:
    """Ten seconds to either side; ours is that of the broker, and no right is wanted for it."""
    node, user = vhost.node, f"{vhost.name}-clock"
    node.add_user(user, "pw")
    rights = least_grants("nsb.v2.", destinations=["Billing"], looks=looking(node.release))
    node.set_permissions(vhost.name, user, **asdict(rights))
    url = node.amqp_url(vhost.name, user=user, password="pw")
    settings = ConnectionSettings(nodes=parse_addresses(url))
    for seconds, is_same in ((0, True), (-10, False), (10, False)):
        shift = timedelta(seconds=seconds)
        assert is_our_clock(settings, partial(_shifted, shift)) is is_same
    node.delete_user(user)


def _shifted(shift: timedelta) -> datetime:
    return datetime.now(UTC) + shift
