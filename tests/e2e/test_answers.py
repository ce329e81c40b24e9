"""A destination whose queue refuses, or answers nothing, keeps no other destination waiting.

The queue that refuses is full and told to reject what comes; the one that answers nothing has a
process that is suspended, as one that hangs is. What is due goes straight on to its destination,
in both modes, so only such rows are refused, or left without an answer, by its queue.
"""

from __future__ import annotations

import json
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Final

import pytest

from dev.servers import wait_until
from migrator.delays.routing import DelaysVersion, level_name
from migrator.nservicebus.headers import RELATED_TO_TIMEOUT_ID
from tests.conftest import Vhost
from tests.e2e.arrivals import Receiver
from tests.e2e.dispatching import prepare_dispatcher, start_dispatcher
from tests.e2e.rig import Rig
from tests.e2e.rows import Row, row

FULL: Final = "Full"
HUNG: Final = "Hung"
ENDS_S: Final = 10.0
"""After SIGTERM, whatever is unanswered."""
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


def create_receiver(rig: Rig, name: str, **arguments: str | int) -> None:
    """Declare a receiver's queue with arguments: ``x_overflow`` stands for ``x-overflow``."""
    given = {key.replace("_", "-"): value for key, value in arguments.items()}
    with rig.amqp() as connection:
        channel = connection.channel()
        channel.queue_declare(name, durable=True, arguments=given)
        channel.exchange_declare(name, "fanout", durable=True)
        channel.queue_bind(name, name)


def create_full_queue(rig: Rig) -> None:
    """Declare a receiver's queue that is full already and rejects what comes."""
    create_receiver(rig, FULL, x_max_length=1, x_overflow="reject-publish")
    with rig.amqp() as connection:
        connection.channel().basic_publish("", FULL, b"it is full now")


@contextmanager
def hanging(vhost: Vhost, *queues: str) -> Iterator[None]:
    """Have *queues* answer nothing meanwhile; what is sent to them waits.

    The process of a classic one is suspended; a quorum queue has no leader, as without a majority.
    """

    def each(do: str) -> None:
        names = ", ".join(f'<<"{queue}">>' for queue in queues)
        vhost.node.evaluate(
            f"""
            [begin
                {{ok, Q}} = rabbit_amqqueue:lookup(
                    rabbit_misc:r(<<"{vhost.name}">>, queue, Name)),
                ok = case {{{do}, amqqueue:get_type(Q)}} of
                    {{suspend, rabbit_quorum_queue}} ->
                        ra:stop_server(quorum_queues, amqqueue:get_pid(Q));
                    {{resume, rabbit_quorum_queue}} ->
                        ra:restart_server(quorum_queues, amqqueue:get_pid(Q));
                    _ -> sys:{do}(amqqueue:get_pid(Q))
                end
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


def await_healed(rig: Rig, queue: str, rows: Sequence[Row], *, twice: int = 0) -> None:
    """Consume *queue*, and demand that each of *rows* arrives there soon, *twice* so many."""
    with Receiver(rig.broker_url, queue) as receiver:
        receiver.wait(lambda: all(times_arrived(receiver, rows)), seconds=15.0)
        time.sleep(0.5)
        assert sum(times_arrived(receiver, rows)) <= len(rows) + twice


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


@pytest.mark.punctual
@pytest.mark.parametrize(("mode", "kind"), [("staged", "classic"), ("direct", "quorum")])
def test_a_queue_that_hangs_keeps_its_own_rows_waiting_only(
    rig: Rig, vhost: Vhost, mode: str, kind: str
) -> None:
    """It took the first row, and says so when it goes on: none of its rows arrives twice."""
    rig.prepare("Billing", "Hung too")
    create_receiver(rig, HUNG, x_queue_type=kind)
    process = rig.start("run", "--endpoint", "Sales", "--mode", mode)
    known = [*due(1, HUNG), *due(1, "Hung too"), *due(1)]
    rig.insert(known)  # from now on it is taken to be there
    await_handed_over(rig, known)
    with Receiver(rig.broker_url, "Billing") as receiver, hanging(vhost, HUNG, "Hung too"):
        silent = [*due(3, HUNG), *due(3, "Hung too")]
        others, in_levels = due(20), later(30)
        rig.insert([*silent, *others, *in_levels])
        await_others(receiver, others)
        await_handed_over(rig, in_levels)
        more = due(20)
        rig.insert(more)
        await_others(receiver, more)
    with Receiver(rig.broker_url, HUNG, "Hung too") as receiver:
        await_others(receiver, silent, seconds=5.0)
        time.sleep(0.5)
        assert times_arrived(receiver, silent) == [1] * len(silent)
    rig.stop(process)


@pytest.mark.punctual
def test_a_queue_that_hangs_keeps_its_own_rows_waiting_only_for_the_dispatcher(
    rig: Rig, vhost: Vhost, tmp_path: Path
) -> None:
    """The same for rows that are sent when they are due."""
    prepare_dispatcher(rig, tmp_path)
    rig.create_receivers("Billing", HUNG, "Sales.Timeouts", "error")
    process = start_dispatcher(rig)
    known = [*due(1, HUNG), *due(1)]
    rig.insert(known)
    wait_until(lambda: not rig.has_rows(), what="a claim")
    with Receiver(rig.broker_url, HUNG) as receiver:
        await_others(receiver, known[:1], seconds=5.0)
    with Receiver(rig.broker_url, "Billing") as receiver, hanging(vhost, HUNG):
        silent, others = due(3, HUNG), due(20)
        rig.insert([*silent, *others])
        await_others(receiver, others)
        more = due(20)
        rig.insert(more)
        await_others(receiver, more)
    with Receiver(rig.broker_url, HUNG) as receiver:
        await_others(receiver, silent, seconds=12.0)
        time.sleep(0.5)
        assert times_arrived(receiver, silent) == [1] * len(silent)
    rig.stop(process)


# ── ending while something is unanswered ────────────────────────────────────────────────────


def end_soon(rig: Rig, process: subprocess.Popen[str]) -> None:
    """Ask *process* to end, and demand that it does soon."""
    began_s = time.monotonic()
    process.send_signal(signal.SIGTERM)
    done = rig.finish(process, timeout=30.0)
    took_s = time.monotonic() - began_s
    print(f"ended {done.returncode} after {took_s:.2f} s")
    assert done.returncode == 0, done.stderr[-4000:]
    assert took_s < ENDS_S


@pytest.mark.parametrize(
    "end", [signal.SIGTERM, pytest.param(signal.SIGKILL, marks=pytest.mark.slow)]
)
def test_what_a_queue_has_not_answered_is_not_lost_at_the_end(
    rig: Rig, vhost: Vhost, end: signal.Signals
) -> None:
    """It may come twice: nothing listens for the late answer, and the broker tells no one else."""
    rig.prepare("Billing", HUNG)
    process = rig.start("run", "--endpoint", "Sales")
    known = [*due(1, HUNG), *due(1)]
    rig.insert(known)
    await_handed_over(rig, known)
    rig.drain(HUNG, "Billing")
    silent, others = due(3, HUNG), due(20)
    with hanging(vhost, HUNG):
        rig.insert([*silent, *others])
        await_handed_over(rig, others)
        if end is signal.SIGTERM:
            end_soon(rig, process)
        else:
            rig.kill(process)
    rig.migrate()
    account = rig.account([*silent, *others], HUNG, "Billing")
    print(account)
    assert (account.lost, account.foreign) == ((), ())
    assert len(account.duplicated) <= 1


def test_a_level_that_hangs_does_not_keep_the_program_from_ending(rig: Rig, vhost: Vhost) -> None:
    """It has five seconds to answer; what it has not answered by then is published again."""
    rig.delays = DelaysVersion.V1
    rig.prepare()
    levels = [level_name(rig.delays, level) for level in range(28)]
    process = rig.start("run", "--endpoint", "Sales", "--mode", "direct")
    wait_until(rig.has_lane, what="a lane")
    rows = later(20)
    with hanging(vhost, *levels):
        rig.insert(rows)
        wait_until(lambda: rig.batch_states()["publishing"] == 1, what="a batch under way")
        end_soon(rig, process)
    rig.migrate("--mode", "direct")
    account = rig.account(rows, "Billing")
    print(account)
    assert (account.lost, account.foreign) == ((), ())


def test_the_dispatcher_ends_while_a_queue_hangs(rig: Rig, vhost: Vhost, tmp_path: Path) -> None:
    """Rows that are due, and messages in hand that were passed on."""
    prepare_dispatcher(rig, tmp_path)
    rig.create_receivers("Billing", HUNG, "Sales.Timeouts", "error")
    process = start_dispatcher(rig)
    known = due(1, HUNG)
    rig.insert(known)
    with Receiver(rig.broker_url, HUNG) as receiver:
        await_others(receiver, known, seconds=5.0)
    silent = due(20, HUNG)
    with hanging(vhost, HUNG):
        rig.insert(silent)
        wait_until(lambda: not rig.has_rows(), what="a claim")
        end_soon(rig, process)
    process = start_dispatcher(rig)
    await_healed(rig, HUNG, silent, twice=1)
    rig.stop(process)
