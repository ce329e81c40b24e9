"""Tests of ``migrator.cli.lazy``: what is told without a verb's module is what that module says."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from migrator.cli import delays, root
from migrator.cli.lazy import LazyGroup
from migrator.config.sources import ledger_place
from migrator.web.metrics import Instruments
from migrator.web.server import WebPlan, serve
from tests.support.panel import MemoryPanel
from tests.unit.cli.conftest import Program

GROUPS: tuple[type[LazyGroup], ...] = (root.Verbs, delays.Verbs)
SETTINGS = {"pydantic"}
"""What loading them needs, directly or not."""
LOGGING = {"pygments", "rich", "structlog"}
"""What a log line needs, directly or not."""
DATABASE = {"psycopg", "sqlalchemy"}
SCHEMA = {"alembic"}
BROKER = {"httpx", "pika"}
SERVING = {"apscheduler", "jinja2", "prometheus_client", "starlette", "uvicorn"}
ELSEWHERE = {
    "azure", "migrator.stores.azure.store", "migrator.stores.ravendb.store",
    "oracledb", "pymysql", "pyodbc",
}  # fmt: skip
"""What only another kind of store needs."""
VENDORS = {f"sqlalchemy.dialects.{each}" for each in ("mssql", "mysql", "oracle", "postgresql")}
"""What only a ledger in another database needs; here, it is in SQLite."""
STORES = {
    "migrator.recovery.lost_window", "migrator.recall.restore", "migrator.stores.documents.store",
    "migrator.stores.sql.store", "migrator.verify.stores",
}  # fmt: skip
"""What needs the legacy store."""
OTHERS = DATABASE | SCHEMA | BROKER | SERVING | LOGGING


def imported(folder: Path, *arguments: str, **more: str) -> set[str]:
    """Run the real program, and return the packages and modules it imported."""
    inherited = {n: text for n, text in os.environ.items() if not n.startswith("MIGRATOR_")}
    settings = {**inherited, "MIGRATOR_WEB__SOCKET": "", **more}
    done = subprocess.run(
        [sys.executable, "-X", "importtime", "-m", "migrator", *arguments],
        env={**settings, "MIGRATOR_STORE__URL": f"sqlite:///{folder / 'legacy.db'}"},
        capture_output=True,
        text=True,
        timeout=110,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    timed = (line for line in done.stderr.splitlines() if line.startswith("import time:"))
    names = {line.rpartition("|")[2].strip() for line in timed}
    return names | {name.partition(".")[0] for name in names}


@pytest.mark.parametrize(
    ("arguments", "without"),
    [
        (["--help"], SETTINGS | OTHERS),
        (["config", "--json"], OTHERS),
        (["status", "--json"], (OTHERS | ELSEWHERE | STORES | VENDORS) - DATABASE),
    ],
    ids=lambda given: " ".join(given) if isinstance(given, list) else "",
)
def test_a_verb_imports_nothing_that_only_others_need(
    program: Program, arguments: list[str], without: set[str]
) -> None:
    """What is imported is waited for, each time the program is called."""
    program("db", "upgrade")
    found = imported(program.folder, *arguments)
    assert "migrator" in found
    assert found & without == set()


def test_help_of_every_verb_imports_no_library() -> None:
    """Who reads help, or completes a line, waits for none of them; all verbs in one process."""
    done = subprocess.run(
        [sys.executable, "-c", _HELP], capture_output=True, text=True, timeout=110, check=False
    )
    assert done.returncode == 0, done.stderr
    assert {"--even-if-bound", "--as", "--to-url", "--margin"} <= {*done.stdout.split()}
    found = {*done.stderr.split()}
    assert "migrator.cli.resolve" in found
    assert found & (SETTINGS | OTHERS) == set()
    # what a verb works with is imported when it works: 70 ms for each of these
    assert (
        found & {f"migrator.{each}" for each in ("app", "preflight", "service", "stores")} == set()
    )


_HELP = """
import sys
from migrator.cli import root

def tell(command, name, above=None):
    context = command.context_class(command, info_name=name, parent=above)
    print(command.get_help(context))
    for name, verb in getattr(command, "commands", {}).items():
        tell(verb, name, context)

tell(root.every_verb(), "migrator")
print(*sys.modules, file=sys.stderr)
"""


def test_run_imports_nothing_of_other_stores() -> None:
    """What it needs for its own store is enough to wait for; no schema is changed either."""
    done = subprocess.run(
        [sys.executable, "-c", "import migrator.cli.running, sys; print(*sys.modules)"],
        capture_output=True,
        text=True,
        timeout=110,
        check=True,
    )
    found = {*done.stdout.split()}
    assert "migrator.service.daemon" in found
    assert found & (ELSEWHERE | SCHEMA) == set()


def test_asking_a_daemon_needs_neither_settings_nor_database(tmp_path: Path) -> None:
    """That is why it is asked first."""
    panel = MemoryPanel()
    panel.ledger_place = ledger_place({("store", "url"): f"sqlite:///{tmp_path / 'legacy.db'}"})
    with tempfile.TemporaryDirectory(prefix="web-") as folder:
        path = Path(folder) / "control.sock"
        with serve(panel, WebPlan(socket=path), Instruments()):
            found = imported(tmp_path, "status", "--json", MIGRATOR_WEB__SOCKET=str(path))
    assert found & (OTHERS | {"migrator.config.settings", "migrator.app"}) == set()


def test_a_daemon_imports_nothing_after_its_start() -> None:
    """An upgrade may replace its files under it; what was imported then would not fit the rest."""
    done = subprocess.run(
        [sys.executable, "-c", _LATE], capture_output=True, text=True, timeout=110, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == []


_LATE = """
import ast, pathlib, sys
import migrator.cli.running

# imports what is wanted before a daemon begins: when it is asked whose timeouts there are
at_start = {sys.modules["migrator.app.stores"].__file__}

def wanted(node):
    if isinstance(node, ast.ImportFrom):
        return [node.module]
    return [each.name for each in node.names] if isinstance(node, ast.Import) else []

ours = [m.__file__ for n, m in sorted(sys.modules.items()) if n.partition(".")[0] == "migrator"]
assert len(ours) > 100
for file in set(ours) - at_start:
    for node in ast.walk(ast.parse(pathlib.Path(file).read_text(encoding="utf-8"))):
        late = [name for name in wanted(node) if name not in sys.modules]
        # SQLAlchemy itself imports that one when such a database is opened
        print(*(name for name in late if name != "sqlalchemy.dialects.oracle"))
"""
