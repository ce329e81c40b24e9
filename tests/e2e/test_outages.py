"""Servers that die, wires that are cut, processes that are paused: the promise holds."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Sequence
from datetime import timedelta
from functools import partial
from typing import Any

import pytest

from dev.postgres import PostgresServer
from dev.rabbit import RabbitNode
from dev.servers import wait_until
from migrator.delays.routing import level_name
from migrator.nservicebus.timeouts import Lane
from migrator.rabbitmq.names import staging_name
from tests.e2e.rig import Rig
from tests.e2e.rows import Row, chance, row

pytestmark = pytest.mark.punctual

SMALL = {"MIGRATOR_HANDOVER__BATCH_SIZE": "100"}
SLOW = {"MIGRATOR_HANDOVER__RATE_LIMIT": "400"}
NewRig = Callable[..., Rig]


@pytest.fixture
def rows() -> list[Row]:
    """Enough for a program to be disturbed while it hands them over."""
    return [row() for _ in range(4000)]


def test_two_daemons_share_one_endpoint(rig: Rig, rows: list[Row]) -> None:
    """Two daemons at once: the rows are split, none is doubled or lost."""
    rig.prepare()
    rows = rows[:2000]
    rig.insert(rows)
    rig.settings |= SMALL | SLOW  # so that the second one finds something to do
    daemons = [rig.start("run", "--endpoint", "Sales", "--once") for _ in range(2)]
    for daemon in daemons:
        done = rig.finish(daemon)
        assert done.returncode == 0, done.stderr
    assert rig.query("SELECT count(DISTINCT lane) FROM migrator.batch") == [(2,)]
    nothing_lost_or_doubled(rig, rows)


@pytest.mark.slow
def test_a_daemon_paused_past_its_lease_cannot_double(rig: Rig, rows: list[Row]) -> None:
    """Stopped in the middle, its lane taken by another, woken up again: nothing twice."""
    rig.prepare()
    rig.insert(rows)
    paused = rig.start("run", "--endpoint", "Sales", **SMALL)
    wait_until(partial(rig.has_handed_over, 3), what="handing over")
    paused.send_signal(signal.SIGSTOP)
    time.sleep(21)  # the lease is 20 s
    rig.migrate()
    paused.send_signal(signal.SIGCONT)
    time.sleep(5)
    rig.stop(paused)
    nothing_lost_or_doubled(rig, rows)
    assert rig.is_done()


@pytest.mark.parametrize("mode", ["staged", pytest.param("direct", marks=[pytest.mark.slow])])
def test_the_broker_is_killed_and_comes_back(
    database: str, private_node: RabbitNode, new_rig: NewRig, rows: list[Row], mode: str
) -> None:
    """A broker node that dies during the hand-over loses nothing that was confirmed.

    The names of our queues are on disk by then: a quorum queue of RabbitMQ 3.10 that is younger
    than two seconds does not come back after a kill (measured), whoever declared it.
    """
    rig = new_rig(database_url=database, broker_url=private_node.amqp_url())
    rig.prepare()
    rows = rows[:2000]
    rig.insert(rows)
    process = rig.start("run", "--endpoint", "Sales", "--mode", mode, **SMALL, **SLOW)
    wait_until(partial(rig.has_handed_over, 3), what="handing over")
    private_node.write_names()
    private_node.kill()
    time.sleep(1)
    private_node.start()
    wait_until(rig.is_done, what="the end")
    rig.stop(process)
    account = rig.account(rows, "Billing")
    print(f"broker killed, {mode}: {account}")
    assert account.lost == ()
    # one batch of ours, and what the broker itself may double on its way down the levels
    assert len(account.duplicated) <= 200


@pytest.mark.slow
def test_a_level_that_was_rebuilt_is_bound_again(rig: Rig, vhost: Any) -> None:
    """Its messages find no way any more, the receipts neither; nobody is asked to decide.

    Overdue rows do not wait for that. The broker tries again when a confirm is overdue: every
    three minutes, here after 15 s.
    """
    setting = "application:set_env(rabbit, dead_letter_worker_publisher_confirm_timeout, {})."
    vhost.node.evaluate(setting.format(15_000))
    try:
        rig.prepare()
        rig.insert([row()])
        process = rig.start(
            *("run", "--endpoint", "Sales", "--cutoff", "0s"), MIGRATOR_HANDOVER__BATCH_SIZE="40"
        )
        wait_until(partial(rig.has_handed_over, 1), what="staging")
        rig.drain_levels()
        with rig.amqp() as connection:
            for level in range(28):
                connection.channel().queue_delete(level_name(rig.delays, level))
        rig.create_levels()
        rows = [row() for _ in range(120)]
        rig.insert(rows)
        wait_until(lambda: rig.batch_states()["committing"] == 2, what="two without a receipt")
        overdue = row(-timedelta(minutes=1))
        rig.insert([overdue])
        wait_until(partial(rig.has_handed_over, 2), what="the overdue row")
        assert rig.batch_states()["committing"] == 2
        assert {each.timeout_id for each in rig.drain("Billing")} == {overdue.id}
        wait_until(rig.is_done, what="handing over")
        assert "receipt_late" in rig.stop(process)
    finally:
        vhost.node.evaluate(setting.format(180_000))
    nothing_lost_or_doubled(rig, rows)


@pytest.mark.slow
def test_a_queue_that_gives_all_out_again_leaves_nothing_to_decide(rig: Rig, vhost: Any) -> None:
    """Its leader loses sight of us six times, as in short splits of a cluster: it just goes on."""
    rig.prepare()
    rows = [row() for _ in range(1200)]
    rig.insert(rows)
    fast = {"MIGRATOR_HANDOVER__RATE_LIMIT": "800"}
    process = rig.start("run", "--endpoint", "Sales", **SMALL, **fast)
    wait_until(partial(rig.has_handed_over, 1), what="handing over")
    queue = staging_name(rig.delays, rig.ledger_id(), Lane(0))
    dice = chance(5)
    for _ in range(6):
        time.sleep(dice.uniform(0.1, 0.5))
        vhost.node.lose_sight_of_consumers(rig.broker_url, queue)
    wait_until(rig.is_done, what="the end")
    said = rig.stop(process)
    print(f"noticed {said.count('redelivers unacked messages')} of 6 times")
    nothing_lost_or_doubled(rig, rows)
    assert rig.is_done()


@pytest.mark.slow
def test_the_database_restarts_between_confirm_and_mark(
    private_postgres: PostgresServer, vhost: Any, new_rig: NewRig, rows: list[Row]
) -> None:
    """PostgreSQL restarts at once while batches are under way; staged doubles nothing."""
    url = private_postgres.url(private_postgres.create_database())
    rig = new_rig(database_url=url, broker_url=vhost.amqp_url)
    rig.prepare()
    rig.insert(rows)
    process = rig.start("run", "--endpoint", "Sales", **SMALL)
    for _ in range(3):
        seen = rig.batch_states()["handed_over"]
        wait_until(partial(rig.has_handed_over, seen + 3), what="handing over")
        private_postgres.restart("immediate")
    wait_until(rig.is_done, what="the end")
    rig.stop(process)
    nothing_lost_or_doubled(rig, rows)


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["staged", "direct"])
def test_the_wire_is_cut_again_and_again(rig: Rig, proxy: Any, rows: list[Row], mode: str) -> None:
    """Connections reset before and after the broker's answers: lost 0, staged doubles 0."""
    rig.prepare()
    rig.insert(rows)
    direct_url = rig.broker_url
    wire = proxy(direct_url)
    rig.broker_url = wire.url(direct_url)
    process = rig.start("run", "--endpoint", "Sales", "--mode", mode, **SMALL)
    dice = chance(7)
    # its checks are over, which give up
    wait_until(lambda: bool(rig.batch_states()), what="a batch")
    ended_s = time.monotonic() + 8
    while time.monotonic() < ended_s:
        time.sleep(dice.uniform(0.3, 1.2))
        dice.choice((wire.cut, wire.cut_before_answer, wire.cut_after_answer))()
    wait_until(rig.is_done, what="the end")
    err = rig.stop(process)
    rig.broker_url = direct_url
    cuts = err.count('"lane_trouble"')
    account = rig.account(rows, "Billing")
    print(f"wire cut, {mode}: {cuts} sessions lost, {account}")
    assert cuts >= 2
    assert account.lost == ()
    assert len(account.duplicated) <= (0 if mode == "staged" else 100 * cuts)


def nothing_lost_or_doubled(rig: Rig, rows: Sequence[Row]) -> None:
    """Demand that each row is on the broker once."""
    account = rig.account(rows, "Billing")
    assert (account.lost, account.duplicated) == ((), ())
