"""Probes through real levels: on time, to nobody else, and nothing stays behind."""

from __future__ import annotations

import time
from collections.abc import Iterator
from urllib.parse import quote

import pytest

from dev.servers import wait_until
from migrator.delays.probe import Arrival, are_back, send_probes
from migrator.delays.routing import DelaysVersion
from migrator.delays.topology import create_delays
from migrator.errors import Interrupted, PreflightRefused, TargetError
from migrator.rabbitmq.connection import ConnectionSettings
from migrator.rabbitmq.management import ManagementApi
from tests.conftest import Vhost
from tests.unit.rabbitmq.material import V1, V2, api_of, connection, in_time, plain_channel, take

STARS = "*." * 27
DELIVERY = {V1: "nsb.delay-delivery", V2: "nsb.v2.delay-delivery"}


@pytest.fixture
def settings(vhost: Vhost) -> ConnectionSettings:
    """How the virtual host of the test is reached."""
    return connection(vhost.amqp_url)


@pytest.fixture
def api(vhost: Vhost, settings: ConnectionSettings) -> Iterator[ManagementApi]:
    """Its management API."""
    with api_of(vhost) as opened:
        yield opened


def ours(vhost: Vhost) -> list[str]:
    """Return the queues of probes."""
    queues = vhost.node.api("GET", f"queues/{quote(vhost.name, safe='')}")
    return [queue["name"] for queue in queues if queue["name"].startswith("migrator.probe.")]


@pytest.mark.punctual
@pytest.mark.parametrize(("version", "levels"), [(V1, [0]), (V2, [0, 1])])
def test_probes_come_back_in_time_and_to_us_alone(
    vhost: Vhost,
    settings: ConnectionSettings,
    api: ManagementApi,
    version: DelaysVersion,
    levels: list[int],
) -> None:
    """Neighbours get nothing, and no queue of ours stays."""
    create_delays(settings, version)
    with plain_channel(vhost.amqp_url) as channel:
        for name in ("probe", "migrator.probe", "Sales"):
            channel.queue_declare(name, durable=True)
            channel.queue_bind(name, DELIVERY[version], f"#.{name}")

    def is_soon() -> bool:
        run = send_probes(settings, version, levels, patience_s=60, find_bindings=api.bindings_from)
        arrivals = [(probe.level, probe.arrival) for probe in run.probes]
        assert arrivals == [(level, Arrival.ON_TIME) for level in levels]
        late = [probe.late_s for probe in run.probes if probe.late_s is not None]
        print(f"late by {[round(late_s * 1000, 1) for late_s in late]} ms")
        assert min(late) >= 0
        assert (run.left_queue, ours(vhost)) == ("", [])
        return max(late) < 2

    assert in_time(is_soon)
    with plain_channel(vhost.amqp_url) as channel:
        for name in ("probe", "migrator.probe", "Sales"):
            assert channel.queue_declare(name, passive=True).method.message_count == 0


def test_nothing_is_sent_where_somebody_listens_in(
    vhost: Vhost, settings: ConnectionSettings, api: ManagementApi
) -> None:
    """He is named; our queue is gone again."""
    create_delays(settings, V2)
    with plain_channel(vhost.amqp_url) as channel:
        for key in ("#", "0.#", "#.probe.*"):
            channel.queue_declare("wiretap", durable=True)
            channel.queue_bind("wiretap", DELIVERY[V2], key)
            with pytest.raises(PreflightRefused, match="wiretap"):
                send_probes(settings, V2, [0], patience_s=5, find_bindings=api.bindings_from)
            assert ours(vhost) == []
            channel.queue_delete("wiretap")


def test_a_lost_probe_still_finds_its_queue_later(
    vhost: Vhost, settings: ConnectionSettings
) -> None:
    """A queue that went with us would leave the probe hanging in its level for ever."""
    create_delays(settings, V1)
    with plain_channel(vhost.amqp_url) as channel:
        channel.queue_declare("slow", durable=True)
        channel.exchange_unbind(DELIVERY[V1], "nsb.delay-level-00", f"{STARS}0.#")
        channel.queue_bind("slow", "nsb.delay-level-00", f"{STARS}0.#")
    # nobody can see that without the management API
    run = send_probes(settings, V1, [1], patience_s=2.2, find_bindings=None)
    assert [probe.arrival for probe in run.probes] == [Arrival.LOST]
    assert ours(vhost) == [run.left_queue]
    assert not are_back(settings, run)
    assert ours(vhost) == [run.left_queue]
    (late,) = take(vhost.amqp_url, "slow", 1)
    with plain_channel(vhost.amqp_url) as channel:
        channel.basic_publish(DELIVERY[V1], late.routing_key, late.body, late.properties)
    with plain_channel(vhost.amqp_url) as channel:
        method, properties, _ = channel.basic_get(run.left_queue)
        channel.basic_nack(method.delivery_tag)
    assert properties.message_id == f"{run.left_queue}/1"
    wait_until(lambda: are_back(settings, run), seconds=30, what="its removal")
    assert ours(vhost) == []
    assert are_back(settings, run)  # a queue that is gone waits for nothing any more


def test_a_flight_that_is_broken_off_leaves_a_queue_for_its_probes(
    vhost: Vhost, settings: ConnectionSettings
) -> None:
    """It ends at once, and what it sent still has somewhere to go."""
    create_delays(settings, V2)
    looks: list[float] = []

    def guard() -> None:
        looks.append(time.monotonic())
        if len(looks) == 3:
            raise Interrupted("enough")

    with pytest.raises(Interrupted):
        send_probes(settings, V2, [0], patience_s=30, find_bindings=None, guard=guard)
    ended_s = time.monotonic()
    (left,) = ours(vhost)
    assert ended_s - looks[-1] < 20  # its probe is waited for longer
    with plain_channel(vhost.amqp_url) as channel:
        for method, properties, _ in channel.consume(left, inactivity_timeout=30):
            assert method is not None
            assert properties.message_id == f"{left}/0"
            break


def test_a_probe_that_cannot_enter_is_told(vhost: Vhost, settings: ConnectionSettings) -> None:
    """It is nowhere, so our queue goes; where levels are missing nothing is even tried."""
    with pytest.raises(PreflightRefused, match="delays verify"):
        send_probes(settings, V2, [0], patience_s=5, find_bindings=None)
    create_delays(settings, V2)
    with plain_channel(vhost.amqp_url) as channel:
        level = "nsb.v2.delay-level-00"
        channel.queue_unbind(level, level, f"{STARS}1.#")
    with pytest.raises(TargetError, match="level 0"):
        send_probes(settings, V2, [0], patience_s=5, find_bindings=None)
    assert ours(vhost) == []
