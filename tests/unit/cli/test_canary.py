"""Tests of ``migrator.cli.canary``."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from migrator.cli import canary
from migrator.delays.probe_results import Flight, Probe
from migrator.delays.routing import DelaysVersion
from migrator.errors import PreflightRefused, TargetUnavailable
from tests.unit.cli.conftest import Program

BROKER = ("--broker-url", "amqp://a:b@broker-1", "delays", "canary")
Fly = Callable[..., None]


@pytest.fixture
def flown(monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[dict[str, Any]]]:
    """Set how the probes come back; returns the list of calls."""

    def set_up(
        *late_s: float | None, left_queue: str = "", failure: Exception | None = None
    ) -> list[dict[str, Any]]:
        calls: list[dict[str, Any]] = []

        def fly(
            _settings: object, version: DelaysVersion, levels: Sequence[int], **more: Any
        ) -> Flight:
            calls.append({"version": str(version), "levels": list(levels), **more})
            if failure is not None:
                raise failure
            probes = tuple(Probe(level=n, late_s=late) for n, late in enumerate(late_s))
            return Flight(version=version, probes=probes, left_queue=left_queue)

        monkeypatch.setattr(canary, "fly", fly)
        return calls

    return set_up


def test_probes_that_come_back_are_fine(program: Program, flown: Any) -> None:
    """With how late each was; exit code 0."""
    calls = flown(0.0121, 0.5)
    ended = program(*BROKER)
    assert [line.split() for line in ended.out.splitlines()[1:]] == [
        ["00", "1", "s", "12", "ms", "on", "time"],
        ["01", "2", "s", "500", "ms", "on", "time"],
    ]
    assert ended.err == ""
    assert calls == [
        {"version": "v2", "levels": [0, 1, 2, 3], "patience_s": 30.0, "find_bindings": None}
    ]
    document = program(*BROKER, "--json", "--delays", "v1", "--levels", "1,0").document
    assert document == {
        "schema": "migrator/delays-canary/1",
        "delays": "v1",
        "is_fine": True,
        "left_queue": None,
        "probes": [
            {"level": 0, "delay_s": 1, "late_s": 0.0121, "arrival": "on_time"},
            {"level": 1, "delay_s": 2, "late_s": 0.5, "arrival": "on_time"},
        ],
    }
    assert calls[1]["levels"] == [0, 1]


@pytest.mark.parametrize(("late_s", "arrival"), [(None, "lost"), (-0.5, "early")])
def test_a_probe_that_is_lost_or_early_ends_with_3(
    program: Program, flown: Any, late_s: float | None, arrival: str
) -> None:
    """And is named."""
    flown(0.01, late_s)
    assert program(*BROKER, codes=[3]).out.splitlines()[2].endswith(arrival)


def test_a_queue_that_is_left_is_named(program: Program, flown: Any) -> None:
    """With when it goes."""
    flown(None, left_queue="migrator.canary.x")
    assert program(*BROKER, codes=[3]).err.startswith("queue migrator.canary.x waits")


@pytest.mark.parametrize(
    ("failure", "code"), [(PreflightRefused("no delays"), 3), (TargetUnavailable("gone"), 4)]
)
def test_other_endings_have_their_own_codes(
    program: Program, flown: Any, failure: Exception, code: int
) -> None:
    """Nothing is written then."""
    flown(failure=failure)
    assert program(*BROKER, "--json", codes=[code]).out == ""


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--levels", "5"], "level 5 is away for 32 s"),
        (["--levels", "0,3", "--patience", "8s"], "level 3 is away for 8 s"),
        (["--levels", "x"], "--levels 'x' must be levels from 0 to 27"),
        (["--patience", "30"], "--patience '30' must be a duration"),
    ],
)
def test_what_cannot_end_in_time_is_not_begun(
    program: Program, flown: Any, options: list[str], said: str
) -> None:
    """Exit code 2."""
    calls = flown()
    assert said in program(*BROKER, *options, codes=[2]).err
    assert calls == []
