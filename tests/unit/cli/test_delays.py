"""Tests of ``migrator.cli.delays``."""

from __future__ import annotations

import io
import json
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from types import SimpleNamespace

import pytest
from rich.console import Console

from migrator.cli.delays import level_table
from migrator.delays.capacity import MeasuredBroker, MeasuredCapacity, SentBurst, read_capacity
from migrator.delays.depths import LevelDepth, LevelDepths, build_level_depths
from migrator.delays.probe import ProbeRun, ProbeTrip
from migrator.delays.routing import DelaysVersion
from migrator.delays.topology import DelayEntities
from tests.unit.cli.conftest import Program
from tests.unit.preflight.fakes import level_depths


def test_levels_are_drawn(program: Program) -> None:
    """As a table of levels, with what is held marked; exit code 0."""
    program.broker.steps = level_depths(
        LevelDepth(level=5, ready=3, unacknowledged=0, held=40, consumers=0)
    )
    ended = program("delays", "show")
    (line,) = [line for line in ended.out.splitlines() if line.startswith("05")]
    assert "may be frozen" in line
    assert ended.err == "verdict: not_checked\n"  # there is no ledger
    document = program("delays", "show", "--json", "--delays", "v1").document
    assert (document["schema"], document["delays"]) == ("migrator/delays-show/1", "v1")
    assert document["levels"][22]["held"] == document["total"]["held"] == 40
    assert "must be v1 or v2" in program("delays", "show", "--delays", "v3", codes=[2]).err


def test_what_is_not_known_is_said(program: Program) -> None:
    """Not shown as zero."""
    program.broker.steps = level_depths(
        LevelDepth(level=5, ready=3, consumers=0), gap="no management API"
    )
    ended = program("delays", "show")
    assert ended.err == "verdict: not_checked\nnot known: no management API\n"
    (line,) = [line for line in ended.out.splitlines() if line.startswith("05")]
    assert line.count("not known") == 2
    document = program("delays", "show", "--json").document
    assert document["total"] == {"ready": 3, "unacknowledged": None, "held": None, "consumers": 0}


def test_missing_levels_end_with_3(program: Program) -> None:
    """With the command that makes them."""
    program.broker.steps = level_depths(LevelDepth(level=5, exists=False))
    program.broker.entities = DelayEntities(missing=["x"], different={}, not_checked=())
    shown = program("delays", "show", codes=[3]).out
    assert "migrator delays create --delays v2" in shown
    assert "for delays of" in shown
    program.broker.steps = build_level_depths(DelaysVersion.V2, [])
    assert "for delays of" not in program("delays", "show", codes=[3]).out


PROBE = ("--broker-url", "amqp://broker-1", "delays", "probe")


def test_probes_that_come_back_are_fine(program: Program, monkeypatch: pytest.MonkeyPatch) -> None:
    """With how late each was; one that is lost or early ends with 3, and is named."""
    late_s: list[float | None] = [0.0121, 0.5]

    def send_probes(
        _settings: object, version: DelaysVersion, levels: Sequence[int], **_: object
    ) -> ProbeRun:
        probes = [ProbeTrip(level=n, late_s=late) for n, late in zip(levels, late_s, strict=True)]
        is_lost = None in late_s
        return ProbeRun(
            version=version, probes=tuple(probes), left_queue="migrator.probe.x" * is_lost
        )

    monkeypatch.setattr("migrator.app.delays.send_probes", send_probes)
    probed = (*PROBE, "--levels", "1,0")
    ended = program(*probed)
    assert [line.split() for line in ended.out.splitlines()[1:]] == [
        ["00", "1", "s", "12", "ms", "on", "time"],
        ["01", "2", "s", "500", "ms", "on", "time"],
    ]
    assert ended.err == ""
    late_s[:] = [-0.5, None]
    ended = program(*probed, codes=[3])
    assert [line.split()[-1] for line in ended.out.splitlines()[1:]] == ["early", "lost"]
    assert ended.err.startswith("queue migrator.probe.x waits")
    assert program(*probed, "--json", codes=[3]).document == {
        "schema": "migrator/delays-probe/1",
        "delays": "v2",
        "is_fine": False,
        "left_queue": "migrator.probe.x",
        "probes": [
            {"level": 0, "delay_s": 1, "late_s": -0.5, "arrival": "early"},
            {"level": 1, "delay_s": 2, "late_s": None, "arrival": "lost"},
        ],
    }


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--levels", "0,3", "--patience", "8s"], "level 3 takes 8 s"),
        (["--levels", "x"], "--levels 'x' must be levels from 0 to 27"),
        (["--patience", "30"], "--patience '30' must be a duration"),
    ],
)
def test_what_cannot_end_in_time_is_not_begun(
    program: Program, options: list[str], said: str
) -> None:
    """Exit code 2; the broker of this address does not exist."""
    assert said in program(*PROBE, *options, codes=[2]).err


def test_a_measured_capacity_is_shown_and_kept(
    program: Program, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As releases a second by exchanges passed; without a ledger it is shown, and ends with 3."""
    measured = MeasuredCapacity(
        exchange_cost_s=0.0001,
        measured_at=datetime(2026, 3, 10, 9, 30, tzinfo=UTC),
        broker=MeasuredBroker(
            delays=DelaysVersion.V2, broker_version="3.10.8", cluster="rabbit@one", vhost="/"
        ),
        bursts=(
            SentBurst(delay_s=8, messages=1001, published_s=0.1, released_s=0.4),
            SentBurst(delay_s=2, messages=1001, published_s=0.2, released_s=0.2),
        ),
    )
    monkeypatch.setattr("migrator.app.delays.measure_capacity", lambda *_, **__: measured)
    ended = program(*PROBE, "--capacity", codes=[3])
    assert "not recorded in the ledger" in ended.err
    program("db", "upgrade")
    ended = program(*PROBE, "--capacity")
    assert ended.err == "each exchange costs a level 0.100 ms\n"
    lines = [line.split("  ") for line in ended.out.splitlines()[1:]]
    cells = [[cell.strip() for cell in line if cell] for line in lines]
    assert cells[:4] == [
        ["1", "1 s", "10 000/s"],
        ["2", "2 s", "5 000/s", "5 000/s or more"],
        ["3", "4 s", "3 333/s"],
        ["4", "8 s", "2 500/s", "2 500/s"],
    ]
    document = program(*PROBE, "--capacity", "--json").document
    assert (document["schema"], document["is_kept"]) == ("migrator/delays-capacity/1", True)
    kept = program.rows("SELECT detail FROM migrator_event WHERE kind = 'capacity_measured'")
    assert [read_capacity(json.loads(detail)) for (detail,) in kept] == [
        replace(measured, bursts=())
    ] * 2


def drawn(steps: LevelDepths, *, width: int = 100, color: bool = False) -> list[str]:
    """Return the lines of the table of levels."""
    stream = io.StringIO()
    system = "standard" if color else None
    console = Console(file=stream, width=width, force_terminal=color, color_system=system)  # type: ignore[arg-type]  # rich types it as a literal
    console.print(level_table(steps))
    return stream.getvalue().splitlines()


def test_levels_are_filled_by_what_waits() -> None:
    """Longest delays on top, in proportion; the least message is seen beside a million."""
    crowded = level_depths(
        LevelDepth(level=9, ready=1_000_000, unacknowledged=0, held=0, consumers=0),
        LevelDepth(level=8, ready=500_000, unacknowledged=0, held=0, consumers=0),
        LevelDepth(level=7, ready=1, unacknowledged=1, held=1, consumers=1),
        LevelDepth(level=6, ready=999_998, unacknowledged=1, held=1, consumers=0),
    )
    lines = drawn(crowded)
    assert len(lines) == 1 + 28 + 1
    assert lines[1].startswith("27     1553d 10h … 3106d 21h  ├────")
    by_level = {line[:2]: line for line in lines}
    assert "├" + "█" * 16 + "┤" in by_level["09"]
    assert "├" + "█" * 8 + "─" * 8 + "┤" in by_level["08"]
    assert "├█▒▓" + "─" * 13 + "┤" in by_level["07"]
    assert "├" + "█" * 14 + "▒▓┤" in by_level["06"]
    assert "1 000 000" in by_level["09"]


@pytest.mark.parametrize(
    ("step", "remark"),
    [
        (LevelDepth(level=3, exists=False), "missing"),
        (LevelDepth(level=3, ready=0, held=1), "not passed on"),
        (LevelDepth(level=3, ready=0, held=32), "may be frozen"),
    ],
)
def test_what_is_wrong_is_said_and_coloured(step: LevelDepth, remark: str) -> None:
    """In red on a terminal."""
    (line,) = [text for text in drawn(level_depths(step)) if text.startswith("03")]
    assert remark in line
    (line,) = [text for text in drawn(level_depths(step), color=True) if "03" in text[:12]]
    assert "31m" in line


def test_a_level_is_watched_only_for_as_long_as_was_said(
    program: Program, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And only when messages are held; without a store, what the ledger tells is not checked."""
    waits: list[float] = []
    monkeypatch.setattr("migrator.app.delays.time", SimpleNamespace(sleep=waits.append))
    verify = ("delays", "show", "--watch-for")
    program("db", "upgrade")
    findings = program(*verify, "3s", "--json").document["findings"]
    assert [f["subject"] for f in findings if f["level"] == "not_checked"] == []
    monkeypatch.delenv("MIGRATOR_STORE__URL")
    assert "'10' must be a duration" in program(*verify, "10", codes=[2]).err
    document = program(*verify, "3s", "--delays", "v1", "--json").document
    assert document["schema"] == "migrator/delays-show/1"
    (finding,) = [f for f in document["findings"] if f["level"] == "not_checked"]
    assert (finding["check"], finding["subject"]) == ("ways-out", "handed-over timeouts")
    assert waits == []
    program.broker.hanging = {1: 40}
    document = program(*verify, "3s", "--json", codes=[3]).document
    (finding,) = [f for f in document["findings"] if f["level"] == "refused"]
    assert "is frozen" in finding["text"]
    assert sum(waits) == 3
