"""What a restart finds, and what a running daemon goes on with by itself."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from typing import Final

import pytest

from dev.rabbit import RabbitNode
from dev.servers import wait_until
from migrator.delays.routing import DelaysVersion
from migrator.errors import ExitCode
from tests.e2e.rig import Rig
from tests.e2e.rows import row

KILLED: Final = -9
SMALL: Final = "frame_max = 65536\nmax_message_size = 100000\n"


@pytest.mark.slow
def test_limits_of_the_broker_put_rows_into_quarantine(
    database: str, new_rig: Callable[..., Rig]
) -> None:
    """Frames are as negotiated; a body the broker refuses is learnt; neither stops the rest."""
    with RabbitNode(extra_config=SMALL) as node:
        rig = new_rig(database_url=database, broker_url=node.amqp_url())
        rig.prepare()
        good = [row() for _ in range(40)]
        wide = row(headers={"Custom.Wide": "v" * 60_000})
        fat = row(body=b"x" * 150_000)
        rig.insert([*good, wide, fat])
        rig.must("run", "--endpoint", "Sales", "--once", codes=(5,))
        assert rig.quarantined() == {wide.id: "headers-too-large", fat.id: "body-too-large"}
        account = rig.account([*good, wide, fat], "Billing")
        assert (account.lost, account.found) == ((), 40)


def test_a_commit_into_other_delays_is_settled_by_these_first(rig: Rig) -> None:
    """Killed while committing to v2, then started with v1: refused at once, and v2 goes on."""
    rig.prepare()
    rows = [row() for _ in range(20)]
    rig.insert(rows)
    assert rig.run("run", "--endpoint", "Sales", fault="staged.committing").returncode == KILLED
    rig.delays = DelaysVersion.V1
    rig.create_levels()
    refused = rig.run("run", "--endpoint", "Sales", "--once")
    assert refused.returncode == ExitCode.PREFLIGHT_REFUSED, refused.stderr
    assert "migrator run --delays v2 --once" in refused.stderr
    assert rig.batch_states() == {"committing": 1}
    rig.delays = DelaysVersion.V2
    rig.migrate()
    account = rig.account(rows, "Billing")
    assert (account.found, account.lost, account.duplicated) == (20, (), ())
    rig.delays = DelaysVersion.V1
    rig.insert([row()])
    rig.migrate()
    assert rig.batch_states() == {"handed_over": 2}


LIMIT_S: Final = 5.0
"""So soon after it is possible, the daemon has handed over what it finds."""


def resting(rig: Rig) -> None:
    """Start a daemon and wait until it rests: a lane of its own, and nothing in the store."""
    rig.start("run", "--endpoint", rig.endpoint)
    idle = "SELECT 1 FROM migrator.lease WHERE owner IS NOT NULL AND doing = 'idle'"
    wait_until(lambda: bool(rig.query(idle)), what="a daemon that rests")


@pytest.mark.punctual
def test_a_running_daemon_hands_over_what_is_retried(rig: Rig) -> None:
    """Rows of `quarantine retry` go on within seconds, however many to a batch it claims."""
    rig.settings["MIGRATOR_HANDOVER__BATCH_SIZE"] = "40"
    rig.prepare()
    rows = [row(body=b"x" * 2000) for _ in range(150)]
    rig.insert(rows)
    rig.must(
        *("run", "--endpoint", "Sales", "--once"),
        codes=(5,),
        MIGRATOR_BROKER__MAX_MESSAGE_BYTES="1000",
    )
    assert len(rig.quarantined()) == 150
    resting(rig)
    rig.must("quarantine", "retry", "--endpoint", "Sales")
    wait_until(lambda: rig.batch_states()["handed_over"] == 5, what="the batch of them")
    query = "SELECT size, handed_over_at - claimed_at FROM migrator.batch ORDER BY id DESC"
    size, took = rig.query(query)[0]
    assert size == 150
    assert took.total_seconds() < LIMIT_S
    account = rig.account(rows, "Billing")
    assert (account.lost, account.duplicated, account.found) == ((), (), 150)


@pytest.mark.punctual
def test_a_running_daemon_finishes_what_a_killed_one_left(rig: Rig) -> None:
    """Its lane is adopted within seconds, whatever endpoint it worked for."""
    rig.prepare()
    other = replace(rig, endpoint="Other")
    other.create_store()
    resting(other)
    rows = [row() for _ in range(20)]
    rig.insert(rows)
    peer = rig.start("run", "--endpoint", "Sales", fault="staged.staged:1")
    assert rig.finish(peer).returncode == KILLED
    killed_s = time.monotonic()
    wait_until(lambda: rig.batch_states()["handed_over"] == 1, what="the batch it left")
    assert time.monotonic() - killed_s < LIMIT_S
    account = rig.account(rows, "Billing")
    assert (account.lost, account.duplicated, account.found) == ((), (), 20)
