"""Tests of ``migrator.cli.lazy``: what is told without a verb's module is what that module says."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from migrator.cli import delays, root
from migrator.cli.lazy import LazyGroup
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
OTHERS = DATABASE | SCHEMA | BROKER | SERVING | LOGGING


def imported(folder: Path, *arguments: str) -> set[str]:
    """Run the real program, and return the packages it imported."""
    settings = {name: text for name, text in os.environ.items() if not name.startswith("MIGRATOR_")}
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
    return {line.rpartition("|")[2].strip().partition(".")[0] for line in timed}


@pytest.mark.parametrize(
    ("arguments", "without"),
    [
        (["--help"], SETTINGS | OTHERS),
        (["config", "show", "--json"], OTHERS),
        (["status", "--json"], OTHERS - DATABASE),
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


def test_a_daemon_imports_nothing_after_its_start() -> None:
    """An upgrade may replace its files under it; what was imported then would not fit the rest."""
    done = subprocess.run(
        [sys.executable, "-c", _LATE], capture_output=True, text=True, timeout=110, check=False
    )
    assert done.returncode == 0, done.stderr
    assert {*done.stdout.split()} == {"migrator.service.spans"}  # before it begins, where wanted


_LATE = """
import ast, pathlib, sys
import migrator.cli.run

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
        print(*(name for name in wanted(node) if name not in sys.modules))
"""
