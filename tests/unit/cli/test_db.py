"""Tests of ``migrator.cli.db``."""

from __future__ import annotations

import pytest

from migrator.cli import db
from migrator.ledger.grants import GrantedTable
from tests.unit.cli.conftest import Program

ID = "SELECT id FROM migrator_ledger"
SALES = GrantedTable(schema="", name="Sales_TimeoutData", lock_column="PersistenceVersion")


def test_a_ledger_is_created_and_then_left_alone(program: Program) -> None:
    """Repeating says so."""
    assert "(before: none)" in program("db", "upgrade").err
    assert "already" in program("db", "upgrade").err
    document = program("db", "upgrade", "--json").document
    assert document["schema"] == "migrator/db-upgrade/1"
    assert document["before"] == document["after"]


def test_the_version_is_compared_with_the_one_needed(program: Program) -> None:
    """Before and after."""
    assert program("db", "current").out.startswith("none (needed: ")
    assert program("db", "current", "--json").document["fits"] is False
    program("db", "upgrade")
    assert program("db", "current", "--json").document["fits"] is True


def test_the_sql_is_printed_without_any_connection(program: Program) -> None:
    """For a DBA to read and run."""
    ended = program("--store-url", "", "db", "sql", "--schema", "books")
    assert "CREATE TABLE books.batch" in ended.out
    document = program("db", "sql", "--dialect", "sqlite", "--json").document
    assert document["schema"] == "migrator/db-sql/1"
    assert "migrator_batch" in document["sql"]


def test_grants_are_printed(program: Program, monkeypatch: pytest.MonkeyPatch) -> None:
    """For the tables of the endpoints that are meant; this store has no users."""
    program.seeded()
    assert "no users" in program("db", "grants", "--role", "daemon", codes=[4]).err
    asked: list[object] = []

    def grants(names: object, role: str, legacy: object) -> str:
        asked.append((role, legacy))
        return "GRANT;\n"

    monkeypatch.setattr(db, "ledger_grants", grants)
    assert program("db", "grants", "--role", "daemon").out == "GRANT;\n"
    document = program("db", "grants", "--role", "daemon", "--json").document
    assert document == {"schema": "migrator/db-grants/1", "role": "daemon", "sql": "GRANT;\n"}
    assert asked == [("daemon", [SALES])] * 2


def test_a_cloned_ledger_is_adopted_with_a_new_id(program: Program) -> None:
    """Never without --yes."""
    program("db", "upgrade")
    before = program.rows(ID)
    assert "would get a new id" in program("db", "adopt", codes=[2]).err
    assert program.rows(ID) == before
    document = program("db", "adopt", "--yes", "--json").document
    assert program.rows(ID) == [(document["ledger"],)] != before
    assert "this ledger is" in program("db", "adopt", "--yes").err
