"""Decommissioning: exactly what was announced goes, and nothing is lost on the way."""

from __future__ import annotations

import json
import secrets
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

import pytest

from dev.processes import wait_until
from dev.rabbit import RabbitNode
from tests.e2e.rig import Rig
from tests.e2e.rows import row

_KEPT = ", ".join(f"{{{kind}, [{{60, 1}}]}}" for kind in ("global", "basic", "detailed"))
QUICK = (
    "[{rabbit, [{collect_statistics_interval, 250}, {quorum_tick_interval, 250}]},"
    f" {{rabbitmq_management_agent, [{{sample_retention_policies, [{_KEPT}]}}]}}].\n"
)
"""Counts that follow within a second or two: what would be waited for is not what is tested."""
DELIVERY = "nsb.v2.delay-delivery"
Definitions = frozenset[tuple[str, ...]]
"""Queues, exchanges, tables and bindings, each with its kind in front."""


class Old:
    """A rig with endpoints whose satellites any version of NServiceBus could have declared."""

    def __init__(self, rig: Rig, node: RabbitNode, vhost: str) -> None:
        """Work on one virtual host of *node*."""
        self.rig = rig
        self._node = node
        self._vhost = quote(vhost, safe="")

    def declare(self, name: str = "Sales", *, is_direct: bool = False) -> None:
        """Declare an endpoint's queues as its installer does, bound to the delays.

        Those of the direct topology are quorum queues here.
        """
        arguments = {"x-queue-type": "quorum"} if is_direct else {}
        with self.rig.amqp() as connection:
            channel = connection.channel()
            for queue in (name, f"{name}.Timeouts", f"{name}.TimeoutsDispatcher"):
                channel.queue_declare(queue, durable=True, arguments=arguments)
                if is_direct:
                    channel.queue_bind(queue, DELIVERY, f"#.{queue}")
                    continue
                channel.exchange_declare(queue, "fanout", durable=True)
                channel.queue_bind(queue, queue, "")
                channel.exchange_bind(queue, DELIVERY, f"#.{queue}")

    def until_told(self) -> None:
        """Wait until the broker has counts of all queues, ours too: a moment, when they are new."""

        def are_told() -> bool:
            found = self._node.api("GET", f"queues/{self._vhost}")
            return all("effective_policy_definition" in each for each in found)

        wait_until(are_told, what="counts of all queues")

    def definitions(self) -> Definitions:
        """Return what there is now, but for bindings of the default exchange."""
        found = {
            (kind, each["name"])
            for kind in ("queue", "exchange")
            for each in self._node.api("GET", f"{kind}s/{self._vhost}?columns=name")
        }
        tables = self.rig.query(
            "SELECT 'table', table_schema || '.' || table_name FROM information_schema.tables"
            " WHERE table_schema NOT IN ('pg_catalog', 'information_schema')"
        )
        ends = ("source", "destination", "destination_type", "routing_key")
        bindings = (
            ("binding", *(b[end] for end in ends), json.dumps(b["arguments"], sort_keys=True))
            for b in self._node.api("GET", f"bindings/{self._vhost}")
            if b["source"]
        )
        return frozenset({*found, *tables, *bindings})

    def decommission(self, *options: str, name: str = "Sales") -> dict[str, Any]:
        """Run the program, and return what it said; what comes while it waits is not tested."""
        given = ("--endpoint", name, "--wait", "0s", "--json", *options)
        found: dict[str, Any] = json.loads(self.rig.must("decommission", *given))
        return found

    def killed_at(self, fault: str, *options: str, name: str = "Sales") -> None:
        """Run the program, killed at a step."""
        given = ("--endpoint", name, "--wait", "0s", "--yes", *options)
        assert self.rig.run("decommission", *given, fault=fault).returncode == -9


def announced(before: Definitions, document: dict[str, Any]) -> Definitions:
    """Return what is left of *before* when all that *document* tells is done."""
    gone: set[tuple[str, ...]] = {(each["kind"], each["name"]) for each in document["delete"]}
    for each in document["unbind"]:
        ends = (each["source"], each["target"], each["target_kind"], each["key"])
        gone.add(("binding", *ends, json.dumps(each["arguments"], sort_keys=True)))
    if any(each["wanted"] for each in document["sql"]):
        gone.add(("table", document["source"]))
    return before - gone


@pytest.fixture(scope="module")
def node() -> Iterator[RabbitNode]:
    """A broker that counts four times a second, for all tests here."""
    node = RabbitNode()
    (node.data_dir / "advanced.config").write_text(QUICK)
    with node:
        yield node


@pytest.fixture
def old(node: RabbitNode, database: str) -> Iterator[Old]:
    """A virtual host and a database of this test's own, with legacy table, ledger and levels."""
    vhost = f"old-{secrets.token_hex(4)}"
    node.create_vhost(vhost)
    rig = Rig(
        database_url=database,
        broker_url=node.amqp_url(vhost),
        management_url=node.management_url,
    )
    rig.prepare("Billing")
    yield Old(rig, node, vhost)
    rig.close()
    node.delete_vhost(vhost)


def test_what_goes_is_what_was_announced(old: Old) -> None:
    """Two endpoints one after the other: ours stay while the second still needs them."""
    old.declare("Sales")
    old.declare("Bills", is_direct=True)
    old.rig.insert([row()])
    old.rig.migrate()
    rig_of_bills = Rig(database_url=old.rig.database_url, broker_url="", endpoint="Bills")
    rig_of_bills.create_store()
    rig_of_bills.insert([row()])
    old.until_told()
    before = old.definitions()
    first = ("--drop-table", "--give-up-recall")
    foretold = old.decommission(*first, "--dry-run")
    assert old.definitions() == before
    done = old.decommission(*first, "--yes")
    after = old.definitions()
    assert after == announced(before, foretold) == announced(before, done)
    assert {each["name"] for each in done["delete"]} == {
        "Sales.Timeouts",
        "Sales.TimeoutsDispatcher",
    }
    assert ("table", "public.Sales_TimeoutData") in before - after
    assert {"rows of Bills are still in the store"} == {each["why"] for each in done["keep"]}
    with rig_of_bills.sql() as connection:
        connection.execute('DELETE FROM "Bills_TimeoutData"')
    old.killed_at("decommission.unbound:2", name="Bills")
    killed = old.definitions()
    done = old.decommission("--yes", name="Bills")
    last = old.definitions()
    assert last == announced(killed, done)
    ours = {each for each in last if each[0] != "table" and each[1].startswith("migrator.")}
    assert ours == set()
    assert {each for each in after - last if each[0] == "table"} == set()


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
    old.until_told()
    before = old.definitions()
    foretold = old.decommission("--drop-table", "--dry-run")
    for fault in faults:
        old.killed_at(fault, "--drop-table")
    old.decommission("--drop-table", "--yes")
    assert old.definitions() == announced(before, foretold)
    assert old.decommission("--drop-table", "--yes")["delete"] == []  # once more: nothing is left
