"""Brokers and databases that go away, wires that are cut: late at worst, lost never."""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from dev.postgres import PostgresServer
from dev.rabbit import RabbitNode
from dev.servers import wait_until
from tests.e2e.arrivals import Books, Receiver, books
from tests.e2e.dispatching import actions, prepare_dispatcher, start_dispatcher, waiting
from tests.e2e.old_endpoint import OldEndpoint, OldMessage
from tests.e2e.rig import Rig
from tests.e2e.rows import chance

pytestmark = pytest.mark.punctual

NewRig = Callable[..., Rig]


@contextmanager
def sending(endpoint: OldEndpoint, *, seed: int) -> Iterator[list[OldMessage]]:
    """Send deferred messages and saga timeouts meanwhile; the list is filled at the end."""
    dice = chance(seed)
    ended = threading.Event()
    sent: list[OldMessage] = []

    def make() -> OldMessage:
        seconds = dice.uniform(-0.3, 5)
        if dice.random() < 0.3:
            return endpoint.saga_timeout(seconds, saga_id=str(uuid.uuid4()))
        return endpoint.deferred(seconds, to="Billing")

    with ThreadPoolExecutor(1) as pool:
        work = pool.submit(endpoint.send_until, ended, make=make, every_s=0.02)
        try:
            yield sent
        finally:
            ended.set()
            sent += work.result()


def settle(rig: Rig, sent: list[OldMessage], receiver: Receiver) -> Books:
    """Wait until all has arrived and nothing is left anywhere; return the books."""
    receiver.wait_for(*sent)
    wait_until(lambda: rig.stored() == {}, what="an empty table")
    wait_until(lambda: waiting(rig, "Sales.Timeouts") == 0, what="an empty queue")
    time.sleep(1)
    return books(sent, receiver.arrivals)


@pytest.mark.slow
def test_the_database_restarts_again_and_again(
    private_postgres: PostgresServer, vhost: Any, new_rig: NewRig, tmp_path: Path
) -> None:
    """PostgreSQL restarts at once while messages come in and rows get due: nothing twice."""
    url = private_postgres.url(private_postgres.create_database())
    rig = new_rig(database_url=url, broker_url=vhost.amqp_url)
    endpoint = OldEndpoint(rig)
    endpoint.declare("Billing")
    prepare_dispatcher(rig, tmp_path, dispatch={"batch_size": 50})
    process = start_dispatcher(rig)
    with Receiver(rig.broker_url, "Sales", "Billing", "error") as receiver:
        with sending(endpoint, seed=1) as sent:
            for _ in range(2):
                time.sleep(2)
                private_postgres.restart("immediate")
        account = settle(rig, sent, receiver)
        log = rig.stop(process)
    degraded = sum(each["action"] == "dispatcher_degraded" for each in actions(log))
    print(f"database restarted twice, degraded {degraded} times: {account}")
    assert degraded >= 1
    assert (account.lost, account.foreign, account.early) == ((), (), ())
    assert account.duplicated == ()
    assert account.worst_s < 30


@pytest.mark.slow
def test_the_broker_is_killed_and_comes_back(
    database: str, private_node: RabbitNode, new_rig: NewRig, tmp_path: Path
) -> None:
    """A broker node that dies loses no timeout; twice comes only what it had not confirmed yet."""
    rig = new_rig(database_url=database, broker_url=private_node.amqp_url())
    endpoint = OldEndpoint(rig)
    endpoint.declare("Billing")
    prepare_dispatcher(rig, tmp_path)
    process = start_dispatcher(rig)
    with Receiver(rig.broker_url, "Sales", "Billing", "error") as receiver:
        sent = [endpoint.deferred(3 + n / 40, to="Billing") for n in range(400)]
        endpoint.send(*sent)
        time.sleep(3)  # some are due
        private_node.write_names()
        private_node.kill()
        time.sleep(1)
        private_node.start()
        account = settle(rig, sent, receiver)
        log = rig.stop(process)
    print(f"broker killed: {account}")
    assert "dispatcher_recovered" in {each["action"] for each in actions(log)}
    assert (account.lost, account.foreign, account.early) == ((), (), ())
    assert len(account.duplicated) <= 40


@pytest.mark.slow
def test_the_wire_is_cut_again_and_again(rig: Rig, tmp_path: Path, proxy: Any) -> None:
    """Connections reset before and after the broker's answers: twice only what had no answer."""
    endpoint = OldEndpoint(rig)
    endpoint.declare("Billing")
    prepare_dispatcher(rig, tmp_path)
    direct_url = rig.broker_url
    wire = proxy(direct_url)
    dice = chance(11)
    rig.broker_url = wire.url(direct_url)
    process = rig.start("run", "--endpoint", "Sales")
    rig.broker_url = direct_url
    with Receiver(direct_url, "Sales", "Billing", "error") as receiver:
        with sending(endpoint, seed=2) as sent:
            time.sleep(2)
            until = time.monotonic() + 7
            while time.monotonic() < until:
                dice.choice((wire.cut, wire.cut_before_answer, wire.cut_after_answer))()
                time.sleep(dice.uniform(0.3, 1.5))
        account = settle(rig, sent, receiver)
        log = rig.stop(process)
    sessions = sum(each["action"] == "dispatcher_degraded" for each in actions(log))
    print(f"wire cut, {sessions} sessions lost: {account}")
    assert sessions >= 3
    assert (account.lost, account.foreign, account.early) == ((), (), ())
    assert len(account.duplicated) <= 10 * sessions


@pytest.mark.slow
def test_the_database_is_away_for_long(
    private_postgres: PostgresServer, vhost: Any, new_rig: NewRig, tmp_path: Path
) -> None:
    """It says so, once it is critical; messages wait in the queue; afterwards all goes on."""
    url = private_postgres.url(private_postgres.create_database())
    rig = new_rig(database_url=url, broker_url=vhost.amqp_url)
    endpoint = OldEndpoint(rig)
    endpoint.declare("Billing")
    prepare_dispatcher(rig, tmp_path, dispatch={"critical_after": "2s"})
    process = start_dispatcher(rig)
    with Receiver(rig.broker_url, "Billing", "error") as receiver:
        stored = [endpoint.deferred(6, to="Billing") for _ in range(10)]
        endpoint.send(*stored)
        wait_until(lambda: len(rig.stored()) == 10, what="ten rows")
        private_postgres.stop()
        meanwhile = [endpoint.deferred(n / 5, to="Billing") for n in range(20)]
        endpoint.send(*meanwhile)
        time.sleep(5)
        assert process.poll() is None
        private_postgres.start()
        account = settle(rig, [*stored, *meanwhile], receiver)
        log = [each["action"] for each in actions(rig.stop(process))]
    print(f"database away for 5 s: {account}")
    assert log.index("dispatcher_degraded") < log.index("dispatcher_critical")
    assert log.count("dispatcher_critical") == 1
    assert log.index("dispatcher_critical") < log.index("dispatcher_recovered")
    assert (account.lost, account.duplicated, account.foreign, account.early) == ((), (), (), ())
    assert receiver.at("error") == []


def test_an_outage_that_is_critical_ends_the_process_if_told_so(
    private_postgres: PostgresServer, vhost: Any, new_rig: NewRig, tmp_path: Path
) -> None:
    """With on_critical = exit it ends with code 4; what it had in hand is back in the queue."""
    url = private_postgres.url(private_postgres.create_database())
    rig = new_rig(database_url=url, broker_url=vhost.amqp_url)
    endpoint = OldEndpoint(rig)
    endpoint.declare("Billing")
    prepare_dispatcher(rig, tmp_path, dispatch={"critical_after": "2s", "on_critical": "exit"})
    process = start_dispatcher(rig)
    private_postgres.stop()
    messages = [endpoint.deferred(60, to="Billing") for _ in range(20)]
    endpoint.send(*messages)
    done = rig.finish(process)
    log = [each["action"] for each in actions(done.stderr)]
    assert done.returncode == 4, done.stderr[-4000:]
    assert log.index("dispatcher_degraded") < log.index("dispatcher_critical")
    assert "dispatcher_gave_up" in log
    wait_until(lambda: waiting(rig, endpoint.timeouts) == 20, what="all in the queue")
    assert waiting(rig, "error") == 0


@pytest.mark.slow
def test_stopped_and_started_in_good_order_nothing_comes_twice(rig: Rig, tmp_path: Path) -> None:
    """SIGTERM under way: what is claimed or held is finished, the rest waits where it was."""
    endpoint = OldEndpoint(rig)
    endpoint.declare("Billing")
    prepare_dispatcher(rig, tmp_path)
    with Receiver(rig.broker_url, "Sales", "Billing", "error") as receiver:
        with sending(endpoint, seed=3) as sent:
            for turn in range(5):
                process = start_dispatcher(rig)
                time.sleep(0.3 + turn / 4)
                rig.stop(process)
                assert set(rig.batch_states()) <= {"dispatched"}
        process = start_dispatcher(rig)
        account = settle(rig, sent, receiver)
        rig.stop(process)
    print(f"five restarts in good order: {account}")
    assert (account.lost, account.duplicated, account.foreign, account.early) == ((), (), (), ())
