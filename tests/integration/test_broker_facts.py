"""What preflight is told about a real broker."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from migrator.delays.broker import BrokerFacts
from migrator.delays.routing import DelaysVersion, delivery_exchange
from migrator.delays.topology import create_delays, level_queues
from migrator.errors import NotChecked
from migrator.nservicebus.timeouts import QueueName
from migrator.rabbitmq.connection import ConnectionSettings
from migrator.rabbitmq.entities import QueueFacts
from tests.conftest import Vhost
from tests.unit.rabbitmq.material import api_of, connection, plain_channel, wait_until

V1, V2 = DelaysVersion.V1, DelaysVersion.V2


@pytest.fixture
def settings(vhost: Vhost) -> ConnectionSettings:
    """How the virtual host of the test is reached."""
    return connection(vhost.amqp_url)


@pytest.fixture
def facts(vhost: Vhost, settings: ConnectionSettings) -> Iterator[BrokerFacts]:
    """The facts of that virtual host, management API included."""
    with api_of(vhost) as api:
        yield BrokerFacts(settings, api)


@pytest.mark.parametrize("version", DelaysVersion)
def test_delays_are_absent_complete_or_different(
    facts: BrokerFacts, settings: ConnectionSettings, vhost: Vhost, version: DelaysVersion
) -> None:
    """Looking changes nothing; who is bound to them is told by name."""
    absent = facts.delay_entities(version)
    assert len(absent.missing) == 29 + 28 + 56
    assert facts.delay_entities(version) == absent
    create_delays(settings, version)
    complete = facts.delay_entities(version)
    assert (complete.missing, complete.different, complete.not_checked) == ([], {}, [])
    uninformed = BrokerFacts(settings, None).delay_entities(version)
    assert (uninformed.missing, uninformed.different) == ([], {})
    assert len(uninformed.not_checked) == 1  # the bindings
    with plain_channel(vhost.amqp_url) as channel:
        channel.queue_declare("Sales", exclusive=True)
        channel.queue_bind("Sales", delivery_exchange(version), "#.Sales")
        channel.exchange_declare("My.Sales", "fanout", durable=True)
        channel.exchange_bind("My.Sales", delivery_exchange(version), "#.My.Sales")
        assert facts.bound_names(version) == {"Sales", "My.Sales"}
        # one that is exclusive to somebody counts as consumed
        assert facts.queues(["Sales", "none"]) == {
            "Sales": QueueFacts(name="Sales", ready=0, consumers=1),
            "none": None,
        }
    with plain_channel(vhost.amqp_url) as channel:
        name = f"nsb.{'v2.' if version is V2 else ''}delay-level-05"
        channel.queue_delete(name)
        channel.queue_declare(name, durable=True, arguments={"x-message-ttl": 5})
        channel.exchange_unbind(
            name.replace("05", "03"), name.replace("05", "04"), "*" + ".*" * 22 + ".0.#"
        )
    spoiled = facts.delay_entities(version)
    assert list(spoiled.different) == [name]
    assert len(spoiled.missing) == 2  # the deleted queue's binding, and the one taken away


def test_policies_are_those_of_the_virtual_host(facts: BrokerFacts, vhost: Vhost) -> None:
    """Also for queues that do not exist yet."""
    assert facts.policies(["migrator.staging.a1.0"]) == {"migrator.staging.a1.0": []}
    vhost.node.set_policy(vhost.name, "blanket", pattern=".*", delivery_limit=3)
    found = facts.policies(["migrator.staging.a1.0"])
    (policy,) = found["migrator.staging.a1.0"]
    assert (policy.name, policy.definition) == ("blanket", {"delivery-limit": 3})


def test_exchanges_that_divert_are_told(facts: BrokerFacts, vhost: Vhost) -> None:
    """By the policy in force, also for one that does not exist yet, or by their own argument."""
    entry, router, level = "migrator.entry.v2.03", "migrator.router.v2", "nsb.v2.delay-level-27"
    names = [entry, router, level]
    assert facts.diverting(names) == {}
    with plain_channel(vhost.amqp_url) as channel:
        arguments = {"alternate-exchange": "others"}
        channel.exchange_declare(level, "topic", durable=True, arguments=arguments)
        channel.exchange_declare(router, "headers", durable=True)
    assert facts.diverting(names) == {level: ["its own argument"]}
    vhost.node.set_policy(vhost.name, "all", pattern="^migrator", alternate_exchange="others")
    assert facts.diverting(names) == {
        entry: ["policy all"],
        router: ["policy all"],
        level: ["its own argument"],
    }


def test_only_what_is_ready_is_known_without_the_management_api(
    facts: BrokerFacts, settings: ConnectionSettings, vhost: Vhost
) -> None:
    """And of levels so new that it has no counts; missing levels are told from empty ones."""
    create_delays(settings, V2)
    with plain_channel(vhost.amqp_url) as channel:
        channel.confirm_delivery()
        channel.basic_publish("", "nsb.v2.delay-level-20", b"x")
        channel.queue_delete("nsb.v2.delay-level-05")
    for asked, gap in ((facts, "so new"), (BrokerFacts(settings, None), "management")):
        wait_until(lambda asked=asked: asked.level_depths(V2).totals["ready"] == 1)
        found = asked.level_depths(V2)
        assert found.missing == ("nsb.v2.delay-level-05",)
        assert found.totals["consumers"] == 0
        if asked is facts and are_told(vhost, settings):
            continue  # on a busy machine the levels are so new no more
        assert (found.totals["held"], found.totals["unacknowledged"]) == (None, None)
        assert gap in found.gap
        assert asked.level_depths(V1).is_absent


def are_told(vhost: Vhost, settings: ConnectionSettings) -> bool:
    """Return whether the broker has counts of all levels by now."""
    with api_of(vhost) as api:
        return all(queue.is_told for queue in level_queues(api, V2))


def test_a_management_api_for_somebody_else_is_an_answer(
    vhost: Vhost, settings: ConnectionSettings
) -> None:
    """It refuses; AMQP goes on."""
    create_delays(settings, V2)
    url = vhost.node.management_url.replace("guest:guest", "guest:wrong")
    with api_of(vhost, url) as api:
        found = BrokerFacts(settings, api)
        with pytest.raises(NotChecked):
            found.alarms()
        assert found.delay_entities(V2).not_checked
        depths = found.level_depths(V2)
        assert (depths.totals["ready"], depths.totals["held"]) == (0, None)
        assert "refused" in depths.gap
        assert found.server().product == "RabbitMQ"


def test_ways_to_destinations_are_told(
    facts: BrokerFacts, settings: ConnectionSettings, vhost: Vhost
) -> None:
    """Of both topologies, whole and broken at either end; doing what is missing opens each."""
    create_delays(settings, V2)
    delivery = "nsb.v2.delay-delivery"
    with plain_channel(vhost.amqp_url) as channel:
        for name in ("direct", "whole", "unbound", "cut"):
            channel.queue_declare(name, durable=True)
        for name in ("whole", "cut", "dangling"):
            channel.exchange_declare(name, "fanout", durable=True)
            channel.exchange_bind(name, delivery, f"#.{name}")
        channel.queue_bind("direct", delivery, "#.direct")
        channel.queue_bind("whole", "whole", "")
        names = [QueueName(n) for n in ("direct", "whole", "unbound", "cut", "dangling", "nothing")]
        ways = facts.destination_bindings(V2, names)
        assert [name for name in names if ways[name].is_open] == ["direct", "whole"]
        assert not ways[QueueName("dangling")].has_queue
        for way in ways.values():
            if not way.has_queue:
                channel.queue_declare(way.destination, durable=True)
            for binding in way.missing:
                bind = channel.queue_bind if binding.target_is_queue else channel.exchange_bind
                bind(binding.target.name, binding.source, binding.key)
    mended = facts.destination_bindings(V2, names)
    assert all(way.is_open for way in mended.values())
    with pytest.raises(NotChecked):
        BrokerFacts(settings, None).destination_bindings(V2, names)
