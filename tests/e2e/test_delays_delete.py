"""Deleting the delays with the real program, killed on the way."""

from __future__ import annotations

import json
import time

import pytest

from dev.processes import PATIENCE_S
from migrator.delays.routing import DelaysVersion
from tests.e2e.rig import Rig


def delete(rig: Rig, *options: str, codes: tuple[int, ...] = (0,)) -> dict[str, object]:
    """Delete the delays, or say why not."""
    shown = rig.must("delays", "delete", *options, "--json", codes=codes)
    found: dict[str, object] = json.loads(shown)
    return found


@pytest.mark.slow
@pytest.mark.parametrize("version", list(DelaysVersion))
def test_killed_on_the_way_and_run_again(rig: Rig, version: DelaysVersion) -> None:
    """After each kill the same command goes on; in the end nothing is left."""
    rig.delays = version
    rig.must("delays", "create")
    deadline_s = time.monotonic() + PATIENCE_S
    while delete(rig, "--dry-run", codes=(0, 3))["obstacles"]:  # the counts come late
        assert time.monotonic() < deadline_s
    for step in ("removal.shut:1", "removal.shut:9", "removal.dropped:5"):
        killed = rig.run("delays", "delete", "--yes", "--settle", "1s", fault=step)
        assert killed.returncode == -9, killed.stderr
    rest = delete(rig, "--yes", "--settle", "1s")
    assert rest["deleted"]
    assert (rest["exchanges"], rest["queues"]) != (29, 28)
    assert delete(rig, "--yes")["deleted"] is False
    rig.must("delays", "create")
    rig.must("delays", "show")
