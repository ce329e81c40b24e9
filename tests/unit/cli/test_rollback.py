"""Tests of ``migrator.cli.rollback``."""

from __future__ import annotations

from datetime import timedelta

import pytest

from migrator.domain.states import Mode
from migrator.domain.timeouts import Lane, RunId
from migrator.ports import ClaimRequest
from migrator.wiring import App
from tests.unit.cli.conftest import Program

ROWS = "SELECT * FROM Sales_TimeoutData ORDER BY Id"


@pytest.fixture
def claimed(program: Program) -> Program:
    """The program, with 10 of 20 rows claimed by a run whose owner is gone."""
    from migrator.config import load

    program.seeded()
    app = App(load(environ={"MIGRATOR_STORE__URL": program.url}).settings)
    endpoint = app.store.find("Sales")
    run: RunId = app.runs.begin(endpoint, {})
    lease = app.leases.acquire(Lane(0), "somebody", timedelta(seconds=20))
    assert lease is not None
    request = ClaimRequest(
        run=run,
        endpoint=endpoint,
        lease=lease,
        mode=Mode.STAGED,
        due_after=None,
        due_until=app.clock.now() + timedelta(days=60),
        max_rows=10,
        max_bytes=10**9,
        cursor=None,
    )
    assert app.claims.claim(request) is not None
    app.leases.surrender(lease)
    app.close()
    return program


def test_rows_go_back_byte_for_byte(program: Program, claimed: Program) -> None:
    """As if they had never left; the audit trail knows."""
    assert len(claimed.rows(ROWS)) == 10
    ended = claimed("rollback", "--yes")
    assert "10 rows of 1 batches are back in their tables" in ended.err
    assert ended.out == ""
    assert len(claimed.rows(ROWS)) == 20
    assert ("rolled_back",) in claimed.rows("SELECT kind FROM migrator_event")


def test_nothing_goes_back_without_yes(claimed: Program) -> None:
    """It says what would happen."""
    ended = claimed("rollback", codes=[2])
    assert "add --yes" in ended.err
    assert len(claimed.rows(ROWS)) == 10


def test_a_dry_run_only_tells(claimed: Program) -> None:
    """Quarantined rows are counted, too."""
    claimed.change(
        "UPDATE migrator_timeout SET state = 'quarantined', reason = 'unroutable'"
        " WHERE row_index < 3"
    )
    document = claimed("rollback", "--dry-run", "--json").document
    assert document == {
        "schema": "migrator/rollback/1",
        "dry_run": True,
        "rows": 10,
        "batches": [1],
        "quarantined": 3,
        "untouched": [],
        "busy": [],
    }
    assert claimed("rollback", "--dry-run", "--endpoint", "Sales", "--json").document == document
    assert len(claimed.rows(ROWS)) == 10


def test_only_the_named_run_goes_back(claimed: Program) -> None:
    """Another run's rows stay claimed."""
    assert claimed("rollback", "--run", "99", "--yes", "--json").document["rows"] == 0
    assert claimed("rollback", "--run", "1", "--yes", "--json").document["rows"] == 10


def test_lanes_at_work_and_batches_at_the_broker_are_told(claimed: Program) -> None:
    """They are left alone."""
    claimed.change(
        "UPDATE migrator_batch SET state = 'committing'",
        "INSERT INTO migrator_lease (name, owner, token, until, doing, renewed_at) VALUES"
        " ('lane.5', 'else/1/2/3/4', 1, '2099-01-01 00:00:00.000000', '',"
        " '2026-01-01 00:00:00.000000')",
    )
    ended = claimed("rollback", "--yes")
    assert "batches 1 may have reached the broker" in ended.err
    assert "lane 5 was left alone: else/1/2/3/4 works on it" in ended.err


def test_a_dispatchers_rows_go_back_and_what_it_was_sending_is_told(claimed: Program) -> None:
    """Hand-over would never look at its lane."""
    claimed.change(
        "UPDATE migrator_batch SET lane = 1000, mode = 'dispatch', state = 'publishing'",
        "UPDATE migrator_lease SET name = 'lane.1000', serves = 'Sales_TimeoutData'"
        " WHERE name = 'lane.0'",
    )
    for options in (["--dry-run"], ["--yes"]):
        assert "of these, 1 want a dispatcher" in claimed("rollback", *options).err
    claimed.change("UPDATE migrator_batch SET state = 'claimed'")
    assert claimed("rollback", "--dry-run", "--json").document["rows"] == 10
    assert claimed("rollback", "--yes", "--json").document["rows"] == 10
    assert len(claimed.rows(ROWS)) == 20


def test_a_dead_owner_of_this_machine_keeps_nothing(
    claimed: Program, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its lease is ended instead of waited for."""
    from migrator.cli import rollback

    claimed.change("UPDATE migrator_lease SET owner = 'dead', until = '2099-01-01 00:00:00.000000'")
    monkeypatch.setattr(rollback, "is_surely_dead", lambda owner: owner == "dead")
    assert claimed("rollback", "--yes", "--json").document["rows"] == 10
