"""The real program, killed at every named step and at random moments: lost 0, always."""

from __future__ import annotations

import time
from collections.abc import Collection
from typing import Final

import pytest

from tests.e2e.rig import Rig, chance, row

BATCH: Final = 200
STAGED: Final = (
    "claim.done",
    "staged.begun",
    "staged.publishing",
    "staged.confirmed",
    "staged.staged",
    "staged.committing",
    "staged.nacked",
    "staged.receipt",
    "staged.handed_over",
)
DIRECT: Final = (
    "claim.done",
    "direct.begun",
    "direct.publishing",
    "direct.confirmed",
    "direct.handed_over",
)
SHORT_FORM: Final = {"staged.committing", "staged.nacked", "direct.confirmed"}
KILLED: Final = -9


def steps(short_form: Collection[str]) -> list[object]:
    """Return every mode and step; those outside the short form run with --full only."""
    return [
        pytest.param(mode, name, id=name, marks=[] if name in short_form else [pytest.mark.slow])
        for mode, names in (("staged", STAGED), ("direct", DIRECT))
        for name in names
    ]


@pytest.mark.parametrize(("mode", "name"), steps(SHORT_FORM))
def test_kill_at_step(rig: Rig, mode: str, name: str) -> None:
    """Killed at a named step and restarted with other knobs: nothing lost, nothing doubtful."""
    kill_at_step(rig, mode, name)


@pytest.mark.parametrize(("mode", "name"), steps({"staged.committing"}))
def test_kill_at_step_on_mariadb(mariadb_rig: Rig, mode: str, name: str) -> None:
    """The same, where a claim is three statements and commits are the server's own."""
    kill_at_step(mariadb_rig, mode, name)


def kill_at_step(rig: Rig, mode: str, name: str) -> None:
    """Kill the program at a step, let it go on, and account for all."""
    rig.prepare()
    rows = [row() for _ in range(5 * BATCH)]
    rig.insert(rows)
    killed = rig.run(
        *("run", "--endpoint", "Sales", "--once", "--mode", mode),
        fault=f"{name}:2",
        MIGRATOR_HANDOVER__BATCH_SIZE=str(BATCH),
    )
    assert killed.returncode == KILLED, killed.stderr
    rig.migrate("--mode", "staged", MIGRATOR_HANDOVER__BATCH_SIZE="37")
    account = rig.account(rows, "Billing")
    print(f"{name}: {account}")
    assert account.lost == ()
    assert account.foreign == ()
    assert len(account.duplicated) <= (0 if mode == "staged" else BATCH)
    assert set(rig.batch_states()) == {"handed_over"}


MANY: Final = pytest.param(40, marks=[pytest.mark.slow, pytest.mark.timeout(900)])


@pytest.mark.parametrize("mode", ["staged", "direct"])
@pytest.mark.parametrize("kills", [3, MANY])
def test_kill_at_random_moments(rig: Rig, mode: str, kills: int) -> None:
    """Killed again and again at random moments: lost 0, staged doubles 0."""
    kill_at_random_moments(rig, mode, kills)


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["staged", "direct"])
@pytest.mark.parametrize("kills", [3, MANY])
def test_kill_at_random_moments_on_mariadb(mariadb_rig: Rig, mode: str, kills: int) -> None:
    """The same with claims from MariaDB."""
    kill_at_random_moments(mariadb_rig, mode, kills)


def kill_at_random_moments(rig: Rig, mode: str, kills: int) -> None:
    """Kill the program, again and again, let it come to its end, and account for all."""
    rig.prepare()
    rows = [row() for _ in range(kills * 5000)]
    rig.insert(rows)
    dice = chance(20_260_301 + kills)
    knobs = ({"lanes": 1, "batch": BATCH}, {"lanes": 2, "batch": 250}, {"lanes": 1, "batch": 40})
    in_flight = busy = 0
    for turn in range(kills):
        knob = knobs[turn % len(knobs)]
        in_flight += knob["lanes"] * knob["batch"]
        process = rig.start(
            "run",
            "--endpoint",
            "Sales",
            "--mode",
            mode,
            MIGRATOR_HANDOVER__LANES=str(knob["lanes"]),
            MIGRATOR_HANDOVER__BATCH_SIZE=str(knob["batch"]),
        )
        time.sleep(dice.uniform(0.8, 3.0))
        assert process.poll() is None, process.communicate()[1][-3000:]
        rig.kill(process)
        busy += bool(rig.stored_ids())
    rig.migrate("--mode", mode, timeout=300)
    account = rig.account(rows, "Billing", settle_s=30)
    print(f"{mode}, {kills} kills, {busy} of them with work left: {account}")
    assert busy >= kills * 3 // 4
    assert account.lost == ()
    assert account.foreign == ()
    assert len(account.duplicated) <= (0 if mode == "staged" else in_flight)
    assert set(rig.batch_states()) == {"handed_over"}
