"""A database whose clock jumps while the program runs: nothing is early, and it says why."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Final

import pytest

from dev.postgres import PostgresServer
from dev.servers import wait_until
from tests.conftest import Vhost
from tests.e2e.arrivals import Receiver
from tests.e2e.daemon import listen, listens, signals, status, told
from tests.e2e.rig import Rig
from tests.e2e.rows import Row, row

JUMP_S: Final = 300.0
SOON: Final = timedelta(seconds=10)
NewRig = Callable[..., Rig]


@pytest.fixture
def server() -> Iterator[PostgresServer]:
    """A PostgreSQL server with a clock of its own."""
    if shutil.which("cc") is None:
        pytest.skip("no C compiler (cc), which makes the clock of a private PostgreSQL")
    with PostgresServer(has_own_clock=True) as server:
        yield server


@pytest.fixture
def rig(server: PostgresServer, vhost: Vhost, new_rig: NewRig, tmp_path: Path) -> Rig:
    """A store in that server; the daemon is asked by its socket."""
    made = new_rig(vhost=vhost, database_url=server.url(server.create_database()))
    listen(made, tmp_path)
    made.settings["MIGRATOR_HANDOVER__CUTOFF"] = "0s"
    return made


def held(rig: Rig) -> bool:
    """Return whether the clock is what the daemon waits for."""
    return signals(rig) == ["database_clock"]


def comes_in_time(rig: Rig, receiver: Receiver) -> bool:
    """Store one more row that is due in a moment; return whether any has come."""
    rig.insert([row(timedelta(seconds=1))])
    return bool(receiver.arrivals)


def never_early(receiver: Receiver, rows: list[Row]) -> None:
    """Wait for *rows*, and demand that none came before its time."""
    receiver.wait(lambda: len(receiver.arrivals) >= len(rows))
    due = {each.id: each.due_at for each in rows}
    early = [
        (due[each.headers["NServiceBus.RelatedToTimeoutId"]] - each.at).total_seconds()
        for each in receiver.arrivals
    ]
    print(f"{len(early)} arrived; the earliest {-max(early):.1f} s after its time")
    assert max(early) <= 0


@pytest.mark.punctual
def test_a_clock_that_jumps_holds_hand_over_until_somebody_agrees(
    rig: Rig, server: PostgresServer
) -> None:
    """Until it is back, or an operator says that it is right, or this machine's clock agrees."""
    rig.prepare()
    process = rig.start("run", "--endpoint", "Sales")
    wait_until(lambda: listens(rig), what="a daemon that listens")
    assert signals(rig) == []

    server.set_clock(JUMP_S)
    wait_until(lambda: held(rig), what="a hold")
    (hold,) = status(rig)["holds"]
    assert "the database's clock jumped: it is 300.0 s ahead of where it was" in hold["text"]
    rows = [row(SOON + timedelta(seconds=index / 10)) for index in range(20)]
    with Receiver(rig.broker_url, "Billing") as receiver:
        rig.insert(rows)
        wait_until(lambda: held(rig) and len(rig.stored_ids()) == 20, what="rows that wait")
        server.set_clock(0)
        wait_until(lambda: not signals(rig), what="going on by itself")
        never_early(receiver, rows)

    server.set_clock(-JUMP_S)
    wait_until(lambda: held(rig), what="a hold")
    answer = told(rig, command="resume")
    assert "is trusted from now on" in answer["text"]
    wait_until(lambda: not signals(rig), what="going on because a person said so")
    server.set_clock(0)
    with Receiver(rig.broker_url, "Billing") as receiver:
        # by the time from before they would come five minutes late
        wait_until(lambda: comes_in_time(rig, receiver), what="this machine's time being believed")
    said = rig.stop(process)
    assert '"witness": "an operator"' in said
    assert '"witness": "this machine"' in said


@pytest.mark.punctual
def test_a_start_beside_a_clock_that_is_ahead_hands_nothing_over_early(
    rig: Rig, server: PostgresServer
) -> None:
    """This machine and the broker are against it; once it is right, hand-over begins by itself."""
    rig.prepare()
    rows = [row(SOON + timedelta(seconds=index / 10)) for index in range(30)]
    rig.insert(rows)
    server.set_clock(45)
    with Receiver(rig.broker_url, "Billing") as receiver:
        process = rig.start("run", "--endpoint", "Sales")
        wait_until(lambda: listens(rig) and held(rig), what="a hold")
        (hold,) = status(rig)["holds"]
        assert "is 45.0 s ahead of this machine's, and the broker's has not" in hold["text"]
        time.sleep(4)  # the clock is looked at every two seconds
        assert (held(rig), len(rig.stored_ids()), receiver.arrivals) == (True, 30, [])
        server.set_clock(0)
        wait_until(lambda: not signals(rig), what="going on by itself")
        never_early(receiver, rows)
    rig.stop(process)

    server.set_clock(-45)
    process = rig.start("run", "--endpoint", "Sales")
    wait_until(lambda: listens(rig) and held(rig), what="a hold")
    assert "is trusted from now on" in told(rig, command="resume")["text"]
    wait_until(lambda: not signals(rig), what="going on because a person said so")
    rig.kill(process)  # it may not have begun to obey signals
