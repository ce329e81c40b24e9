"""What do rows cost whose destinations take no messages?

    .venv/bin/python -m benchmarks.parked --rows 1000000 --queues 1500 --seconds 60

Starts a private PostgreSQL and a private RabbitMQ, fills a table with rows for a queue that is not
there, one for each of many other queues that are not there, one that no queue can ever be for, and
a few for a queue that is. The real daemon parks all of the first kinds. Then it prints, of so many
seconds at rest: batches made, CPU of the program and of the database, what was read of the legacy
table, and how often the broker was asked for a queue. In the end the queue is made and the daemon
started again, which looks at all queues at once, and it prints how fast the rows went on, and how
late rows were that were written meanwhile.
"""

from __future__ import annotations

import argparse
import secrets
import subprocess
import sys
import time
from dataclasses import dataclass
from datetime import timedelta
from typing import Final

import psutil
from psycopg import sql
from rich.console import Console

from benchmarks.idle import Used, used
from dev.postgres import PostgresServer
from dev.processes import wait_until
from dev.rabbit import RabbitNode
from tests.e2e.arrivals import Receiver
from tests.e2e.rig import Rig
from tests.e2e.rows import row
from tests.e2e.test_answers import times_arrived

GONE: Final = "Gone"
_SETTLE_S: Final = 15.0
_FRESH: Final = 20
_LONGEST_S: Final = 3600.0
_FILL: Final = (
    'INSERT INTO {table} ("Id", "Destination", "SagaId", "State", "Time", "Headers", '
    '"PersistenceVersion") SELECT gen_random_uuid(), {name}, NULL, %s, '
    "now() AT TIME ZONE 'UTC' + interval '1 day' + n * interval '1 millisecond', %s, '6.6.5.0' "
    "FROM generate_series(1, %s) n"
)
_BATCHES: Final = "SELECT coalesce(max(id), 0) FROM migrator.batch"
_PARKED: Final = "SELECT coalesce(sum(size), 0) FROM migrator.batch WHERE state = 'parked'"
_READS: Final = (
    "SELECT t.seq_tup_read + (SELECT sum(i.idx_tup_read) FROM pg_stat_user_indexes i "
    "WHERE i.relid = t.relid) FROM pg_stat_user_tables t WHERE t.relname = 'Sales_TimeoutData'"
)


@dataclass(frozen=True, kw_only=True)
class Moment:
    """All counters at one moment."""

    used: Used
    batches: int
    reads: int
    closed_channels: int
    """Since the node began: the broker closes one for each question after a missing queue."""


def number(rig: Rig, query: str) -> int:
    """Return the one number that *query* finds."""
    return int(rig.query(query)[0][0])


def moment(rig: Rig, node: RabbitNode, program: psutil.Process, server: psutil.Process) -> Moment:
    """Read all counters."""
    churn = node.api("GET", "overview")["churn_rates"]
    return Moment(
        used=used(rig, program, server),
        batches=number(rig, _BATCHES),
        reads=number(rig, _READS),
        closed_channels=int(churn["channel_closed"]),
    )


def fill(rig: Rig, *, rows: int, queues: int) -> int:
    """Write all rows; return how many have to be parked."""
    one = row()
    with rig.sql() as connection:
        there = sql.Literal("Billing"), max(rows // 50, 10)
        for name, count in (
            (sql.Literal(GONE), rows),
            (sql.SQL("'Gone.' || n"), queues),
            there,  # enough to be seen by the checks of a start
        ):
            statement = sql.SQL(_FILL).format(table=rig.table, name=name)
            connection.execute(statement, (one.body, one.headers, count))
    rig.insert([row(destination="Bil\nling")])
    return rows + queues


def say_rest(console: Console, begin: Moment, end: Moment) -> None:
    """Print what was used between the two."""
    seconds = end.used.at_s - begin.used.at_s
    program = (end.used.program_s - begin.used.program_s) / seconds
    database = (end.used.database_s - begin.used.database_s) / seconds
    console.print(
        f"at rest, {seconds:.0f} s: {end.batches - begin.batches} new batches, program "
        f"{program:.2%} of a core, database {database:.2%}, {end.reads - begin.reads} reads of the "
        f"table, {end.closed_channels - begin.closed_channels} channels closed at the broker, "
        f"{end.used.next_id - begin.used.next_id} transaction ids"
    )


def start(rig: Rig) -> subprocess.Popen[bytes]:
    """Start the daemon."""
    command = [sys.executable, "-m", "migrator", "run", "--endpoint", "Sales"]
    return subprocess.Popen(command, env=rig.environment())


def heal(rig: Rig, console: Console) -> None:
    """Print how rows of a queue that is there now go on, and how late fresh rows are meanwhile."""
    began_s, whole = time.monotonic(), number(rig, _PARKED)
    wait_until(lambda: number(rig, _PARKED) < whole - 1000, seconds=120, what="rows that go on")
    worst_s = 0.0
    with Receiver(rig.broker_url, "Billing") as receiver:
        for _ in range(_FRESH):
            fresh = [row(timedelta(0))]
            rig.insert(fresh)
            sent_s = time.monotonic()
            receiver.wait(lambda fresh=fresh: all(times_arrived(receiver, fresh)), seconds=60.0)  # type: ignore[misc]
            worst_s = max(worst_s, time.monotonic() - sent_s)
            time.sleep(0.5)
    left = number(rig, _PARKED)
    seconds = time.monotonic() - began_s
    console.print(
        f"healing: {whole - left} rows in {seconds:.0f} s ({(whole - left) / seconds:.0f}/s) with "
        f"{left} still parked; fresh rows were late by {worst_s:.2f} s at most"
    )


def main(arguments: list[str] | None = None) -> None:
    """Measure once."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--queues", type=int, default=1500)
    parser.add_argument("--seconds", type=float, default=60.0)
    given = parser.parse_args(arguments)
    console = Console(soft_wrap=True)
    with PostgresServer() as postgres, RabbitNode() as node:
        vhost = f"bench-{secrets.token_hex(4)}"
        node.create_vhost(vhost)
        rig = Rig(postgres.url(postgres.create_database()), node.amqp_url(vhost))
        rig.settings |= {
            "MIGRATOR_HANDOVER__PACE": "full",
            "MIGRATOR_HANDOVER__CUTOFF": "0s",
            "MIGRATOR_LOG__LEVEL": "error",
        }
        rig.prepare()
        total = fill(rig, rows=given.rows, queues=given.queues)
        process = start(rig)
        try:
            began_s = time.monotonic()
            wait_until(
                lambda: number(rig, _PARKED) == total, seconds=_LONGEST_S, what="all to be parked"
            )
            seconds = time.monotonic() - began_s
            console.print(f"parked {total} rows in {seconds:.0f} s ({total / seconds:.0f}/s)")
            time.sleep(_SETTLE_S)
            program, server = psutil.Process(process.pid), psutil.Process(postgres.pid)
            begin = moment(rig, node, program, server)
            time.sleep(given.seconds)
            say_rest(console, begin, moment(rig, node, program, server))
            rig.create_receivers(GONE)
            process.terminate()
            process.wait(120)
            process = start(rig)
            heal(rig, console)
        finally:
            process.terminate()
            process.wait(120)


if __name__ == "__main__":
    main()
