"""Tests of ``migrator.cli.batch``."""

from __future__ import annotations

import pytest

from tests.unit.cli.conftest import Program

STATE = "SELECT state FROM migrator_batch"


@pytest.fixture
def doubtful(program: Program) -> Program:
    """The program, with a batch of which nobody can tell."""
    program("db", "upgrade")
    program.change(
        "INSERT INTO migrator_run (id, endpoint, source, options, tool_version, status, begun_at)"
        " VALUES (1, 'Sales', 'Sales_TimeoutData', '{}', '0', 'done', '2026-01-01 00:00:00.000')",
        "INSERT INTO migrator_batch (id, run_id, endpoint, source, lane, mode, state, attempt,"
        " size, body_bytes, lease_token, doubtful_at)"
        " VALUES (7, 1, 'Sales', 'Sales_TimeoutData', 0, 'staged', 'doubtful', 1, 3, 9, 1,"
        " '2026-01-01 00:00:00.000000')",
    )
    return program


def test_doubtful_batches_are_listed_and_the_exit_code_tells(doubtful: Program) -> None:
    """6 means: a person has to look."""
    assert "Sales" in doubtful("batch", "list", codes=[6]).out
    document = doubtful("batch", "list", "--json", codes=[6]).document
    assert document["schema"] == "migrator/batches/1"
    assert [found["batch"] for found in document["doubtful"]] == [7]


@pytest.mark.parametrize(
    ("outcome", "state"), [("handed-over", "handed_over"), ("claimed", "claimed")]
)
def test_an_operator_decides(doubtful: Program, outcome: str, state: str) -> None:
    """And the audit trail remembers."""
    ended = doubtful("batch", "resolve", "7", "--as", outcome, "--yes")
    assert ended.err == f"batch 7 is {outcome} now\n"
    assert doubtful.rows(STATE) == [(state,)]
    assert doubtful.rows("SELECT kind, batch_id FROM migrator_event") == [("batch_resolved", 7)]
    assert doubtful("batch", "list").out.count("Sales") == 0


def test_a_decision_is_json_on_demand(doubtful: Program) -> None:
    """As all of them."""
    ended = doubtful("batch", "resolve", "7", "--as", "claimed", "--yes", "--json")
    assert ended.document == {"schema": "migrator/batch-resolve/1", "batch": 7, "as": "claimed"}


@pytest.mark.parametrize(
    ("arguments", "code", "text"),
    [
        (["7", "--as", "claimed"], 2, "add --yes"),
        (["7", "--as", "lost", "--yes"], 2, "must be handed-over, claimed or written-off"),
        (["7", "--as", "written-off", "--yes"], 2, "a doubtful batch is handed-over or claimed"),
        (["8", "--as", "claimed", "--yes"], 4, "not doubtful"),
    ],
)
def test_anything_else_changes_nothing(
    doubtful: Program, arguments: list[str], code: int, text: str
) -> None:
    """It says why."""
    assert text in doubtful("batch", "resolve", *arguments, codes=[code]).err
    assert doubtful.rows(STATE) == [("doubtful",)]
