"""Decommissioning: exactly what was announced goes, and nothing is lost on the way."""

from __future__ import annotations

import json
import secrets
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

import pika
import pytest

from dev.processes import PATIENCE_S
from dev.rabbit import RabbitNode
from tests.e2e.rig import Rig
from tests.e2e.rows import row

TIMEOUTS, DISPATCHER = "Sales.Timeouts", "Sales.TimeoutsDispatcher"
_KEPT = ", ".join(f"{{{kind}, [{{60, 1}}]}}" for kind in ("global", "basic", "detailed"))
QUICK = (
    "[{rabbit, [{collect_statistics_interval, 250}, {quorum_tick_interval, 250}]},"
    f" {{rabbitmq_management_agent, [{{sample_retention_policies, [{_KEPT}]}}]}}].\n"
)
"""Counts that follow within a second or two: what would be waited for is not what is tested."""
DELIVERY = "nsb.v2.delay-delivery"


@dataclass(frozen=True, kw_only=True)
class Definitions:
    """Everything that is declared, as a set each; bindings of the default exchange left out."""

    queues: frozenset[str]
    exchanges: frozenset[str]
    bindings: frozenset[tuple[str, str, str, str, str]]
    tables: frozenset[str]


class Old:
    """A rig with endpoints whose satellites any version of NServiceBus could have declared."""

    def __init__(self, rig: Rig, node: RabbitNode, vhost: str) -> None:
        """Work on one virtual host of *node*."""
        self.rig = rig
        self._node = node
        self._vhost = quote(vhost, safe="")

    def prepare(self) -> None:
        """Create legacy table, ledger and levels."""
        self.rig.create_store()
        self.rig.create_ledger()
        self.rig.create_levels()

    def declare(
        self,
        name: str = "Sales",
        *,
        direct: bool = False,
        quorum: bool = False,
        is_told: bool = True,
    ) -> None:
        """Declare an endpoint's queues as its installer does, bound to the delays.

        Wait until they are told, unless ``until_told`` is called later.
        """
        arguments = {"x-queue-type": "quorum"} if quorum else {}
        with self.rig.amqp() as connection:
            channel = connection.channel()
            for queue in (name, f"{name}.Timeouts", f"{name}.TimeoutsDispatcher"):
                channel.queue_declare(queue, durable=True, arguments=arguments)
                if direct:
                    channel.queue_bind(queue, DELIVERY, f"#.{queue}")
                    continue
                channel.exchange_declare(queue, "fanout", durable=True)
                channel.queue_bind(queue, queue, "")
                channel.exchange_bind(queue, DELIVERY, f"#.{queue}")
        if is_told:
            self.until_told(name)

    def until_told(self, name: str) -> None:
        """Wait until the broker has counts of an endpoint's satellites: a moment, when new."""
        for queue in (f"{name}.Timeouts", f"{name}.TimeoutsDispatcher"):
            self.wait_until_told(queue, "effective_policy_definition")

    def wait_until_told(self, queue: str, what: str, at_least: int | None = None) -> None:
        """Wait until the broker's counts tell *what* of *queue*."""
        deadline_s = time.monotonic() + PATIENCE_S
        while True:
            found = self._node.api("GET", f"queues/{self._vhost}/{queue}")
            if what in found and (at_least is None or found[what] >= at_least):
                return
            assert time.monotonic() < deadline_s, found
            time.sleep(0.05)

    def definitions(self) -> Definitions:
        """Return what there is now."""
        api, vhost = self._node.api, self._vhost
        with self.rig.sql() as connection:
            tables = connection.execute(
                "SELECT table_schema || '.' || table_name FROM information_schema.tables"
                " WHERE table_schema NOT IN ('pg_catalog', 'information_schema')"
            ).fetchall()
        return Definitions(
            queues=frozenset(q["name"] for q in api("GET", f"queues/{vhost}?columns=name")),
            exchanges=frozenset(e["name"] for e in api("GET", f"exchanges/{vhost}?columns=name")),
            bindings=frozenset(
                (
                    b["source"],
                    b["destination"],
                    b["destination_type"],
                    b["routing_key"],
                    json.dumps(b["arguments"], sort_keys=True),
                )
                for b in api("GET", f"bindings/{vhost}")
                if b["source"]
            ),
            tables=frozenset(name for (name,) in tables),
        )

    def send(self, queue: str) -> None:
        """Put a message into *queue* by the default exchange, as retries of failed ones are."""
        with self.rig.amqp() as connection:
            channel = connection.channel()
            channel.confirm_delivery()
            properties = pika.BasicProperties(delivery_mode=2)
            channel.basic_publish("", queue, b"x", properties, mandatory=True)

    def decommission(
        self, *options: str, name: str = "Sales", codes: tuple[int, ...] = (0,), **more: Any
    ) -> dict[str, Any]:
        """Run the program, and return what it said; what comes while it waits is not tested."""
        given = ("--endpoint", name, "--wait", "0s", "--json", *options)
        found: dict[str, Any] = json.loads(
            self.rig.must("decommission", *given, codes=codes, **more)
        )
        return found


def announced(before: Definitions, document: dict[str, Any]) -> Definitions:
    """Return what is left of *before* when all that *document* tells is done."""
    gone = {(each["kind"], each["name"]) for each in document["delete"]}
    unbound = {
        (b["source"], b["target"], b["target_kind"], b["key"], json.dumps(b["arguments"]))
        for b in document["unbind"]
    }
    dropped = {document["source"]} if any(each["wanted"] for each in document["sql"]) else set()
    return Definitions(
        queues=frozenset(each for each in before.queues if ("queue", each) not in gone),
        exchanges=frozenset(each for each in before.exchanges if ("exchange", each) not in gone),
        bindings=before.bindings - {(*b[:4], _sorted(b[4])) for b in unbound},
        tables=before.tables - dropped,
    )


def _sorted(text: str) -> str:
    return json.dumps(json.loads(text), sort_keys=True)


@pytest.fixture(scope="module")
def node() -> Iterator[RabbitNode]:
    """A broker that counts four times a second, for all tests here."""
    node = RabbitNode()
    (node.data_dir / "advanced.config").write_text(QUICK)
    with node:
        yield node


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
