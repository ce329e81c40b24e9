"""How long does a preview take that the database counts, beside one that converts every row?

    python benchmarks/preview.py --rows 100000 --rows 1000000
    python benchmarks/preview.py --rows 100000 --server mariadb --rounds 5

Starts a private server, fills a legacy table as the vendor makes it (nobody analyses it), and runs
the real program by turns: ``migrator preview`` and ``migrator preview --exact``. Prints the medians
of wall and CPU time of both, start included, and their ratio; the counts of both must be the same.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

if __package__ in (None, ""):  # run as a script: make the checkout importable
    sys.path.append(str(Path(__file__).resolve().parent.parent))


from dev.servers import MariadbServer, PostgresServer
from migrator.database.engine import open_engine, writing
from migrator.ledger.migrations import upgrade
from migrator.ledger.tables import build_tables, names_for
from migrator.stores.sql.dialects import dialect_for
from migrator.stores.sql.seeding import SeedSpec, create_table, insert_rows, invent
from migrator.stores.sql.sql_persistence import SqlOptions, SqlStore

ENDPOINT = "Sales.Orders"
INVENTED = 2000
"""Rows that are invented; the others are copies of them with other ids and due times."""
SPAN = timedelta(days=90)
COLUMNS = ("exact s", "cpu s", "counted s", "cpu s", "x wall", "x cpu")
_COPIES = {
    "postgresql": 'SELECT gen_random_uuid(), "Destination", "SagaId", "State", '
    '"Time" + n * interval \'1 second\', "Headers", "PersistenceVersion" '
    'FROM "Sales_Orders_TimeoutData", generate_series(1, {times}) AS n',
    "mysql": "SELECT uuid(), Destination, SagaId, State, Time + INTERVAL seq SECOND, Headers, "
    "PersistenceVersion FROM Sales_Orders_TimeoutData, seq_1_to_{times}",
}


def fill(url: str, rows: int) -> None:
    """Make the table and the ledger in the database at *url*, and *rows* rows."""
    engine = open_engine(url)
    tables = build_tables(names_for(engine))
    upgrade(engine, tables)
    store = SqlStore(engine, tables, SqlOptions())
    blank = store.blank(store.source_of(ENDPOINT))
    create_table(engine, blank)
    now = datetime.now(UTC)
    what = SeedSpec(
        endpoint=ENDPOINT,
        count=min(INVENTED, rows),
        due_from=now + timedelta(minutes=5),
        due_until=now + SPAN,
        destinations=(ENDPOINT, "Billing", "Shipping"),
    )
    insert_rows(engine, blank, invent(what))
    if rows > INVENTED:
        copies = _COPIES[engine.dialect.name].format(times=rows // INVENTED - 1)
        with writing(engine) as connection:
            dialect_for(engine.dialect.name).allow_long(connection)
            name = connection.dialect.identifier_preparer.format_table(blank.table)
            connection.exec_driver_sql(f"INSERT INTO {name} {copies}")
    engine.dispose()


def preview(url: str, folder: Path, *options: str) -> tuple[float, float, dict[str, Any]]:
    """Return wall and CPU seconds of one preview, and what it found."""
    program = [sys.executable, "-m", "migrator", "preview", "--offline", "--json", *options]
    given = {**os.environ, "MIGRATOR_STORE__URL": url}
    given.pop("PYTHONDONTWRITEBYTECODE", None)  # an installed program is compiled
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    done = subprocess.run(program, cwd=folder, env=given, check=True, stdout=subprocess.PIPE)
    wall_s = time.perf_counter() - began
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu_s = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    (endpoint,) = json.loads(done.stdout)["endpoints"]
    return wall_s, cpu_s, endpoint


def compare(url: str, folder: Path, rows: int, rounds: int) -> None:
    """Run both by turns, and print what they took."""
    preview(url, folder)  # the first call compiles, where nobody has
    taken: dict[str, list[tuple[float, float]]] = {"--exact": [], "counted": []}
    for _ in range(rounds):
        sums = []
        for name, times in taken.items():
            wall_s, cpu_s, found = preview(url, folder, *([name] if name == "--exact" else []))
            times.append((wall_s, cpu_s))
            sums.append([found["stored"], found["to_hand_over"], found["destinations"]])
        assert sums[0] == sums[1], sums  # noqa: S101 - else there is nothing to compare
    (old, old_cpu), (new, new_cpu) = (
        [statistics.median(column) for column in zip(*times, strict=True)]
        for times in taken.values()
    )
    print(
        f"{rows:>9} {old:>9.2f} {old_cpu:>9.2f} {new:>9.2f} {new_cpu:>9.2f} "
        f"{old / new:>9.1f} {old_cpu / new_cpu:>9.1f}",
        flush=True,
    )


def main() -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, action="append", help="May be given more than once.")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--server", choices=["postgresql", "mariadb"], default="postgresql")
    options = parser.parse_args()
    kind = MariadbServer if options.server == "mariadb" else PostgresServer
    print(f"{'rows':>9} " + " ".join(f"{name:>9}" for name in COLUMNS))
    with kind() as server, TemporaryDirectory() as folder:
        for rows in options.rows or [100_000]:
            url = server.url(server.create_database())
            fill(url, rows)
            compare(url, Path(folder), rows, options.rounds)


if __name__ == "__main__":
    main()
