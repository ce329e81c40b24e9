"""Bringing handed-over timeouts back: ours come back byte for byte, others notice nothing."""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

import pika
import pytest

from migrator.domain.delays import delay_s
from migrator.domain.routing import DelaysVersion, address
from tests.e2e.rig import Rig, Row, chance, row

FAR = timedelta(days=3)


def ours(rig: Rig, count: int) -> list[Row]:
    """Store *count* timeouts, due from hours to months, and hand them over."""
    spread = [timedelta(hours=1 + 2 * n) for n in range(count)]
    rows = [row(due_in, body=f'{{"n": {n}}}'.encode()) for n, due_in in enumerate(spread)]
    rig.insert(rows)
    return rows


def foreign(rig: Rig, delays_s: Sequence[float]) -> dict[str, datetime]:
    """Send delayed messages of another endpoint into the levels; return when each is due."""
    due = {}
    with rig.amqp() as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        for after_s in delays_s:
            message_id, now = str(uuid.uuid4()), datetime.now(UTC)
            due[message_id] = now + timedelta(seconds=after_s)
            where = address(rig.delays, delay_s(due[message_id], now=now), "Other")  # type: ignore[arg-type]  # a queue's name
            channel.basic_publish(
                where.exchange,
                where.routing_key,
                b"foreign",
                pika.BasicProperties(
                    message_id=message_id, delivery_mode=2, headers={"NServiceBus.MessageId": "x"}
                ),
            )
    return due


def bind_other(rig: Rig) -> None:
    """Declare the other endpoint and bind it to the delays, as it does itself."""
    rig.create_receivers("Other")
    delivery = "nsb.v2.delay-delivery" if rig.delays is DelaysVersion.V2 else "nsb.delay-delivery"
    with rig.amqp() as connection:
        connection.channel().exchange_bind("Other", delivery, "#.Other")


def arrivals(rig: Rig, count: int, *, seconds: float) -> dict[str, datetime]:
    """Return when each message arrived at the other endpoint."""
    found: dict[str, datetime] = {}
    deadline_s = time.monotonic() + seconds
    with rig.amqp() as connection:
        channel = connection.channel()
        for method, properties, _ in channel.consume("Other", inactivity_timeout=0.2):
            if method is not None:
                found[str(properties.message_id)] = datetime.now(UTC)
                channel.basic_ack(method.delivery_tag)
            if len(found) == count or time.monotonic() > deadline_s:
                break
        channel.cancel()
    return found


def left_of_ours(rig: Rig) -> int:
    """Return how many of our messages are still in the levels."""
    return sum(found.body != b"foreign" for found in rig.drain_levels())


def test_ours_come_back_and_others_notice_nothing(rig: Rig) -> None:
    """Rows are what they were; foreign messages in the same levels arrive on time."""
    rig.prepare("Billing")
    bind_other(rig)
    ours(rig, 500)
    before = rig.stored()
    rig.migrate("--cutoff", "0s")
    assert rig.stored() == {}
    soon = foreign(rig, [6.0 + n / 25 for n in range(100)])
    late = foreign(rig, [86_400.0 + n for n in range(200)])
    foretold = json.loads(rig.must("recall", "--endpoint", "Sales", "--dry-run", "--json"))
    assert foretold["expected"]["in_levels"] == 500
    assert rig.stored() == {}
    done = json.loads(rig.must("recall", "--endpoint", "Sales", "--yes", "--json"))
    assert done["found"]["restored"] == 500
    assert rig.stored() == before
    arrived = arrivals(rig, len(soon), seconds=20)
    lateness = [(arrived[key] - due).total_seconds() for key, due in soon.items()]
    print(f"foreign messages late: worst {max(lateness):.3f} s, earliest {min(lateness):.3f} s")
    assert min(lateness) >= 0
    assert max(lateness) < 2.0
    kept = [found for found in rig.drain_levels()]
    assert {str(found.properties.message_id) for found in kept} == set(late)
    again = json.loads(rig.must("recall", "--yes", "--json"))
    assert again["found"]["restored"] == 0


@pytest.mark.parametrize("kills", [2, pytest.param(20, marks=pytest.mark.slow)])
def test_killed_again_and_again(rig: Rig, kills: int) -> None:
    """However often a recall is killed, in the end each row is back once, and no copy is left."""
    rig.prepare("Billing")
    rows = ours(rig, 1000)
    before = rig.stored()
    rig.migrate("--cutoff", "0s")
    random = chance(7)
    for kill in range(kills):
        fault = ("recall.restored", "recall.acknowledged")[kill % 2]
        process = rig.start("recall", "--yes", fault=f"{fault}:{random.randint(1, 2)}")
        done = rig.finish(process)
        assert done.returncode in (-9, 0), done.stderr[-2000:]
    rig.must("recall", "--yes")
    assert rig.stored() == before
    assert len(before) == len(rows)
    assert left_of_ours(rig) == 0


@pytest.mark.slow
def test_only_what_is_meant_comes_back(rig: Rig) -> None:
    """By destination, by due time, and never what is due too soon."""
    rig.prepare("Billing", "Shipping")
    rows = [
        row(FAR, destination="Billing"),
        row(FAR, destination="Shipping"),
        row(timedelta(days=9), destination="Shipping"),
        row(timedelta(seconds=75), destination="Shipping"),
    ]
    rig.insert(rows)
    rig.migrate("--cutoff", "0s")
    until = (datetime.now(UTC) + timedelta(days=5)).strftime("%Y-%m-%dT%H:%M:%SZ")
    options = ("--destination", "Shipping", "--due-until", until, "--margin", "5m")
    done = json.loads(rig.must("recall", *options, "--yes", "--json", codes=[5]))
    assert rig.stored_ids() == {rows[1].id}
    assert (done["found"]["restored"], done["found"]["too_near"]) == (1, 1)
    assert done["found"]["out_of_scope"] == 2


@pytest.mark.slow
def test_nobody_may_work_meanwhile(rig: Rig) -> None:
    """A recall beside a running daemon is refused; nothing is touched."""
    rig.prepare("Billing")
    ours(rig, 10)
    process = rig.start("run", "--endpoint", "Sales")
    deadline_s = time.monotonic() + 20
    while rig.batch_states()["handed_over"] == 0:
        assert time.monotonic() < deadline_s
        time.sleep(0.1)
    refused = rig.run("recall", "--yes")
    assert refused.returncode == 3
    assert "stop every `migrator run` first" in refused.stderr
    rig.stop(process)
    rig.must("recall", "--yes")
    assert len(rig.stored_ids()) == 10
