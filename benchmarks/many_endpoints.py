"""Many endpoints in one daemon: is progress fair, and what does it cost?

    .venv/bin/python -m benchmarks.many_endpoints --endpoints 50 --rows 2000

Starts a private PostgreSQL and a private RabbitMQ, fills a table for each endpoint, runs the real
daemon as a process for all of them, with a client that asks for its status and its metrics all the
while, and prints: how far apart the endpoints were when half of all rows were handed over, peak
memory, and the most connections it had to the database and the broker at a time.
"""

from __future__ import annotations

import argparse
import secrets
import subprocess
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from tempfile import TemporaryDirectory

import httpx
import psutil
import psycopg
from rich.console import Console

from dev.postgres import PostgresServer
from dev.rabbit import RabbitNode
from tests.e2e.rig import Rig
from tests.e2e.rows import row

_HANDED_OVER = (
    "SELECT endpoint, sum(size) FROM migrator.batch WHERE state = 'handed_over' GROUP BY endpoint"
)
_CONNECTIONS = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'migrator'"
_LOOK_EVERY_S = 0.2


@dataclass
class Seen:
    """What was seen of one run."""

    half: dict[str, int] = field(default_factory=dict)
    """Rows handed over by endpoint, at the first look after half of all were."""
    peak_rss_mib: float = 0.0
    peak_threads: int = 0
    to_database: int = 0
    to_broker: int = 0
    began_s: float = 0.0
    wall_s: float = 0.0


def filled(postgres: PostgresServer, url: str, *, endpoints: int, rows: int) -> Rig:
    """Return a rig whose store has so many endpoints with so many rows each."""
    first = Rig(postgres.url(postgres.create_database()), url, endpoint="Endpoint00")
    first.prepare()
    for number in range(endpoints):
        each = Rig(first.database_url, url, endpoint=f"Endpoint{number:02d}")
        if number:
            each.create_store()
        span = timedelta(days=300) / rows
        each.insert(row(timedelta(days=1) + n * span, body=b"x" * 500) for n in range(rows))
    with first.sql() as connection:
        connection.execute("ANALYZE")
    return first


def connections_to_broker(node: RabbitNode, vhost: str) -> int:
    """Return how many connections programs of ours have, by the sockets of the node."""
    told = node.ctl("list_connections", "vhost", "client_properties", "--quiet")
    return sum(1 for line in told.splitlines() if line.startswith(vhost) and "migrator" in line)


def look(
    rig: Rig,
    process: subprocess.Popen[str],
    seen: Seen,
    total: int,
    count_at_broker: Callable[[], int],
) -> None:
    """Look until everything is handed over."""
    ours, last_count_s = psutil.Process(process.pid), 0.0
    with rig.sql() as connection:
        while process.poll() is None:
            seen.peak_rss_mib = max(seen.peak_rss_mib, ours.memory_info().rss / 2**20)
            seen.peak_threads = max(seen.peak_threads, ours.num_threads())
            (count,) = connection.execute(_CONNECTIONS).fetchone() or (0,)
            seen.to_database = max(seen.to_database, int(count))
            done = {name: int(size) for name, size in _handed_over(connection)}
            if done and not seen.began_s:
                seen.began_s = time.monotonic()
            if sum(done.values()) >= total / 2 and not seen.half:
                seen.half = done
            if sum(done.values()) >= total:
                seen.wall_s = time.monotonic() - seen.began_s
                return
            if time.monotonic() - last_count_s > 2:
                seen.to_broker = max(seen.to_broker, count_at_broker())
                last_count_s = time.monotonic()
            time.sleep(_LOOK_EVERY_S)


def _handed_over(connection: psycopg.Connection[tuple[str, int]]) -> list[tuple[str, int]]:
    return connection.execute(_HANDED_OVER).fetchall()


def watch_as_people_do(socket: Path, over: threading.Event) -> None:
    """Ask for the status every second and for the metrics every five, as a page and a scraper."""
    line = httpx.HTTPTransport(uds=str(socket))
    with httpx.Client(transport=line, base_url="http://daemon", timeout=30) as client:
        for turn in range(10**6):
            if over.wait(1.0):
                return
            try:
                client.get("/status")
                if turn % 5 == 0:
                    client.get("/metrics")
            except httpx.HTTPError:
                continue


def measure(rig: Rig, node: RabbitNode, vhost: str, folder: Path, *, total: int) -> Seen:
    """Run the daemon, watch it, and end it."""
    seen, over = Seen(), threading.Event()
    process = rig.start(
        *("run", "--all-endpoints"),
        MIGRATOR_LOG__LEVEL="warning",
        MIGRATOR_WEB__SOCKET=str(folder / "control.sock"),
    )
    threads = [
        threading.Thread(target=lambda: list(process.stderr or ()), daemon=True),
        threading.Thread(target=watch_as_people_do, args=(folder / "control.sock", over)),
    ]
    for thread in threads:
        thread.start()
    look(rig, process, seen, total, lambda: connections_to_broker(node, vhost))
    over.set()
    process.terminate()
    if process.wait(60):
        raise SystemExit(f"the daemon ended with {process.returncode}")
    return seen


def main() -> None:
    """Measure once and print it."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--endpoints", type=int, default=50)
    parser.add_argument("--rows", type=int, default=2000, help="of each endpoint")
    parser.add_argument("--batch-size", type=int, default=1000)
    given = parser.parse_args()
    total, vhost = given.endpoints * given.rows, f"bench-{secrets.token_hex(4)}"
    with PostgresServer() as postgres, RabbitNode() as node, TemporaryDirectory() as folder:
        node.create_vhost(vhost)
        rig = filled(postgres, node.amqp_url(vhost), endpoints=given.endpoints, rows=given.rows)
        rig.settings["MIGRATOR_HANDOVER__BATCH_SIZE"] = str(given.batch_size)
        seen = measure(rig, node, vhost, Path(folder), total=total)
        rig.close()
    half = [seen.half.get(f"Endpoint{number:02d}", 0) for number in range(given.endpoints)]
    console = Console()
    console.print(f"{given.endpoints} endpoints x {given.rows} rows, batches of {given.batch_size}")
    console.print(f"{total / seen.wall_s:,.0f} rows/s; {seen.wall_s:.1f} s for all of them")
    console.print(
        f"at half time ({sum(half)} rows): least {min(half)}, most {max(half)} of an endpoint"
    )
    console.print(f"peak memory {seen.peak_rss_mib:.0f} MiB, {seen.peak_threads} threads at most")
    console.print(f"connections at most: database {seen.to_database}, broker {seen.to_broker}")


if __name__ == "__main__":
    main()
