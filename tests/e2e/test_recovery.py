"""What a restart finds: owners that may be dead, larger batches, small limits, stray messages."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable
from typing import Final

import pika
import pytest

from dev.rabbit import RabbitNode
from dev.servers import wait_until
from migrator.delays.routing import DelaysVersion
from migrator.errors import ExitCode
from migrator.nservicebus.timeouts import Lane
from migrator.rabbitmq.names import staging_name
from tests.e2e.rig import Rig
from tests.e2e.rows import nameless, row

KILLED: Final = -9
SMALL: Final = "frame_max = 65536\nmax_message_size = 100000\n"


@pytest.mark.slow
@pytest.mark.punctual
def test_once_is_not_done_while_another_owner_may_be_dead(rig: Rig) -> None:
    """Batches of an owner elsewhere are waited for, adopted when its lease ends, and finished."""
    rig.prepare()
    rows = [row() for _ in range(300)]
    rig.insert(rows)
    killed = rig.run("run", "--endpoint", "Sales", "--once", fault="staged.staged:1")
    assert killed.returncode == KILLED
    with rig.sql() as connection:
        connection.execute(
            "UPDATE migrator.lease SET owner = 'elsewhere-1/1/1/1/x',"
            " until = now() + interval '6 seconds'"
        )
    rig.migrate()
    assert set(rig.batch_states()) == {"handed_over"}
    account = rig.account(rows, "Billing")
    assert (account.lost, account.duplicated) == ((), ())


@pytest.mark.slow
def test_a_daemon_whose_ledger_was_adopted_ends_and_is_to_be_started_again(rig: Rig) -> None:
    """Paused and cut off meanwhile, it says so once, touches nothing; the next start works."""
    rig.prepare()
    daemon = rig.start("run", "--endpoint", "Sales")
    wait_until(rig.has_lane, what="a daemon that has a lane")
    daemon.send_signal(signal.SIGSTOP)
    with rig.sql() as connection:
        connection.execute(  # so that it holds no lock, whatever it was at
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
            " WHERE datname = current_database() AND pid <> pg_backend_pid()"
        )
        connection.execute("UPDATE migrator.lease SET until = now()")
    rig.must("db", "adopt", "--yes")
    rows = [row() for _ in range(3)]
    rig.insert(rows)
    daemon.send_signal(signal.SIGCONT)
    done = rig.finish(daemon)
    assert done.returncode == ExitCode.PREFLIGHT_REFUSED, done.stderr[-4000:]
    assert done.stderr.count('"ledger_adopted"') == 1
    assert "then start this process again" in done.stderr
    assert rig.stored_ids() == {each.id for each in rows}
    rig.migrate()
    account = rig.account(rows, "Billing")
    assert (account.lost, account.duplicated, account.found) == ((), (), 3)


@pytest.mark.slow
def test_a_retry_larger_than_a_batch_is_handed_over(rig: Rig) -> None:
    """Rows that come back from quarantine together fit, whatever the batch size is now."""
    rig.settings["MIGRATOR_HANDOVER__BATCH_SIZE"] = "40"
    rig.prepare()
    rows = [*(nameless("Later") for _ in range(300)), row()]
    rig.insert(rows)
    rig.must("run", "--endpoint", "Sales", "--once", codes=(5,))
    assert len(rig.quarantined()) == 300
    rig.create_receivers("Later")
    rig.must("quarantine", "retry", "--endpoint", "Sales")
    rig.migrate()
    account = rig.account(rows, "Later")
    assert (account.lost, account.duplicated, account.found) == ((), (), 301)


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


@pytest.mark.slow
def test_a_ledger_serves_both_generations(rig: Rig) -> None:
    """A lane that staged for v2 can stage for v1 afterwards."""
    rig.prepare()
    rig.insert([row() for _ in range(20)])
    rig.migrate()
    assert len(rig.drain_levels()) == 20
    rig.delays = DelaysVersion.V1
    rig.create_levels()
    rig.insert([row() for _ in range(30)])
    rig.migrate()
    assert len(rig.drain_levels()) == 30


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


@pytest.mark.punctual
def test_once_that_is_stopped_says_so_and_goes_on_later(rig: Rig) -> None:
    """SIGTERM ends it within its batch, with 143; the next run finishes."""
    rig.settings["MIGRATOR_HANDOVER__RATE_LIMIT"] = "100"
    rig.prepare()
    rows = [row() for _ in range(2000)]
    rig.insert(rows)
    process = rig.start("run", "--endpoint", "Sales", "--once")
    wait_until(lambda: rig.batch_states()["handed_over"] >= 1, what="a batch")
    asked_s = time.monotonic()
    process.send_signal(signal.SIGTERM)
    done = rig.finish(process)
    assert done.returncode == 143, done.stderr[-2000:]
    assert time.monotonic() - asked_s < 20
    assert set(rig.batch_states()) == {"handed_over"}
    del rig.settings["MIGRATOR_HANDOVER__RATE_LIMIT"]
    rig.migrate()
    account = rig.account(rows, "Billing")
    assert (account.lost, account.duplicated) == ((), ())


def test_a_stray_message_stops_its_lane_and_no_other(rig: Rig) -> None:
    """Somebody else's message in a staging queue: that lane stops with 6, the other works on."""
    rig.settings["MIGRATOR_HANDOVER__BATCH_SIZE"] = "50"
    rig.prepare()
    rig.insert([row() for _ in range(100)])
    rig.migrate()
    queue = staging_name(DelaysVersion.V2, rig.ledger_id(), Lane(0))
    with rig.amqp() as amqp:
        amqp.channel().basic_publish("", queue, b"", pika.BasicProperties(app_id="somebody"))
    rows = [row() for _ in range(2000)]
    rig.insert(rows)
    rig.must("run", "--endpoint", "Sales", "--once", "--lanes", "2", codes=(6,))
    states = rig.batch_states()
    assert states["handed_over"] > 20
    assert states.total() - states["handed_over"] <= 3
    assert rig.stored_ids() == set()
