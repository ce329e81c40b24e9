"""How fast is a hand-over? Claims, converts and hands over N rows, in both modes.

    .venv/bin/python -m benchmarks.handover --rows 100000

Starts a private PostgreSQL (with fsync) and a private RabbitMQ, seeds the same rows for each
mode, runs the real program as a process and prints one table: rows per second, and the CPU that
each row costs program, database and broker. The program's is of its whole life, start and checks
included. The reference, measured in the same run on the same broker, is a plain pika publisher
with a confirm window into the native exchanges (``benchmarks/plain_publisher.py``), which records
nothing at all. The levels set no pace, unless ``MIGRATOR_HANDOVER__PACE=levels`` is given.

    .venv/bin/python -m benchmarks.handover --processes 1 2 4

has several processes share the rows of one endpoint.

    .venv/bin/python -m benchmarks.handover --against ../before --rounds 5

runs this checkout and another one by turns, each with its own environment and servers, and prints
medians: a machine that is busy for a while is then busy for both. "of 72" is the program's CPU as
it would be where the plain publisher takes 72 µs a message.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import secrets
import statistics
import subprocess
import sys
import threading
import time
from collections import defaultdict
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Final

import psutil
from rich.console import Console
from rich.table import Table

from dev.postgres import PostgresServer
from dev.rabbit import RabbitNode
from tests.e2e.rig import Rig
from tests.e2e.rows import row

_PLAIN_US: Final = 72.0
"""CPU of the plain publisher for each message on the machine to which figures are compared."""
_COMPARED: Final = ("rows/s", "ratio", "µs a row", "of 72", "database µs", "broker µs")


@dataclass(frozen=True, kw_only=True)
class Measured:
    """One program's run."""

    name: str
    per_second: float
    wall_s: float
    cpu_s: float
    peak_rss_mib: float
    postgres_s: float
    """CPU of the database meanwhile."""
    rabbit_s: float
    """CPU of the broker meanwhile."""


@dataclass(frozen=True, kw_only=True)
class Servers:
    """Both servers of a run."""

    postgres: PostgresServer
    rabbit: RabbitNode

    def cpu_s(self) -> tuple[float, float]:
        """Return the CPU seconds that database and broker have had so far."""
        return _tree_cpu_s(self.postgres.pid), _tree_cpu_s(self.rabbit.pid)


def _tree_cpu_s(pid: int) -> float:
    """Return the CPU seconds of a process, of those below it, and of those that it has buried."""
    root = psutil.Process(pid)
    total = 0.0
    for each in (root, *root.children(recursive=True)):
        with suppress(psutil.Error):
            times = each.cpu_times()
            total += times.user + times.system + times.children_user + times.children_system
    return total


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


def reference(servers: Servers, vhost: str, *, rows: int, body_bytes: int, name: str) -> Measured:
    """Publish as many messages of the same shape, plainly."""
    began, (postgres_s, rabbit_s) = time.perf_counter(), servers.cpu_s()
    node = servers.rabbit
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
    postgres_end_s, rabbit_end_s = servers.cpu_s()
    return Measured(
        name=name,
        per_second=said["per_second"],
        wall_s=time.perf_counter() - began,
        cpu_s=cpu_s,
        peak_rss_mib=peak,
        postgres_s=postgres_end_s - postgres_s,
        rabbit_s=rabbit_end_s - rabbit_s,
    )


def migrate(
    servers: Servers,
    rig: Rig,
    mode: str,
    *,
    rows: int,
    lanes: int,
    processes: int,
    extra: dict[str, str],
) -> Measured:
    """Run the real program, or several of it, until all rows are handed over."""
    began, (postgres_s, rabbit_s) = time.perf_counter(), servers.cpu_s()
    options = {"MIGRATOR_HANDOVER__LANES": str(lanes), "MIGRATOR_LOG__LEVEL": "warning", **extra}
    command = ("run", "--endpoint", "Sales", "--once", "--mode", mode)
    started = [rig.start(*command, **options) for _ in range(processes)]
    said: list[str] = []
    for process in started:
        threading.Thread(
            target=lambda lines: said.extend(lines), args=[process.stderr or ()], daemon=True
        ).start()
    with ThreadPoolExecutor(processes) as watching:
        watched = list(watching.map(watch, started))
    cpu_s, peak = sum(cpu_s for cpu_s, _ in watched), max(peak for _, peak in watched)
    wall_s = time.perf_counter() - began
    postgres_end_s, rabbit_end_s = servers.cpu_s()
    if any(process.returncode for process in started):
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
        name=f"migrator run --mode {mode}"
        + (f", {lanes} lanes" if lanes > 1 else "")
        + (f", {processes} processes" if processes > 1 else ""),
        per_second=rows / float(seconds),
        wall_s=wall_s,
        cpu_s=cpu_s,
        peak_rss_mib=peak,
        postgres_s=postgres_end_s - postgres_s,
        rabbit_s=rabbit_end_s - rabbit_s,
    )


def prepared(
    postgres: PostgresServer,
    node: RabbitNode,
    *,
    rows: int,
    body_bytes: int,
    analysed: bool = True,
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
    if analysed:
        with rig.sql() as connection:
            connection.execute("ANALYZE")
    return rig, vhost


def table(measured: list[Measured], reference_per_second: float, rows: int) -> Table:
    """Return the one table this benchmark prints."""
    shown = Table(title=f"{rows} rows; one machine runs program, database and broker")
    columns = ("rows/s", "ratio", "wall s", "µs a row", "database µs", "broker µs", "RSS MiB")
    for column in ("", *columns):
        shown.add_column(column, justify="left" if not column else "right")
    for each in measured:
        shown.add_row(
            each.name,
            f"{each.per_second:,.0f}",
            f"{each.per_second / reference_per_second:.2f}",
            f"{each.wall_s:.1f}",
            *(
                f"{cpu_s / rows * 1e6:.0f}"
                for cpu_s in (each.cpu_s, each.postgres_s, each.rabbit_s)
            ),
            f"{each.peak_rss_mib:.0f}",
        )
    return shown


def compare(other: Path, *, rounds: int, rows: int, modes: list[str]) -> Table:
    """Return what *other* and this checkout have done, by turns: medians of each column."""
    here = Path(__file__).parents[1]
    found: defaultdict[tuple[str, Path], list[list[float]]] = defaultdict(list)
    for turn in range(rounds):
        for mode in modes:
            for checkout in (other, here) if turn % 2 else (here, other):
                found[mode, checkout].append(_measured_in(checkout, mode, rows))
                print(f"{checkout.name}: {mode} {found[mode, checkout][-1]}", file=sys.stderr)
    shown = Table(title=f"{rows} rows, {rounds} rounds by turns; medians")
    for column in ("", *_COMPARED):
        shown.add_column(column, justify="left" if not column else "right")
    for mode in modes:
        for name, checkout in (("before", other), ("after", here)):
            medians = map(statistics.median, zip(*found[mode, checkout], strict=True))
            shown.add_row(f"{mode}, {name}", *(f"{each:,.4g}" for each in medians))
    return shown


def _measured_in(checkout: Path, mode: str, rows: int) -> list[float]:
    """Return what the benchmark of *checkout* prints, in the order of ``_COMPARED``."""
    program = [".venv/bin/python", "-m", "benchmarks.handover"]
    done = subprocess.run(
        [*program, "--modes", mode, "--rows", str(rows)],
        cwd=checkout,
        capture_output=True,
        text=True,
        check=True,
    )
    lines = [line.split("\u2502")[1:-1] for line in done.stdout.splitlines() if "\u2502" in line]
    before, ours, after = ([float(cell.replace(",", "")) for cell in line[1:]] for line in lines)
    per_second, ratio, _, cpu_us, database_us, broker_us, _ = ours
    plain_us = (before[3] + after[3]) / 2
    return [per_second, ratio, cpu_us, cpu_us * _PLAIN_US / plain_us, database_us, broker_us]


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--body-bytes", type=int, default=500)
    parser.add_argument("--lanes", type=int, default=1)
    parser.add_argument("--processes", type=int, nargs="+", default=[1], help="at the same time")
    parser.add_argument("--modes", nargs="+", default=["direct", "staged"])
    parser.add_argument("--against", type=Path, help="another checkout, to compare with")
    parser.add_argument("--rounds", type=int, default=5, help="with --against")
    given = parser.parse_args()
    if given.against:
        other = given.against.resolve()
        shown = compare(other, rounds=given.rounds, rows=given.rows, modes=given.modes)
        Console(width=110).print(shown)
        return
    size = {"rows": given.rows, "body_bytes": given.body_bytes}
    extra = {"MIGRATOR_HANDOVER__PACE": "full"}
    extra |= {key: value for key, value in os.environ.items() if key.startswith("MIGRATOR_")}
    with PostgresServer(fsync=True) as postgres, RabbitNode() as node:
        measured, servers = list[Measured](), Servers(postgres=postgres, rabbit=node)
        _, vhost = prepared(postgres, node, rows=1, body_bytes=1)
        before = reference(servers, vhost, **size, name="plain publisher, before")
        node.delete_vhost(vhost)
        for mode, processes in itertools.product(given.modes, given.processes):
            rig, vhost = prepared(postgres, node, **size)
            how = {"rows": given.rows, "lanes": given.lanes, "processes": processes}
            measured.append(migrate(servers, rig, mode, **how, extra=extra))
            node.delete_vhost(vhost)
        _, vhost = prepared(postgres, node, rows=1, body_bytes=1)
        after = reference(servers, vhost, **size, name="plain publisher, after")
        mean = (before.per_second + after.per_second) / 2
        Console(width=110).print(table([before, *measured, after], mean, given.rows))


if __name__ == "__main__":
    main()
