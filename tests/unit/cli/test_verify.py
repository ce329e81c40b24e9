"""Tests of ``migrator.cli.verify``; levels are looked into on a real broker only."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from migrator.cli import verify
from migrator.cli.opening import opened
from migrator.config import load
from migrator.delays.routing import DelaysVersion
from migrator.errors import ExitCode, PreflightRefused, TargetUnavailable
from migrator.ledger.exclusive import recalling_alone, scanning_alone
from migrator.ledger.lease_keeper import current_owner
from migrator.nservicebus.timeouts import RECALL_LANE, SCAN_LANE, BatchId, EndpointName, Lane
from migrator.verify.report import (
    DestinationBalance,
    Discrepancy,
    EndpointBalance,
    Found,
    LevelBalance,
    Verification,
    document,
)
from migrator.verify.verify import Verifier
from tests.unit.cli.conftest import Program
from tests.unit.reports.reading import read

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
        LevelBalance(delays=DelaysVersion.V2, level=16, total=12, ours=10, foreign=2),
        LevelBalance(delays=DelaysVersion.V1, level=0, total=0, ours=0, foreign=0),
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
    assert ["v2", "16", "12", "10", "2"] in words
    assert not [each for each in words if "00" in each]
    assert "rows_gone: 41" in lines
    assert "not checked: level 21: it holds more" in lines
    assert "doubtful: batches 9" in lines[-3]
    assert lines[-1] == "discrepant: 42 things do not agree"
    verify.show(BALANCED)
    assert capsys.readouterr().out.endswith("balanced: everything that was looked at agrees\n")


def test_programs_read_the_same() -> None:
    """With plain words for states and kinds."""
    found = document(DISCREPANT, "abc")
    assert found["verdict"] == "discrepant"
    assert found["is_complete"] is False
    assert found["levels"] == [
        {"delays": "v2", "level": 16, "total": 12, "ours": 10, "foreign": 2},
        {"delays": "v1", "level": 0, "total": 0, "ours": 0, "foreign": 0},
    ]
    assert found["counts"] == {"rows_gone": 41, "too_few_in_levels": 1}
    assert found["evidence_sha256"] == "abc"
    assert found["endpoints"] == [
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


@pytest.mark.parametrize(
    ("option", "value"), [("--hold", "0s"), ("--deepest", "-1"), ("--rate", "-1")]
)
def test_what_cannot_be_is_refused(program: Program, option: str, value: str) -> None:
    """Before anything is looked at; the option is named."""
    program.seeded()
    assert option in program("verify", "--scan", option, value, codes=[2]).err


@pytest.mark.parametrize(
    ("lane", "told"), [(RECALL_LANE, "recalls"), (SCAN_LANE, "another `migrator verify --scan`")]
)
def test_one_looks_through_the_levels_at_a_time(program: Program, lane: Lane, told: str) -> None:
    """Nor does anybody while timeouts are recalled; counting them goes on."""
    program.seeded()
    with opened(load(file=None)) as app:
        app.leases.acquire(lane, "elsewhere/1/1/1/x", timedelta(minutes=5))
    assert told in program("verify", "--scan", codes=[3]).err
    program("verify")


def test_a_scan_keeps_recalls_away_and_nobody_else(program: Program) -> None:
    """Lanes of hand-over can be taken; afterwards the status does not tell of the lease."""
    program.seeded()
    with opened(load(file=None)) as app:
        with scanning_alone(app.leases, app.plan.lease):
            assert SCAN_LANE in {each.lane for each in app.books.progress().lanes}
            with (
                pytest.raises(PreflightRefused, match="verify --scan"),
                recalling_alone(app.leases, app.plan.lease),
            ):
                pass
            assert app.leases.acquire(Lane(0), "somebody", timedelta(minutes=1)) is not None
        assert SCAN_LANE not in {each.lane for each in app.books.progress().lanes}


def test_the_lease_of_a_dead_one_is_taken(program: Program) -> None:
    """It ran on this machine, and is no more."""
    program.seeded()
    *place, _, started, secret = current_owner().split("/")
    with opened(load(file=None)) as app:
        dead = "/".join([*place, str(2**22 + 1), started, secret])
        for lane in (SCAN_LANE, RECALL_LANE):
            app.leases.acquire(lane, dead, timedelta(minutes=5))
        with scanning_alone(app.leases, app.plan.lease):
            assert app.leases.owner_of(SCAN_LANE) != dead


def test_an_interrupted_one_leaves_nothing(
    program: Program, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Half a file is evidence of nothing; on a terminal there is progress, too."""

    def cut(_: Verifier) -> Verification:
        raise TargetUnavailable("cut")

    program.seeded()
    monkeypatch.setattr(Verifier, "run", cut)
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    program("verify", "--evidence", str(tmp_path / "e.jsonl"), codes=[4])
    assert not [*tmp_path.glob("e.jsonl*")]
    program("verify", codes=[4])
