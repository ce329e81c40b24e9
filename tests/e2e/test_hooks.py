"""Hooks of the real program: told what happens."""

from __future__ import annotations

import json
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.rig import Rig
from tests.e2e.rows import row


@pytest.fixture
def write(tmp_path: Path) -> Path:
    """A hook that writes down what it is told."""
    path = tmp_path / "write"
    path.write_text('#!/bin/sh\ncat >>"$0.told"\n', encoding="utf-8")
    path.chmod(0o755)
    return path


def told(hook: Path) -> list[dict[str, Any]]:
    """Return what ``write`` was told, in order."""
    file = Path(f"{hook}.told")
    return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []


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
