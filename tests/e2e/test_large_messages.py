"""Messages of 128 MiB where migrator reads: time in proportion to them, memory within bounds."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import subprocess
import threading
import time
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

import pika
import pytest
from psycopg import sql

from dev.processes import wait_until
from migrator.delays.routing import address
from migrator.nservicebus.timeouts import QueueName
from migrator.nservicebus.wiretime import build_wire_time
from tests.e2e.dispatching import prepare_dispatcher, start_dispatcher, waiting
from tests.e2e.old_endpoint import OldEndpoint
from tests.e2e.rig import Rig
from tests.e2e.rows import row

MIB: Final = 2**20
LARGE: Final = 128 * MIB
AT_REST: Final = 90 * MIB
"""What the program takes without any message."""
COPIES: Final = 6
"""How often a body may be in memory, with the buffers of the drivers; three times where nothing has
to be done again, four where one was stored as well."""
DAY_S: Final = 24 * 3600


@dataclass
class Usage:
    """What a process used, read from the kernel until it ends."""

    process: subprocess.Popen[str]
    peak_bytes: int = 0
    cpu_s: float = 0.0
    _thread: threading.Thread = field(init=False)

    def __post_init__(self) -> None:
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()

    def _watch(self) -> None:
        folder = Path(f"/proc/{self.process.pid}")
        while self.process.poll() is None:
            try:
                self.read(folder)
            except (OSError, ValueError):
                return
            time.sleep(0.01)

    def read(self, folder: Path) -> None:
        """Read the peak of its memory, and its processor time."""
        lines = (folder / "status").read_text().splitlines()
        peaks = [int(line.split()[1]) for line in lines if line.startswith("VmHWM")]
        fields = (folder / "stat").read_text().rpartition(")")[2].split()
        self.peak_bytes = max([self.peak_bytes, *(1024 * each for each in peaks)])
        self.cpu_s = (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def measured(rig: Rig, *args: str, codes: tuple[int, ...] = (0,)) -> tuple[str, Usage]:
    """Run the program in an interpreter of its own; return what it wrote, and what it used."""
    rig.is_fresh = True
    usage = Usage(rig.start(*args))
    done = rig.finish(usage.process)
    assert done.returncode in codes, done.stderr[-4000:]
    print(f"{args[0]}: {usage.cpu_s:.1f} s of CPU, {usage.peak_bytes / MIB:.0f} MiB")
    return done.stdout, usage


def put_into_level(rig: Rig, body: bytes, *, app_id: str | None = None) -> None:
    """Put a message of somebody else into a delay level, and wait until it is there."""
    where = address(rig.delays, DAY_S, QueueName("Other"))
    with rig.amqp() as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        properties = pika.BasicProperties(delivery_mode=2, app_id=app_id)
        channel.basic_publish(where.exchange, where.routing_key, body, properties)


@pytest.mark.slow
def test_a_foreign_body_in_a_level_costs_neither_memory_nor_time(rig: Rig) -> None:
    """`verify --deep` and `rollback` end well; nothing of the body is kept."""
    rig.prepare()
    rig.insert([row() for _ in range(20)])
    rig.migrate()
    _, without = measured(rig, "verify", "--deep", "--json")
    put_into_level(rig, os.urandom(LARGE))
    told, verified = measured(rig, "verify", "--deep", "--json")
    assert json.loads(told)["verdict"] == "balanced"
    told, rolled_back = measured(rig, "rollback", "--yes", "--json")
    assert json.loads(told)["handed_over"]["found"]["restored"] == 20
    for usage in (verified, rolled_back):
        assert usage.peak_bytes < without.peak_bytes + LARGE // 4
        assert usage.cpu_s < without.cpu_s + 5


@pytest.mark.slow
def test_the_intake_of_a_dispatcher_is_bounded_in_bytes(rig: Rig, tmp_path: Path) -> None:
    """Twenty messages of 24 MiB are stored one after another; memory is that of a few of them."""
    prepare_dispatcher(rig, tmp_path, broker={"prefetch_bytes": "16MiB"})
    rig.create_receivers("Billing", "error", "Sales.Timeouts", direct=True)
    due_at = datetime.now(UTC) + timedelta(days=1)
    with rig.amqp() as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        for number in range(20):
            headers = {
                "NServiceBus.MessageId": f"m-{number}",
                "NServiceBus.Timeout.Expire": build_wire_time(due_at),
                "NServiceBus.Timeout.RouteExpiredTimeoutTo": "Billing",
            }
            properties = pika.BasicProperties(headers=headers, message_id=f"m-{number}")
            channel.basic_publish("", "Sales.Timeouts", bytes(24 * MIB), properties)
    rig.is_fresh = True
    usage = Usage(start_dispatcher(rig))
    count = sql.SQL("SELECT count(*) FROM {}").format(rig.table)
    wait_until(lambda: rig.query(count) == [(20,)], seconds=120, what="the rows")
    print(f"dispatcher: {usage.cpu_s:.1f} s of CPU, {usage.peak_bytes / MIB:.0f} MiB")
    rig.stop(usage.process)
    assert waiting(rig, "Sales.Timeouts") == 0
    assert usage.peak_bytes < AT_REST + (16 + 8 * 24) * MIB


def way_of_a_body(rig: Rig, folder: Path, body: bytes) -> dict[str, Usage]:
    """Take a body through every verb that has it in memory; return what each used."""
    found: dict[str, Usage] = {}

    def do(name: str, *args: str, codes: tuple[int, ...] = (0,)) -> str:
        told, found[name] = measured(rig, *args, codes=codes)
        return told

    rig.insert([row(body=body)])
    do("run", "run", "--endpoint", "Sales", "--once")
    do("verify", "verify", "--deep")
    do("rollback", "rollback", "--yes")
    stored = sql.SQL('SELECT sha256("State") FROM {}').format(rig.table)
    assert rig.query(stored) == [(hashlib.sha256(body).digest(),)]
    do("direct", "run", "--endpoint", "Sales", "--once", "--mode", "direct")
    rig.must("rollback", "--yes")
    with rig.sql() as connection:
        headers = json.dumps({"NServiceBus.MessageId": "m" * 256, "City": "Zürich"})
        connection.execute(sql.SQL('UPDATE {} SET "Headers" = %s').format(rig.table), [headers])
    do("to quarantine", "run", "--endpoint", "Sales", "--once", codes=(5,))
    output = folder / "quarantine.jsonl"
    do("export", "quarantine", "export", "--output", str(output))
    _, line = output.read_text().splitlines()
    assert base64.b64decode(json.loads(line)["body_base64"]) == body
    output.unlink()
    (timeout_id,) = rig.quarantined()
    do("show", "quarantine", "show", timeout_id)
    do("from quarantine", "rollback", "--yes")
    assert rig.query(stored) == [(hashlib.sha256(body).digest(),)]
    with rig.sql() as connection:
        connection.execute(sql.SQL("DELETE FROM {}").format(rig.table))
    return found


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_body_is_in_memory_a_few_times(rig: Rig, tmp_path: Path) -> None:
    """In store, level, quarantine, and back: four times as large, about four times as long."""
    rig.prepare()
    small, large = (way_of_a_body(rig, tmp_path, os.urandom(n)) for n in (LARGE // 4, LARGE))
    for verb, usage in large.items():
        assert usage.peak_bytes < AT_REST + COPIES * LARGE, verb
        assert usage.cpu_s < 5 * small[verb].cpu_s + 1, verb


@pytest.mark.slow
def test_a_dispatcher_has_a_body_in_memory_a_few_times(rig: Rig, tmp_path: Path) -> None:
    """It stores one, and sends another that is due."""
    prepare_dispatcher(rig, tmp_path)
    endpoint = OldEndpoint(rig)
    endpoint.declare("Billing")
    body = os.urandom(LARGE)
    endpoint.send(endpoint.deferred(3600, to="Billing", body=body))
    rig.is_fresh = True
    usage = Usage(start_dispatcher(rig))
    wait_until(rig.has_rows, seconds=60, what="the row")
    print(f"stored: {usage.cpu_s:.1f} s of CPU, {usage.peak_bytes / MIB:.0f} MiB")
    rig.insert([row(timedelta(0), body=body)])
    wait_until(lambda: waiting(rig, "Billing") == 1, seconds=60, what="the message")
    print(f"sent: {usage.cpu_s:.1f} s of CPU, {usage.peak_bytes / MIB:.0f} MiB")
    rig.stop(usage.process)
    (found,) = rig.drain("Billing")
    assert found.body == body
    assert usage.peak_bytes < AT_REST + COPIES * LARGE
