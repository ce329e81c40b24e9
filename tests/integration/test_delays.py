"""The delay levels on a real broker: as the vendor declares them, on time, and probed."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator, Sequence
from typing import Any
from urllib.parse import quote

import pytest
from pika.compat import long as as_int64

from dev.servers import wait_until
from migrator.delays.capacity import find_broker, measure_capacity
from migrator.delays.destinations import Destinations
from migrator.delays.probe import Arrival, are_back, send_probes
from migrator.delays.routing import DelaysVersion, Topology
from migrator.delays.topology import create_delays, inspect_delays
from migrator.errors import EntityMismatch, Interrupted, PreflightRefused, TargetError
from migrator.nservicebus.timeouts import QueueName
from migrator.rabbitmq.connection import ConnectionSettings
from migrator.rabbitmq.management import ManagementApi
from migrator.rabbitmq.messages import PublishResult
from tests.conftest import Vhost
from tests.reference.captured import definitions_by_installers
from tests.support.levels import make_levels
from tests.unit.rabbitmq.material import (
    V1,
    V2,
    Received,
    an_attempt,
    api_of,
    chunks,
    connection,
    delayed,
    in_time,
    link_settings,
    message,
    opened,
    plain_channel,
    take,
)

BOTH = pytest.mark.parametrize("version", [V1, V2])
PREFIX = {V1: "nsb.delay-", V2: "nsb.v2.delay-"}
DELIVERY = {version: f"{prefix}delivery" for version, prefix in PREFIX.items()}
STARS, ZEROS = "*." * 27, "0." * 26


@pytest.fixture
def settings(vhost: Vhost) -> ConnectionSettings:
    """How the virtual host of the test is reached."""
    return connection(vhost.amqp_url)


# ── what is declared ────────────────────────────────────────────────────────────────────────


def _expected_arguments(version: DelaysVersion, level: int) -> dict[str, Any]:
    lower = f"level-{level - 1:02d}" if level else "delivery"
    common = {
        "x-message-ttl": 2**level * 1000,
        "x-dead-letter-exchange": f"{PREFIX[version]}{lower}",
    }
    if version is V1:
        return common | {"x-queue-mode": "lazy"}
    return common | {
        "x-queue-type": "quorum",
        "x-dead-letter-strategy": "at-least-once",
        "x-overflow": "reject-publish",
    }


def _expected_bindings(version: DelaysVersion) -> set[tuple[str, str, str, str]]:
    prefix, found = PREFIX[version], set()
    for level in range(28):
        name, stars = f"{prefix}level-{level:02d}", "*." * (27 - level)
        lower = f"{prefix}level-{level - 1:02d}" if level else f"{prefix}delivery"
        found.add((name, name, "queue", f"{stars}1.#"))
        found.add((name, lower, "exchange", f"{stars}0.#"))
    return found


def _listed(vhost: Vhost, what: str) -> list[dict[str, Any]]:
    rows = vhost.node.api("GET", f"{what}/{quote(vhost.name, safe='')}")
    return [row for row in rows if str(row.get("name") or row.get("source")).startswith("nsb.")]


@BOTH
def test_levels_of_tests_are_those_of_the_program(
    vhost: Vhost, settings: ConnectionSettings, version: DelaysVersion
) -> None:
    """No queue, exchange or binding is missing, and none has other arguments."""
    make_levels(vhost.node.management_url, vhost.name, version)
    bound = sorted(map(str, _listed(vhost, "bindings")))
    assert len(bound) == 56
    assert create_delays(settings, version) == 0
    assert sorted(map(str, _listed(vhost, "bindings"))) == bound


@BOTH
def test_the_levels_are_declared_as_the_vendor_does(
    vhost: Vhost, settings: ConnectionSettings, version: DelaysVersion
) -> None:
    """Names, types, arguments and bindings are those of the reference; twice changes nothing."""
    assert create_delays(settings, version) == 57
    assert create_delays(settings, version) == 0
    queues = {row["name"]: row for row in _listed(vhost, "queues")}
    exchanges = {row["name"]: row for row in _listed(vhost, "exchanges")}
    assert len(queues) == 28
    assert len(exchanges) == 29
    for level in range(28):
        row = queues[f"{PREFIX[version]}level-{level:02d}"]
        # RabbitMQ 4 tells the type of each queue, also where none was asked for
        told = {"x-queue-type": "classic", **_expected_arguments(version, level)}
        assert {"x-queue-type": row["type"], **row["arguments"]} == told
        assert (row["durable"], row["exclusive"], row["auto_delete"]) == (True, False, False)
    assert {row["type"] for row in exchanges.values()} == {"topic"}
    assert all(row["durable"] and not row["auto_delete"] for row in exchanges.values())
    bindings = {
        (row["source"], row["destination"], row["destination_type"], row["routing_key"])
        for row in _listed(vhost, "bindings")
    }
    assert bindings == _expected_bindings(version)


@BOTH
def test_levels_of_the_vendor_are_equivalent(
    vhost: Vhost, settings: ConnectionSettings, version: DelaysVersion
) -> None:
    """Levels declared by .NET, whose TTL is a 64-bit integer, are found present and kept."""
    with plain_channel(vhost.amqp_url) as channel:
        for level in range(28):
            arguments = _expected_arguments(version, level)
            arguments["x-message-ttl"] = as_int64(arguments["x-message-ttl"])
            name = f"{PREFIX[version]}level-{level:02d}"
            channel.queue_declare(name, durable=True, arguments=arguments)
    found = inspect_delays(settings, version, find_bindings=None)
    assert (len(found.missing), found.different) == (29, {})
    create_delays(settings, version)
    assert inspect_delays(settings, version, find_bindings=None).is_usable


def test_levels_by_the_installers_of_an_endpoint_are_complete(
    vhost: Vhost, settings: ConnectionSettings
) -> None:
    """What version 10 made is imported as its broker told it: nothing is missing or different."""
    made = definitions_by_installers()
    vhost.node.api("POST", f"definitions/{quote(vhost.name, safe='')}", made)
    with api_of(vhost) as management:
        assert inspect_delays(settings, V2, find_bindings=management.bindings_from).is_usable
    before = [_listed(vhost, what) for what in ("queues", "exchanges", "bindings")]
    assert create_delays(settings, V2) == 0
    after = [_listed(vhost, what) for what in ("queues", "exchanges", "bindings")]
    assert [len(each) for each in after] == [len(each) for each in before] == [28, 29, 56]


def test_a_level_with_other_arguments_is_found(vhost: Vhost, settings: ConnectionSettings) -> None:
    """One wrong level is named with the broker's words, and declaring refuses to go on."""
    name = "nsb.v2.delay-level-05"
    with plain_channel(vhost.amqp_url) as channel:
        channel.queue_declare(name, durable=True, arguments={"x-message-ttl": 32_001})
        channel.exchange_declare("nsb.v2.delay-level-06", "fanout", durable=True)
    wrong = inspect_delays(settings, V2, find_bindings=None).different
    assert wrong.keys() == {name, "nsb.v2.delay-level-06"}
    assert all("inequivalent" in detail for detail in wrong.values())
    with pytest.raises(EntityMismatch, match="inequivalent"):
        create_delays(settings, V2)


def test_without_rights_the_levels_are_unknown(vhost: Vhost) -> None:
    """A user who may not declare learns that levels exist, and that nobody compared them."""
    create_delays(connection(vhost.amqp_url), V2)
    vhost.node.add_user("looker", "pw")
    vhost.node.set_permissions(vhost.name, "looker", configure="^$", write="^$", read="^$")
    url = vhost.node.amqp_url(vhost.name, user="looker", password="pw")
    found = inspect_delays(connection(url), V2, find_bindings=None)
    assert len(found.not_checked) == 57 + 1  # the bindings
    assert (found.missing, found.different) == ([], {})


# ── what comes out ──────────────────────────────────────────────────────────────────────────


@pytest.fixture
def url(vhost: Vhost, settings: ConnectionSettings) -> str:
    """A virtual host with both generations and one endpoint, of the direct topology."""
    with plain_channel(vhost.amqp_url) as channel:
        channel.queue_declare("Sales.Orders", durable=True)
    for version in (V1, V2):
        create_delays(settings, version)
        destinations = Destinations(settings, version, topology=Topology.DIRECT)
        assert not destinations.unreachable([QueueName("Sales.Orders")])
    return vhost.amqp_url


@pytest.mark.punctual
@BOTH
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
            link.publish(an_attempt(), chunks(messages), settled)
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


# ── probes ──────────────────────────────────────────────────────────────────────────────────


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
        run = send_probes(settings, version, levels, timeout_s=60, find_bindings=api.bindings_from)
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
                send_probes(settings, V2, [0], timeout_s=5, find_bindings=api.bindings_from)
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
    run = send_probes(settings, V1, [1], timeout_s=2.2, find_bindings=None)
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
        send_probes(settings, V2, [0], timeout_s=30, find_bindings=None, guard=guard)
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
    with pytest.raises(PreflightRefused, match="delays show"):
        send_probes(settings, V2, [0], timeout_s=5, find_bindings=None)
    create_delays(settings, V2)
    with plain_channel(vhost.amqp_url) as channel:
        level = "nsb.v2.delay-level-00"
        channel.queue_unbind(level, level, f"{STARS}1.#")
    with pytest.raises(TargetError, match="level 0"):
        send_probes(settings, V2, [0], timeout_s=5, find_bindings=None)
    assert ours(vhost) == []


# ── how fast levels let go ──────────────────────────────────────────────────────────────────


@BOTH
def test_the_cost_of_an_exchange_is_measured(
    vhost: Vhost, settings: ConnectionSettings, api: ManagementApi, version: DelaysVersion
) -> None:
    """By bursts that all come back; nothing of ours stays in the virtual host."""
    create_delays(settings, version)
    found = measure_capacity(
        settings, version, find_bindings=api.bindings_from, messages=200, delays_s=(2, 1)
    )
    assert 1e-6 < found.exchange_cost_s < 1e-2
    assert [(burst.exchanges, burst.messages) for burst in found.bursts] == [(2, 200), (1, 200)]
    assert found.broker == find_broker(settings, version)
    assert (found.broker.delays, found.broker.vhost) == (version, vhost.name)
    assert found.broker.broker_version == ".".join(map(str, vhost.node.release))
    assert ours(vhost) == []


def test_a_measurement_that_is_broken_off_leaves_a_queue_that_expires(
    vhost: Vhost, settings: ConnectionSettings
) -> None:
    """Whatever was sent by then finds it, and hangs in no level for want of a queue."""
    create_delays(settings, V2)
    looks = itertools.count()

    def guard() -> None:
        if next(looks) == 10:
            raise Interrupted("enough")

    with pytest.raises(Interrupted):
        measure_capacity(settings, V2, find_bindings=None, guard=guard)
    (left,) = ours(vhost)
    queue = vhost.node.api("GET", f"queues/{quote(vhost.name, safe='')}/{left}")
    assert queue["arguments"]["x-expires"] == 24 * 3600 * 1000


def test_a_measurement_where_the_levels_are_missing_sends_nothing(
    vhost: Vhost, settings: ConnectionSettings
) -> None:
    """And says what finds out more."""
    with pytest.raises(PreflightRefused, match="delays show"):
        measure_capacity(settings, V2, find_bindings=None)
    assert ours(vhost) == []
