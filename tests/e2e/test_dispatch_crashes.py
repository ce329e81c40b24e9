"""The dispatcher, killed at every named step and at random moments, and cut off: nothing lost.

What may come twice, with the same logical id, is what was on its way between the broker's
confirm and the ledger's or the queue's record of it: ``docs/dispatcher.md``.
"""

from __future__ import annotations

import json
import signal
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from itertools import chain, product
from pathlib import Path
from typing import Any, Final

import pytest

from dev.postgres import PostgresServer
from dev.rabbit import RabbitNode
from dev.servers import wait_until
from tests.e2e.arrivals import Receiver, account_of
from tests.e2e.dispatching import await_consumer, prepare_dispatcher, start_dispatcher, waiting
from tests.e2e.old_endpoint import OldEndpoint, OldMessage, keys
from tests.e2e.rig import Rig
from tests.e2e.rows import Account, chance, row

KILLED: Final = -9
IN_HAND: Final = 40
"""Messages, or rows, that the program has in hand at most."""
SAGA_ID: Final = "NServiceBus.SagaId"
RELATED: Final = "NServiceBus.RelatedToTimeoutId"
NewRig = Callable[..., Rig]


def traffic(endpoint: OldEndpoint, timeout_id: str) -> dict[str, list[OldMessage]]:
    """Return a little of everything, in the order of sending, so that every step is passed.

    A control message names *timeout_id*.
    """
    return {
        "stored": [endpoint.deferred(3.5, to="Billing") for _ in range(40)],
        "at once": [endpoint.deferred(0.8, to="Billing") for _ in range(10)],
        "unreachable": [endpoint.deferred(-1, to="Nowhere") for _ in range(3)],
        "malformed": [endpoint.deferred(60, changes={SAGA_ID: "none"}) for _ in range(3)],
        "control": [endpoint.control(timeout_id)],
    }


WINDOWS: Final[dict[str, Sequence[str]]] = {
    "intake.received": (),
    "intake.stored": (),
    "intake.acked": (),
    "dispatch.claimed": (),
    "dispatch.begun": (),
    "dispatch.publishing": ("stored",),
    "dispatch.confirmed": ("stored",),
    "dispatch.settled": ("stored",),  # of the other batch
    "pass_on.confirmed": ("at once", "malformed"),  # taken in with them
    "retry.published": ("unreachable",),
    "error.published": ("unreachable", "malformed", "at once"),  # the same
    "control.claimed": (),
}
"""Of what a kill at each step may send copies, as documented."""


@pytest.mark.parametrize(
    ("system", "name"),
    [
        pytest.param(*case, marks=[] if case == ("rig", "dispatch.confirmed") else pytest.mark.slow)
        for case in product(("rig", "mariadb_rig"), WINDOWS)
    ],
)
def test_kill_at_step(
    request: pytest.FixtureRequest, tmp_path: Path, system: str, name: str
) -> None:
    """Killed with a little of everything under way, and started again: nothing lost.

    What nobody could receive is tried again, given up, or stored meanwhile; its queue is there
    when the program is started again, so that it is either in that or in the error queue. MariaDB
    tells nothing of what it inserts, and its due times have whole seconds.
    """
    rig: Rig = request.getfixturevalue(system)
    endpoint = OldEndpoint(rig)
    endpoint.declare("Billing")
    overdue = row(timedelta(seconds=-5), destination="Billing")
    prepare_dispatcher(rig, tmp_path, dispatch={"retry_delays": ["1s"], "batch_size": 25})
    hit = 2 if name.startswith("dispatch.") else 1  # first comes the row that control names
    process = start_dispatcher(rig, fault=f"{name}:{hit}")
    sent = traffic(endpoint, overdue.id)
    with Receiver(rig.broker_url, "Billing", "error") as receiver:
        endpoint.send(*chain(*sent.values()))
        time.sleep(0.3)
        rig.insert([overdue])
        killed = rig.finish(process)
        assert killed.returncode == KILLED, killed.stderr[-4000:]
        rig.create_receivers("Nowhere")
        process = start_dispatcher(rig)
        with Receiver(rig.broker_url, "Nowhere") as nowhere:
            receiver.wait_for(*sent["stored"], *sent["at once"], queue="Billing")
            receiver.wait_for(*sent["malformed"], queue="error")
            late = keys(sent["unreachable"])
            receiver.wait(lambda: late <= {e.key for e in receiver.at("error") + nowhere.arrivals})
            wait_until(lambda: rig.stored() == {}, what="an empty table")
            wait_until(lambda: waiting(rig, endpoint.timeouts) == 0, what="no message")
            time.sleep(1.3)  # a copy too many in a retry queue would be back by then
            rig.stop(process)
    named = [each for each in receiver.at("Billing") if each.headers.get(RELATED) == overdue.id]
    others = [each for each in receiver.at("Billing") if each not in named]
    delivered = account_of([*sent["stored"], *sent["at once"]], others)
    failed = account_of(
        [*sent["unreachable"], *sent["malformed"]], [*receiver.at("error"), *nowhere.arrivals]
    )
    found, wanted = failed.found, failed.attempted  # in the error queue before they are due
    print(f"{name}: delivered: {delivered}; failed: {found} of {wanted}")
    assert (delivered.lost, delivered.foreign, delivered.early) == ((), (), ())
    assert (failed.lost, failed.foreign) == ((), ())
    assert {*delivered.duplicated, *failed.duplicated} <= keys(
        chain(*(sent[kind] for kind in WINDOWS[name]))
    )
    assert all(each.properties.message_id == each.key[:-1] for each in others)
    assert 1 <= len(named) <= (2 if name.startswith("dispatch.") else 1)


@contextmanager
def sending(
    endpoint: OldEndpoint, *, seed: int, every_s: float = 0.02
) -> Iterator[list[OldMessage]]:
    """Send deferred messages and saga timeouts meanwhile; the list is filled at the end."""
    dice = chance(seed)
    ended = threading.Event()
    sent: list[OldMessage] = []

    def made() -> Iterator[OldMessage]:
        while not ended.wait(every_s):
            seconds = dice.choice((dice.uniform(-0.5, 1.2), dice.uniform(1, 6)))
            if dice.random() < 0.2:
                sent.append(endpoint.saga_timeout(seconds, saga_id=str(uuid.uuid4())))
            else:
                sent.append(endpoint.deferred(seconds, to="Billing"))
            yield sent[-1]

    with ThreadPoolExecutor(1) as pool:
        work = pool.submit(endpoint.publish, made())
        try:
            yield sent
        finally:
            ended.set()
            work.result()


def settled(rig: Rig, sent: Sequence[OldMessage], receiver: Receiver) -> Account:
    """Wait until all has arrived and nothing is left anywhere; nothing is lost, or early."""
    receiver.wait_for(*sent)
    wait_until(lambda: rig.stored() == {}, what="an empty table")
    wait_until(lambda: waiting(rig, "Sales.Timeouts") == 0, what="an empty queue")
    time.sleep(1)  # another copy would come soon
    account = account_of(sent, receiver.arrivals)
    print(account)
    assert (account.lost, account.foreign, account.early) == ((), (), ())
    return account


def prepared(rig: Rig, tmp_path: Path, *, mode: str = "dispatch", **sections: Any) -> OldEndpoint:
    """Prepare everything; return the endpoint that sends."""
    endpoint = OldEndpoint(rig)
    endpoint.declare("Billing")
    prepare_dispatcher(rig, tmp_path, mode=mode, **sections)
    return endpoint


LONG: Final = [pytest.mark.slow, pytest.mark.timeout(900)]


@pytest.mark.parametrize(
    ("mode", "kills"),
    [
        pytest.param("dispatch", 3, marks=pytest.mark.slow),
        pytest.param("dispatch", 50, marks=LONG),
        pytest.param("forward", 50, marks=LONG),
    ],
)
def test_kill_at_random_moments(rig: Rig, tmp_path: Path, mode: str, kills: int) -> None:
    """Killed again and again while an endpoint goes on sending and rows get due: lost 0.

    What comes twice was on its way at a kill: the first copy came before one or, where the receiver
    was slow to take it, soon afterwards, and the second copy only then.
    """
    in_hand = {"batch_size": IN_HAND, "prefetch": IN_HAND}
    endpoint = prepared(rig, tmp_path, mode=mode, dispatch=in_hand)
    dice, killed_at = chance(20_260_302 + kills), list[datetime]()
    with Receiver(rig.broker_url, "Sales", "Billing", "error") as receiver:
        with sending(endpoint, seed=kills, every_s=0.015) as sent:
            for _ in range(kills):
                process = start_dispatcher(rig)
                time.sleep(dice.uniform(0.1, 2.0))
                assert process.poll() is None, rig.finish(process).stderr[-4000:]
                killed_at.append(datetime.now(UTC))
                rig.kill(process)
        process = start_dispatcher(rig)
        account = settled(rig, sent, receiver)
        rig.stop(process)
    assert len(account.duplicated) <= kills * IN_HAND
    in_flight, slow = timedelta(seconds=10), timedelta(seconds=2)
    for key in account.duplicated if mode == "dispatch" else ():
        first, *_, last = (each.at for each in receiver.arrivals if each.key == key)
        assert any(first - slow < kill < min(first + in_flight, last) for kill in killed_at)


# ── outages ─────────────────────────────────────────────────────────────────────────────────


def actions(stderr: str) -> list[str]:
    """Return what a program that wrote JSON said, by the names of its actions."""
    return [json.loads(line)["action"] for line in stderr.splitlines() if line.startswith("{")]


@pytest.mark.slow
@pytest.mark.punctual
def test_the_database_goes_away_and_comes_back(
    private_postgres: PostgresServer, vhost: Any, new_rig: NewRig, tmp_path: Path
) -> None:
    """For a moment, then for long: it says so, messages wait in the queue, and none comes twice."""
    url = private_postgres.url(private_postgres.create_database())
    rig = new_rig(database_url=url, broker_url=vhost.amqp_url)
    endpoint = prepared(rig, tmp_path, dispatch={"batch_size": 50, "critical_after": "2s"})
    process = start_dispatcher(rig)
    with Receiver(rig.broker_url, "Sales", "Billing", "error") as receiver:
        with sending(endpoint, seed=1) as sent:
            time.sleep(2)
            private_postgres.restart("immediate")
            time.sleep(2)
            private_postgres.stop()
            time.sleep(5)
            assert process.poll() is None
            private_postgres.start()
        account = settled(rig, sent, receiver)
        log = actions(rig.stop(process))
    assert log.index("dispatcher_degraded") < log.index("dispatcher_critical")
    assert log.count("dispatcher_critical") == 1
    assert "dispatcher_recovered" in log[log.index("dispatcher_critical") :]
    assert (account.duplicated, receiver.at("error")) == ((), [])
    assert account.worst_s < 30


@pytest.mark.slow
def test_an_outage_that_is_critical_ends_the_process_if_told_so(
    private_postgres: PostgresServer, vhost: Any, new_rig: NewRig, tmp_path: Path
) -> None:
    """With on_critical = exit it ends with code 4; what it had in hand is back in the queue."""
    url = private_postgres.url(private_postgres.create_database())
    rig = new_rig(database_url=url, broker_url=vhost.amqp_url)
    critical = {"critical_after": "2s", "on_critical": "exit"}
    endpoint = prepared(rig, tmp_path, dispatch=critical)
    process = start_dispatcher(rig)
    private_postgres.stop()
    endpoint.send(*(endpoint.deferred(60, to="Billing") for _ in range(20)))
    done = rig.finish(process)
    assert done.returncode == 4, done.stderr[-4000:]
    log = [each for each in actions(done.stderr) if each.startswith("dispatcher_")]
    told = ["dispatcher_degraded", "dispatcher_critical", "dispatcher_gave_up"]
    assert [each for each in dict.fromkeys(log) if each in told] == told
    wait_until(lambda: waiting(rig, endpoint.timeouts) == 20, what="all in the queue")
    assert waiting(rig, "error") == 0


@pytest.mark.slow
@pytest.mark.punctual
def test_the_broker_is_killed_and_comes_back(
    database: str, private_node: RabbitNode, new_rig: NewRig, tmp_path: Path
) -> None:
    """A broker node that dies loses no timeout; twice comes only what it had not confirmed yet."""
    rig = new_rig(database_url=database, broker_url=private_node.amqp_url())
    endpoint = prepared(rig, tmp_path)
    process = start_dispatcher(rig)
    with Receiver(rig.broker_url, "Sales", "Billing", "error") as receiver:
        sent = [endpoint.deferred(3 + n / 40, to="Billing") for n in range(400)]
        endpoint.send(*sent)
        time.sleep(3)  # some are due
        private_node.write_names()
        private_node.kill()
        time.sleep(1)
        private_node.start()
        account = settled(rig, sent, receiver)
        assert "dispatcher_recovered" in actions(rig.stop(process))
    assert len(account.duplicated) <= 40


@pytest.mark.slow
@pytest.mark.punctual
def test_the_wire_is_cut_again_and_again(rig: Rig, tmp_path: Path, proxy: Any) -> None:
    """Connections reset before and after the broker's answers: twice only what had no answer."""
    endpoint = prepared(rig, tmp_path)
    direct_url = rig.broker_url
    wire = proxy(direct_url)
    dice = chance(11)
    rig.broker_url = wire.url(direct_url)
    process = start_dispatcher(rig)  # a start that is cut off ends with exit code 4
    rig.broker_url = direct_url
    with Receiver(direct_url, "Sales", "Billing", "error") as receiver:
        with sending(endpoint, seed=2) as sent:
            for number in range(10):
                dice.choice((wire.cut, wire.cut_before_answer, wire.cut_after_answer))()
                time.sleep(dice.uniform(0.3, 1.5))
                if number % 2:  # cut while it connects, and while it works
                    await_consumer(rig, process)
        account = settled(rig, sent, receiver)
        sessions = actions(rig.stop(process)).count("dispatcher_degraded")
    assert sessions >= 3
    assert len(account.duplicated) <= 10 * sessions


# ── standby ─────────────────────────────────────────────────────────────────────────────────

LEASE_S: Final = 16
"""The shortest that the settings allow is just above fifteen seconds."""


@pytest.mark.punctual
@pytest.mark.parametrize(
    "is_paused",
    [
        pytest.param(False, id="killed"),
        pytest.param(True, id="paused past its lease", marks=pytest.mark.slow),
    ],
)
def test_a_standby_takes_over(rig: Rig, tmp_path: Path, is_paused: bool) -> None:
    """Two at once: each message once. Without its leader, the other goes on within the lease.

    A leader that is paused is as dead to the standby as one that was killed: what it had sent of
    the batches in flight is sent again when they are taken over. Woken up, it sends nothing more.
    """
    endpoint = prepared(rig, tmp_path, handover={"lease": f"{LEASE_S}s"})
    leader = start_dispatcher(rig)
    standby = rig.start("run", "--endpoint", "Sales")
    time.sleep(2)  # it finds out that it is the second
    with Receiver(rig.broker_url, "Billing", "error") as receiver:
        before = [endpoint.deferred(n / 100, to="Billing") for n in range(250)]
        endpoint.send(*before)
        receiver.wait_for(*before)
        first = account_of(before, receiver.arrivals)
        assert (first.lost, first.duplicated, first.early) == ((), (), ())
        count = 600 if is_paused else 120
        during = [endpoint.deferred(1 + n / 20, to="Billing") for n in range(count)]
        endpoint.send(*during)
        receiver.wait_for(during[40])
        stopped_at = datetime.now(UTC)
        leader.send_signal(signal.SIGSTOP if is_paused else signal.SIGKILL)
        receiver.wait_for(*during[: count * 5 // 6])
        woken_at = datetime.now(UTC)
        if is_paused:
            leader.send_signal(signal.SIGCONT)
        after = [endpoint.deferred(n / 20, to="Billing") for n in range(20)]
        endpoint.send(*after)
        account = settled(rig, [*before, *during, *after], receiver)
        rig.stop(standby)
        if is_paused:
            rig.stop(leader)  # a standby now
    assert (first.median_s < 2, first.worst_s < 5) == (True, True)
    assert account.worst_s < LEASE_S + 30
    for key in account.duplicated:
        one, again = (each.at for each in receiver.arrivals if each.key == key)
        # the standby cannot send before the lease is over; until then a busy machine may receive
        assert stopped_at - timedelta(seconds=2) < one < stopped_at + timedelta(seconds=5)
        assert again < woken_at
