"""What RabbitMQ 4.3 does otherwise than 3.10, as far as migrator has to know it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict

import pytest

from dev.servers import RabbitNode, wait_until
from migrator.delays.broker import BrokerFacts
from migrator.delays.destinations import Destinations
from migrator.delays.routing import DelaysVersion, delays_prefix, infrastructure, level_name
from migrator.delays.topology import create_delays
from migrator.errors import TargetUnavailable
from migrator.nservicebus.conversion import Reason
from migrator.nservicebus.timeouts import QueueName
from migrator.rabbitmq.names import Looking, least_grants
from tests.conftest import Vhost
from tests.support.staging import await_staging
from tests.unit.rabbitmq.material import (
    V2,
    an_attempt,
    chunks,
    connection,
    delayed,
    link_settings,
    opened,
    plain_channel,
)

LEVEL = level_name(V2, 20)
LIMIT = 20
TIMEOUT = "application:set_env(rabbit, consumer_timeout, {})."


@pytest.fixture
def node(rabbit_node: RabbitNode) -> RabbitNode:
    """A node of 4.3 or later; dev/test runs this file on one."""
    if rabbit_node.release < (4, 3):
        pytest.skip("RABBITMQ_ROOT names no RabbitMQ of 4.3 or later")
    return rabbit_node


@pytest.fixture
def url(node: RabbitNode, vhost: Vhost) -> str:
    """A virtual host with the delays v2, and one message in a level."""
    create_delays(connection(vhost.amqp_url), V2)
    with plain_channel(vhost.amqp_url) as channel:
        channel.confirm_delivery()
        channel.basic_publish("", LEVEL, b"x")
    return vhost.amqp_url


def _ready(url: str) -> int:
    with plain_channel(url) as channel:
        return int(channel.queue_declare(LEVEL, passive=True).method.message_count)


def test_a_nack_is_free_for_the_delivery_limit(url: str) -> None:
    """A scan gives back what it looked at by nack: as often as it likes. 4.0 counts it."""
    with plain_channel(url) as channel:
        for _ in range(LIMIT + 5):
            wait_until(lambda: _ready(url) == 1, what="the message")
            method, _, _ = channel.basic_get(LEVEL)
            assert method is not None
            channel.basic_nack(method.delivery_tag)
    wait_until(lambda: _ready(url) == 1, what="the message")


def test_a_closed_channel_counts_for_the_delivery_limit(url: str) -> None:
    """A scan that is killed uses up one of twenty; at the 21st the message leaves early."""
    for _ in range(LIMIT + 1):
        wait_until(lambda: _ready(url) == 1, what="the message")
        with plain_channel(url) as channel:
            method, _, _ = channel.basic_get(LEVEL)
            assert method is not None
    wait_until(lambda: _ready(url) == 0, what="an empty level")


@pytest.fixture
def short_timeout(node: RabbitNode) -> Iterator[None]:
    """Consumers that begin now may keep a message for 2 s, not for 30 minutes."""
    node.evaluate(TIMEOUT.format(2000))
    yield
    node.evaluate(TIMEOUT.format(1_800_000))


@pytest.mark.usefixtures("short_timeout")
def test_a_consumer_timeout_ends_the_link_and_not_the_attempt(url: str) -> None:
    """The queue cancels the consumer: the lane connects again, and finds the attempt whole."""
    with opened(link_settings(url), lane=1) as link:
        staging = link.staging()
        staging.publish(an_attempt(), chunks([delayed(2**20)]))
        assert await_staging(staging, lambda: an_attempt() in staging.unacked())
        with pytest.raises(TargetUnavailable, match="ended the consumer"):
            link.idle(60)
    with opened(link_settings(url), lane=1) as link:
        staging = link.staging()
        assert await_staging(staging, lambda: an_attempt() in staging.unacked())


def test_at_most_two_hashes_in_a_binding(url: str) -> None:
    """Ours have one; a destination whose name would make three is refused, and no other."""
    for version in DelaysVersion:
        assert {each.key.count("#") for each in infrastructure(version).bindings} == {1}
    with plain_channel(url) as channel:
        for name in ("odd.#.name.#", "one.#"):
            channel.queue_declare(name, durable=True)
    names = [QueueName("odd.#.name.#"), QueueName("one.#")]
    (found,) = Destinations(connection(url), V2).unreachable(names).items()
    assert (found[0], found[1].reason) == ("odd.#.name.#", Reason.REFUSED)
    assert "at most 2" in found[1].detail


def test_what_we_may_not_look_at_is_neither_there_nor_absent(vhost: Vhost, url: str) -> None:
    """The broker answers alike for queues that exist and those that do not: 403."""
    with plain_channel(url) as channel:
        for name in ("Sales", "Billing"):
            channel.queue_declare(name, durable=True)
    names = [QueueName(name) for name in ("Sales", "Billing", "Nowhere")]
    grants = least_grants(delays_prefix(V2), destinations=["Sales"], looks=Looking.ANY_RIGHT)
    vhost.node.add_user("hidden", "pw")
    vhost.node.set_permissions(vhost.name, "hidden", **asdict(grants))
    settings = connection(vhost.node.amqp_url(vhost.name, user="hidden", password="pw"))
    found = BrokerFacts(settings, None).queues(names)
    assert {name: each is not None and each.is_hidden for name, each in found.items()} == {
        "Sales": False,
        "Billing": True,
        "Nowhere": True,
    }
    refused = Destinations(settings, V2).unreachable(names)
    assert {name: each.reason for name, each in refused.items()} == dict.fromkeys(
        ("Billing", "Nowhere"), Reason.NO_PERMISSION
    )
    assert "whether it exists is unknown" in refused[QueueName("Nowhere")].detail
