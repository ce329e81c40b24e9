"""Tests of ``migrator.web.probe``, as a container's health check runs it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from migrator.web import probe
from migrator.web.control import Liveness
from migrator.web.metrics import Instruments
from migrator.web.server import WebPlan, serve
from tests.support.panel import MemoryPanel


@pytest.mark.parametrize("is_alive", [True, False])
def test_the_exit_code_says_whether_the_loops_go_on(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], is_alive: bool
) -> None:
    """And stdout what the daemon said, for whoever inspects the container."""
    path, panel = tmp_path / "control.sock", MemoryPanel()
    panel.liveness = Liveness(silent_s={"lane-worker-0": 1.5}, is_alive=is_alive)
    with serve(panel, WebPlan(socket=path), Instruments()):
        assert probe.main([str(path)]) == (0 if is_alive else 1)
    said = json.loads(capsys.readouterr().out)
    assert (said["schema"], said["is_alive"]) == ("migrator/live/1", is_alive)


def test_a_daemon_that_is_not_there_is_not_alive(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """It says why, or how it is called."""
    assert probe.main([str(tmp_path / "none.sock")]) == probe.main([]) == 1
    told = capsys.readouterr()
    assert "No such file" in told.out
    assert told.err.startswith("usage: ")


def test_it_loads_nothing_but_the_standard_library() -> None:
    """It is run every few seconds for months."""
    code = (
        "import sys; import migrator.web.probe; "
        "print(sorted({name.partition('.')[0] for name in sys.modules} - sys.stdlib_module_names))"
    )
    done = subprocess.run([sys.executable, "-S", "-c", code], check=True, capture_output=True,
                          text=True, cwd=Path(probe.__file__).parents[2])  # fmt: skip
    assert done.stdout.strip() in ("['__main__', 'migrator']", "['migrator']")
