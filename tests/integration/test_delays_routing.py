"""Messages published into the levels come out on time, whole, and nowhere else."""

from __future__ import annotations

import time
from collections.abc import Sequence

import pytest

from migrator.delays.destinations import Destinations
from migrator.delays.routing import DelaysVersion, Topology
from migrator.delays.topology import create_delays
from migrator.nservicebus.timeouts import QueueName
from migrator.rabbitmq.messages import PublishResult
from tests.conftest import Vhost
from tests.unit.rabbitmq.material import (
    V1,
    V2,
    Received,
    an_attempt,
    connection,
    delayed,
    in_time,
    link_settings,
    message,
    opened,
    plain_channel,
    take,
)

ZEROS = "0." * 26


@pytest.fixture
def url(vhost: Vhost) -> str:
    """A virtual host with both generations and one endpoint, of the direct topology."""
    settings = connection(vhost.amqp_url)
    with plain_channel(vhost.amqp_url) as channel:
        channel.queue_declare("Sales.Orders", durable=True)
    for version in (V1, V2):
        create_delays(settings, version)
        destinations = Destinations(settings, version, topology=Topology.DIRECT)
        assert not destinations.unreachable([QueueName("Sales.Orders")])
    return vhost.amqp_url


@pytest.mark.punctual
@pytest.mark.parametrize("version", [V1, V2])
@pytest.mark.parametrize("use_entries", [True, False])
def test_a_delay_ends_on_time_with_everything_intact(
    url: str, version: DelaysVersion, use_entries: bool
) -> None:
    """Through entry and native exchanges alike, a message arrives on time as it was sent."""

    def is_soon() -> bool:
        """Publish four messages and look at each; return whether all came within 0.9 s."""
        settled = PublishResult()
        with opened(link_settings(url, version=version, use_entries=use_entries)) as link:
            sent_s = time.monotonic()
            messages = [delayed(delay, delay) for delay in (3, 2, 1, 0)]
            link.publish(an_attempt(), messages, settled)
            received = take(url, "Sales.Orders", 4)
        assert settled == PublishResult(confirmed={0, 1, 2, 3})
        assert_intact(received)
        late_s = [got.at_s - sent_s - delay for delay, got in enumerate(received)]
        assert min(late_s) >= -0.01
        return max(late_s) < 0.9

    assert in_time(is_soon)


def assert_intact(received: Sequence[Received]) -> None:
    """Demand messages with delays of 0, 1, 2, 3 seconds, in this order, as they were sent."""
    assert [r.routing_key for r in received] == [
        f"{ZEROS}{bits}Sales.Orders" for bits in ("0.0.", "0.1.", "1.0.", "1.1.")
    ]
    for delay, got in enumerate(received):
        sent = message(delay)
        properties = got.properties
        headers = {k: v for k, v in properties.headers.items() if not k.startswith("x-")}
        assert headers == sent.headers
        assert (properties.message_id, properties.type) == (sent.message_id, sent.type)
        assert (properties.correlation_id, properties.reply_to) == ("0b7e", "Billing.Invoices")
        assert (properties.content_type, properties.delivery_mode) == ("application/json", 2)
        assert properties.app_id == f"migrator/abc123/1.1.{delay}"
        assert got.body == sent.body


def test_a_bare_message_passes_through(url: str) -> None:
    """A message without body or optional properties keeps being just that."""
    bare = delayed(1, type=None, correlation_id=None, reply_to=None, body=b"", headers={})
    with opened(link_settings(url)) as link:
        link.publish(an_attempt(), [bare], PublishResult())
    (got,) = take(url, "Sales.Orders", 1)
    properties = got.properties
    assert (properties.type, properties.correlation_id, properties.reply_to) == (None, None, None)
    assert properties.delivery_mode == 2
    assert got.body == b""
