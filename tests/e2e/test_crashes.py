"""The real program, killed at every named step and at random moments: lost 0, always."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Sequence
from random import Random
from typing import Final

import pytest

from tests.e2e.rig import Rig
from tests.e2e.rows import Row, chance, row

BATCH: Final = 200
STAGED: Final = (
    "claim.done",
    "staged.begun",
    "staged.publishing",
    "staged.confirmed",
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
    """Killed at a named step and restarted with other settings: nothing lost, nothing doubtful."""
    kill_at_step(rig, mode, name)


@pytest.mark.slow
@pytest.mark.parametrize(("mode", "name"), steps({"staged.committing"}))
def test_kill_at_step_on_mariadb(mariadb_rig: Rig, mode: str, name: str) -> None:
    """The same, where a claim is three statements and commits are the server's own."""
    kill_at_step(mariadb_rig, mode, name)


def kill_at_step(rig: Rig, mode: str, name: str) -> None:
    """Kill the program at a step, let it go on, and account for all."""
    rig.is_fresh = name == "staged.nacked"
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


MANY: Final = pytest.param(50, marks=[pytest.mark.slow, pytest.mark.timeout(1800)])


@pytest.mark.parametrize("mode", ["staged", pytest.param("direct", marks=pytest.mark.slow)])
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


def kill_at_random_moments(
    rig: Rig,
    mode: str,
    kills: int,
    *,
    new_row: Callable[[], Row] = row,
    rows_per_kill: int = 3500,
    batches: Sequence[int] = (BATCH, 250, 40),
    moments_s: tuple[float, float] = (0.1, 1.8),
    beside: Callable[[Random], Collection[str]] = lambda _dice: (),
) -> None:
    """Kill the program, again and again, let it come to its end, and account for all.

    Args:
        rig: Where it runs.
        mode: How it hands over.
        kills: How often it is killed.
        new_row: Makes a timeout.
        rows_per_kill: So many that there is work left at most kills.
        batches: Sizes of batches, in turn; with the second one there are two lanes.
        moments_s: It is killed so many seconds after its start: at least, and at most.
        beside: What a timeout manager sends and removes after each kill; returns the ids.
    """
    rig.prepare()
    rows = [new_row() for _ in range(kills * rows_per_kill)]
    rig.insert(rows)
    dice = chance(20_260_301 + kills)
    in_flight = busy = 0
    sent: set[str] = set()
    for turn in range(kills):
        lanes, batch = (2 if turn % len(batches) == 1 else 1), batches[turn % len(batches)]
        in_flight += lanes * batch
        process = rig.start(
            "run",
            "--endpoint",
            "Sales",
            "--mode",
            mode,
            MIGRATOR_HANDOVER__LANES=str(lanes),
            MIGRATOR_HANDOVER__BATCH_SIZE=str(batch),
        )
        time.sleep(dice.uniform(*moments_s))
        assert process.poll() is None, rig.finish(process).stderr[-3000:]
        rig.kill(process)
        busy += rig.has_rows()
        sent |= {*beside(dice)}
    rig.migrate("--mode", mode, timeout=600)
    left = [each for each in rows if each.id not in sent]
    account = rig.account(left, "Billing", settle_s=30)
    print(
        f"{mode}, {kills} kills, {busy} of them with work left: {account}; sent beside {len(sent)}"
    )
    assert busy >= kills * 3 // 4
    assert account.lost == ()
    assert account.foreign == ()
    assert len(account.duplicated) <= (0 if mode == "staged" else in_flight)
    assert set(rig.batch_states()) == {"handed_over"}
