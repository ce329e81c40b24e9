"""Tests of ``migrator.cli.db``."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta

import pytest

from tests.unit.cli.conftest import Program
from tests.unit.preflight.fakes import queue

ID = "SELECT id FROM migrator_ledger"


def test_a_ledger_is_created_and_then_left_alone(program: Program) -> None:
    """Repeating says so."""
    assert "version none (needed: " in program("db", "upgrade", "--dry-run").err
    assert "(before: none)" in program("db", "upgrade").err
    assert "already" in program("db", "upgrade").err
    document = program("db", "upgrade", "--json").document
    assert document["schema"] == "migrator/db-upgrade/1"
    assert document["before"] == document["after"]
    document = program("db", "upgrade", "--dry-run", "--json").document
    assert document["after"] == document["needed"]
    assert "no users" in program("db", "grants", "--user", "daemon", codes=[4]).err


def test_the_sql_is_printed_without_any_connection(program: Program) -> None:
    """For a DBA to read and run."""
    ended = program("--store-url", "", "db", "sql", "--schema", "books")
    assert "CREATE TABLE books.batch" in ended.out
    document = program("db", "sql", "--dialect", "sqlite", "--json").document
    assert document["schema"] == "migrator/db-sql/1"
    assert "migrator_batch" in document["sql"]


def test_a_cloned_ledger_is_adopted_with_a_new_id(program: Program) -> None:
    """Never without --yes, nor by a program that is newer than the copy."""
    program("db", "upgrade")
    before = program.rows(ID)
    told = program("db", "adopt", codes=[2]).err
    assert "would get a new id" in told
    assert "is where it was created" in told
    assert program.rows(ID) == before
    document = program("db", "adopt", "--yes", "--json").document
    assert program.rows(ID) == [(document["ledger"],)] != before
    program.change("UPDATE migrator_alembic_version SET version_num = '0000'")
    assert "db upgrade" in program("db", "adopt", "--yes", codes=[3]).err
    assert program.rows(ID) == [(document["ledger"],)]


def test_a_ledger_on_which_somebody_works_gets_no_new_id(program: Program) -> None:
    """A process that is running goes on under the id that it began with."""
    program("db", "upgrade")
    before = program.rows(ID)
    program.change(
        "INSERT INTO migrator_lease (name, owner, token, until, renewed_at) VALUES "
        "('lane.0', 'host/1', 1, '9998-01-01 00:00:00.000000', '2026-01-01 00:00:00.000000')"
    )
    refused = program("db", "adopt", "--yes", codes=[3]).err
    assert "lane 0: host/1 until 9998-01-01" in refused
    assert "Nothing was changed" in refused
    assert program.rows(ID) == before


@pytest.fixture
def moved(program: Program, monkeypatch: pytest.MonkeyPatch) -> Program:
    """A ledger with three claimed timeouts, whose database is at another place now."""
    program.seeded(count=3)
    program.claimed(3)
    monkeypatch.setenv("MIGRATOR_BROKER__URL", "amqp://localhost")
    (program.folder / "elsewhere").mkdir()
    for each in program.folder.glob("legacy.db*"):
        each.rename(program.folder / "elsewhere" / each.name)
    program.folder /= "elsewhere"
    monkeypatch.setenv("MIGRATOR_STORE__URL", program.url)
    return program


def test_a_moved_ledger_goes_on_under_its_own_id(moved: Program) -> None:
    """Batches stay as they are; who did it, from where and to where, is in the audit trail."""
    before = moved.rows(ID)
    assert "db adopt --moved" in moved("status", codes=[3]).err
    shown = moved("db", "adopt", "--moved", "--dry-run")
    assert "batches under way: 1 claimed" in shown.err
    assert (
        "may ever work on the former database again"
        in moved("db", "adopt", "--moved", codes=[2]).err
    )
    assert moved.rows("SELECT kind FROM migrator_event WHERE kind LIKE 'ledger%'") == []
    document = moved("db", "adopt", "--moved", "--yes", "--json").document
    assert (document["ledger"], document["is_done"]) == (*before[0], True)
    assert document["batches"] == {"claimed": 1}
    assert moved.rows(ID) == before
    assert moved("status", "--json").document["endpoints"][0]["rows"] == {"claimed": 3}
    ((kind, detail),) = moved.rows("SELECT kind, detail FROM migrator_event")
    assert kind == "ledger_moved"
    told = json.loads(detail)
    assert told["to"] == f"sqlite:{moved.folder}/legacy.db"
    assert told["from"] != told["to"]
    assert "nothing to do" in moved("db", "adopt", "--moved", "--yes").err


def test_a_moved_ledger_is_refused_while_anybody_works_on_it(moved: Program) -> None:
    """Here, by a lease; at the former place, by what the broker tells. All at once."""
    until = (datetime.now(UTC) + timedelta(hours=1)).strftime("%Y-%m-%d %H:%M:%S.%f")
    moved.change(
        f"UPDATE migrator_lease SET owner = 'host/1', until = '{until}' WHERE name = 'lane.0'",
        "DELETE FROM migrator_timeout WHERE row_index = 0",
    )
    ((ledger_id,),) = moved.rows(ID)
    moved.broker.probes[f"migrator.lane.{ledger_id}.0"] = queue(1)
    for options in (["--yes"], ["--dry-run"], []):
        refused = moved("db", "adopt", "--moved", *options, codes=[3]).err
        assert "lane 0: host/1 until" in refused
        assert "owns lane 0 on the broker" in refused
        assert "not the complete former database" in refused
    assert moved.rows("SELECT kind FROM migrator_event") == []


def test_what_was_not_moved_as_a_whole_is_told(moved: Program) -> None:
    """A table of another moment than the ledger's, or none: timeouts may be left behind."""
    assert moved("db", "adopt", "--moved", "--dry-run", "--json").document["remarks"] == []
    again = '"Destination", "SagaId", "State", "Time", "Headers", "PersistenceVersion"'
    moved.change(
        f'INSERT INTO "Sales_TimeoutData" ("Id", {again}) SELECT store_id, destination, saga_id, '
        "body, due, headers, persistence_version FROM migrator_timeout WHERE row_index < 2"
    )
    ((timeout_id,),) = moved.rows("SELECT store_id FROM migrator_timeout WHERE row_index = 0")
    told = moved("db", "adopt", "--moved", "--dry-run").err
    assert f"2 timeouts are both in a table and in the ledger (first: {timeout_id})" in told
    moved.change('DROP TABLE "Sales_TimeoutData"')
    asked = moved("db", "adopt", "--moved", codes=[2]).err
    assert "Sales_TimeoutData of Sales does not exist here" in asked
    (remark,) = moved("db", "adopt", "--moved", "--yes", "--json").document["remarks"]
    assert "left behind" in remark


def test_whoever_still_stores_timeouts_is_told(
    moved: Program, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A dispatcher at the former place would store them there."""
    (moved.folder.parent / "migrator.toml").write_text(
        '[[endpoints]]\nname = "Sales"\nmode = "dispatch"\n'
    )
    monkeypatch.setenv("MIGRATOR_CONFIG", str(moved.folder.parent / "migrator.toml"))
    moved.broker.probes["Sales.Timeouts"] = queue(1)
    assert "consume Sales.Timeouts" in moved("db", "adopt", "--moved", "--yes", codes=[3]).err


def test_a_ledger_newer_than_the_program_is_left_alone(program: Program) -> None:
    """A refusal that says which release is needed."""
    program("db", "upgrade")
    program.change("UPDATE migrator_alembic_version SET version_num = '9999'")
    assert "this program only knows" in program("db", "upgrade", codes=[3]).err
    assert program.rows("SELECT version_num FROM migrator_alembic_version") == [("9999",)]


@pytest.fixture
def settled(program: Program) -> Program:
    """The program, with one row handed over and due long ago and one in years."""
    program("db", "upgrade")
    for number, when in enumerate(("2020-01-01 00:00:00.000", "2099-01-01 00:00:00.000"), 1):
        program.record("handed_over", number=number, handed_over_at=when)
        program.change(
            "INSERT INTO migrator_timeout (id, source, endpoint, store_id, batch_id, row_index,"
            f" due, content_hash) VALUES ({number}, 'Sales_TimeoutData', 'Sales', 'id-{number}',"
            f" {number}, 0, '{when}', 'h')",
        )
    return program


def test_old_rows_are_deleted_and_young_ones_kept(settled: Program) -> None:
    """Never without --yes, nor those of another run; the audit trail remembers."""
    for arguments, said in (([], "add --yes"), (["--older-than", "30"], "must be a duration")):
        assert said in settled("db", "purge", *arguments, codes=[2]).err
    purge = ("db", "purge", "--yes", "--run")
    assert settled(*purge, "9").err == "0 rows deleted\n"
    document = settled(*purge, "1", "--json").document
    assert (document["schema"], document["rows"]) == ("migrator/db-purge/1", 1)
    assert settled.rows("SELECT count(*) FROM migrator_timeout") == [(1,)]
    assert settled.rows("SELECT kind FROM migrator_event") == [("ledger_purged",)] * 2
