"""What a running daemon goes on with by itself: what operators put back, and dead peers' lanes."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime

import pytest

from dev.servers import wait_until
from tests.e2e.rig import Rig
from tests.e2e.rows import row

KILLED = -9
LIMIT_S = 5.0
"""So soon after it is possible, the daemon has handed over what it finds."""


def start_daemon(rig: Rig) -> None:
    """Start one and wait until it rests: a lane of its own, and nothing in the store."""
    rig.start("run", "--endpoint", rig.endpoint)

    def rests() -> bool:
        with rig.sql() as connection:
            query = "SELECT 1 FROM migrator.lease WHERE owner IS NOT NULL AND doing = 'idle'"
            return connection.execute(query).fetchone() is not None

    wait_until(rests, what="a daemon that rests")


def handed_over_at(rig: Rig, batches: int) -> tuple[datetime, datetime]:
    """Wait until all *batches* are handed over; return when the last was claimed, and done."""
    wait_until(lambda: rig.batch_states()["handed_over"] == batches, what="all handed over")
    with rig.sql() as connection:
        query = "SELECT max(claimed_at), max(handed_over_at) FROM migrator.batch"
        ((claimed, done),) = connection.execute(query).fetchall()
    return claimed, done


@pytest.mark.punctual
def test_a_running_daemon_hands_over_what_is_retried(rig: Rig) -> None:
    """Rows of `quarantine retry` go on within seconds, without a restart."""
    rig.prepare()
    rows = [row(body=b"x" * 2000) for _ in range(20)]
    rig.insert(rows)
    rig.must(
        "run",
        *("--endpoint", rig.endpoint, "--once"),
        codes=(5,),
        MIGRATOR_BROKER__MAX_MESSAGE_BYTES="1000",
    )
    assert len(rig.quarantined()) == 20
    start_daemon(rig)
    rig.must("quarantine", "retry", "--endpoint", rig.endpoint)
    put_back, done = handed_over_at(rig, 2)
    assert (done - put_back).total_seconds() < LIMIT_S
    account = rig.account(rows, "Billing")
    assert (account.lost, account.duplicated, account.found) == ((), (), 20)


@pytest.mark.punctual
def test_a_running_daemon_hands_over_what_is_resolved_as_claimed(rig: Rig) -> None:
    """A doubtful batch of which an operator found out that it never left goes on, too."""
    rig.prepare()
    rows = [row() for _ in range(20)]
    rig.insert(rows)
    once = ("run", "--endpoint", rig.endpoint, "--once")
    assert rig.run(*once, fault="claim.done:1").returncode == KILLED
    with rig.sql() as connection:
        doubt = "UPDATE migrator.batch SET state = 'doubtful' RETURNING id"
        ((batch,),) = connection.execute(doubt).fetchall()
    start_daemon(rig)
    rig.must("batch", "resolve", str(batch), "--as", "claimed", "--yes")
    put_back, done = handed_over_at(rig, 1)
    assert (done - put_back).total_seconds() < LIMIT_S
    account = rig.account(rows, "Billing")
    assert (account.lost, account.duplicated, account.found) == ((), (), 20)


@pytest.mark.punctual
def test_a_running_daemon_finishes_what_a_killed_one_left(rig: Rig) -> None:
    """Its lane is adopted within seconds, whatever endpoint it worked for."""
    rig.prepare()
    other = replace(rig, endpoint="Other")
    other.create_store()
    start_daemon(other)
    rows = [row() for _ in range(20)]
    rig.insert(rows)
    peer = rig.start("run", "--endpoint", rig.endpoint, fault="staged.staged:1")
    assert rig.finish(peer).returncode == KILLED
    with rig.sql() as connection:
        ((killed,),) = connection.execute("SELECT clock_timestamp()").fetchall()
    _, done = handed_over_at(rig, 1)
    assert (done - killed).total_seconds() < LIMIT_S
    account = rig.account(rows, "Billing")
    assert (account.lost, account.duplicated, account.found) == ((), (), 20)
