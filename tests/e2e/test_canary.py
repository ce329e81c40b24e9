"""The canary of a running daemon, on real servers: it is told in the log and in the ledger."""

from __future__ import annotations

import json
import signal
import time
from pathlib import Path
from typing import Any

import pytest

from dev.servers import wait_until
from tests.e2e.daemon import listen, status
from tests.e2e.rig import Rig

pytestmark = pytest.mark.punctual


def _events(rig: Rig) -> list[dict[str, Any]]:
    with rig.sql() as connection:
        found = connection.execute(
            "SELECT detail FROM migrator.event WHERE kind = 'canary' ORDER BY id"
        )
        return [json.loads(str(detail)) for (detail,) in found]


def _on_time(rig: Rig) -> list[dict[str, Any]]:
    """Return the flights whose probes were no later than a busy machine makes them."""
    found = [each for each in _events(rig) if each["outcome"] == "measured"]
    return [each for each in found if each["late_levels"] == []]


def _missed(rig: Rig, name: str) -> int:
    return int(next(job for job in status(rig)["jobs"] if job["job"] == name)["missed"])


def test_a_daemon_sends_probes_on_schedule_and_says_what_it_missed(
    rig: Rig, tmp_path: Path
) -> None:
    """A flight is an event; after a while asleep, what was left out is told; it stops at once."""
    rig.settings = {"MIGRATOR_CANARY__EVERY": "1100ms", "MIGRATOR_CANARY__LEVELS": "0"}
    rig.settings["MIGRATOR_HANDOVER__SWEEP_INTERVAL"] = "200ms"
    listen(rig, tmp_path)
    rig.prepare()
    process = rig.start("run", "--endpoint", "Sales")
    wait_until(lambda: bool(_on_time(rig)), what="a flight on time")
    jobs = {job["job"]: job for job in status(rig)["jobs"]}
    assert jobs["canary"]["last"]["outcome"] == "measured"
    assert jobs["canary"]["when"] == "1100ms"
    assert {"sweep", "throttle", "look", "survey"} < set(jobs)
    process.send_signal(signal.SIGSTOP)
    time.sleep(0.8)
    process.send_signal(signal.SIGCONT)
    wait_until(lambda: _missed(rig, "sweep") >= 1, what="the scheduler to find out")
    asked_s = time.monotonic()
    log = [json.loads(line) for line in rig.stop(process).splitlines()]
    assert time.monotonic() - asked_s < 10
    first = _on_time(rig)[0]
    (probe,) = first["probes"]
    assert (probe["level"], probe["arrival"]) == (0, "on_time")
    assert 0 <= probe["late_s"] < 2
    measured = [line for line in log if line.get("action") == "canary_measured"]
    assert first["probes"] in [line["probes"] for line in measured]
    missed = {line["job"]: line["total"] for line in log if line.get("action") == "job_missed"}
    assert missed["sweep"] >= 1
    assert not [line for line in log if line["level"] == "error"]
