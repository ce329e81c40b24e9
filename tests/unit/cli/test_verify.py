"""Tests of ``migrator.cli.verify``; levels are looked into on a real broker only."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from migrator.cli import verify
from migrator.domain.timeouts import BatchId, EndpointName
from migrator.domain.verification import (
    DestinationBalance,
    Discrepancy,
    EndpointBalance,
    Found,
    LevelBalance,
    Verification,
)
from migrator.engine.verify import Verifier
from migrator.errors import ExitCode, TargetUnavailable
from tests.unit.cli.conftest import Program
from tests.unit.cli.html.reading import read

NOW = datetime(2026, 3, 10, 9, 30, tzinfo=UTC)
SALES = EndpointName("Sales")
BALANCE = EndpointBalance(
    endpoint=SALES,
    source="Sales_TimeoutData",
    in_store=3,
    claimed=20,
    purged=1,
    rows={"handed_over": 15, "claimed": 2, "recalled": 1},
)
BALANCED = Verification(
    taken_at=NOW,
    endpoints=[BALANCE],
    destinations=[
        DestinationBalance(endpoint=SALES, destination="Billing", waiting=10, left=5, quarantined=0)
    ],
    levels=[
        LevelBalance(level=16, total=12, ours=10, foreign=2),
        LevelBalance(level=0, total=0, ours=0, foreign=0),
    ],
    rows_checked=18,
    waiting=10,
    discrepancies=(),
    counts={Discrepancy.TWICE: 0},
    doubtful=(),
    not_checked=(),
)
DISCREPANT = replace(
    BALANCED,
    discrepancies=[
        Found(
            kind=Discrepancy.ROWS_GONE,
            endpoint=SALES,
            timeout_id=None,
            batch=BatchId(7),
            detail="batch 7 (handed_over) has 9 rows and should have 10",
        ),
        Found(
            kind=Discrepancy.TOO_FEW, endpoint=None, timeout_id=None, batch=None, detail="too few"
        ),
    ],
    counts={Discrepancy.ROWS_GONE: 41, Discrepancy.TOO_FEW: 1},
    doubtful=[BatchId(9)],
    not_checked=["level 21: it holds more"],
)
QUARANTINED = replace(BALANCED, endpoints=[replace(BALANCE, rows={"quarantined": 19})])


@pytest.mark.parametrize(
    ("found", "code"),
    [
        (BALANCED, ExitCode.DONE),
        (replace(BALANCED, not_checked=["all of it"]), ExitCode.DONE),
        (QUARANTINED, ExitCode.QUARANTINED),
        (replace(QUARANTINED, doubtful=[BatchId(9)]), ExitCode.DOUBTFUL),
        (DISCREPANT, ExitCode.DOUBTFUL),
    ],
)
def test_the_exit_code_tells_the_verdict(found: Verification, code: ExitCode) -> None:
    """So that a script need not read."""
    assert verify.exit_code(found) == code


def test_people_read_the_verdict_last(capsys: pytest.CaptureFixture[str]) -> None:
    """After the books, what does not agree, and what was not checked."""
    verify.show(DISCREPANT)
    lines = capsys.readouterr().out.splitlines()
    words = [line.split() for line in lines]
    assert words[1] == ["Sales", "20", "2", "15", "0", "0", "0", "1", "0", "1", "1", "3"]
    assert ["Billing", "Sales", "10", "5", "0"] in words
    assert ["16", "12", "10", "2"] in words
    assert not [each for each in words if each and each[0] == "00"]
    assert "rows_gone: 41" in lines
    assert "not checked: level 21: it holds more" in lines
    assert "doubtful: batches 9" in lines[-3]
    assert lines[-1] == "discrepant: 42 things do not agree"
    verify.show(BALANCED)
    assert capsys.readouterr().out.endswith("balanced: everything that was looked at agrees\n")


def test_programs_read_the_same() -> None:
    """With plain words for states and kinds."""
    document = verify.document(DISCREPANT, "abc")
    assert document["verdict"] == "discrepant"
    assert document["is_complete"] is False
    assert document["counts"] == {"rows_gone": 41, "too_few_in_levels": 1}
    assert document["evidence_sha256"] == "abc"
    assert document["endpoints"] == [
        {
            "endpoint": "Sales",
            "source": "Sales_TimeoutData",
            "in_store": 3,
            "claimed": 20,
            "in_flight": 2,
            "handed_over": 15,
            "dispatched": 0,
            "quarantined": 0,
            "released": 0,
            "recalled": 1,
            "doubtful": 0,
            "purged": 1,
            "unaccounted": 1,
        }
    ]


def test_a_new_ledger_is_balanced(program: Program, tmp_path: Path) -> None:
    """Nothing was claimed; it is recorded all the same that somebody looked."""
    program.seeded()
    file = tmp_path / "e.jsonl"
    ended = program("verify", "--evidence", str(file), "--endpoint", "Sales")
    assert ended.out.endswith("balanced: everything that was looked at agrees\n")
    first, last = map(json.loads, file.read_text().splitlines())
    assert (first["endpoints"], first["scan"]) == (["Sales"], False)
    assert last["totals"]["lines"] == 0
    assert last["sha256"] in ended.err
    document = program("verify", "--json").document
    assert document["schema"] == "migrator/verify/1"
    assert document["evidence_sha256"] is None
    events = program.rows("SELECT kind FROM migrator_event WHERE kind = 'verified'")
    assert len(events) == 2


def test_a_verification_is_a_page_on_demand(program: Program, tmp_path: Path) -> None:
    """Written where it shall be, with the ledger's id and the seal of the evidence."""
    program.seeded()
    output, evidence = tmp_path / "v.html", tmp_path / "e.jsonl"
    options = ("--format", "html", "--output", str(output), "--evidence", str(evidence))
    ended = program("verify", "--endpoint", "Sales", *options)
    assert ended.out == ""
    page = read(output.read_text())
    ((ledger_id,),) = program.rows("SELECT id FROM migrator_ledger")
    assert ledger_id in page.text
    assert json.loads(evidence.read_text().splitlines()[-1])["sha256"] in page.text
    assert "migrator verify --scan --endpoint Sales" in page.text


def test_a_verification_may_go_into_a_file(program: Program, tmp_path: Path) -> None:
    """As a table and as JSON; a place that is none is told before anything is looked at."""
    program.seeded()
    file = tmp_path / "v.txt"
    assert program("verify", "--output", str(file)).out == ""
    assert file.read_text().endswith("balanced: everything that was looked at agrees\n")
    program("verify", "--json", "--output", str(file))
    assert json.loads(file.read_text())["schema"] == "migrator/verify/1"
    program("verify", "--output", str(tmp_path / "absent" / "v.txt"), codes=[2])
    events = program.rows("SELECT kind FROM migrator_event WHERE kind = 'verified'")
    assert len(events) == 2


def test_nobody_knows_such_an_endpoint(program: Program) -> None:
    """A wrong name must not look like a balanced endpoint."""
    program.seeded()
    assert "no endpoint 'Salse'" in program("verify", "--endpoint", "Salse", codes=[3]).err


def test_a_span_has_to_be_one(program: Program) -> None:
    """The option is named."""
    assert "--hold" in program("verify", "--hold", "long", codes=[2]).err


def test_an_interrupted_one_says_how_to_go_on(
    program: Program, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was written is kept; on a terminal there is progress, too."""

    def cut(_: Verifier) -> Verification:
        raise TargetUnavailable("cut")

    program.seeded()
    monkeypatch.setattr(Verifier, "run", cut)
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    ended = program("verify", "--evidence", str(tmp_path / "e.jsonl"), codes=[4])
    assert "e.jsonl.partial has what was done; the same command goes on" in ended.err
    assert (tmp_path / "e.jsonl.partial").exists()
    program("verify", codes=[4])
