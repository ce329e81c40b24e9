"""How long does it take to verify a migration, how much memory does it need, and who waits for it?

    .venv/bin/python -m benchmarks.verify --rows 100000
    .venv/bin/python -m benchmarks.verify --rows 100000 --against ../before --natives 6000
    .venv/bin/python -m benchmarks.verify --rows 100000 --rows 400000 --max-depth 2000000

Starts a private PostgreSQL (with fsync) and a private RabbitMQ, hands over rows that are due in
months with the real program, and runs ``migrator verify`` and ``migrator verify --deep`` as
processes: wall time, CPU time of the program, its peak of resident memory, and the CPU time of
database and broker meanwhile. All must say the same: balanced, and each row seen.

``--against`` runs another checkout by turns with this one on the same ledger and broker, and prints
how many times as fast this one is. ``--natives`` publishes so many messages of somebody else into
the levels before each scan, due while it is looked through, and says how late they came; without a
scan they come within a second.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import pika
from rich.console import Console
from rich.table import Table

from benchmarks.arrivals import body
from benchmarks.handover import Servers, prepared
from dev.postgres import PostgresServer
from dev.rabbit import RabbitNode
from migrator.delays.routing import DelaysVersion, address, delivery_binding_key, delivery_exchange
from migrator.nservicebus.timeouts import QueueName
from tests.e2e.rig import Rig

ROOT: Final = Path(__file__).resolve().parents[1]
QUEUE: Final = QueueName("Others")
BODY_BYTES: Final = 500
DUE_S: Final = (5, 30)
"""In which messages of others become due after they were published."""
PATIENCE_S: Final = 60.0


@dataclass(frozen=True, kw_only=True)
class Measured:
    """What one call of the program took."""

    wall_s: float
    cpu_s: float
    postgres_s: float
    rabbit_s: float
    rss_mib: float
    late_s: Sequence[float]
    """Of messages of others, ascending."""


def publish_natives(node: RabbitNode, vhost: str, count: int) -> None:
    """Publish *count* delayed messages as another endpoint would."""
    with pika.BlockingConnection(pika.URLParameters(node.amqp_url(vhost))) as connection:
        channel = connection.channel()
        channel.confirm_delivery()  # what a quorum queue has not taken is lost with its channel
        for _ in range(count):
            delay_s = random.randint(*DUE_S)
            where = address(DelaysVersion.V2, delay_s, QUEUE)
            due = body("n", time.time() + delay_s, 100)
            channel.basic_publish(where.exchange, where.routing_key, due)


@contextmanager
def natives(node: RabbitNode, vhost: str, count: int) -> Iterator[list[float]]:
    """Have *count* messages of others under way; the list has how late they were, afterwards."""
    late_s: list[float] = []
    if not count:
        yield late_s
        return
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "arrivals"
        command = [
            sys.executable,
            "-m",
            "benchmarks.arrivals",
            node.amqp_url(vhost),
            QUEUE,
            str(file),
        ]
        reader = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT
        )
        assert reader.stdin is not None and reader.stdout is not None  # noqa: S101, PT018
        reader.stdout.readline()
        publish_natives(node, vhost, count)
        until_s = time.monotonic() + DUE_S[1] + PATIENCE_S
        yield late_s
        while int(reader.stdout.readline()) < count and time.monotonic() < until_s:
            pass
        reader.stdin.close()
        reader.wait()
        found = json.loads(file.read_text())["read"]
    if len(found) != count:
        raise SystemExit(f"{len(found)} of {count} messages of others came")
    late_s += sorted(arrived_s - due_s for _, due_s, arrived_s in found)


def verify(rig: Rig, tree: Path, servers: Servers, *options: str) -> tuple[Measured, Any]:
    """Verify with the program of *tree*; return what it took, and what it found."""
    (postgres_s, rabbit_s), began_s = servers.cpu_s(), time.perf_counter()
    process = subprocess.Popen(
        [sys.executable, "-m", "migrator", "verify", "--json", *options],
        cwd=tree,
        env=rig.environment(),
        stdout=subprocess.PIPE,
        text=True,
    )
    said = process.stdout.read() if process.stdout else ""
    _, status, usage = os.wait4(process.pid, 0)
    wall_s = time.perf_counter() - began_s
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(f"{tree.name}: verify ended with {process.returncode}: {said[-3000:]}")
    postgres_end_s, rabbit_end_s = servers.cpu_s()
    measured = Measured(
        wall_s=wall_s,
        cpu_s=usage.ru_utime + usage.ru_stime,
        postgres_s=postgres_end_s - postgres_s,
        rabbit_s=rabbit_end_s - rabbit_s,
        rss_mib=usage.ru_maxrss / 1024,
        late_s=(),
    )
    return measured, json.loads(said)


def demand_whole(found: Any, rows: int, *, is_scan: bool) -> None:
    """Return if everything agrees, and each of *rows* was compared, and seen."""
    seen = sum(each["ours"] or 0 for each in found["levels"])
    is_whole = found["verdict"] == "balanced" and found["rows_checked"] == rows
    if not is_whole or (is_scan and (seen != rows or found["not_checked"])):
        raise SystemExit(json.dumps(found, indent=1)[-3000:])


def show(name: str, found: Sequence[Measured], shown: Table, other_s: float) -> None:
    """Add the medians of *found* to the table."""
    fields = ("wall_s", "cpu_s", "postgres_s", "rabbit_s", "rss_mib")
    wall_s, *rest, rss = (statistics.median(getattr(e, field) for e in found) for field in fields)
    late_s = sorted(each for one in found for each in one.late_s)
    late = f"{statistics.median(late_s):.1f} / {late_s[-1]:.1f}" if late_s else ""
    cells = [f"{each:.1f}" for each in (wall_s, *rest)]
    shown.add_row(name, *cells, f"{rss:.0f}", f"{other_s / wall_s:.1f}" if other_s else "", late)


def measure(rows: int, given: argparse.Namespace, servers: Servers, console: Console) -> None:
    """Hand over *rows*, verify them by turns, and print what it took."""
    node = servers.rabbit
    rig, vhost = prepared(servers.postgres, node, rows=rows, body_bytes=BODY_BYTES)
    with rig.amqp() as connection:
        channel = connection.channel()
        channel.queue_declare(QUEUE, durable=True)
        exchange = delivery_exchange(DelaysVersion.V2)
        channel.queue_bind(QUEUE, exchange, delivery_binding_key(QUEUE))
    rig.migrate("--mode", "direct", MIGRATOR_HANDOVER__PACE="full")
    rig.management_url = node.management_url
    trees = [given.against.resolve(), ROOT] if given.against else [ROOT]
    calls = {
        "": (),
        "--deep": ("--deep", "--max-depth", str(given.max_depth), "--max-hold", given.max_hold),
    }
    taken = defaultdict[tuple[str, Path], list[Measured]](list)
    for turn in range(given.rounds):
        for call in given.calls:
            for tree in trees if turn % 2 else trees[::-1]:
                with natives(node, vhost, given.natives if call else 0) as late_s:
                    measured, found = verify(rig, tree, servers, *calls[call])
                demand_whole(found, rows, is_scan=bool(call))
                taken[call, tree].append(replace(measured, late_s=tuple(late_s)))
    shown = Table(title=f"{rows} rows handed over, {given.rounds} rounds; medians")
    columns = ("s", "CPU s", "database", "broker", "RSS MiB", "times as fast", "others late s")
    for column in ("", *columns):
        shown.add_column(column, justify="right" if column else "left")
    for call in given.calls:
        before_s = statistics.median(e.wall_s for e in taken[call, trees[0]])
        for tree in trees:
            name = " ".join(("verify", call)).strip()
            is_other = tree is not ROOT
            title = f"{name}, before" if is_other else name
            show(title, taken[call, tree], shown, before_s if len(trees) > 1 else 0)
    console.print(shown)
    node.delete_vhost(vhost)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rows", type=int, action="append", help="may be given more than once")
    parser.add_argument("--against", type=Path, help="another checkout, to compare with")
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--natives", type=int, default=0, help="messages of others in each scan")
    parser.add_argument("--max-depth", type=int, default=200_000)
    parser.add_argument("--max-hold", default="20s")
    parser.add_argument("--calls", nargs="+", default=["", "--deep"], help="'' or --deep")
    given = parser.parse_args()
    console = Console(width=110)
    with PostgresServer(fsync=True) as postgres, RabbitNode() as node:
        servers = Servers(postgres=postgres, rabbit=node)
        for rows in given.rows or [100_000]:
            measure(rows, given, servers, console)


if __name__ == "__main__":
    main()
