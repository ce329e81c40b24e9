"""What an operator does with it, day by day, on real servers."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Final

import psutil
import pytest

from dev.rabbit import RabbitNode
from dev.servers import wait_until
from migrator.nservicebus import headers as h
from migrator.nservicebus.wiretime import parse_wire_time
from tests.conftest import TlsMaterial
from tests.e2e.rig import Rig
from tests.e2e.rows import row

SMALL_BATCHES: Final = {"MIGRATOR_HANDOVER__BATCH_SIZE": "100"}
NewRig = Callable[..., Rig]


# ── a running daemon ────────────────────────────────────────────────────────────────────────


@pytest.mark.punctual
def test_sigterm_finishes_the_batch_in_hand(rig: Rig) -> None:
    """Told to end in the middle, it leaves no batch open and takes no new one."""
    rig.is_fresh = True
    rig.settings = {**SMALL_BATCHES, "MIGRATOR_HANDOVER__RATE_LIMIT": "200"}
    rig.prepare()
    rows = [row() for _ in range(3000)]
    rig.insert(rows)
    process = rig.start("run", "--endpoint", "Sales")
    wait_until(lambda: rig.batch_states()["handed_over"] >= 3, what="handing over")
    rig.stop(process)
    assert set(rig.batch_states()) == {"handed_over"}
    assert rig.stored_ids()
    account = rig.account(rows, "Billing")
    assert account.found == 3000 - len(rig.stored_ids())
    assert (account.lost, account.duplicated) == ((), ())


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


# ── places ──────────────────────────────────────────────────────────────────────────────────


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


# ── size ────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["staged", "direct"])
def test_large_bodies_do_not_need_large_memory(rig: Rig, mode: str) -> None:
    """Three hundred bodies of 1 MB each: the process stays below 200 MB."""
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
    assert peak <= 200 * 10**6
    assert rig.stored_ids() == set()
    account = rig.account(rows, "Billing")
    assert (account.found, account.lost, account.duplicated) == (300, (), ())
