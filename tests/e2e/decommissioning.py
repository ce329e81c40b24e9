"""What a broker and a database consist of, and endpoints whose satellites are to go."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

import pika

from dev.processes import PATIENCE_S
from dev.rabbit import RabbitNode
from tests.e2e.rig import Rig

_KEPT = ", ".join(f"{{{kind}, [{{60, 1}}]}}" for kind in ("global", "basic", "detailed"))
QUICK = (
    "[{rabbit, [{collect_statistics_interval, 250}, {quorum_tick_interval, 250}]},"
    f" {{rabbitmq_management_agent, [{{sample_retention_policies, [{_KEPT}]}}]}}].\n"
)
"""Counts that follow within a second or two: what would be waited for is not what is tested."""
DELIVERY = "nsb.v2.delay-delivery"


@contextmanager
def quick_broker() -> Iterator[RabbitNode]:
    """Start a node that counts often."""
    node = RabbitNode()
    (node.data_dir / "advanced.config").write_text(QUICK)
    with node:
        yield node


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

    def send(self, queue: str, count: int = 1) -> None:
        """Put messages into *queue* by the default exchange, as retries of failed ones are."""
        with self.rig.amqp() as connection:
            channel = connection.channel()
            channel.confirm_delivery()
            for number in range(count):
                properties = pika.BasicProperties(message_id=str(number), delivery_mode=2)
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
