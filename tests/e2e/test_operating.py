"""What an operator does with it, day by day, on real servers."""

from __future__ import annotations

import base64
import json
import sqlite3
import time
import uuid
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

import psutil
import pytest

from dev.rabbit import RabbitNode
from dev.servers import wait_until
from migrator.nservicebus import headers as h
from migrator.nservicebus.wiretime import parse_wire_time
from tests.conftest import TlsMaterial
from tests.e2e.rig import Rig
from tests.e2e.rows import nameless, row

KILLED: Final = -9
SMALL_BATCHES: Final = {"MIGRATOR_HANDOVER__BATCH_SIZE": "100"}
NewRig = Callable[..., Rig]


# ── a running daemon ────────────────────────────────────────────────────────────────────────


@pytest.mark.slow
def test_a_memory_alarm_throttles_until_it_is_over(
    database: str, private_node: RabbitNode, new_rig: NewRig
) -> None:
    """Status says that the lane is held back and why; afterwards it finishes by itself."""
    rig = new_rig(database_url=database, broker_url=private_node.amqp_url())
    rig.settings = {**SMALL_BATCHES, "MIGRATOR_HANDOVER__RATE_LIMIT": "400"}
    rig.prepare()
    rows = [row() for _ in range(3000)]
    rig.insert(rows)
    process = rig.start("run", "--endpoint", "Sales")
    wait_until(lambda: rig.batch_states()["handed_over"] >= 3, what="handing over")
    private_node.set_memory_limit(0)
    raised = time.monotonic()
    wait_until(lambda: "memory" in doing(rig), what="a throttled lane")
    print(f"{doing(rig)!r}, told after {time.monotonic() - raised:.1f} s")
    assert doing(rig).startswith("throttled: ")
    assert rig.stored_ids()
    time.sleep(3)
    private_node.set_memory_limit()
    wait_until(lambda: not rig.stored_ids(), what="finishing by itself")
    wait_until(lambda: "memory" not in doing(rig), what="telling that it is over")
    rig.stop(process)
    account = rig.account(rows, "Billing")
    assert (account.found, account.lost, account.duplicated) == (3000, (), ())
    assert set(rig.batch_states()) == {"handed_over"}


def doing(rig: Rig) -> str:
    """Return what `status --json` says of the only lane."""
    (lane,) = json.loads(rig.must("status", "--json"))["lanes"]
    return str(lane["doing"])


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
    process = rig.start("run", "--endpoint", "Sales", "--cutoff", "0s", "--horizon", "5s")
    wait_until(rig.has_lane, what="a lane")
    far = row(timedelta(seconds=15))  # taken ten seconds from now
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


# ── after a kill ────────────────────────────────────────────────────────────────────────────


@pytest.mark.slow
def test_rollback_puts_rows_back_byte_for_byte(rig: Rig) -> None:
    """Killed after the claim and after staging, all columns are as before; a later run works."""
    rig.settings = dict(SMALL_BATCHES)
    rig.prepare()
    rows = [row() for _ in range(250)]
    rows += [
        row(body=None),
        row(body=b""),
        row(headers={"Ключ": "z\u0001\t"}, destination="Billing"),
    ]
    rig.insert(rows)
    original = rig.stored()
    for step in ("claim.done", "staged.staged"):
        assert rig.run("run", "--endpoint", "Sales", fault=step).returncode == KILLED
        assert len(rig.stored()) < len(original)
        done = json.loads(rig.must("rollback", "--yes", "--json"))
        assert done["rows"] >= 100
        assert done["untouched"] == []
        assert rig.stored() == original
    rig.migrate()
    account = rig.account(rows, "Billing")
    assert (account.found, account.lost, account.duplicated) == (253, (), ())


@pytest.mark.slow
def test_a_plain_restart_finishes_orphaned_lanes(rig: Rig) -> None:
    """Three lanes killed in direct mode are finished by one lane; nothing is left or lost."""
    rig.settings = dict(SMALL_BATCHES)
    rig.prepare()
    rows = [row() for _ in range(3000)]
    rig.insert(rows)
    killed = rig.run(
        *("run", "--endpoint", "Sales", "--mode", "direct", "--lanes", "3"),
        fault="direct.confirmed:6",
    )
    assert killed.returncode == KILLED
    with rig.sql() as connection:
        lanes = connection.execute(
            "SELECT count(DISTINCT lane) FROM migrator.batch WHERE state <> 'handed_over'"
        ).fetchone()
    assert lanes is not None
    assert lanes[0] >= 2
    rig.migrate("--mode", "direct", "--lanes", "1")
    account = rig.account(rows, "Billing")
    print(f"three lanes killed: {account}")
    assert account.lost == ()
    assert len(account.duplicated) <= 3 * 100
    assert set(rig.batch_states()) == {"handed_over"}


# ── quarantine ──────────────────────────────────────────────────────────────────────────────


def test_quarantine_is_looked_at_put_right_and_tried_again(rig: Rig) -> None:
    """List, show and export tell all of a row; once its queue is there, retry delivers it."""
    rig.prepare()
    aside = nameless("Shipping", body=b"\x00\xffbody")
    rig.insert([row(), aside])
    rig.must("run", "--endpoint", "Sales", "--once", codes=(5,))
    started = {
        verb: rig.start("quarantine", *verb.split(), *(["--json"] if verb != "export" else []))
        for verb in ("list", f"show {aside.id}", "export")
    }
    listed, shown, exported = (rig.finish(each) for each in started.values())
    assert [each.returncode for each in (listed, shown, exported)] == [5, 0, 0]
    (line,) = json.loads(listed.stdout)["rows"]
    assert (line["id"], line["reason"]) == (aside.id, "destination-unknown")
    (full,) = json.loads(shown.stdout)["rows"]
    assert full["headers_text"] == aside.headers
    schema, only = map(json.loads, exported.stdout.splitlines())
    assert schema == {"schema": "migrator/quarantine-export/1"}
    assert only == full
    assert base64.b64decode(only["body_base64"]) == aside.body
    rig.create_receivers("Shipping")
    assert json.loads(rig.must("quarantine", "retry", "--json"))["rows"] == 1
    rig.must("run", "--endpoint", "Sales", "--once")
    assert rig.quarantined() == {}
    (found,) = (each for each in rig.drain_levels() if each.timeout_id == aside.id)
    assert found.body == aside.body
    assert found.routing_key.endswith(".Shipping")


# ── names and places ────────────────────────────────────────────────────────────────────────


@pytest.mark.slow
def test_odd_names_of_two_endpoints_in_one_run(rig: Rig, tmp_path: Path) -> None:
    """Dots, dashes, spaces, quotes, capitals, a prefix and a schema: from claim to level."""
    plain = rig
    plain.endpoint = "Sales.EU-West"
    odd = Rig(
        database_url=rig.database_url,
        broker_url=rig.broker_url,
        endpoint='My "Odd" Shop\'s.Größe',
        schema='Old "Data".X',
        table_name='dbo "x".Pre-TimeoutData',
    )
    receivers = ('Q "quoted"', "with space", "UPPER.lower-dash_under")
    plain.prepare(*receivers, "Billing")
    odd.create_store()
    rows = [row(destination=name) for name in (*receivers, "Billing") for _ in range(5)]
    rows += [row(destination="Old.Billing@MACHINE") for _ in range(5)]
    plain.insert(rows[::2])
    odd.insert(rows[1::2])
    file = tmp_path / "migrator.toml"
    file.write_text(
        f"[[endpoints]]\nname = '{plain.endpoint}'\n"
        f"[[endpoints]]\nname = '''{odd.endpoint}'''\nschema = '{odd.schema}'\n"
        "table_prefix = 'dbo \"x\".Pre-'\n"
    )
    config = ("--config", str(file))
    listed = json.loads(plain.must(*config, "endpoints", "--json"))["endpoints"]
    assert {each["endpoint"] for each in listed} == {plain.endpoint, odd.endpoint}
    plain.must(*config, "run", "--once", "--map", "Old.Billing=Billing")
    assert plain.stored_ids() | odd.stored_ids() == set()
    found = plain.drain_levels()
    assert len({each.timeout_id for each in found}) == len(found) == len(rows)
    by_id = {each.id: each for each in rows}
    for each in found:
        wanted = str(by_id[each.timeout_id].destination)
        assert each.routing_key.split(".", 28)[28] == (
            "Billing" if wanted.startswith("Old.") else wanted
        )
    status = json.loads(plain.must("status", "--json"))["endpoints"]
    assert {e["endpoint"]: e["handed_over"] for e in status} == {
        plain.endpoint: len(rows[::2]),
        odd.endpoint: len(rows[1::2]),
    }


@pytest.mark.slow
def test_a_sqlite_store_end_to_end(rig: Rig, tmp_path: Path) -> None:
    """Seeded, previewed, migrated and accounted for, in one file without a server."""
    file = tmp_path / "store.sqlite"
    rig.database_url = f"sqlite:///{file}"
    rig.must("db", "upgrade")
    rig.must("delays", "create")
    rig.create_receivers("Billing")
    rig.must(
        *("seed", "--endpoint", "Sales", "--count", "300", "--destinations", "Billing"),
        *("--due-from", "1d", "--bad", "5"),
    )
    rig.must("run", "--endpoint", "Sales", "--once", codes=(5,))
    with sqlite3.connect(file) as connection:
        stored = connection.execute('SELECT count(*) FROM "Sales_TimeoutData"').fetchone()
        kept = connection.execute(
            "SELECT count(*) FROM migrator_timeout WHERE state = 'quarantined'"
        ).fetchone()
    connection.close()
    assert (stored, kept) == ((0,), (5,))
    found = rig.drain_levels()
    assert len({each.timeout_id for each in found}) == len(found) == 295


@pytest.mark.slow
@pytest.mark.parametrize("form", ["uri", "transport"])
def test_tls_with_a_client_certificate(
    database: str,
    rabbit_tls_node: RabbitNode,
    tls_material: TlsMaterial,
    new_rig: NewRig,
    form: str,
) -> None:
    """Both forms of the address work over TLS, with the certificate the broker demands."""
    name = f"tls-{uuid.uuid4().hex[:8]}"
    rabbit_tls_node.create_vhost(name)
    rig = new_rig(database_url=database, broker_url=rabbit_tls_node.amqp_url(name))
    port = rabbit_tls_node.amqps_port
    transport = (
        f"host=localhost;port={port};username=guest;password=guest;virtualHost={name};useTls=true"
    )
    rig.settings = {
        "MIGRATOR_BROKER__URL": rabbit_tls_node.amqps_url(name) if form == "uri" else transport,
        "MIGRATOR_BROKER__TLS__CA_FILE": str(tls_material.ca),
        "MIGRATOR_BROKER__TLS__CERT_FILE": str(tls_material.client_cert),
        "MIGRATOR_BROKER__TLS__KEY_FILE": str(tls_material.client_key),
    }
    rig.prepare()
    rows = [row() for _ in range(50)]
    rig.insert(rows)
    rig.migrate()
    account = rig.account(rows, "Billing")
    assert (account.found, account.lost, account.duplicated) == (50, (), ())
    without = {key: value for key, value in rig.settings.items() if "CERT" not in key}
    rig.settings = {key: value for key, value in without.items() if "KEY" not in key}
    done = rig.run("run", "--endpoint", "Sales", "--once")
    assert done.returncode == 4
    assert "Traceback" not in done.stderr


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
