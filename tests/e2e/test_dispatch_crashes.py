"""The dispatcher, killed at every named step and at random moments: nothing lost, ever.

What may come twice, with the same logical id, is what was on its way between the broker's
confirm and the ledger's or the queue's record of it: ``docs/dispatcher.md``.
"""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Callable, Collection, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

import pytest

from dev.servers import wait_until
from tests.e2e.arrivals import Arrival, Books, Receiver, books
from tests.e2e.dispatching import prepare_dispatcher, start_dispatcher, waiting
from tests.e2e.old_endpoint import OldEndpoint, OldMessage, keys
from tests.e2e.rig import Rig
from tests.e2e.rows import chance, row

KILLED: Final = -9
IN_HAND: Final = 40
"""Messages, or rows, that the program has in hand at most."""
SAGA_ID: Final = "NServiceBus.SagaId"
SHORT_FORM: Final = {"dispatch.confirmed"}


@dataclass(frozen=True, kw_only=True)
class Traffic:
    """A little of everything that a dispatcher deals with, so that every step is passed."""

    stored: Sequence[OldMessage]
    at_once: Sequence[OldMessage]
    unreachable: Sequence[OldMessage]
    malformed: Sequence[OldMessage]
    control: Sequence[OldMessage]

    @property
    def all(self) -> list[OldMessage]:
        """Everything, in the order of sending."""
        return [*self.stored, *self.at_once, *self.unreachable, *self.malformed, *self.control]


def traffic(endpoint: OldEndpoint, timeout_id: str) -> Traffic:
    """Return messages of each kind; a control message names *timeout_id*."""
    return Traffic(
        stored=[endpoint.deferred(3.5, to="Billing") for _ in range(40)],
        at_once=[endpoint.deferred(0.8, to="Billing") for _ in range(10)],
        unreachable=[endpoint.deferred(-1, to="Nowhere") for _ in range(3)],
        malformed=[endpoint.deferred(60, changes={SAGA_ID: "none"}) for _ in range(3)],
        control=[endpoint.control(timeout_id)],
    )


def may_be_doubled(name: str) -> Callable[[Traffic], set[str]]:
    """Return what a kill at a step may send twice, by the documented windows."""
    windows: dict[str, Callable[[Traffic], set[str]]] = {
        "dispatch.publishing": lambda sent: keys(sent.stored),
        "dispatch.confirmed": lambda sent: keys(sent.stored),
        "dispatch.settled": lambda sent: keys(sent.stored),  # of the other batch
        "pass_on.confirmed": lambda sent: keys(sent.at_once),
        "retry.published": lambda sent: keys(sent.unreachable),
        "error.published": lambda sent: keys([*sent.unreachable, *sent.malformed]),
    }
    return windows.get(name, lambda _: set())


def steps(short_form: Collection[str]) -> list[object]:
    """Return every step of mode dispatch; those outside the short form run with --full only."""
    names = (
        *("intake.received", "intake.stored", "intake.acked"),
        *("dispatch.claimed", "dispatch.begun", "dispatch.publishing"),
        *("dispatch.confirmed", "dispatch.settled", "pass_on.confirmed"),
        *("retry.published", "error.published", "control.claimed"),
    )
    return [
        pytest.param(name, id=name, marks=[] if name in short_form else [pytest.mark.slow])
        for name in names
    ]


def related_to(arrival: Arrival) -> str | None:
    """Return the id of the row that was sent; None: it never was one."""
    found: str | None = arrival.headers.get("NServiceBus.RelatedToTimeoutId")
    return found


@pytest.mark.parametrize("name", steps(SHORT_FORM))
def test_kill_at_step(rig: Rig, tmp_path: Path, name: str) -> None:
    """Killed at a named step and started again: nothing lost, twice only what the window allows."""
    kill_at_step(rig, tmp_path, name)


@pytest.mark.parametrize("name", steps(()))
def test_kill_at_step_on_mariadb(mariadb_rig: Rig, tmp_path: Path, name: str) -> None:
    """The same, where nothing tells what it inserts and due times have whole seconds."""
    kill_at_step(mariadb_rig, tmp_path, name)


def kill_at_step(rig: Rig, tmp_path: Path, name: str) -> None:
    """Kill the dispatcher at a step with a little of everything under way, and start it again.

    What nobody could receive is tried again, given up, or stored meanwhile; its queue is there
    when the program is started again, so that it is either in that or in the error queue.
    """
    endpoint = OldEndpoint(rig)
    endpoint.declare("Billing")
    overdue = row(timedelta(seconds=-5), destination="Billing")
    prepare_dispatcher(rig, tmp_path, dispatch={"retry_delays": ["1s"], "batch_size": 25})
    hit = 2 if name.startswith("dispatch.") else 1  # first comes the row that control names
    process = start_dispatcher(rig, fault=f"{name}:{hit}")
    sent = traffic(endpoint, overdue.id)
    with Receiver(rig.broker_url, "Billing", "error") as receiver:
        endpoint.send(*sent.all)
        time.sleep(0.3)
        rig.insert([overdue])
        killed = rig.finish(process)
        assert killed.returncode == KILLED, killed.stderr[-4000:]
        rig.create_receivers("Nowhere")
        process = start_dispatcher(rig)
        with Receiver(rig.broker_url, "Nowhere") as nowhere:
            receiver.wait_for(*sent.stored, *sent.at_once, queue="Billing")
            receiver.wait_for(*sent.malformed, queue="error")
            late = keys(sent.unreachable)
            receiver.wait(lambda: late <= {e.key for e in receiver.at("error") + nowhere.arrivals})
            wait_until(lambda: rig.stored() == {}, what="an empty table")
            wait_until(lambda: waiting(rig, endpoint.timeouts) == 0, what="no message")
            time.sleep(1.3)  # a copy too many in a retry queue would be back by then
            rig.stop(process)
    named = [each for each in receiver.at("Billing") if related_to(each) == overdue.id]
    others = [each for each in receiver.at("Billing") if each not in named]
    delivered = books([*sent.stored, *sent.at_once], others)
    failed = books([*sent.unreachable, *sent.malformed], [*receiver.at("error"), *nowhere.arrivals])
    print(f"{name}: delivered: {delivered}; failed: {failed}")
    assert (delivered.lost, delivered.foreign, delivered.early) == ((), (), ())
    assert (failed.lost, failed.foreign) == ((), ())
    assert {*delivered.duplicated, *failed.duplicated} <= may_be_doubled(name)(sent)
    assert all(each.properties.message_id == each.key[:-1] for each in others)
    assert 1 <= len(named) <= (2 if name.startswith("dispatch.") else 1)


def test_stored_and_due_before_it_was_acknowledged_is_sent_once(rig: Rig, tmp_path: Path) -> None:
    """Killed between storing and acknowledging, started again when all is due: each comes once.

    The messages are redelivered, and by now due at once; the rows are due as well.
    """
    endpoint = OldEndpoint(rig)
    endpoint.declare("Billing")
    prepare_dispatcher(rig, tmp_path)
    process = start_dispatcher(rig, fault="intake.stored:1")
    sent = [endpoint.deferred(6, to="Billing") for _ in range(20)]
    with Receiver(rig.broker_url, "Billing") as receiver:
        endpoint.send(*sent)
        assert rig.finish(process).returncode == KILLED
        stored = len(rig.stored())
        assert stored > 0
        due_at = max(each.due_at for each in sent if each.due_at)
        time.sleep(max(0.0, (due_at - datetime.now(UTC)).total_seconds()))
        process = start_dispatcher(rig)
        receiver.wait_for(*sent)
        wait_until(lambda: rig.stored() == {}, what="an empty table")
        time.sleep(1)
        rig.stop(process)
    account = books(sent, receiver.arrivals)
    print(f"{stored} were stored at the kill: {account}")
    assert (account.lost, account.duplicated, account.early) == ((), (), ())


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_killed_more_often_than_the_queue_forgives(rig: Rig, tmp_path: Path) -> None:
    """Messages come back at each kill; a quorum queue drops them after 20, as RabbitMQ 4 would."""
    endpoint = OldEndpoint(rig)
    endpoint.declare("Billing")
    with rig.amqp() as connection:
        channel = connection.channel()
        channel.queue_delete(endpoint.timeouts)
        limited = {"x-queue-type": "quorum", "x-delivery-limit": 20}
        channel.queue_declare(endpoint.timeouts, durable=True, arguments=limited)
        channel.queue_bind(endpoint.timeouts, endpoint.timeouts, "")
    prepare_dispatcher(rig, tmp_path)
    sent = [endpoint.deferred(7200, to="Billing") for _ in range(5)]
    endpoint.send(*sent)
    for _ in range(25):
        killed = rig.finish(start_dispatcher(rig, fault="intake.stored:1"))
        assert killed.returncode == KILLED, killed.stderr[-4000:]
    process = start_dispatcher(rig)
    wait_until(lambda: waiting(rig, endpoint.timeouts) == 0, what="no message")
    rig.stop(process)
    assert waiting(rig, endpoint.timeouts) == 0
    assert len(rig.stored()) == len(sent)


MANY: Final = pytest.param(50, marks=[pytest.mark.slow, pytest.mark.timeout(900)])


@pytest.mark.parametrize("kills", [3, MANY])
def test_kill_at_random_moments(rig: Rig, tmp_path: Path, kills: int) -> None:
    """Killed again and again while an endpoint goes on sending and rows get due: lost 0.

    What comes twice was on its way at a kill: the first copy came before one or, where the receiver
    was slow to take it, soon afterwards, and the second copy only then.
    """
    account, arrivals, killed_at = kill_at_random_moments(rig, tmp_path, kills, mode="dispatch")
    in_flight, slow = timedelta(seconds=10), timedelta(seconds=2)
    for key in account.duplicated:
        first, *_, last = (each.at for each in arrivals if each.key == key)
        assert any(first - slow < kill < min(first + in_flight, last) for kill in killed_at)


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_forward_killed_at_random_moments(rig: Rig, tmp_path: Path) -> None:
    """The same in mode forward: lost 0, and no more comes twice than was in hand at a kill."""
    kills = 50
    account, _, _ = kill_at_random_moments(rig, tmp_path, kills, mode="forward")
    assert len(account.duplicated) <= kills * IN_HAND


def kill_at_random_moments(
    rig: Rig, tmp_path: Path, kills: int, *, mode: str
) -> tuple[Books, Sequence[Arrival], Sequence[datetime]]:
    """Kill the program while an endpoint sends, let it come to its end, and account for all.

    Returns the account, what arrived in that order, and when the program was killed (UTC).
    """
    endpoint = OldEndpoint(rig)
    endpoint.declare("Billing")
    prepare_dispatcher(
        rig, tmp_path, mode=mode, dispatch={"batch_size": IN_HAND, "prefetch": IN_HAND}
    )
    dice = chance(20_260_302 + kills)

    def make() -> OldMessage:
        seconds = dice.choice((dice.uniform(-0.5, 1.2), dice.uniform(1, 6)))
        if dice.random() < 0.2:
            return endpoint.saga_timeout(seconds, saga_id=str(uuid.uuid4()))
        return endpoint.deferred(seconds, to="Billing")

    ended = threading.Event()
    killed_at: list[datetime] = []
    with Receiver(rig.broker_url, "Sales", "Billing", "error") as receiver:
        with ThreadPoolExecutor(1) as pool:
            sending = pool.submit(endpoint.send_until, ended, make=make, every_s=0.015)
            try:
                for _ in range(kills):
                    process = start_dispatcher(rig)
                    time.sleep(dice.uniform(0.1, 2.0))
                    assert process.poll() is None, rig.finish(process).stderr[-4000:]
                    killed_at.append(datetime.now(UTC))
                    rig.kill(process)
            finally:
                ended.set()
            sent = sending.result()
        process = start_dispatcher(rig)
        receiver.wait_for(*sent)
        wait_until(lambda: rig.stored() == {}, what="an empty table")
        time.sleep(1)
        rig.stop(process)
    account = books(sent, receiver.arrivals)
    print(f"{mode}, {kills} kills: {account}")
    assert (account.lost, account.foreign, account.early) == ((), (), ())
    return account, receiver.arrivals, killed_at
