"""Tests of ``migrator.cli.rollback``."""

from __future__ import annotations

from datetime import timedelta

import pytest

from migrator.app import App
from migrator.ledger.states import Mode
from migrator.nservicebus.timeouts import Lane, RunId
from migrator.stores.ports import ClaimRequest
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
    assert "not handed over: 10 rows of 1 batches are back in their tables" in ended.err
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
        "stuck": [],
        "doubtful": [],
        "busy": [],
        "handed_over": {
            "expected": {
                "in_levels": 0,
                "too_near": 0,
                "left": 0,
                "possible_until": None,
                "is_exact": True,
            }
        },
        "left_in_quarantine": None,
        "stopped_by": None,
    }
    assert claimed("rollback", "--dry-run", "--endpoint", "Sales", "--json").document == document
    assert len(claimed.rows(ROWS)) == 10


def test_only_the_named_run_goes_back(claimed: Program) -> None:
    """Another run's rows stay claimed."""
    assert claimed("rollback", "--run", "99", "--yes", "--json").document["rows"] == 0
    assert claimed("rollback", "--run", "1", "--yes", "--json").document["rows"] == 10


def test_lanes_at_work_and_batches_at_the_broker_are_told(claimed: Program) -> None:
    """They are left alone; exit code 5."""
    claimed.change(
        "UPDATE migrator_batch SET state = 'committing'",
        "INSERT INTO migrator_lease (name, owner, token, until, doing, renewed_at) VALUES"
        " ('lane.5', 'else/1/2/3/4', 1, '2099-01-01 00:00:00.000000', '',"
        " '2026-01-01 00:00:00.000000')",
    )
    ended = claimed("rollback", "--yes", codes=[5])
    assert "batches 1 may have reached the broker" in ended.err
    assert "lane 5 was left alone: else/1/2/3/4 works on it" in ended.err


def test_a_dispatchers_rows_go_back_and_what_it_was_sending_is_told(claimed: Program) -> None:
    """Hand-over would never look at its lane."""
    claimed.change(
        "UPDATE migrator_batch SET lane = 1000, mode = 'dispatch', state = 'publishing'",
        "UPDATE migrator_lease SET name = 'lane.1000', serves = 'Sales_TimeoutData'"
        " WHERE name = 'lane.0'",
    )
    for option, code in (("--dry-run", 0), ("--yes", 5)):
        ended = claimed("rollback", option, codes=[code])
        assert "of these, 1 want a dispatcher" in ended.err
    claimed.change("UPDATE migrator_batch SET state = 'claimed'")
    assert claimed("rollback", "--dry-run", "--json").document["rows"] == 10
    assert claimed("rollback", "--yes", "--json").document["rows"] == 10
    assert len(claimed.rows(ROWS)) == 20


def test_a_dead_owner_of_this_machine_keeps_nothing(
    claimed: Program, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its lease is ended instead of waited for."""
    from migrator.recall import rollback

    claimed.change("UPDATE migrator_lease SET owner = 'dead', until = '2099-01-01 00:00:00.000000'")
    monkeypatch.setattr(rollback, "is_surely_dead", lambda owner: owner == "dead")
    assert claimed("rollback", "--yes", "--json").document["rows"] == 10


def test_doubtful_batches_are_told(claimed: Program) -> None:
    """A person decides first; exit code 5."""
    claimed.change("UPDATE migrator_batch SET state = 'doubtful'")
    ended = claimed("rollback", "--yes", codes=[5])
    assert "batches 1 are doubtful; `migrator batch resolve`" in ended.err
    assert claimed("rollback", "--dry-run", "--json").document["doubtful"] == [1]
    assert claimed("rollback", "--run", "9", "--yes", "--json").document["doubtful"] == []


HANDED_OVER = (
    "UPDATE migrator_batch SET state = 'handed_over', first_due = '2098-01-01 00:00:00.000000',"
    " last_due = '2099-01-01 00:00:00.000000'",
    "UPDATE migrator_timeout SET due = '2098-06-01 00:00:00.000000'",
)


def test_what_was_handed_over_is_foretold_without_the_broker(claimed: Program) -> None:
    """By the ledger: how many, and until when."""
    claimed.change(*HANDED_OVER)
    ended = claimed("rollback", "--dry-run")
    assert "by the ledger, 10 are in the levels, 0 are due too soon" in ended.err
    expected = claimed("rollback", "--dry-run", "--json").document["handed_over"]["expected"]
    assert expected["in_levels"] == 10
    assert expected["possible_until"].startswith("2097-12-31T23:59")
    kept = claimed("rollback", "--dry-run", "--keep-handed-over", "--json").document
    assert kept["handed_over"] is None


def test_without_a_broker_only_what_was_handed_over_is_out_of_reach(claimed: Program) -> None:
    """It is refused before anything is changed, unless that half is left out."""
    claimed.change(*HANDED_OVER)
    assert "broker.url" in claimed("rollback", "--yes", codes=[2]).err
    assert claimed.rows("SELECT kind FROM migrator_event") == []
    claimed("rollback", "--keep-handed-over", "--yes")
    claimed("rollback", "--run", "9", "--yes")


def test_the_first_half_is_told_when_the_second_fails(claimed: Program) -> None:
    """In the one document, with what stopped it; the exit code is that of the failure."""
    claimed.change(*HANDED_OVER)
    broker = ("--broker-url", "amqp://guest:guest@127.0.0.1:1/")
    claimed.change(
        "UPDATE migrator_lease SET owner = 'else/1/2/3/4', until = '2099-01-01'"
        " WHERE name = 'lane.0'"
    )
    ended = claimed(*broker, "rollback", "--yes", "--json", codes=[3])
    assert "somebody works on lane 0" in ended.document["stopped_by"]
    assert "somebody works on lane 0" in ended.err
    claimed.change("UPDATE migrator_lease SET owner = NULL")
    ended = claimed(*broker, "rollback", "--yes", "--json", codes=[4])
    assert "cannot be reached" in ended.document["stopped_by"]
    assert ended.document["handed_over"]["expected"]["in_levels"] == 10


def test_what_was_held_is_forgotten_with_the_whole(claimed: Program) -> None:
    """Of the endpoints that are meant, once nobody works; a run's rollback leaves it."""
    held = "SELECT source FROM migrator_held_destination ORDER BY source"
    claimed.change(
        *(
            "INSERT INTO migrator_held_destination (source, destination, endpoint, reason, detail,"
            f" tries, since, next_try_at) VALUES ('{source}', 'Gone', 'Sales',"
            " 'destination-unknown', '-', 1, '2026-01-01', '2026-01-01')"
            for source in ("other", "Sales_TimeoutData")
        )
    )
    sources = claimed.rows(held)
    claimed("rollback", "--run", "1", "--yes")
    assert claimed.rows(held) == sources
    claimed("rollback", "--endpoint", "Sales", "--yes")
    assert claimed.rows(held) == [("other",)]
    claimed("rollback", "--yes")
    assert claimed.rows(held) == []
