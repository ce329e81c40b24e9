"""Looking at entities that are to go, and cutting, binding and deleting them, on a real broker."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pika
import pytest

from migrator.decommission.broker import DecommissionBroker
from migrator.decommission.rules import BrokerSnapshot
from migrator.delays.topology import create_delays, declare_entries
from migrator.dispatcher.link import declare_retry_queues
from migrator.errors import AccessRefused, TargetError
from migrator.handover.staging import LaneQueues, declare_staging
from migrator.nservicebus.headers import CONFIRMATION_ID
from migrator.nservicebus.timeouts import Lane, QueueName
from migrator.rabbitmq.admin import admin_session
from migrator.rabbitmq.entities import Binding, exchange_entity, queue_entity
from tests.conftest import Vhost
from tests.unit.rabbitmq.material import LEDGER, V2, api_of, connection, plain_channel, wait_until

TIMEOUTS, DISPATCHER = "Sales.Timeouts", "Sales.TimeoutsDispatcher"


class Site:
    """One virtual host, and what is tested over it."""

    def __init__(self, vhost: Vhost) -> None:
        self.url = vhost.amqp_url
        self.settings = connection(self.url)
        self.api = api_of(vhost)
        self.broker = DecommissionBroker(self.settings, self.api, ledger_id=LEDGER)

    def look(self) -> BrokerSnapshot:
        found = self.broker.look(QueueName("Sales"))
        assert found is not None
        return found

    def declare(self, name: str, arguments: dict[str, Any]) -> None:
        """Declare a conventional satellite."""
        with plain_channel(self.url) as channel:
            channel.queue_declare(name, durable=True, arguments=arguments)
            channel.exchange_declare(name, "fanout", durable=True)
            channel.queue_bind(name, name, "")

    def wait_until_told(self, name: str) -> None:
        """New queues have no counts for a while."""
        wait_until(lambda: (q := self.api.queue(name)) is not None and q.is_told, seconds=60)


@pytest.fixture
def site(vhost: Vhost) -> Iterator[Site]:
    """A virtual host of the test's own."""
    made = Site(vhost)
    yield made
    made.api.close()


def test_everything_is_found_and_told_apart(site: Site) -> None:
    """Satellites, retry queues, this ledger's lanes, what ledgers share, and other ledgers."""
    create_delays(site.settings, V2)
    site.declare(TIMEOUTS, {})
    with admin_session(site.settings, purpose="test") as admin:
        declare_entries(admin, V2)
        for ledger in (LEDGER, "zzz"):
            declare_staging(admin, LaneQueues(ledger_id=ledger, lane=Lane(0), version=V2))
        retry, *_ = declare_retry_queues(admin, TIMEOUTS, [10])
        declare_retry_queues(admin, "Bills.Timeouts", [10])
        look = site.look()
        wait_until(lambda: "migrator test" in site.look().clients, seconds=60)
    assert [queue.name for queue in look.satellites] == [TIMEOUTS]
    assert look.satellite_exchanges == [TIMEOUTS]
    assert [queue.name for queue in look.retries] == [retry]
    staging, receipts = f"migrator.staging.{LEDGER}.0", f"migrator.receipts.{LEDGER}.0"
    assert {queue.name for queue in look.lanes} == {staging, receipts}
    assert look.lane_exchanges == [staging]
    assert set(look.others) == {"migrator.staging.zzz.0", "migrator.receipts.zzz.0"}
    assert len(look.shared) == 29
    # the lane's two, its neighbour's receipts, 28 levels by router and by entry, the satellite's
    assert len(look.bindings) == 3 + 2 * 28 + 1
    routed = [b for b in look.bindings if b.target == queue_entity(receipts)]
    assert [b.arguments[CONFIRMATION_ID] for b in routed] == [f"receipt.{LEDGER}.0"]


def test_a_binding_is_cut_and_made_again_as_it_was(site: Site) -> None:
    """To queues and exchanges, with arguments; repeating, and an end that is gone, do no harm."""
    with plain_channel(site.url) as channel:
        channel.exchange_declare("from", "headers", durable=True)
        channel.exchange_declare(TIMEOUTS, "fanout", durable=True)
        channel.queue_declare(TIMEOUTS, durable=True)
    bindings = [
        Binding(source="from", target=queue_entity(TIMEOUTS), key="a", arguments={"x": "1"}),
        Binding(source="from", target=exchange_entity(TIMEOUTS), key="b"),
        Binding(source=TIMEOUTS, target=queue_entity(TIMEOUTS), key=""),
    ]

    def there() -> set[str]:
        return {str(each) for each in site.look().bindings}

    for binding in bindings:
        for _again in range(2):
            with site.broker.editor() as editor:
                assert editor.bind(binding)
    assert there() == {str(each) for each in bindings}
    for binding in bindings:
        for _again in range(2):
            with site.broker.editor() as editor:
                editor.unbind(binding)
    assert there() == set()
    gone = Binding(source="gone", target=queue_entity("gone"), key="")
    with site.broker.editor() as editor:
        assert not editor.bind(gone)
        editor.unbind(gone)
        assert editor.delete(exchange_entity("from")) is None


def test_only_an_empty_queue_that_nobody_uses_is_deleted(site: Site) -> None:
    """A message or a consumer keeps it; without both it goes, and once more does no harm."""
    kinds: dict[str, dict[str, Any]] = {"classic": {}, "quorum": {"x-queue-type": "quorum"}}
    for kind, arguments in kinds.items():
        site.declare(f"{kind}.full", arguments)
        site.declare(f"{kind}.used", arguments)
    site.declare(TIMEOUTS, {})
    (fresh,) = site.look().satellites
    assert fresh.is_told or not fresh.is_calm  # what was made a moment ago has no counts yet
    for kind in kinds:
        site.wait_until_told(f"{kind}.full")
        site.wait_until_told(f"{kind}.used")
    for kind in kinds:
        _keeps_and_goes(site, full=f"{kind}.full", used=f"{kind}.used")
    site.wait_until_told(TIMEOUTS)
    assert [(queue.name, queue.is_calm) for queue in site.look().satellites] == [(TIMEOUTS, True)]


def _keeps_and_goes(site: Site, *, full: str, used: str) -> None:
    with plain_channel(site.url) as channel, site.broker.editor() as editor:
        channel.confirm_delivery()
        channel.basic_publish("", full, b"x", pika.BasicProperties(delivery_mode=2))
        # told at once, long before the management API knows
        assert "1 message " in str(editor.delete(queue_entity(full)))
        channel.basic_consume(used, lambda *_: None)
        assert str(editor.delete(queue_entity(used))).endswith(" and 1 consumer")
        if full.startswith("classic"):  # the broker keeps it, too: one may come after a look
            with (
                admin_session(site.settings, purpose="t") as admin,
                pytest.raises(TargetError, match="not empty"),
            ):
                admin.delete_queue(full, if_empty=True, if_unused=True)
        assert "in use" in str(editor.delete(exchange_entity(full)))
        method, _properties, _body = channel.basic_get(full)
        channel.basic_ack(method.delivery_tag)
        wait_until(lambda: editor.delete(queue_entity(full)) is None)  # nobody answers an ack
        for _again in range(2):
            assert editor.delete(queue_entity(full)) is None
            assert editor.delete(exchange_entity(full)) is None
    with admin_session(site.settings, purpose="t") as admin:
        assert (admin.queue(full), admin.find_exchange(full)) == (None, False)
        assert admin.queue(used) is not None


def test_a_management_api_of_another_broker_tells_nothing(site: Site, vhost: Vhost) -> None:
    """What it does not know is there all the same, is not known to be empty, and is kept."""
    site.declare(TIMEOUTS, {})
    with plain_channel(site.url) as channel:
        channel.confirm_delivery()
        channel.basic_publish("", TIMEOUTS, b"x", pika.BasicProperties(delivery_mode=2))
    elsewhere = f"{vhost.name}-other"
    vhost.node.create_vhost(elsewhere)
    with api_of(Vhost(name=elsewhere, node=vhost.node)) as api:
        for management in (api, None):
            broker = DecommissionBroker(site.settings, management, ledger_id=LEDGER)
            with broker.editor() as editor:
                assert "does not know it" in str(editor.delete(queue_entity(TIMEOUTS)))
                assert editor.delete(queue_entity("gone")) is None
        found = DecommissionBroker(site.settings, api, ledger_id=LEDGER).look(QueueName("Sales"))
    vhost.node.delete_vhost(elsewhere)
    assert found is not None
    (queue,) = found.satellites
    assert (queue.name, queue.is_told, queue.ready) == (TIMEOUTS, False, 1)


def test_a_missing_permission_is_no_answer(vhost: Vhost, site: Site) -> None:
    """It is raised as such, and nothing is gone."""
    with plain_channel(site.url) as channel:
        channel.exchange_declare(TIMEOUTS, "fanout", durable=True)
    vhost.node.add_user("weak", "weak", tags="monitoring")
    vhost.node.set_permissions(vhost.name, "weak", configure="^$")
    weak = connection(vhost.node.amqp_url(vhost.name, user="weak", password="weak"))
    broker = DecommissionBroker(weak, site.api, ledger_id=LEDGER)
    with broker.editor() as editor, pytest.raises(AccessRefused):
        editor.delete(exchange_entity(TIMEOUTS))
    assert site.look().satellite_exchanges == [TIMEOUTS]
