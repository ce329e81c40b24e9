"""Hooks of the real program: told what happens, and waited for by nobody."""

from __future__ import annotations

import json
import time
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from dev.servers import wait_until
from tests.e2e.rig import Rig
from tests.e2e.rows import row

ROWS = 1000


@pytest.fixture
def hang(tmp_path: Path) -> Path:
    """A hook that says it was called, and goes on until a test has had enough."""
    text = 'echo "$MIGRATOR_EVENT" >>"$0.called"; while [ ! -e "$0.enough" ]; do sleep 0.1; done'
    return program(tmp_path / "hang", text)


@pytest.fixture
def write(tmp_path: Path) -> Path:
    """A hook that writes down what it is told."""
    return program(tmp_path / "write", 'cat >>"$0.told"')


def program(path: Path, text: str) -> Path:
    """Return a shell program at *path*."""
    path.write_text(f"#!/bin/sh\n{text}\n", encoding="utf-8")
    path.chmod(0o755)
    return path


def told(hook: Path) -> list[dict[str, Any]]:
    """Return what ``write`` was told, in order."""
    file = Path(f"{hook}.told")
    return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []


def moved_in_s(rig: Rig, rows: int) -> float:
    """Have the daemon that runs hand rows over, and return how long it took."""
    rig.insert([row() for _ in range(rows)])
    began_s = time.monotonic()
    wait_until(lambda: not rig.stored_ids(), what="claiming")
    wait_until(lambda: set(rig.batch_states()) == {"handed_over"}, what="the end")
    return time.monotonic() - began_s


@pytest.mark.slow
@pytest.mark.punctual
def test_hooks_that_hang_do_not_slow_the_work(rig: Rig, hang: Path, tmp_path: Path) -> None:
    """Rows are handed over as fast while one hangs and others wait behind it as afterwards."""
    touched, called = tmp_path / "wait", Path(f"{hang}.called")
    rig.settings = {
        "MIGRATOR_HOOKS__START": str(hang),
        "MIGRATOR_HOOKS__THROTTLE": str(hang),
        "MIGRATOR_HOOKS__TIMEOUT": "60s",
        "MIGRATOR_THROTTLE__TOUCH_FILE": str(touched),
        "MIGRATOR_THROTTLE__EVERY": "200ms",
    }
    rig.prepare()
    process = rig.start("run", "--endpoint", "Sales")
    wait_until(called.exists, what="the start")
    touched.touch()
    wait_until(lambda: kinds(rig) == ["hold_began"], what="a hold")
    touched.unlink()
    wait_until(lambda: kinds(rig) == ["hold_began", "hold_ended"], what="its end")
    moved_in_s(rig, 100)
    hanging_s = moved_in_s(rig, ROWS)
    assert called.read_text().split() == ["start"]
    Path(f"{hang}.enough").touch()
    wait_until(lambda: called.read_text().split() == ["start", "throttle", "throttle"],
               what="the hooks that waited")  # fmt: skip
    free_s = moved_in_s(rig, ROWS)
    log = rig.stop(process)
    print(f"{ROWS} rows in {hanging_s:.2f} s while a hook hung, in {free_s:.2f} s when it did not")
    assert log.count('"action": "hook_ran"') == 3
    assert hanging_s < 2 * free_s + 2  # a machine that does other things as well; a hang has no end


def kinds(rig: Rig) -> list[str]:
    """Return which holds the ledger knows to have begun and ended, oldest first."""
    with rig.sql() as connection:
        query = "SELECT kind FROM migrator.event WHERE kind LIKE 'hold%' ORDER BY id"
        return [str(kind) for (kind,) in connection.execute(query)]


def test_hooks_are_told_what_happened(rig: Rig, write: Path) -> None:
    """Start, quarantine and the end of a run, and that it was undone."""
    events = ("START", "THROTTLE", "QUARANTINE", "DRAINED", "ROLLBACK", "FAILURE")
    rig.settings = {f"MIGRATOR_HOOKS__{event}": str(write) for event in events}
    rig.prepare()
    rig.insert([row(), row(), row(destination=None), row(timedelta(days=4))])
    rig.must("run", "--endpoint", "Sales", "--once", codes=(5,))
    rig.must("rollback", "--yes")
    found = told(write)
    assert [each["event"] for each in found] == [*("start", "quarantine", "drained", "rollback")]
    start, aside, drained, rollback = (each["facts"] for each in found)
    assert start == {"endpoints": ["Sales"]}
    assert (aside["rows"], aside["endpoints"]) == (1, {"Sales": 1})
    (counts,) = drained["endpoints"]
    assert (counts["handed_over"], counts["quarantined"]) == (3, 1)
    assert (rollback["verb"], rollback["quarantined"]) == ("rollback", 1)
