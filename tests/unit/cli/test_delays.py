"""Tests of ``migrator.cli.delays``."""

from __future__ import annotations

import io
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from rich.console import Console

from migrator.cli import delays
from migrator.cli.delays import level_table
from migrator.delays.depths import LevelDepth, LevelDepths, build_level_depths
from migrator.delays.probe import Probe, ProbeRun
from migrator.delays.routing import DelaysVersion
from migrator.errors import PreflightRefused, TargetUnavailable
from migrator.rabbitmq.connection import ConnectionSettings
from tests.unit.cli.conftest import Program
from tests.unit.preflight.fakes import level_depths


@pytest.mark.parametrize("version", ["v1", "v2"])
def test_delays_are_created_on_demand(
    program: Program, monkeypatch: pytest.MonkeyPatch, version: str
) -> None:
    """Of the generation that was asked for."""
    made: list[tuple[str, str]] = []

    def create(settings: ConnectionSettings, which: DelaysVersion) -> None:
        made.append((settings.address.host, str(which)))

    monkeypatch.setattr(delays, "create_delays", create)
    url = ["--broker-url", "amqp://a:b@broker-1"]
    ended = program(*url, "delays", "create", "--delays", version)
    assert ended.err == f"delays {version} are complete\n"
    document = program(*url, "delays", "create", "--delays", version, "--json").document
    assert document == {"schema": "migrator/delays-create/1", "delays": version}
    assert made == [("broker-1", version)] * 2


def test_levels_are_drawn(program: Program) -> None:
    """As a ladder, with what is held marked; exit code 0."""
    program.broker.steps = level_depths(
        LevelDepth(level=5, ready=3, unacknowledged=0, held=40, consumers=0)
    )
    ended = program("delays", "inspect")
    (line,) = [line for line in ended.out.splitlines() if line.startswith("05")]
    assert "may stand still" in line
    assert ended.err == ""
    document = program("delays", "inspect", "--json", "--delays", "v1").document
    assert (document["schema"], document["delays"]) == ("migrator/delays-inspect/1", "v1")
    assert document["levels"][22]["held"] == document["total"]["held"] == 40


def test_what_is_not_known_is_said(program: Program) -> None:
    """Not shown as zero."""
    program.broker.steps = level_depths(
        LevelDepth(level=5, ready=3, consumers=0), gap="no management API"
    )
    ended = program("delays", "inspect")
    assert ended.err == "not known: no management API\n"
    assert "not known" in ended.out
    document = program("delays", "inspect", "--json").document
    assert document["total"] == {"ready": 3, "unacknowledged": None, "held": None, "consumers": 0}


def test_missing_levels_end_with_3(program: Program) -> None:
    """With the command that makes them."""
    program.broker.steps = level_depths(LevelDepth(level=5, exists=False))
    ended = program("delays", "inspect", codes=[3])
    assert ended.err == "1 levels are missing: migrator delays create --delays v2\n"
    program.broker.steps = build_level_depths(DelaysVersion.V2, [])
    ended = program("delays", "inspect", codes=[3])
    assert (ended.out, ended.err.partition(":")[0]) == ("", "delays v2 do not exist here")


def test_an_unknown_generation_is_refused(program: Program) -> None:
    """It says which there are."""
    assert "must be v1 or v2" in program("delays", "inspect", "--delays", "v3", codes=[2]).err


CANARY = ("--broker-url", "amqp://a:b@broker-1", "delays", "canary")
Fly = Callable[..., None]


@pytest.fixture
def flown(monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[dict[str, Any]]]:
    """Set how the probes come back; returns the list of calls."""

    def set_up(
        *late_s: float | None, left_queue: str = "", failure: Exception | None = None
    ) -> list[dict[str, Any]]:
        calls: list[dict[str, Any]] = []

        def send_probes(
            _settings: object, version: DelaysVersion, levels: Sequence[int], **more: Any
        ) -> ProbeRun:
            calls.append({"version": str(version), "levels": list(levels), **more})
            if failure is not None:
                raise failure
            probes = tuple(Probe(level=n, late_s=late) for n, late in enumerate(late_s))
            return ProbeRun(version=version, probes=probes, left_queue=left_queue)

        monkeypatch.setattr(delays, "send_probes", send_probes)
        return calls

    return set_up


def test_probes_that_come_back_are_fine(program: Program, flown: Any) -> None:
    """With how late each was; exit code 0."""
    calls = flown(0.0121, 0.5)
    ended = program(*CANARY)
    assert [line.split() for line in ended.out.splitlines()[1:]] == [
        ["00", "1", "s", "12", "ms", "on", "time"],
        ["01", "2", "s", "500", "ms", "on", "time"],
    ]
    assert ended.err == ""
    assert calls == [
        {"version": "v2", "levels": [0, 1, 2, 3], "patience_s": 30.0, "find_bindings": None}
    ]
    document = program(*CANARY, "--json", "--delays", "v1", "--levels", "1,0").document
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
    assert program(*CANARY, codes=[3]).out.splitlines()[2].endswith(arrival)


def test_a_queue_that_is_left_is_named(program: Program, flown: Any) -> None:
    """With when it goes."""
    flown(None, left_queue="migrator.canary.x")
    assert program(*CANARY, codes=[3]).err.startswith("queue migrator.canary.x waits")


@pytest.mark.parametrize(
    ("failure", "code"), [(PreflightRefused("no delays"), 3), (TargetUnavailable("gone"), 4)]
)
def test_other_endings_have_their_own_codes(
    program: Program, flown: Any, failure: Exception, code: int
) -> None:
    """Nothing is written then."""
    flown(failure=failure)
    assert program(*CANARY, "--json", codes=[code]).out == ""


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
    assert said in program(*CANARY, *options, codes=[2]).err
    assert calls == []


def drawn(steps: LevelDepths, *, width: int = 100, color: bool = False) -> list[str]:
    """Return the lines of a ladder."""
    stream = io.StringIO()
    system = "standard" if color else None
    console = Console(file=stream, width=width, force_terminal=color, color_system=system)  # type: ignore[arg-type]  # rich types it as a literal
    console.print(level_table(steps))
    return stream.getvalue().splitlines()


def test_each_level_is_a_rung() -> None:
    """Longest delays on top, sums at the bottom."""
    lines = drawn(level_depths())
    assert len(lines) == 1 + 28 + 1
    assert lines[1].startswith("27     1553d 10h … 3106d 21h  ├────")
    assert lines[28].startswith("00")
    assert "total" in lines[29]


def test_rungs_are_filled_by_what_waits() -> None:
    """In proportion, and the least message is seen beside a million."""
    crowded = level_depths(
        LevelDepth(level=9, ready=1_000_000, unacknowledged=0, held=0, consumers=0),
        LevelDepth(level=8, ready=500_000, unacknowledged=0, held=0, consumers=0),
        LevelDepth(level=7, ready=1, unacknowledged=1, held=1, consumers=1),
        LevelDepth(level=6, ready=999_998, unacknowledged=1, held=1, consumers=0),
    )
    by_level = {line[:2]: line for line in drawn(crowded)}
    assert "├" + "█" * 16 + "┤" in by_level["09"]
    assert "├" + "█" * 8 + "─" * 8 + "┤" in by_level["08"]
    assert "├█▒▓" + "─" * 13 + "┤" in by_level["07"]
    assert "├" + "█" * 14 + "▒▓┤" in by_level["06"]
    assert "1 000 000" in by_level["09"]
    assert all(line.count("┤") == 1 for level, line in by_level.items() if level.isdigit())


@pytest.mark.parametrize(
    ("step", "remark"),
    [
        (LevelDepth(level=3, exists=False), "missing"),
        (LevelDepth(level=3, ready=0, held=1), "not passed on"),
        (LevelDepth(level=3, ready=0, held=32), "may stand still"),
    ],
)
def test_what_is_wrong_is_said_and_coloured(step: LevelDepth, remark: str) -> None:
    """In red on a terminal."""
    (line,) = [text for text in drawn(level_depths(step)) if text.startswith("03")]
    assert remark in line
    (line,) = [text for text in drawn(level_depths(step), color=True) if "03" in text[:12]]
    assert "31m" in line


def test_what_is_not_known_is_not_drawn_as_zero() -> None:
    """Counts that nobody could ask for are named as such."""
    plain = build_level_depths(
        DelaysVersion.V2, [LevelDepth(level=n, ready=n, consumers=0) for n in range(28)]
    )
    lines = drawn(plain)
    assert lines[1].count("not known") == 2
    assert lines[29].count("not known") == 2
    assert "378" in lines[29]
