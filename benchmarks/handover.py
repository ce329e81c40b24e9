"""How fast is a hand-over? Claims, converts and hands over N rows, in both modes.

    .venv/bin/python -m benchmarks.handover --rows 100000

Starts a private PostgreSQL (with fsync) and a private RabbitMQ, seeds the same rows for each
mode, runs the real program as a process and prints one table. The reference, measured in the
same run on the same broker, is a plain pika publisher with a confirm window into the native
exchanges (``benchmarks/plain_publisher.py``), which keeps no books at all.
"""

from __future__ import annotations

import argparse
import json
import os
import secrets
import subprocess
import sys
import threading
import time
from dataclasses import dataclass
from datetime import timedelta

import psutil
from rich.console import Console
from rich.table import Table

from dev.postgres import PostgresServer
from dev.rabbit import RabbitNode
from tests.e2e.rig import Rig
from tests.e2e.rows import row


@dataclass(frozen=True, kw_only=True)
class Measured:
    """One program's run."""

    name: str
    per_second: float
    wall_s: float
    cpu_s: float
    peak_rss_mib: float


def watch(process: subprocess.Popen[str]) -> tuple[float, float]:
    """Return CPU seconds and peak resident MiB of *process*; returns when it has ended."""
    peak, cpu = 0, 0.0
    seen = psutil.Process(process.pid)
    while process.poll() is None:
        try:
            peak = max(peak, seen.memory_info().rss)
            times = seen.cpu_times()
            cpu = times.user + times.system
        except psutil.Error:
            break
        time.sleep(0.05)
    return cpu, peak / 2**20


def reference(node: RabbitNode, vhost: str, *, rows: int, body_bytes: int, name: str) -> Measured:
    """Publish as many messages of the same shape, plainly."""
    began = time.perf_counter()
    process = subprocess.Popen(
        [
            *(sys.executable, "-m", "benchmarks.plain_publisher", node.amqp_url(vhost)),
            *("--count", str(rows), "--body-bytes", str(body_bytes)),
        ],
        stdout=subprocess.PIPE,
        text=True,
    )
    cpu_s, peak = watch(process)
    said = json.loads(process.communicate()[0])
    return Measured(
        name=name,
        per_second=said["per_second"],
        wall_s=time.perf_counter() - began,
        cpu_s=cpu_s,
        peak_rss_mib=peak,
    )


def migrate(rig: Rig, mode: str, *, rows: int, lanes: int, extra: dict[str, str]) -> Measured:
    """Run the real program until all rows are handed over."""
    began = time.perf_counter()
    process = rig.start(
        *("run", "--endpoint", "Sales", "--once", "--mode", mode),
        MIGRATOR_HANDOVER__LANES=str(lanes),
        MIGRATOR_LOG__LEVEL="warning",
        **extra,
    )
    said: list[str] = []
    reader = threading.Thread(target=lambda: said.extend(process.stderr or ()), daemon=True)
    reader.start()
    cpu_s, peak = watch(process)
    wall_s = time.perf_counter() - began
    if process.returncode:
        raise SystemExit("".join(said)[-3000:])
    with rig.sql() as connection:
        found = connection.execute(
            "SELECT extract(epoch FROM max(handed_over_at) - min(claimed_at)), sum(size)"
            " FROM migrator.batch WHERE state = 'handed_over'"
        ).fetchone()
    seconds, moved = found or (0, 0)
    if moved != rows:
        raise SystemExit(f"{moved} of {rows} rows were handed over")
    return Measured(
        name=f"migrator run --mode {mode}" + (f", {lanes} lanes" if lanes > 1 else ""),
        per_second=rows / float(seconds),
        wall_s=wall_s,
        cpu_s=cpu_s,
        peak_rss_mib=peak,
    )


def prepared(
    postgres: PostgresServer, node: RabbitNode, *, rows: int, body_bytes: int
) -> tuple[Rig, str]:
    """Return a fresh store with *rows*, and the name of a fresh virtual host with the levels."""
    vhost = f"bench-{secrets.token_hex(4)}"
    node.create_vhost(vhost)
    url = postgres.url(postgres.create_database())
    rig = Rig(database_url=url, broker_url=node.amqp_url(vhost))
    rig.prepare()
    body = b"x" * body_bytes
    span = timedelta(days=900) / rows
    rig.insert(row(timedelta(days=1) + n * span, body=body) for n in range(rows))
    with rig.sql() as connection:
        connection.execute("ANALYZE")
    return rig, vhost


def table(measured: list[Measured], reference_per_second: float, rows: int) -> Table:
    """Return the one table this benchmark prints."""
    shown = Table(title=f"{rows} rows; one machine runs program, database and broker")
    for column in ("", "rows/s", "ratio", "wall s", "cpu s", "peak RSS MiB"):
        shown.add_column(column, justify="left" if not column else "right")
    for each in measured:
        shown.add_row(
            each.name,
            f"{each.per_second:,.0f}",
            f"{each.per_second / reference_per_second:.2f}",
            f"{each.wall_s:.1f}",
            f"{each.cpu_s:.1f}",
            f"{each.peak_rss_mib:.0f}",
        )
    return shown


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--body-bytes", type=int, default=500)
    parser.add_argument("--lanes", type=int, default=1)
    parser.add_argument("--modes", nargs="+", default=["direct", "staged"])
    given = parser.parse_args()
    size = {"rows": given.rows, "body_bytes": given.body_bytes}
    extra = {key: value for key, value in os.environ.items() if key.startswith("MIGRATOR_")}
    with PostgresServer(fsync=True) as postgres, RabbitNode() as node:
        measured: list[Measured] = []
        _, vhost = prepared(postgres, node, rows=1, body_bytes=1)
        before = reference(node, vhost, **size, name="plain publisher, before")
        node.delete_vhost(vhost)
        for mode in given.modes:
            rig, vhost = prepared(postgres, node, **size)
            measured.append(migrate(rig, mode, rows=given.rows, lanes=given.lanes, extra=extra))
            node.delete_vhost(vhost)
        _, vhost = prepared(postgres, node, rows=1, body_bytes=1)
        after = reference(node, vhost, **size, name="plain publisher, after")
        mean = (before.per_second + after.per_second) / 2
        Console(width=110).print(table([before, *measured, after], mean, given.rows))


if __name__ == "__main__":
    main()
