"""How much CPU does the program take before it does anything?

    .venv/bin/python -m benchmarks.startup --rounds 7

Starts a private PostgreSQL and a private RabbitMQ, calls the real program again and again, and
prints user and system seconds of each call, median and least: ``--help``, ``run --help``,
``status`` with a daemon that tells it, ``status`` from the ledger, and ``run`` until its first
claim, where it kills itself.
Python's files are compiled before, as an installation has them.

``--tree`` measures another checkout in turns with this one.
"""

from __future__ import annotations

import argparse
import os
import secrets
import statistics
import subprocess
import sys
from collections import defaultdict
from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path
from tempfile import TemporaryDirectory

from rich.console import Console
from rich.table import Table

from dev.postgres import PostgresServer
from dev.processes import wait_until
from dev.rabbit import RabbitNode
from tests.e2e.daemon import listens
from tests.e2e.rig import FAULT_VARIABLE, Rig
from tests.e2e.rows import row

ROOT = Path(__file__).resolve().parents[1]
NEWER = frozenset({"MIGRATOR_PROBE__CAPACITY"})
"""Settings that another checkout may not know, and refuse."""
UNCOMPILED = "PYTHONDONTWRITEBYTECODE"
"""Set, it has each call compile all of Python's files that it imports anew."""
_KILLED = -9
_QUIET = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}


def program(*arguments: str) -> list[str]:
    """Return the command line of the program in the working directory."""
    return [sys.executable, "-m", "migrator", *arguments]


def cpu_s(tree: Path, environment: Mapping[str, str], *arguments: str, code: int = 0) -> float:
    """Return user and system seconds of one call, which ends with *code*."""
    known = {n: text for n, text in environment.items() if tree == ROOT or n not in NEWER}
    known.pop(UNCOMPILED, None)  # an installed program is compiled
    process = subprocess.Popen(program(*arguments), cwd=tree, env=known, **_QUIET)
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode != code:
        raise SystemExit(f"{tree.name}: {' '.join(arguments)} ended with {process.returncode}")
    return usage.ru_utime + usage.ru_stime


def prepared(database_url: str, broker_url: str, tree: Path, socket: Path) -> Rig:
    """Return a rig whose tables the program of *tree* made."""
    rig = Rig(database_url, broker_url)
    rig.settings["MIGRATOR_WEB__SOCKET"] = str(socket)
    rig.create_store()
    rig.create_levels()
    rig.create_receivers("Billing")
    cpu_s(tree, rig.environment(), "db", "upgrade")
    return rig


def until_first_claim(rig: Rig, tree: Path) -> float:
    """Return what ``run`` takes until it has claimed the only row."""
    with rig.sql() as connection:
        connection.execute("TRUNCATE migrator.timeout, migrator.batch CASCADE")
    rig.insert([row(timedelta(days=1))])
    environment = rig.environment(**{FAULT_VARIABLE: "claim.done:1"})
    return cpu_s(tree, environment, "run", "--endpoint", rig.endpoint, code=_KILLED)


def measure(rigs: Mapping[Path, Rig], rounds: int) -> Mapping[tuple[str, Path], list[float]]:
    """Return the seconds of each call, by what was called and in which tree."""
    found = defaultdict[tuple[str, Path], list[float]](list)
    for tree, rig in rigs.items():
        until_first_claim(rig, tree)  # the first call compiles, where nobody has
    for _ in range(rounds):
        for tree, rig in rigs.items():
            found["--help", tree].append(cpu_s(tree, rig.environment(), "--help"))
            found["run --help", tree].append(cpu_s(tree, rig.environment(), "run", "--help"))
            found["run, to the first claim", tree].append(until_first_claim(rig, tree))
            own = rig.environment(MIGRATOR_WEB__SOCKET="")
            found["status, from the ledger", tree].append(cpu_s(tree, own, "status"))
    for tree, rig in rigs.items():
        known = {n: x for n, x in rig.environment().items() if tree == ROOT or n not in NEWER}
        daemon = subprocess.Popen(
            program("run", "--endpoint", rig.endpoint), cwd=tree, env=known, **_QUIET
        )
        wait_until(lambda rig=rig: listens(rig), what="a daemon")  # type: ignore[misc]  # bound now
        for _ in range(rounds):
            found["status, beside a daemon", tree].append(cpu_s(tree, rig.environment(), "status"))
        daemon.terminate()
        daemon.wait(60)
    return found


def main() -> None:
    """Measure in turns and print it."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--tree", type=Path, action="append", default=[], help="another checkout")
    given = parser.parse_args()
    trees = [*given.tree, ROOT]
    with PostgresServer() as postgres, RabbitNode() as node, TemporaryDirectory() as folder:
        rigs = {}
        for number, tree in enumerate(trees):
            vhost = f"bench-{secrets.token_hex(4)}"
            node.create_vhost(vhost)
            rigs[tree] = prepared(
                postgres.url(postgres.create_database()),
                node.amqp_url(vhost),
                tree,
                Path(folder) / f"{number}.sock",
            )
        found = measure(rigs, given.rounds)
    table = Table("CPU seconds, median (least)", *("this" if t is ROOT else t.name for t in trees))
    for what in dict.fromkeys(what for what, _ in found):
        cells = (found[what, tree] for tree in trees)
        table.add_row(what, *(f"{statistics.median(s):.3f} ({min(s):.3f})" for s in cells))
    Console().print(table)


if __name__ == "__main__":
    main()
