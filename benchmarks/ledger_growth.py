"""Does a hand-over slow down as the ledger grows? Hands over N rows with a server that never looks.

    .venv/bin/python -m benchmarks.ledger_growth --rows 1000000

Starts a private PostgreSQL (with fsync, without autovacuum: nothing is ever analysed) and a private
RabbitMQ, runs the real program in mode ``direct`` and prints one line for each tenth of the rows:
how long it took, what program and database used of the CPU for a row, and the program's memory.
Then, for the tables of the ledger and the store, how many entries of each index were read for a
row. ``benchmarks.claims`` does the same for claims alone, which need no broker.
"""

from __future__ import annotations

import argparse
import time
from dataclasses import dataclass

import psutil
from rich.console import Console
from rich.table import Table

from benchmarks.handover import prepared
from dev.postgres import PostgresServer
from dev.rabbit import RabbitNode
from tests.e2e.rig import Rig

_EVERY_S = 0.5
_SETTINGS = {"autovacuum": "off", "shared_buffers": "512MB", "max_wal_size": "4GB"}


@dataclass(frozen=True, kw_only=True)
class Sample:
    """What was used up to a moment."""

    at_s: float
    """Since the Epoch."""
    program_cpu_s: float
    database_cpu_s: float
    rss_mib: float


def database_cpu_s(port: int) -> float:
    """Return the CPU seconds of the server at *port*, of sessions that still run and others."""
    for server in psutil.process_iter(["cmdline"]):
        if f"port={port}" in (server.info["cmdline"] or ()) and "postgres" in server.name():
            ended = server.cpu_times()
            running = [child.cpu_times() for child in server.children()]
            found = ended.user + ended.system + ended.children_user + ended.children_system
            return float(found + sum(each.user + each.system for each in running))
    raise SystemExit(f"no PostgreSQL listens on port {port}")


def run(rig: Rig, port: int) -> list[Sample]:
    """Run the program until all rows are handed over; return what was used meanwhile."""
    rig.is_fresh = True  # with no memory but its own
    process = rig.start(
        *("run", "--endpoint", "Sales", "--once", "--mode", "direct"),
        MIGRATOR_LOG__LEVEL="warning",
        MIGRATOR_HANDOVER__PACE="full",
    )
    seen, samples = psutil.Process(process.pid), list[Sample]()
    while process.poll() is None:
        try:
            cpu, rss = seen.cpu_times(), seen.memory_info().rss
        except psutil.Error:
            break
        samples.append(
            Sample(
                at_s=time.time(),
                program_cpu_s=cpu.user + cpu.system,
                database_cpu_s=database_cpu_s(port),
                rss_mib=rss / 2**20,
            )
        )
        time.sleep(_EVERY_S)
    if process.returncode:
        raise SystemExit(rig.said[process].result()[1][-3000:])
    return samples


def tenths(rig: Rig, samples: list[Sample], rows: int) -> Table:
    """Return what each tenth of the rows took, by the times at which batches were settled."""
    begun, *ends = (
        float(at_s)
        for at_s in rig.query(
            "SELECT extract(epoch FROM min(claimed_at)) FROM migrator.batch"
            " UNION ALL (SELECT max(at_s) FROM (SELECT extract(epoch FROM handed_over_at) AS at_s,"
            " ceil(10.0 * sum(size) OVER (ORDER BY handed_over_at) / %s) AS tenth"
            " FROM migrator.batch) settled GROUP BY tenth ORDER BY tenth)",
            rows,
        )
        for at_s in at_s
    )
    shown = Table(title=f"{rows} rows, one lane, direct; never analysed")
    columns = ("rows", "s", "x first", "program µs/row", "database µs/row", "RSS MiB")
    for column in columns:
        shown.add_column(column, justify="right")
    first_s = ends[0] - begun
    for number, (since_s, until_s) in enumerate(zip([begun, *ends], ends, strict=False), start=1):
        one, other = (
            min(samples, key=lambda each: abs(each.at_s - at_s)) for at_s in (since_s, until_s)
        )
        share = (other.at_s - one.at_s) / (until_s - since_s)
        of_row = 1e6 * 10 / rows / (share or 1.0)
        shown.add_row(
            f"{rows * number // 10:,}",
            f"{until_s - since_s:.1f}",
            f"{(until_s - since_s) / first_s:.2f}",
            f"{(other.program_cpu_s - one.program_cpu_s) * of_row:.0f}",
            f"{(other.database_cpu_s - one.database_cpu_s) * of_row:.0f}",
            f"{other.rss_mib:.0f}",
        )
    return shown


def entries(rig: Rig, rows: int) -> Table:
    """Return how many entries of each index, and rows of each table, were read for a row."""
    shown = Table(title="read for each row that was handed over")
    for column in ("of", "entries or rows", "MiB"):
        shown.add_column(column, justify="left" if column == "of" else "right")
    found = rig.query(
        "SELECT indexrelname, idx_tup_read, pg_relation_size(indexrelid)"
        " FROM pg_stat_user_indexes WHERE idx_tup_read > 100 UNION ALL"
        " SELECT relname || ', sequentially', seq_tup_read, pg_relation_size(relid)"
        " FROM pg_stat_user_tables WHERE seq_tup_read > 100 ORDER BY 2 DESC"
    )
    for name, read, size in found:
        shown.add_row(name, f"{read / rows:.2f}", f"{size / 2**20:.0f}")
    return shown


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--body-bytes", type=int, default=500)
    given = parser.parse_args()
    with PostgresServer(fsync=True, settings=_SETTINGS) as postgres, RabbitNode() as node:
        rig, _ = prepared(
            postgres, node, rows=given.rows, body_bytes=given.body_bytes, analysed=False
        )
        samples = run(rig, postgres.port)
        console = Console(width=110)
        console.print(tenths(rig, samples, given.rows))
        console.print(entries(rig, given.rows))


if __name__ == "__main__":
    main()
