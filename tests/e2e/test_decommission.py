"""Decommissioning: exactly what was announced goes, and nothing is lost on the way."""

from __future__ import annotations

import secrets
import time
from collections.abc import Iterator

import pytest

from dev.processes import PATIENCE_S
from dev.rabbit import RabbitNode
from tests.e2e.decommissioning import Old, announced, quick_broker
from tests.e2e.dispatching import waiting
from tests.e2e.rig import Rig
from tests.e2e.rows import row

TIMEOUTS, DISPATCHER = "Sales.Timeouts", "Sales.TimeoutsDispatcher"


@pytest.fixture(scope="module")
def node() -> Iterator[RabbitNode]:
    """A broker that counts four times a second, for all tests here."""
    with quick_broker() as found:
        yield found


@pytest.fixture
def old(node: RabbitNode, database: str) -> Iterator[Old]:
    """A virtual host and a database of this test's own."""
    vhost = f"old-{secrets.token_hex(4)}"
    node.create_vhost(vhost)
    rig = Rig(
        database_url=database,
        broker_url=node.amqp_url(vhost),
        management_url=node.management_url,
    )
    made = Old(rig, node, vhost)
    made.prepare()
    yield made
    rig.close()
    node.delete_vhost(vhost)


def codes(document: dict[str, object]) -> set[str]:
    """Return why it was refused."""
    refusals = document["refusals"]
    assert isinstance(refusals, list)
    return {each["code"] for each in refusals}


def test_what_goes_is_what_was_announced(old: Old) -> None:
    """Two endpoints one after the other: ours stay while the second still needs them."""
    old.declare("Sales", is_told=False)
    old.declare("Bills", direct=True, quorum=True, is_told=False)
    old.rig.create_receivers("Billing")
    old.rig.insert([row()])
    old.rig.migrate()
    rig_of_bills = Rig(database_url=old.rig.database_url, broker_url="", endpoint="Bills")
    rig_of_bills.create_store()
    rig_of_bills.insert([row()])
    for name in ("Sales", "Bills"):
        old.until_told(name)
    before = old.definitions()
    first = ("--drop-table", "--give-up-recall")
    foretold = old.decommission(*first, "--dry-run")
    assert old.definitions() == before
    done = old.decommission(*first, "--yes")
    after = old.definitions()
    assert after == announced(before, foretold) == announced(before, done)
    assert {each["name"] for each in done["delete"]} == {TIMEOUTS, DISPATCHER}
    assert "public.Sales_TimeoutData" in before.tables - after.tables
    assert {"rows of Bills are still in the store"} == {each["why"] for each in done["keep"]}
    with rig_of_bills.sql() as connection:
        connection.execute('DELETE FROM "Bills_TimeoutData"')
    options = ("--endpoint", "Bills", "--wait", "0s", "--yes")
    assert old.rig.run("decommission", *options, fault="decommission.unbound:2").returncode == -9
    killed = old.definitions()
    done = old.decommission("--yes", name="Bills")
    last = old.definitions()
    assert last == announced(killed, done)
    assert not any(name.startswith("migrator.") for name in last.queues | last.exchanges)
    assert last.tables == after.tables


@pytest.mark.slow
@pytest.mark.parametrize("direct", [False, True], ids=["conventional", "direct"])
@pytest.mark.parametrize("quorum", [False, True], ids=["classic", "quorum"])
def test_every_kind_of_satellite_goes(old: Old, direct: bool, quorum: bool) -> None:
    """Both topologies and both kinds of queues."""
    old.declare("Sales", direct=direct, quorum=quorum)
    before = old.definitions()
    foretold = old.decommission("--dry-run")
    done = old.decommission("--yes")
    assert old.definitions() == announced(before, foretold) == announced(before, done)
    assert old.definitions().queues >= {"Sales"}
    assert not old.definitions().queues & {TIMEOUTS, DISPATCHER}


def test_all_reasons_are_told_and_nothing_is_changed(old: Old) -> None:
    """Rows, a consumer, and a message in somebody's hand, each with what to do."""
    old.declare("Sales")
    old.rig.insert([row()])
    old.send(TIMEOUTS)
    before = old.definitions()
    with old.rig.amqp() as connection:
        channel = connection.channel()
        assert channel.basic_get(TIMEOUTS)[0] is not None  # and never acknowledged
        channel.basic_consume(DISPATCHER, lambda *_: None)
        old.wait_until_told(TIMEOUTS, "messages_unacknowledged", 1)
        refused = old.decommission("--yes", codes=(3,))
    assert codes(refused) == {"rows_in_table", "consumers", "messages"}
    assert "1 unacknowledged" in str(refused["refusals"])
    assert (refused["done"], refused["delete"], refused["unbind"]) == (False, [], [])
    assert old.definitions() == before
    assert len(old.rig.stored_ids()) == 1


@pytest.mark.slow
@pytest.mark.parametrize(
    "faults",
    [
        ("decommission.unbound:2", "decommission.deleted:1", "decommission.deleted:2"),
        ("decommission.begun",),
        *((f"decommission.unbound:{n}",) for n in range(1, 5)),
        ("decommission.checked",),
        *((f"decommission.deleted:{n}",) for n in range(1, 5)),
        ("decommission.dropped",),
    ],
    ids=str,
)
def test_killed_and_run_again(old: Old, faults: tuple[str, ...]) -> None:
    """Wherever it is killed, the next one goes on to the same end."""
    old.declare("Sales")
    before = old.definitions()
    foretold = old.decommission("--drop-table", "--dry-run")
    for fault in faults:
        options = ("--endpoint", "Sales", "--wait", "0s", "--drop-table", "--yes")
        assert old.rig.run("decommission", *options, fault=fault).returncode == -9
    old.decommission("--drop-table", "--yes")
    assert old.definitions() == announced(before, foretold)
    assert old.decommission("--drop-table", "--yes")["delete"] == []  # once more: nothing is left


@pytest.mark.slow
def test_killed_while_unbound_and_then_something_comes(old: Old) -> None:
    """What was cut is made again as it was, and the message waits for whoever takes it."""
    old.declare("Sales")
    before = old.definitions()
    options = ("--endpoint", "Sales", "--wait", "0s", "--yes")
    done = old.rig.run("decommission", *options, fault="decommission.unbound:4")
    assert done.returncode == -9
    assert len(before.bindings - old.definitions().bindings) == 4
    old.send(TIMEOUTS)
    foretold = old.decommission("--dry-run", codes=(3,))
    assert len(foretold["bind_again"]) == 4
    refused = old.decommission("--yes", codes=(3,))
    assert codes(refused) == {"messages"}
    assert old.definitions() == before
    assert waiting(old.rig, TIMEOUTS) == 1


@pytest.mark.slow
def test_a_running_migrator_is_not_disturbed(old: Old) -> None:
    """Its endpoint is refused; for another's sake, what they share stays."""
    old.declare("Sales")
    old.declare("Bills")
    rig_of_bills = Rig(database_url=old.rig.database_url, broker_url="", endpoint="Bills")
    rig_of_bills.create_store()
    old.rig.insert([row(destination="Bills")])
    process = old.rig.start("run", "--endpoint", "Sales")
    deadline_s = time.monotonic() + PATIENCE_S
    while old.rig.batch_states()["handed_over"] == 0:
        assert time.monotonic() < deadline_s
        time.sleep(0.1)
    assert codes(old.decommission("--yes", codes=(3,))) == {"run_alive"}
    done = old.decommission("--yes", name="Bills")
    assert {each["name"] for each in done["delete"]} == {
        "Bills.Timeouts",
        "Bills.TimeoutsDispatcher",
    }
    assert all("somebody works" in each["why"] for each in done["keep"])
    old.rig.stop(process)
