"""What an operator does with it and what restarts find, on real servers."""

from __future__ import annotations

import signal
import time
import uuid
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Final

import psutil
import pytest

from dev.rabbit import RabbitNode
from dev.servers import wait_until
from migrator.delays.routing import DelaysVersion
from migrator.errors import ExitCode
from migrator.nservicebus import headers as h
from migrator.nservicebus.wiretime import parse_wire_time
from tests.conftest import TlsMaterial
from tests.e2e.rig import Rig
from tests.e2e.rows import row

NewRig = Callable[..., Rig]


@pytest.mark.punctual
@pytest.mark.parametrize(("options", "code"), [((), 0), (("--once",), 143)])
def test_sigterm_finishes_the_batch_in_hand(rig: Rig, options: tuple[str], code: int) -> None:
    """Told to end in the middle, it leaves no batch open and takes no new one; the next goes on.

    A run that should have done all of it says by its exit code that it has not.
    """
    rig.is_fresh = not options
    rig.settings["MIGRATOR_HANDOVER__BATCH_SIZE"] = "100"
    rig.prepare()
    rows = [row() for _ in range(2000)]
    rig.insert(rows)
    process = rig.start(
        *("run", "--endpoint", "Sales", *options), MIGRATOR_HANDOVER__RATE_LIMIT="200"
    )
    wait_until(partial(rig.has_handed_over, 1), what="handing over")
    asked_s = time.monotonic()
    process.send_signal(signal.SIGTERM)
    done = rig.finish(process)
    assert done.returncode == code, done.stderr[-2000:]
    assert time.monotonic() - asked_s < 20
    assert set(rig.batch_states()) == {"handed_over"}
    assert rig.stored_ids()
    rig.migrate()
    account = rig.account(rows, "Billing")
    assert (account.found, account.lost, account.duplicated) == (2000, (), ())


@pytest.mark.punctual
def test_a_daemon_takes_up_new_rows_and_those_that_come_near(rig: Rig) -> None:
    """Rows stored later are seen, and rows beyond the horizon once they are near; all in time."""
    rig.prepare()
    process = rig.start("run", "--endpoint", "Sales", "--cutoff", "0s", "--horizon", "4s")
    wait_until(rig.has_lane, what="a lane")
    far = row(timedelta(seconds=9))  # taken five seconds from now
    later = [row(timedelta(seconds=3)) for _ in range(5)]
    rig.insert([far, *later])
    wait_until(lambda: rig.stored_ids() == {far.id}, what="new rows")
    late: dict[str, float] = {}

    def all_arrived() -> bool:
        for found in rig.drain("Billing"):
            due = parse_wire_time(found.properties.headers[h.DELIVER_AT])
            late[found.timeout_id] = (datetime.now(UTC) - due).total_seconds()
        return len(late) == 6

    wait_until(all_arrived, what="arriving")
    assert set(late) == {far.id, *(each.id for each in later)}
    assert min(late.values()) >= 0
    assert max(late.values()) < 5
    rig.stop(process)


@pytest.mark.slow
def test_tls_with_a_client_certificate(
    database: str, rabbit_tls_node: RabbitNode, tls_material: TlsMaterial, new_rig: NewRig
) -> None:
    """The transport's form of an address works over TLS, with the certificate it demands."""
    name = f"tls-{uuid.uuid4().hex[:8]}"
    rabbit_tls_node.create_vhost(name)
    rig = new_rig(database_url=database, broker_url=rabbit_tls_node.amqp_url(name))
    port = rabbit_tls_node.amqps_port
    rig.settings = {
        "MIGRATOR_BROKER__URL": f"host=localhost;port={port};username=guest;password=guest;"
        f"virtualHost={name};useTls=true",
        "MIGRATOR_BROKER__TLS__CA_FILE": str(tls_material.ca),
    }
    certificate = {
        "MIGRATOR_BROKER__TLS__CERT_FILE": str(tls_material.client_cert),
        "MIGRATOR_BROKER__TLS__KEY_FILE": str(tls_material.client_key),
    }
    rig.prepare()
    rows = [row() for _ in range(50)]
    rig.insert(rows)
    without = rig.run("run", "--endpoint", "Sales", "--once")
    assert (without.returncode, "Traceback" in without.stderr) == (4, False)
    rig.migrate(**certificate)
    account = rig.account(rows, "Billing")
    assert (account.found, account.lost, account.duplicated) == (50, (), ())


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["staged", "direct"])
def test_large_bodies_do_not_need_large_memory(rig: Rig, mode: str) -> None:
    """Three hundred bodies of 1 MB each: the process stays below 220 MiB."""
    rig.prepare()
    rows = [row(body=b"x" * 2**20) for _ in range(300)]
    rig.insert(rows)
    process = rig.start("run", "--endpoint", "Sales", "--once", "--mode", mode)
    seen, peak = psutil.Process(process.pid), 0
    while process.poll() is None:
        try:
            peak = max(peak, seen.memory_info().rss)
        except psutil.NoSuchProcess:
            break
        time.sleep(0.02)
    assert rig.finish(process).returncode == 0
    print(f"1 MB bodies, {mode}: peak RSS {peak / 2**20:.0f} MiB")
    assert peak <= 220 * 2**20
    assert rig.stored_ids() == set()
    account = rig.account(rows, "Billing")
    assert (account.found, account.lost, account.duplicated) == (300, (), ())


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


@pytest.mark.slow
def test_a_commit_into_other_delays_is_left_to_a_run_into_these(rig: Rig) -> None:
    """Killed while committing to v2, then started with v1: that says so, and does the rest."""
    rig.prepare()
    rows = [row() for _ in range(20)]
    rig.insert(rows)
    assert rig.run("run", "--endpoint", "Sales", fault="staged.committing").returncode == KILLED
    rig.delays = DelaysVersion.V1
    rig.create_levels()
    rig.insert([row()])
    done = rig.run("run", "--endpoint", "Sales", "--once")
    assert done.returncode == ExitCode.UNREACHABLE, done.stderr
    assert "waits for a daemon on virtual host" in done.stderr
    assert rig.batch_states() == {"committing": 1, "handed_over": 1}
    assert len(rig.drain_levels()) == 1
    rig.delays = DelaysVersion.V2
    rig.migrate()
    account = rig.account(rows, "Billing")
    assert (account.found, account.lost, account.duplicated) == (20, (), ())


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
        MIGRATOR_HANDOVER__MAX_QUARANTINED="0",
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
    peer = rig.start("run", "--endpoint", "Sales", fault="staged.confirmed:1")
    assert rig.finish(peer).returncode == KILLED
    killed_s = time.monotonic()
    wait_until(lambda: rig.batch_states()["handed_over"] == 1, what="the batch it left")
    assert time.monotonic() - killed_s < LIMIT_S
    account = rig.account(rows, "Billing")
    assert (account.lost, account.duplicated, account.found) == ((), (), 20)
