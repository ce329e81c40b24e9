"""One destination that is unusual: only its own rows wait, are shown with what to do, and go on."""

from __future__ import annotations

import json
import secrets
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from datetime import timedelta
from typing import Any, Final
from urllib.parse import urlsplit

import pika
import pytest
from pika.exceptions import ChannelClosedByBroker

from dev.processes import wait_until
from migrator.nservicebus.timeouts import Lane
from migrator.rabbitmq.names import receipts_queue, staging_name
from tests.conftest import Vhost
from tests.e2e.rig import Rig
from tests.e2e.rows import Row, row

PASSWORD: Final = "pw"
SOON: Final = timedelta(seconds=3)
RUN: Final = ("run", "--endpoint", "Sales")


def depth(rig: Rig, queue: str) -> int:
    """Return how many messages wait in *queue*; none if it does not exist."""
    with rig.amqp() as connection, suppress(ChannelClosedByBroker):
        return int(connection.channel().queue_declare(queue, passive=True).method.message_count)
    return 0


def wait_for(rig: Rig, queue: str, count: int, *, seconds: float = 30) -> int:
    """Wait until *queue* has *count* messages, for some seconds at most; return how many it has."""
    deadline_s = time.monotonic() + seconds
    while (found := depth(rig, queue)) < count and time.monotonic() < deadline_s:
        time.sleep(0.1)
    return found


def parked(rig: Rig) -> dict[str, str]:
    """Return why the rows of which destinations wait, as the ledger has it."""
    return dict(rig.query("SELECT destination, reason FROM migrator.held_destination"))


def details(rig: Rig) -> str:
    """Return what the ledger says of parked destinations."""
    found = rig.query("SELECT detail FROM migrator.held_destination ORDER BY destination")
    return "\n".join(str(detail) for (detail,) in found)


def rows_for(destination: str, count: int, due_in: timedelta = SOON) -> list[Row]:
    """Return rows for a destination."""
    return [row(due_in, destination=destination) for _ in range(count)]


def start(rig: Rig, *args: str, **env: str) -> Any:
    """Start the daemon for the rig's endpoint, to which rows due at once are its business."""
    return rig.start(*RUN, "--cutoff", "0s", *args, **env)


def logged(said: str, action: str) -> list[dict[str, Any]]:
    """Return what the log has of an action."""
    lines = [json.loads(line) for line in said.splitlines() if line.startswith("{")]
    return [line for line in lines if line.get("action") == action]


def stop(rig: Rig, daemon: Any) -> str:
    """End the daemon, which may leave rows in quarantine; return its log."""
    daemon.terminate()
    done = rig.finish(daemon)
    assert done.returncode in (0, 5), done.stderr[-4000:]
    return done.stderr


def limited(rig: Rig, vhost: Vhost, write: str) -> tuple[str, Callable[[str], None]]:
    """Return the address of a user with a pattern for writing, and what sets another one."""
    user = f"limited-{secrets.token_hex(4)}"
    vhost.node.add_user(user, PASSWORD)

    def grant(pattern: str) -> None:
        vhost.node.set_permissions(
            vhost.name, user, configure=r"^migrator\.", write=pattern, read=r"^(migrator|nsb)\."
        )

    grant(write)
    parts = urlsplit(rig.broker_url)
    place = f"{user}:{PASSWORD}@{parts.hostname}:{parts.port}"
    return parts._replace(netloc=place).geturl(), grant


# ── no permission ─────────────────────────────────────────────────────────────────────────────────


def test_a_destination_we_may_not_bind_is_parked_alone(rig: Rig, vhost: Vhost) -> None:
    """Its rows wait, with the grant that is missing, and go on when it is given."""
    rig.prepare("Billing", "Shipping")
    url, grant = limited(rig, vhost, r"^(migrator\.|nsb\.|Billing$)")
    rig.insert([*rows_for("Shipping", 5), *rows_for("Billing", 20)])
    daemon = start(rig, MIGRATOR_BROKER__URL=url)
    assert wait_for(rig, "Billing", 20) == 20
    assert parked(rig) == {"Shipping": "no-permission"}
    assert "write" in details(rig)
    assert "Shipping$" in details(rig)
    assert "migrator db grants --broker" in details(rig)
    assert "no-permission" in rig.must("status")
    grant(".*")
    assert wait_for(rig, "Shipping", 5) == 5
    wait_until(lambda: parked(rig) == {}, what="nothing is parked")
    said = rig.stop(daemon)
    assert not logged(said, "lane_trouble")
    (first, *_) = logged(said, "destinations_parked")
    assert first["level"] == "error"
    assert "Shipping" in json.dumps(first)
    assert rig.quarantined() == {}


# ── our own entities ──────────────────────────────────────────────────────────────────────────────


def test_rows_for_our_own_queues_are_quarantined(rig: Rig) -> None:
    """Staging, receipts, levels and delivery are no destinations; the others' rows go on."""
    rig.prepare("Billing")
    ledger = rig.ledger_id()
    internal = [
        staging_name("v2", ledger, Lane(0)),
        receipts_queue(ledger, Lane(0)),
        "nsb.v2.delay-level-00",
        "nsb.v2.delay-delivery",
        "nsb.delay-level-27",
        "amq.topic",
    ]
    rig.insert(rows_for("Billing", 1, timedelta(days=1)))
    rig.migrate("--cutoff", "0s")  # its queues are there from now on
    odd = [row(timedelta(seconds=1), destination=each) for each in internal]
    rig.insert(odd)
    rig.insert(rows_for("Billing", 20))
    daemon = start(rig)
    assert wait_for(rig, "Billing", 20) == 20
    assert rig.quarantined() == {each.id: "destination-internal" for each in odd}
    stop(rig, daemon)


def put(rig: Rig, queue: str, messages: Iterable[tuple[str | None, bytes]]) -> None:
    """Put messages with these application ids into a queue."""
    with rig.amqp() as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        for app_id, body in messages:
            properties = pika.BasicProperties(
                app_id=app_id, message_id="stray", headers={"a": 1}, delivery_mode=2
            )
            channel.basic_publish("", queue, body, properties, mandatory=True)


def test_stray_messages_are_moved_whole_and_stop_nothing(rig: Rig) -> None:
    """Whoever put them into staging and receipts: they are in the poison queue, byte for byte."""
    rig.prepare("Billing")
    rig.insert(rows_for("Billing", 5, timedelta(days=1)))
    daemon = start(rig)
    wait_until(lambda: rig.has_handed_over(1), what="its queues are there")
    ledger = rig.ledger_id()
    staging, receipts = staging_name("v2", ledger, Lane(0)), receipts_queue(ledger, Lane(0))
    other = "migrator/0123456789abcdef/7.1.3"
    ((batch,),) = rig.query("SELECT id FROM migrator.batch WHERE state = 'handed_over'")
    own_row = f"migrator/{ledger}/{batch}.1.0"
    strays = [(None, b"a"), ("somebody", b"b" * 200_000), (other, b"c"), (own_row, b"d")]
    put(rig, staging, strays)
    put(rig, receipts, [*strays[:3], (own_row, b"e")])
    rig.insert(rows_for("Billing", 20))
    assert wait_for(rig, "Billing", 20) == 20
    poison = f"migrator.poison.{ledger}"
    assert wait_for(rig, poison, 8) == 8
    assert "8 messages" in rig.must("preview")
    found = rig.drain(poison)
    assert sorted(each.body for each in found) == sorted(
        [*(body for _, body in strays), b"a", b"b" * 200_000, b"c", b"e"]
    )
    assert {each.properties.message_id for each in found} == {"stray"}
    assert {each.properties.headers["a"] for each in found} == {1}
    assert depth(rig, staging) == depth(rig, receipts) == 0
    said = stop(rig, daemon)
    assert sum(each["messages"] for each in logged(said, "strays_moved")) == 8
    assert set(rig.batch_states()) == {"handed_over"}


@pytest.mark.slow
def test_more_strays_than_a_consumer_may_hold_are_moved(rig: Rig) -> None:
    """A receipts queue full of them lets receipts through."""
    rig.prepare("Billing")
    rig.insert(rows_for("Billing", 5, timedelta(days=1)))
    rig.migrate("--cutoff", "0s")
    ledger = rig.ledger_id()
    put(rig, receipts_queue(ledger, Lane(0)), [("x", b"")] * 250)
    put(rig, staging_name("v2", ledger, Lane(0)), [("x", b"")] * 250)
    rig.insert(rows_for("Billing", 20, timedelta(days=1)))
    daemon = start(rig)
    wait_until(rig.is_done, what="all is handed over")
    assert wait_for(rig, f"migrator.poison.{ledger}", 500) == 500
    stop(rig, daemon)
    assert set(rig.batch_states()) == {"handed_over"}


# ── the type of its exchange ──────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("knows_api", [pytest.param(True, marks=pytest.mark.slow), False])
def test_an_exchange_that_is_no_fanout_parks_its_destination(rig: Rig, knows_api: bool) -> None:
    """Bound as plain AMQP does, it would keep messages in the levels, and everybody's with them."""
    if not knows_api:
        rig.management_url = None
    rig.prepare("Billing")
    with rig.amqp() as connection:
        channel = connection.channel()
        for name, kind in (("Plain", "direct"), ("Matched", "topic"), ("Odd", "headers")):
            channel.queue_declare(name, durable=True)
            channel.exchange_declare(name, kind, durable=True)
            channel.queue_bind(name, name, name)
    odd = [each for name in ("Plain", "Matched", "Odd") for each in rows_for(name, 40)]
    late = rows_for("Billing", 20, timedelta(seconds=5))
    rig.insert([*odd, *late])
    daemon = start(rig)
    assert wait_for(rig, "Billing", 20) == 20
    assert parked(rig) == dict.fromkeys(("Plain", "Matched", "Odd"), "exchange-type")
    assert "fanout" in details(rig)
    assert "direct" in details(rig)
    with rig.amqp() as connection:
        channel = connection.channel()
        channel.exchange_delete("Plain")
        channel.exchange_declare("Plain", "fanout", durable=True)
        channel.queue_bind("Plain", "Plain", "")
    assert wait_for(rig, "Plain", 40) == 40
    assert "Plain" not in parked(rig)
    rig.stop(daemon)


# ── suffix collisions ─────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("knows_api", [True, pytest.param(False, marks=pytest.mark.slow)])
def test_the_later_of_two_that_collide_is_parked(rig: Rig, knows_api: bool) -> None:
    """Nothing is delivered twice, the others go on, and a restart does not forget it."""
    if not knows_api:
        rig.management_url = None
    rig.settings |= {"MIGRATOR_BROKER__RECHECK_INTERVAL": "2s"}
    rig.prepare("Billing", "Sales", "My.Sales")
    rig.insert([*rows_for("Sales", 5), *rows_for("Sales", 1, timedelta(days=1))])
    daemon = start(rig)
    assert wait_for(rig, "Sales", 5) == 5
    rig.insert([*rows_for("My.Sales", 20), *rows_for("Billing", 20)])
    assert wait_for(rig, "Billing", 20) == 20
    wait_until(lambda: parked(rig) == {"My.Sales": "suffix-collision"}, what="it is parked")
    assert "dispatch" in details(rig)
    assert (depth(rig, "Sales"), depth(rig, "My.Sales")) == (5, 0)
    time.sleep(2.5)  # the checks are made again
    rig.insert(rows_for("Billing", 20))
    assert wait_for(rig, "Billing", 40) == 40
    rig.stop(daemon)
    assert "suffix-collision: 'My.Sales'" in rig.must("preview", "--json")
    assert "suffix-collision" in rig.must("status")
    assert "suffix-collision" in rig.must("verify")

    daemon = start(rig)
    rig.insert(rows_for("Billing", 20))
    assert wait_for(rig, "Billing", 60) == 60
    assert parked(rig) == {"My.Sales": "suffix-collision"}
    assert (depth(rig, "Sales"), depth(rig, "My.Sales")) == (5, 0)
    rig.stop(daemon)
    daemon = start(rig, MIGRATOR_HANDOVER__ACCEPT_SUFFIX_COLLISIONS="true")
    assert wait_for(rig, "My.Sales", 20) == 20
    rig.stop(daemon)


# ── full queues ───────────────────────────────────────────────────────────────────────────────────


def test_a_full_queue_gets_nothing_until_it_has_room(rig: Rig) -> None:
    """Rows for it would freeze levels for everybody when they come due."""
    rig.prepare("Billing")
    with rig.amqp() as connection:
        channel = connection.channel()
        arguments = {"x-max-length": 10, "x-overflow": "reject-publish"}
        channel.queue_declare("Full", durable=True, arguments=arguments)
        for _ in range(10):
            channel.basic_publish("", "Full", b"")
    wait_for(rig, "Full", 10)
    rig.insert([*rows_for("Full", 200), *rows_for("Billing", 20, timedelta(seconds=5))])
    daemon = start(rig)
    assert wait_for(rig, "Billing", 20) == 20
    assert parked(rig) == {"Full": "refused"}
    assert "10 of 10 messages" in details(rig)
    assert "10 of 10 messages" in rig.must("preview", MIGRATOR_HANDOVER__CUTOFF="0s")
    with rig.amqp() as connection:
        connection.channel().queue_purge("Full")
    wait_until(lambda: depth(rig, "Full") > 0, what="the first go on")
    rig.stop(daemon)
