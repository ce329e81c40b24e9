"""Tests of ``migrator.cli.recall``."""

from __future__ import annotations

import pytest

from tests.unit.cli.conftest import Program

ROWS = "SELECT * FROM Sales_TimeoutData ORDER BY Id"


@pytest.fixture
def claimed(program: Program) -> Program:
    """The program, with 10 of 20 rows claimed by a run whose owner is gone."""
    program.seeded()
    program.claimed(10)
    return program


def test_rows_go_back_byte_for_byte(claimed: Program) -> None:
    """As if they had never left, and only with --yes; the audit trail knows."""
    assert "add --yes" in claimed("rollback", codes=[2]).err
    assert len(claimed.rows(ROWS)) == 10
    ended = claimed("rollback", "--yes")
    assert "not handed over: 10 rows of 1 batches are back in their tables" in ended.err
    assert ended.out == ""
    assert len(claimed.rows(ROWS)) == 20
    assert ("rolled_back",) in claimed.rows("SELECT kind FROM migrator_event")


def test_a_dry_run_only_tells(claimed: Program) -> None:
    """Quarantined rows are counted, too."""
    claimed.change(
        "UPDATE migrator_timeout SET state = 'quarantined', reason = 'unroutable'"
        " WHERE row_index < 3"
    )
    document = claimed("rollback", "--dry-run", "--json").document
    expected = {
        "schema": "migrator/rollback/1",
        "dry_run": True,
        "rows": 10,
        "batches": [1],
        "quarantined": 3,
        "left_in_quarantine": None,
        "stopped_by": None,
        **{key: [] for key in ("untouched", "stuck", "doubtful", "busy")},
    }
    assert {key: document[key] for key in expected} == expected
    assert claimed("rollback", "--dry-run", "--endpoint", "Sales", "--json").document == document
    assert len(claimed.rows(ROWS)) == 10


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ("state = 'committing'", "batches 1 may have reached the broker"),
        ("state = 'doubtful'", "batches 1 are doubtful; `migrator batch resolve`"),
        (
            "lane = 1000, mode = 'dispatch', state = 'publishing'",
            "of these, 1 want a dispatcher",
        ),
    ],
)
def test_what_is_left_alone_is_told(claimed: Program, changes: str, said: str) -> None:
    """Lanes at work, and batches of which the broker or a person knows more; exit code 5."""
    claimed.change(
        f"UPDATE migrator_batch SET {changes}",
        "INSERT INTO migrator_lease (name, owner, token, until, doing, renewed_at) VALUES"
        " ('lane.5', 'else/1/2/3/4', 1, '2099-01-01 00:00:00.000000', '',"
        " '2026-01-01 00:00:00.000000'),"
        " ('lane.1000', NULL, 1, '2026-01-01 00:00:00.000000', '', '2026-01-01 00:00:00.000000')",
    )
    assert said in claimed("rollback", "--dry-run").err
    ended = claimed("rollback", "--yes", codes=[5])
    assert said in ended.err
    assert "lane 5 was left alone: else/1/2/3/4 works on it" in ended.err


HANDED_OVER = (
    "UPDATE migrator_batch SET state = 'handed_over', first_due = '2098-01-01 00:00:00.000000',"
    " last_due = '2099-01-01 00:00:00.000000'",
    "UPDATE migrator_timeout SET due = '2098-06-01 00:00:00.000000'",
)


def test_what_was_handed_over_is_foretold_without_the_broker(claimed: Program) -> None:
    """By the ledger: how many, and until when; only that half is out of reach."""
    claimed.change(*HANDED_OVER)
    ended = claimed("rollback", "--dry-run")
    assert "by the ledger, 10 are in the levels, 0 are due too soon" in ended.err
    expected = claimed("rollback", "--dry-run", "--json").document["handed_over"]["expected"]
    assert expected["in_levels"] == 10
    assert expected["possible_until"].startswith("2097-12-31T23:59")
    kept = claimed("rollback", "--dry-run", "--keep-handed-over", "--json").document
    assert kept["handed_over"] is None
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
