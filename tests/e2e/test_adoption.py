"""What a daemon finishes that a dead one left, and what it leaves to the right one.

A batch goes where its own run would have sent it: the run's map, virtual host and delays travel
with it. A lane that waits for a receipt keeps no other lane waiting.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import timedelta
from functools import partial
from typing import Any, Final

import pytest

from dev.rabbit import RabbitNode
from dev.servers import wait_until
from migrator.delays.routing import parse_routing_key
from migrator.errors import ExitCode
from migrator.nservicebus.timeouts import Lane
from migrator.rabbitmq.names import guard_queue, receipts_queue
from tests.conftest import Vhost
from tests.e2e.rig import Rig
from tests.e2e.rows import Row, row

NewRig = Callable[..., Rig]
KILLED: Final = -9
LOOKED_S: Final = 2.0
"""So long after it began to rest, a daemon has looked at the lanes of the dead."""
LEASE: Final = timedelta(seconds=5)
"""What is left of a lease of a process elsewhere, which can only be waited for."""
AFTER_LEASE_S: Final = 4.0
"""So soon after the end of such a lease, rows of a dead owner are handed over: two seconds, and
what a busy machine needs to open links."""
ELSEWHERE: Final = "elsewhere-0/1/1/1/aaaaaa"


@pytest.fixture
def other_vhost(rabbit_node: RabbitNode, vhost: Vhost) -> Iterator[Vhost]:
    """A second virtual host of the same broker."""
    name = f"{vhost.name}-other"
    rabbit_node.create_vhost(name)
    yield Vhost(name=name, node=rabbit_node)
    rabbit_node.delete_vhost(name)


@pytest.fixture
def adopter(rig: Rig) -> Rig:
    """Another endpoint of the same store and broker, whose daemon adopts what *rig*'s leaves."""
    rig.settings["MIGRATOR_HANDOVER__BATCH_SIZE"] = "10"
    rig.prepare("Def", "Def.New", "Def.Old")
    other = replace(rig, endpoint="Other", settings=dict(rig.settings), said=rig.said)
    other.create_store()
    return other


def resting(rig: Rig, *options: str, lanes: int = 1) -> Any:
    """Start a daemon and wait until it rests: lanes of its own, and nothing in the store."""
    daemon = rig.start("run", "--endpoint", rig.endpoint, "--lanes", str(lanes), *options)
    idle = "SELECT count(*) FROM migrator.lease WHERE owner IS NOT NULL AND doing LIKE 'idle%%'"
    wait_until(lambda: rig.query(idle) == [(lanes,)], what="a daemon that rests")
    return daemon


def killed(rig: Rig, fault: str, *options: str) -> None:
    """Have a daemon work until it is killed at a step."""
    done = rig.run("run", "--endpoint", rig.endpoint, *options, fault=fault)
    assert done.returncode == KILLED, done.stderr[-4000:]


def seems_elsewhere(rig: Rig, left: timedelta) -> None:
    """Have dead owners be processes of another machine, whose leases last for *left* more."""
    rig.query(
        "UPDATE migrator.lease SET owner = %s, until = now() AT TIME ZONE 'UTC' + %s "
        "WHERE token > 0 AND (owner = %s OR doing IS DISTINCT FROM 'idle') RETURNING 1",
        ELSEWHERE,
        left,
        ELSEWHERE,
    )


def lose_receipts(rig: Rig, *lanes: Lane) -> None:
    """Take away the receipts of commits that nobody has seen yet: they never come."""
    with rig.amqp() as connection:
        for lane in lanes:
            name = receipts_queue(rig.ledger_id(), lane)
            wait_until(partial(_purged, connection.channel(), name), what="the receipt")


def _purged(channel: Any, queue: str) -> bool:
    return bool(channel.queue_purge(queue).method.message_count)


def went_to(rig: Rig) -> Counter[str]:
    """Return how many messages are in the levels, or have arrived, by destination."""
    return Counter(str(parse_routing_key(m.routing_key)[1]) for m in rig.drain_levels())


def handed_over(rig: Rig) -> int:
    """Return how many rows were handed over."""
    query = "SELECT coalesce(sum(size), 0) FROM migrator.batch WHERE state = 'handed_over'"
    return int(rig.query(query)[0][0])


@contextmanager
def within(seconds: float) -> Iterator[None]:
    """Demand that something is done within *seconds*."""
    began_s = time.monotonic()
    yield
    took_s = time.monotonic() - began_s
    print(f"took {took_s:.1f} s")
    assert took_s < seconds


def stored(rig: Rig, count: int, due_in: timedelta = timedelta(days=3), **more: Any) -> list[Row]:
    """Store rows and return them."""
    rows = [row(due_in, **more) for _ in range(count)]
    rig.insert(rows)
    return rows


# ── where it goes ───────────────────────────────────────────────────────────────────────────────


@pytest.mark.punctual
def test_rows_of_a_killed_daemon_go_where_its_own_map_says(rig: Rig, adopter: Rig) -> None:
    """Not where the map of the daemon says that adopts them."""
    resting(adopter, "--map", "Def=Def.Old")
    rows = stored(rig, 20, destination="Def")
    killed(rig, "staged.committing:1", "--map", "Def=Def.New")
    wait_until(lambda: len(rig.stored_ids()) + handed_over(rig) == 20, what="what it left")
    assert went_to(rig) == {"Def.New": 20 - len(rig.stored_ids())}
    assert len(rows) > len(rig.stored_ids())


def test_a_daemon_that_starts_with_another_map_keeps_to_that_of_what_was_claimed(
    rig: Rig, adopter: Rig
) -> None:
    """What was claimed goes by the map of then; what is claimed from now on, by the new one."""
    stored(rig, 10, -timedelta(minutes=1), destination="Def")
    killed(rig, "direct.begun:1", "--map", "Def=Def.Old", "--cutoff", "0s")
    assert rig.stored_ids() == set()
    stored(rig, 10, destination="Def")
    rig.migrate("--map", "Def=Def.New")
    assert went_to(rig) == {"Def.New": 10}
    assert Counter(each.queue for each in rig.drain("Def.Old", "Def.New")) == {"Def.Old": 10}
    assert adopter.has_rows() is False


@pytest.mark.slow
def test_a_map_given_later_applies_to_what_is_retried(rig: Rig, adopter: Rig) -> None:
    """The remedy of `destination-unknown`: a map and a retry, whichever daemon takes the rows."""
    rig.settings["MIGRATOR_BROKER__MAX_MESSAGE_BYTES"] = "1000"
    rig.settings["MIGRATOR_HANDOVER__MAX_QUARANTINED"] = "0"
    stored(rig, 20, destination="Def", body=b"x" * 2000)
    rig.migrate()
    assert len(rig.quarantined()) == 20
    del rig.settings["MIGRATOR_BROKER__MAX_MESSAGE_BYTES"]
    resting(adopter, "--map", "Def=Def.Old")
    rig.start("run", "--endpoint", "Sales", "--map", "Def=Def.New")
    lanes = "SELECT count(*) FROM migrator.lease WHERE owner IS NOT NULL AND doing = 'idle'"
    wait_until(lambda: rig.query(lanes) == [(2,)], what="two daemons that rest")
    rig.must("quarantine", "retry", "--endpoint", "Sales")
    wait_until(lambda: handed_over(rig) == 20, what="what was retried")
    assert went_to(rig) == {"Def.New": 20}


def test_what_is_for_another_virtual_host_waits_for_its_own_daemon(
    rig: Rig, adopter: Rig, other_vhost: Vhost
) -> None:
    """None goes to the queues of the same names in this one, nor becomes doubtful by waiting.

    Neither what was claimed, nor a commit whose receipt waits there.
    """
    elsewhere = replace(rig, broker_url=other_vhost.amqp_url, said=rig.said)
    elsewhere.create_levels()
    elsewhere.create_receivers("Def")
    rows = stored(rig, 20, destination="Def")
    killed(elsewhere, "staged.nacked:1")
    left = rig.batch_states()
    assert left["committing"] == 1
    daemon = resting(adopter)
    time.sleep(LOOKED_S)
    assert f"waits for a daemon on virtual host {other_vhost.name}" in rig.must("status")
    assert (rig.batch_states(), went_to(rig)) == (left, {})
    elsewhere.migrate()
    account = elsewhere.account(rows, "Def")
    assert (account.found, account.lost, account.duplicated) == (20, (), ())
    assert went_to(rig) == {}
    assert "batch_elsewhere" in rig.stop(daemon)


def test_what_is_for_a_broker_that_is_gone_is_given_to_the_present_one(
    rig: Rig, adopter: Rig, other_vhost: Vhost
) -> None:
    """By an operator; `run --once` ends with a code that says so, and goes on with the rest."""
    elsewhere = replace(rig, broker_url=other_vhost.amqp_url, said=rig.said)
    elsewhere.create_levels()
    elsewhere.create_receivers("Def")
    rows = stored(rig, 10, destination="Def")
    killed(elsewhere, "claim.done:1")
    rows += stored(rig, 5, destination="Def")
    done = rig.run("run", "--endpoint", "Sales", "--once")
    ((batch,),) = rig.query("SELECT id FROM migrator.batch WHERE state = 'claimed'")
    assert done.returncode == ExitCode.UNREACHABLE, done.stderr[-4000:]
    assert f"migrator db resolve {batch} --as claimed" in done.stderr
    assert went_to(rig) == {"Def": 5}
    rig.must("db", "resolve", str(batch), "--as", "claimed", "--yes")
    rig.migrate()
    assert went_to(rig) == {"Def": 10}
    assert adopter.has_rows() is False
    assert len(rows) == 15


# ── when ────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.punctual
def test_a_lane_that_waits_for_a_receipt_keeps_no_other_lane_waiting(
    rig: Rig, adopter: Rig
) -> None:
    """Nor the rows that are claimed in the same lane: all are there soon after the lease's end."""
    rig.settings["MIGRATOR_HANDOVER__BATCH_SIZE"] = "3"
    lost = stored(rig, 3, destination="Def")
    killed(rig, "staged.nacked:1")
    lose_receipts(rig, Lane(0))
    seems_elsewhere(rig, timedelta(hours=1))
    rows = stored(rig, 12, destination="Def")
    killed(rig, "claim.done:4", "--lanes", "3")
    seems_elsewhere(rig, timedelta(hours=1))
    resting(adopter)
    left = "SELECT sum(size) FROM migrator.batch WHERE state NOT IN ('handed_over', 'committing')"
    print("left open:", rig.query(left))
    seems_elsewhere(rig, LEASE)
    with within(LEASE.total_seconds() + AFTER_LEASE_S):
        done = {"handed_over": 4, "committing": 1}
        wait_until(lambda: rig.batch_states() == done, what="the rows of other lanes", seconds=25)
    account = rig.account(rows, "Def")
    assert (account.lost, account.duplicated) == ((), ())
    assert set(account.foreign) == {each.id for each in lost}  # their receipt alone is missing


@pytest.mark.punctual
def test_a_lane_that_another_connection_has_keeps_no_row_waiting(rig: Rig) -> None:
    """A connection that is half dead still has the lane on the broker: another lane is taken."""
    rig.prepare("Def")
    rows = stored(rig, 20, destination="Def")
    with rig.amqp() as connection:
        name = guard_queue(rig.ledger_id(), Lane(0))
        connection.channel().queue_declare(name, exclusive=True)
        daemon = rig.start("run", "--endpoint", "Sales")
        with within(10):
            wait_until(rig.is_done, what="all rows", seconds=25)
        rig.stop(daemon)
    account = rig.account(rows, "Def")
    assert (account.lost, account.duplicated, account.found) == ((), (), 20)


@pytest.mark.punctual
def test_a_start_waits_for_no_receipt_of_the_process_before(rig: Rig, adopter: Rig) -> None:
    """What that one had claimed behind it, and what is in the store, is handed over at once."""
    rig.settings["MIGRATOR_HANDOVER__BATCH_SIZE"] = "3"
    rows = stored(rig, 15, destination="Def")
    killed(rig, "staged.nacked:1")
    lose_receipts(rig, Lane(0))
    daemon = rig.start("run", "--endpoint", "Sales")
    with within(12):
        done = {"handed_over": 4, "committing": 1}
        wait_until(lambda: rig.batch_states() == done, what="all other rows", seconds=25)
    began_s = time.monotonic()
    rig.stop(daemon)
    assert time.monotonic() - began_s < 15
    account = rig.account(rows, "Def")
    assert (account.lost, account.duplicated, account.found) == ((), (), 15)
    assert adopter.has_rows() is False
