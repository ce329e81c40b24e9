"""A destination whose queue refuses, or answers nothing, keeps no other destination waiting.

The queue that refuses is full and told to reject what comes; the one that answers nothing has a
process that is suspended, as one that hangs is. What is due goes straight on to its destination,
in both modes, so only such rows are refused, or left without an answer, by its queue.
"""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Final

import pytest

from dev.servers import wait_until
from migrator.nservicebus.headers import RELATED_TO_TIMEOUT_ID
from tests.conftest import Vhost
from tests.e2e.arrivals import Receiver
from tests.e2e.dispatching import prepare_dispatcher, start_dispatcher
from tests.e2e.rig import Rig
from tests.e2e.rows import Row, row

FULL: Final = "Full"
HUNG: Final = "Hung"
PUNCTUAL_S: Final = 2.0
"""What others' rows may be late by."""
LATER: Final = timedelta(days=3)


@pytest.fixture
def rig(database: str, vhost: Vhost, new_rig: Callable[..., Rig]) -> Rig:
    """Without the management API, which would say beforehand that a queue is full."""
    rig = new_rig(database_url=database, broker_url=vhost.amqp_url)
    rig.settings |= {
        "MIGRATOR_HANDOVER__CUTOFF": "0s",
        "MIGRATOR_HANDOVER__SWEEP_INTERVAL": "200ms",
    }
    return rig


def create_full_queue(rig: Rig) -> None:
    """Declare a receiver's queue that is full already and rejects what comes."""
    with rig.amqp() as connection:
        channel = connection.channel()
        full = {"x-max-length": 1, "x-overflow": "reject-publish"}
        channel.queue_declare(FULL, durable=True, arguments=full)
        channel.exchange_declare(FULL, "fanout", durable=True)
        channel.queue_bind(FULL, FULL)
        channel.basic_publish("", FULL, b"it is full now")


@contextmanager
def hanging(vhost: Vhost, *queues: str) -> Iterator[None]:
    """Have the processes of classic *queues* do nothing meanwhile; what is sent to them waits."""

    def each(do: str) -> None:
        names = ", ".join(f'<<"{queue}">>' for queue in queues)
        vhost.node.evaluate(
            f"""
            [begin
                {{ok, Q}} = rabbit_amqqueue:lookup(
                    rabbit_misc:r(<<"{vhost.name}">>, queue, Name)),
                ok = sys:{do}(amqqueue:get_pid(Q))
            end || Name <- [{names}]].
            """
        )

    each("suspend")
    try:
        yield
    finally:
        each("resume")


def due(count: int, destination: str = "Billing") -> Sequence[Row]:
    """Return rows that are due."""
    return [row(timedelta(0), destination=destination) for _ in range(count)]


def later(count: int) -> Sequence[Row]:
    """Return rows that are due in days."""
    return [row(LATER) for _ in range(count)]


def times_arrived(receiver: Receiver, rows: Sequence[Row]) -> list[int]:
    """Return how often each of *rows* arrived."""
    came = Counter(each.headers.get(RELATED_TO_TIMEOUT_ID) for each in receiver.arrivals)
    return [came[each.id] for each in rows]


def await_others(receiver: Receiver, rows: Sequence[Row], *, seconds: float = PUNCTUAL_S) -> None:
    """Demand that each of *rows*, which were just stored, soon arrives once."""
    began_s = time.monotonic()
    try:
        receiver.wait(lambda: all(times_arrived(receiver, rows)), seconds=seconds)
    finally:
        took_s = time.monotonic() - began_s
        print(f"{sum(times_arrived(receiver, rows))} of {len(rows)} after {took_s:.2f} s")
    assert set(times_arrived(receiver, rows)) == {1}


def await_healed(rig: Rig, queue: str, rows: Sequence[Row]) -> None:
    """Consume *queue*, and demand that each of *rows* arrives there once, soon."""
    with Receiver(rig.broker_url, queue) as receiver:
        await_others(receiver, rows, seconds=12.0)
        time.sleep(0.5)
        assert times_arrived(receiver, rows) == [1] * len(rows)


def await_handed_over(rig: Rig, others: Sequence[Row]) -> None:
    """Wait until each of *others* was handed over."""
    ids = {each.id for each in others}
    wait_until(lambda: ids <= handed_over(rig), what="later rows handed over")


def handed_over(rig: Rig) -> set[str]:
    """Return the ids of all rows that were handed over."""
    found = rig.query(
        "SELECT t.store_id FROM migrator.timeout t JOIN migrator.batch b ON b.id = t.batch_id "
        "WHERE b.state = 'handed_over'"
    )
    return {str(each) for (each,) in found}


# ── a full queue ────────────────────────────────────────────────────────────────────────────


@pytest.mark.punctual
@pytest.mark.parametrize("mode", ["staged", "direct"])
def test_a_full_queue_keeps_its_own_rows_waiting_only(rig: Rig, mode: str) -> None:
    """The first row is for a full queue; once there is room in it, that row arrives, too."""
    rig.prepare()
    create_full_queue(rig)
    refused = due(1, FULL)
    rig.insert(refused)
    process = rig.start("run", "--endpoint", "Sales", "--mode", mode)
    wait_until(lambda: not rig.has_rows(), what="a claim")
    with Receiver(rig.broker_url, "Billing") as receiver:
        others, in_levels = due(20), later(30)
        rig.insert([*others, *in_levels])
        await_others(receiver, others)
        await_handed_over(rig, in_levels)
    await_healed(rig, FULL, refused)
    said = [json.loads(line) for line in rig.stop(process).splitlines()]
    (parked, *_) = [each for each in said if each["action"] == "destination_held"]
    assert (parked["destination"], parked["reason"]) == (FULL, "refused")
    assert f"refuses messages for {FULL!r}" in parked["detail"]


@pytest.mark.punctual
def test_a_full_queue_keeps_its_own_rows_waiting_only_for_the_dispatcher(
    rig: Rig, tmp_path: Path
) -> None:
    """The same for rows that are sent when they are due, in place of the timeout manager."""
    prepare_dispatcher(rig, tmp_path)
    rig.create_receivers("Billing", "Sales.Timeouts", "error")
    create_full_queue(rig)
    process = start_dispatcher(rig)
    refused = due(1, FULL)
    rig.insert(refused)
    wait_until(lambda: not rig.has_rows(), what="a claim")
    with Receiver(rig.broker_url, "Billing") as receiver:
        others = due(20)
        rig.insert(others)
        await_others(receiver, others)
    await_healed(rig, FULL, refused)
    rig.stop(process)


# ── a queue that hangs ──────────────────────────────────────────────────────────────────────


@pytest.mark.punctual
def test_a_queue_that_hangs_when_the_program_starts_keeps_its_own_rows_waiting_only(
    rig: Rig, vhost: Vhost
) -> None:
    """It answers not even whether it is there; once it does, its row arrives."""
    rig.prepare("Billing", HUNG)
    silent, others, in_levels = due(1, HUNG), due(20), later(30)
    with hanging(vhost, HUNG):
        rig.insert([*silent, *others, *in_levels])
        with Receiver(rig.broker_url, "Billing") as receiver:
            process = rig.start("run", "--endpoint", "Sales")
            await_others(receiver, others, seconds=40.0)
            await_handed_over(rig, in_levels)
            more = due(20)
            rig.insert(more)
            await_others(receiver, more)
    await_healed(rig, HUNG, silent)
    rig.stop(process)
