"""What does a daemon cost that has nothing to do?

    .venv/bin/python -m benchmarks.idle --endpoints 20 --lanes 4 --seconds 60

Starts a private PostgreSQL and a private RabbitMQ, fills a table for each endpoint, has the real
daemon hand all of it over, waits until it rests, and prints what it does within so many seconds:
CPU of the program and of the database, transaction ids and transactions that it takes, who wrote
them, and its connections. A second run has a dispatcher for each endpoint beside the lanes
(``handover.near_due = "dispatch"``).

``--tree`` measures another checkout first, in the same run, with the same servers.
"""

from __future__ import annotations

import argparse
import json
import secrets
import subprocess
import sys
import time
from collections import Counter
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from tempfile import TemporaryDirectory

import psutil
from rich.console import Console
from rich.table import Table

from benchmarks.many_endpoints import connections_to_broker
from dev.postgres import PostgresServer
from dev.processes import wait_until
from dev.rabbit import RabbitNode
from tests.e2e.rig import Rig
from tests.e2e.rows import row

ROOT = Path(__file__).resolve().parents[1]
NEWER = frozenset({"MIGRATOR_PROBE__CAPACITY"})
"""Settings that another checkout may not know, and refuse."""
_SETTLE_S = 12.0
"""After the last row, until what happens at intervals is all there is."""
_NEXT_ID = "SELECT pg_snapshot_xmax(pg_current_snapshot())::text::bigint"
"""The next transaction id; asking takes none."""
_WRITTEN = (
    "SELECT relname, n_tup_ins + n_tup_upd + n_tup_del FROM pg_stat_user_tables "
    "WHERE schemaname = 'migrator'"
)
_TRANSACTIONS = (
    "SELECT xact_commit + xact_rollback FROM pg_stat_database WHERE datname = current_database()"
)
_CONNECTIONS = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'migrator'"
_COUNTED_AT_ONCE = "SELECT pg_stat_force_next_flush()"


@dataclass(frozen=True, kw_only=True)
class Used:
    """All counters at one moment."""

    at_s: float
    program_s: float
    database_s: float
    next_id: int
    transactions: int
    written: Counter[str]


def used(rig: Rig, program: psutil.Process, database: psutil.Process) -> Used:
    """Read all counters."""
    with rig.sql() as connection:
        connection.execute(_COUNTED_AT_ONCE)
        found = [connection.execute(query).fetchone() for query in (_NEXT_ID, _TRANSACTIONS)]
        written = Counter(dict(connection.execute(_WRITTEN).fetchall()))
    return Used(
        at_s=time.monotonic(),
        program_s=cpu_s(program),
        database_s=sum(cpu_s(each) for each in database.children(recursive=True)),
        next_id=int((found[0] or (0,))[0]),
        transactions=int((found[1] or (0,))[0]),
        written=written,
    )


def cpu_s(process: psutil.Process) -> float:
    """Return user and system seconds of *process*; 0 when it has ended."""
    try:
        times = process.cpu_times()
    except psutil.NoSuchProcess:
        return 0.0
    return float(times.user + times.system)


@dataclass(kw_only=True)
class Bench:
    """One daemon on servers of its own."""

    postgres: PostgresServer
    node: RabbitNode
    tree: Path
    endpoints: int
    lanes: int
    rows: int
    seconds: float
    dispatches: bool

    def measure(self) -> dict[str, str]:
        """Return what a resting daemon used, as text by name."""
        vhost = f"bench-{secrets.token_hex(4)}"
        self.node.create_vhost(vhost)
        with TemporaryDirectory() as folder:
            rig = self._filled(self.node.amqp_url(vhost), Path(folder))
            process = self._started(rig)
            try:
                self._wait_for_rest(rig)
                begin, end, connections = self._watch(rig, process)
                to_broker = connections_to_broker(self.node, vhost)
            finally:
                process.terminate()
                process.wait(60)
        return _told(begin, end, connections=connections, to_broker=to_broker)

    def _filled(self, url: str, folder: Path) -> Rig:
        first = Rig(self.postgres.url(self.postgres.create_database()), url, endpoint="Endpoint00")
        first.create_levels()
        first.create_receivers("Billing")
        lines = []
        for number in range(self.endpoints):
            each = Rig(first.database_url, url, endpoint=f"Endpoint{number:02d}")
            each.create_store()
            each.insert(row(timedelta(days=1 + n)) for n in range(self.rows))
            lines += ["[[endpoints]]", f"name = {json.dumps(each.endpoint)}"]
        first.config = folder / "migrator.toml"
        first.config.write_text("\n".join([*lines, ""]), encoding="utf-8")
        first.settings |= {
            "MIGRATOR_CONFIG": str(first.config),
            "MIGRATOR_LOG__LEVEL": "error",
            "MIGRATOR_HANDOVER__LANES": str(self.lanes),
            "MIGRATOR_HANDOVER__NEAR_DUE": "dispatch" if self.dispatches else "leave",
            "MIGRATOR_WEB__SOCKET": str(folder / "control.sock"),
        }
        return first

    def _program(self, *arguments: str) -> list[str]:
        return [sys.executable, "-m", "migrator", *arguments]

    def _started(self, rig: Rig) -> subprocess.Popen[bytes]:
        given = rig.environment()
        environment = {n: x for n, x in given.items() if self.tree == ROOT or n not in NEWER}
        subprocess.run(
            self._program("db", "upgrade"),
            env=environment,
            cwd=self.tree,
            check=True,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        return subprocess.Popen(self._program("run"), env=environment, cwd=self.tree)

    def _wait_for_rest(self, rig: Rig) -> None:
        wanted = self.endpoints * self.rows

        def is_done() -> bool:
            query = "SELECT coalesce(sum(size), 0) FROM migrator.batch WHERE state = 'handed_over'"
            return rig.has_lane() and rig.query(query)[0][0] >= wanted

        wait_until(is_done, what="all rows being handed over")
        time.sleep(_SETTLE_S)

    def _watch(self, rig: Rig, process: subprocess.Popen[bytes]) -> tuple[Used, Used, int]:
        program, database = psutil.Process(process.pid), psutil.Process(self.postgres.pid)
        begin = used(rig, program, database)
        time.sleep(self.seconds)
        ((connections,),) = rig.query(_CONNECTIONS)
        end = used(rig, program, database)
        if process.poll() is not None:
            raise SystemExit(f"the daemon ended with {process.returncode}")
        return begin, end, int(connections)


def _told(begin: Used, end: Used, *, connections: int, to_broker: int) -> dict[str, str]:
    span_s = end.at_s - begin.at_s
    per_minute = 60 / span_s
    ids, leases = end.next_id - begin.next_id, end.written["lease"] - begin.written["lease"]
    others = end.written - begin.written
    others.pop("lease", None)
    # what we ask ourselves is in a transaction of our own each
    transactions = end.transactions - begin.transactions - 3
    return {
        "program, % of a core": f"{100 * (end.program_s - begin.program_s) / span_s:.2f}",
        "database, % of a core": f"{100 * (end.database_s - begin.database_s) / span_s:.2f}",
        "transaction ids a minute": f"{ids * per_minute:.0f}",
        "… renewals of leases": f"{leases * per_minute:.0f}",
        "… all other": f"{(ids - leases) * per_minute:.0f} {dict(others) or ''}",
        "transactions a minute": f"{transactions * per_minute:.0f}",
        "connections to the database": str(connections),
        "connections to the broker": str(to_broker),
    }


def main() -> None:
    """Measure both and print them."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--endpoints", type=int, default=20)
    parser.add_argument("--lanes", type=int, default=4)
    parser.add_argument("--rows", type=int, default=10, help="of each endpoint")
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--tree", type=Path, action="append", default=[], help="another checkout")
    given = parser.parse_args()
    table, columns = Table("at rest"), list[dict[str, str]]()
    with PostgresServer(settings={"autovacuum": "off"}) as postgres, RabbitNode() as node:
        for dispatches in (False, True):
            for tree in (*given.tree, ROOT):
                bench = Bench(
                    postgres=postgres,
                    node=node,
                    tree=tree,
                    endpoints=given.endpoints,
                    lanes=given.lanes,
                    rows=given.rows,
                    seconds=given.seconds,
                    dispatches=dispatches,
                )
                columns.append(bench.measure())
                kind = "lanes and dispatchers" if dispatches else "lanes"
                whose = "this" if tree is ROOT else tree.name
                table.add_column(f"{kind}, {whose}", justify="right")
    for name in columns[0]:
        table.add_row(name, *(column[name] for column in columns))
    console = Console()
    console.print(f"{given.endpoints} endpoints, {given.lanes} lanes, {given.seconds:.0f} s")
    console.print(table)


if __name__ == "__main__":
    main()
