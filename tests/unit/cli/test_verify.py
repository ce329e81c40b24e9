"""Tests of ``migrator.cli.verify``; levels are looked into on a real broker only."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from migrator.app.ledger import open_ledger
from migrator.cli import verify
from migrator.cli.session import Session
from migrator.delays.routing import DelaysVersion
from migrator.errors import ExitCode, PreflightRefused
from migrator.ledger.lease_keeper import current_owner, recalling_alone, scanning_alone
from migrator.nservicebus.timeouts import RECALL_LANE, SCAN_LANE, BatchId, EndpointName, Lane
from migrator.verify.report import (
    DestinationBalance,
    Discrepancy,
    EndpointBalance,
    Found,
    LevelBalance,
    VerifyResult,
)
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
BALANCED = VerifyResult(
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
def test_the_exit_code_tells_the_verdict(found: VerifyResult, code: ExitCode) -> None:
    """So that a script need not read."""
    assert verify.exit_code(found) == code


def test_people_read_the_verdict_last(capsys: pytest.CaptureFixture[str]) -> None:
    """After the counts, what does not agree, and what was not checked."""
    verify.show(DISCREPANT)
    lines = capsys.readouterr().out.splitlines()
    words = [line.split() for line in lines]
    assert words[1] == ["Sales", "20", "2", "0", "15", "0", "0", "0", "1", "0", "0", "1", "1", "3"]
    assert ["Billing", "Sales", "10", "5", "0"] in words
    assert ["v2", "16", "12", "10", "2"] in words
    assert not [each for each in words if "00" in each]
    assert "rows_gone: 41" in lines
    assert "not checked: level 21: it holds more" in lines
    assert "doubtful: batches 9" in lines[-3]
    assert lines[-1] == "Not verified: 42 contradictions"
    verify.show(BALANCED)
    assert capsys.readouterr().out.endswith("Verified: every timeout is accounted for\n")


def test_a_new_ledger_is_balanced(program: Program, tmp_path: Path) -> None:
    """Nothing was claimed; it is recorded all the same that somebody looked, and sealed."""
    program.seeded()
    file, evidence = tmp_path / "v.txt", tmp_path / "e.jsonl"
    looked = ("verify", "--endpoint", "Sales", "--output", str(file))
    ended = program(*looked, "--evidence", str(evidence))
    assert ended.out == ""
    assert file.read_text().endswith("No contradiction found, but 1 thing not checked\n")
    first, last = map(json.loads, evidence.read_text().splitlines())
    assert (first["endpoints"], first["scan"]) == (["Sales"], False)
    assert last["totals"]["lines"] == 0
    assert last["sha256"] in ended.err
    document = program("verify", "--json").document
    assert (document["schema"], document["evidence_sha256"]) == ("migrator/verify/1", None)
    program(*looked, "--format", "html")
    page = read(file.read_text())
    ((ledger_id,),) = program.rows("SELECT id FROM migrator_ledger")
    assert ledger_id in page.text
    assert "migrator verify --deep --endpoint Sales" in page.text
    program("verify", "--output", str(tmp_path / "absent" / "v.txt"), codes=[2])
    assert "no endpoint 'Salse'" in program("verify", "--endpoint", "Salse", codes=[3]).err
    events = program.rows("SELECT kind FROM migrator_event WHERE kind = 'verified'")
    assert len(events) == 3


@pytest.mark.parametrize(
    ("option", "value"),
    [("--max-hold", "long"), ("--max-hold", "0s"), ("--max-depth", "-1"), ("--rate", "-1")],
)
def test_what_cannot_be_is_refused(program: Program, option: str, value: str) -> None:
    """Before anything is looked at; the option is named."""
    assert option in program("verify", "--deep", option, value, codes=[2]).err


@pytest.mark.parametrize(
    ("lane", "told"),
    [(RECALL_LANE, "runs a recall"), (SCAN_LANE, "another `migrator verify --deep`")],
)
def test_one_looks_through_the_levels_at_a_time(program: Program, lane: Lane, told: str) -> None:
    """Nor does anybody while timeouts are recalled; counting them goes on."""
    program.seeded()
    with open_ledger(Session().settings()) as ledger:
        ledger.leases.acquire(lane, "elsewhere/1/1/1/x", timedelta(minutes=5))
    assert told in program("verify", "--deep", codes=[3]).err
    program("verify")


def test_a_scan_keeps_recalls_away_and_nobody_else(program: Program) -> None:
    """Lanes of hand-over can be taken; the lease of one that died on this machine is no matter."""
    program.seeded()
    *place, _, started, secret = current_owner().split("/")
    dead = "/".join([*place, str(2**22 + 1), started, secret])
    settings = Session().settings()
    with open_ledger(settings) as ledger:
        leases, term = ledger.leases, settings.handover.lease
        for lane in (SCAN_LANE, RECALL_LANE):
            leases.acquire(lane, dead, timedelta(minutes=5))
        with scanning_alone(leases, term):
            assert leases.owner_of(SCAN_LANE) != dead
            with (
                pytest.raises(PreflightRefused, match="verify --deep"),
                recalling_alone(leases, term),
            ):
                pass
            assert leases.acquire(Lane(0), "somebody", timedelta(minutes=1)) is not None
        assert SCAN_LANE not in {each.lane for each in ledger.queries.progress().lanes}
