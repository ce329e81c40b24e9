"""How late are timeouts? Dispatches N of them that fall due evenly within a minute.

    .venv/bin/python -m benchmarks.dispatch --rows 20000

Starts a private PostgreSQL (with fsync) and a private RabbitMQ, stores the rows, runs the real
program as a process and prints a histogram of lateness and one table. The reference, measured in
the same run on the same broker, is a plain loop with a timer (``benchmarks/plain_timer.py``) that
publishes the same messages when they are due, with confirms, from memory: no database, no ledger.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import secrets
import subprocess
import sys
import threading
import time
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from multiprocessing.connection import Connection
from pathlib import Path
from tempfile import TemporaryDirectory

import pika
from rich.console import Console
from rich.table import Table

from benchmarks.handover import watch
from dev.postgres import PostgresServer
from dev.rabbit import RabbitNode
from tests.e2e.rig import Rig
from tests.e2e.rows import row

RECEIVER = "Billing"
LEAD_S = 15.0
"""Time to store the rows and to start the program before the first one is due."""
EDGES_MS = (0, 1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 60_000)


@dataclass(frozen=True, kw_only=True)
class Measured:
    """One way of sending the same messages."""

    name: str
    late_ms: list[float]
    """Sorted."""
    missing: int
    repeated: int
    cpu_s: float
    peak_rss_mib: float

    @property
    def early(self) -> int:
        """How many came before they were due."""
        return sum(each < 0 for each in self.late_ms)

    def quantile(self, share: float) -> float:
        """Return the lateness in ms that *share* of all messages do not exceed."""
        return self.late_ms[min(int(len(self.late_ms) * share), len(self.late_ms) - 1)]


def receive(url: str, count: int, patience_s: float, result: Connection) -> None:
    """Run as a process of its own: write down when which message arrived, and tell at the end."""
    arrived: list[tuple[str, float]] = []
    with pika.BlockingConnection(pika.URLParameters(url)) as connection:
        channel = connection.channel()
        channel.basic_qos(prefetch_count=2000)
        result.send("ready")
        for method, properties, _ in channel.consume(RECEIVER, inactivity_timeout=patience_s):
            if method is None:
                break
            arrived.append((str(properties.message_id), time.time()))
            if len(arrived) % 50 == 0 or len(arrived) >= count:
                channel.basic_ack(method.delivery_tag, multiple=True)
            if len(arrived) >= count:
                break
        channel.cancel()
    result.send(arrived)


class Arrivals:
    """What a receiver in another process writes down."""

    def __init__(self, url: str, count: int) -> None:
        """Begin to receive."""
        self._here, there = multiprocessing.get_context("spawn").Pipe()
        self._process = multiprocessing.get_context("spawn").Process(
            target=receive, args=(url, count, LEAD_S + 30, there), daemon=True
        )
        self._process.start()
        self._here.recv()

    def result(self) -> list[tuple[str, float]]:
        """Return message id and Unix time of each arrival, once all are there or none comes."""
        found: list[tuple[str, float]] = self._here.recv()
        self._process.join()
        return found


def measured(
    name: str,
    due: dict[str, float],
    arrived: list[tuple[str, float]],
    used: tuple[float, float],
) -> Measured:
    """Return what became of *arrived*, by message id and Unix time of *due*."""
    first: dict[str, float] = {}
    for message_id, at in arrived:
        first.setdefault(message_id, at)
    late = sorted((at - due[each]) * 1000 for each, at in first.items())
    if not late:
        raise SystemExit(f"{name}: nothing arrived")
    return Measured(
        name=name,
        late_ms=late,
        missing=len(due) - len(first),
        repeated=len(arrived) - len(first),
        cpu_s=used[0],
        peak_rss_mib=used[1],
    )


def dispatch(rig: Rig, *, rows: int, span_s: float, body: bytes) -> Measured:
    """Let the real program send the rows."""
    store_s = rows / 4000  # measured: time to make and copy them
    first_in = timedelta(seconds=LEAD_S + store_s)
    step = timedelta(seconds=span_s) / rows
    stored = [row(first_in + n * step, destination=RECEIVER, body=body) for n in range(rows)]
    rig.insert(stored)
    with rig.sql() as connection:
        connection.execute("ANALYZE")
    due = {json.loads(each.headers or "")["NServiceBus.MessageId"]: each for each in stored}
    arrivals = Arrivals(rig.broker_url, rows)
    process = rig.start("run", "--endpoint", "Sales", MIGRATOR_LOG__LEVEL="warning")
    said: list[str] = []
    threading.Thread(target=lambda: said.extend(process.stderr or ()), daemon=True).start()
    used: list[tuple[float, float]] = []
    watching = threading.Thread(target=lambda: used.append(watch(process)))
    watching.start()
    began_in = (stored[0].due_at - datetime.now(UTC)).total_seconds()
    if began_in < LEAD_S / 3:
        raise SystemExit(f"storing took too long: the first row is due in {began_in:.1f} s")
    arrived = arrivals.result()
    process.terminate()
    watching.join()
    if process.returncode:
        raise SystemExit("".join(said)[-3000:])
    at = {key: each.due_at.timestamp() for key, each in due.items()}
    return measured("migrator, mode dispatch", at, arrived, used[0])


def reference(url: str, *, rows: int, span_s: float, body_bytes: int) -> Measured:
    """Let a plain loop with a timer send as many messages of the same shape."""
    arrivals = Arrivals(url, rows)
    first_at = time.time() + LEAD_S
    process = subprocess.Popen(
        [
            *(sys.executable, "-m", "benchmarks.plain_timer", url, RECEIVER),
            *("--count", str(rows), "--first-at", str(first_at)),
            *("--span-s", str(span_s), "--body-bytes", str(body_bytes)),
        ],
        stdout=subprocess.PIPE,
        text=True,
    )
    out: list[str] = []
    reading = threading.Thread(target=lambda: out.append((process.stdout or sys.stdin).read()))
    reading.start()
    used = watch(process)
    reading.join()
    due: dict[str, float] = json.loads(out[0])
    return measured("plain timer, no database", due, arrivals.result(), used)


def prepared(postgres: PostgresServer, node: RabbitNode, folder: Path) -> Rig:
    """Return a fresh store, and a fresh virtual host with an old endpoint's queues."""
    vhost = f"bench-{secrets.token_hex(4)}"
    node.create_vhost(vhost)
    rig = Rig(
        database_url=postgres.url(postgres.create_database()),
        broker_url=node.amqp_url(vhost),
        management_url=node.management_url,
    )
    rig.config = folder / "migrator.toml"
    rig.config.write_text('[[endpoints]]\nname = "Sales"\nmode = "dispatch"\n')
    rig.create_store()
    rig.must("db", "upgrade")
    rig.create_receivers("Sales", "Sales.Timeouts", "Sales.TimeoutsDispatcher", "error", RECEIVER)
    return rig


def histogram(found: list[Measured]) -> Table:
    """Return how many messages were how late."""
    shown = Table(title="lateness")
    shown.add_column("ms", justify="right")
    for each in found:
        shown.add_column(each.name, justify="right")
    shown.add_row("early", *(f"{each.early}" for each in found))
    for low, high in pairwise(EDGES_MS):
        counts = [sum(low <= late < high for late in each.late_ms) for each in found]
        if any(counts):
            shown.add_row(f"{low} - {high}", *(f"{count:,}" for count in counts))
    return shown


def table(found: list[Measured], rows: int, span_s: float) -> Table:
    """Return the quantiles, and what they cost; the last line is the reference."""
    shown = Table(title=f"{rows} timeouts due within {span_s:g} s; one machine runs everything")
    plain = found[-1]
    for column in ("", "p50 ms", "x", "p99 ms", "x", "max ms", "early", "missing", "twice",
                   "cpu s", "peak RSS MiB"):  # fmt: skip
        shown.add_column(column, justify="left" if not column else "right")
    for each in found:
        cells: list[str] = []
        for share in (0.5, 0.99):
            cells.append(f"{each.quantile(share):.1f}")
            cells.append(f"{each.quantile(share) / plain.quantile(share):.2f}")
        shown.add_row(
            each.name,
            *cells,
            f"{each.late_ms[-1]:.1f}",
            *(f"{each.early}", f"{each.missing}", f"{each.repeated}"),
            *(f"{each.cpu_s:.1f}", f"{each.peak_rss_mib:.0f}"),
        )
    return shown


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rows", type=int, default=20_000)
    parser.add_argument("--span-s", type=float, default=60.0)
    parser.add_argument("--body-bytes", type=int, default=500)
    given = parser.parse_args()
    size = {"rows": given.rows, "span_s": given.span_s}
    with (
        TemporaryDirectory() as folder,
        PostgresServer(fsync=True) as postgres,
        RabbitNode() as node,
    ):
        rig = prepared(postgres, node, Path(folder))
        found = [dispatch(rig, **size, body=b"x" * given.body_bytes)]
        found.append(reference(rig.broker_url, **size, body_bytes=given.body_bytes))
        rig.close()
    console = Console(width=124)
    console.print(histogram(found))
    console.print(table(found, given.rows, given.span_s))


if __name__ == "__main__":
    main()
