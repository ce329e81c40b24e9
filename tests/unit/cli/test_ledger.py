"""Tests of ``migrator.cli.ledger``."""

from __future__ import annotations

from datetime import timedelta

import pytest

from tests.unit.cli.conftest import Program, ago

COUNT = "SELECT count(*) FROM migrator_timeout"


@pytest.fixture
def settled(program: Program) -> Program:
    """The program, with one row handed over and due 60 days ago and one today."""
    program("db", "upgrade")
    program.change(
        "INSERT INTO migrator_run (id, endpoint, source, options, tool_version, status, begun_at)"
        " VALUES (1, 'Sales', 'Sales_TimeoutData', '{}', '0', 'done', '2026-01-01 00:00:00.000')"
    )
    for number, age in ((1, timedelta(days=60)), (2, timedelta(0))):
        program.change(
            "INSERT INTO migrator_batch (id, run_id, endpoint, source, lane, mode, state, attempt,"
            " size, body_bytes, lease_token, handed_over_at) VALUES"
            f" ({number}, 1, 'Sales', 'Sales_TimeoutData', 0, 'staged', 'handed_over', 1, 1, 9, 1,"
            f" '{ago(age)}')",
            "INSERT INTO migrator_timeout (id, source, endpoint, store_id, batch_id, row_index,"
            f" due, content_hash) VALUES ({number}, 'Sales_TimeoutData', 'Sales', 'id-{number}',"
            f" {number}, 0, '{ago(age)}', 'h')",
        )
    return program


def test_old_rows_are_deleted_and_young_ones_kept(settled: Program) -> None:
    """The audit trail remembers."""
    assert settled("ledger", "purge", "--yes").err == "1 rows deleted\n"
    assert settled.rows(COUNT) == [(1,)]
    assert settled.rows("SELECT kind FROM migrator_event") == [("ledger_purged",)]


def test_age_and_run_may_be_chosen(settled: Program) -> None:
    """Another run's rows stay."""
    purge = ["ledger", "purge", "--older-than", "0s", "--yes", "--json"]
    assert settled(*purge, "--run", "9").document["rows"] == 0
    document = settled(*purge, "--run", "1").document
    assert (document["schema"], document["rows"]) == ("migrator/ledger-purge/1", 2)


@pytest.mark.parametrize(
    ("arguments", "text"),
    [([], "add --yes"), (["--older-than", "30", "--yes"], "must be a duration")],
)
def test_anything_else_deletes_nothing(settled: Program, arguments: list[str], text: str) -> None:
    """It says why."""
    assert text in settled("ledger", "purge", *arguments, codes=[2]).err
    assert settled.rows(COUNT) == [(2,)]
