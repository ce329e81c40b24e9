"""Tests of ``migrator.cli.db``."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta

import pytest

from migrator.cli import db
from migrator.database.engine import open_engine
from migrator.errors import PreflightRefused
from migrator.ledger.adoption import SqlAdoption
from migrator.ledger.grants import GrantedTable
from migrator.ledger.runs import SqlRuns
from migrator.ledger.tables import build_tables, names_for
from migrator.ledger.work import StoreEndpoint
from migrator.nservicebus.timeouts import EndpointName
from tests.contract.site import Site
from tests.unit.cli.conftest import Program, ago
from tests.unit.preflight.fakes import queue

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
    told = program("db", "adopt", codes=[2]).err
    assert "would get a new id" in told
    assert "is where it was created" in told
    assert program.rows(ID) == before
    document = program("db", "adopt", "--yes", "--json").document
    assert program.rows(ID) == [(document["ledger"],)] != before
    assert "this ledger is" in program("db", "adopt", "--yes").err


def test_a_ledger_of_another_version_is_not_adopted(program: Program) -> None:
    """What to do first is said; it is the program that is newer than the copy."""
    program("db", "upgrade")
    program.change("UPDATE migrator_alembic_version SET version_num = '0000'")
    before = program.rows(ID)
    assert "db upgrade" in program("db", "adopt", "--yes", codes=[3]).err
    assert program.rows(ID) == before


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
    site = Site(open_engine(program.url))
    endpoint = StoreEndpoint(name=EndpointName("Sales"), source="Sales_TimeoutData")
    lease = site.lease()
    site.claim(endpoint, lease, due_until=datetime.max.replace(tzinfo=UTC))
    site.leases.surrender(lease)
    site.engine.dispose()
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
    assert "may ever work on the former again" in moved("db", "adopt", "--moved", codes=[2]).err
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
        assert "holds lane 0 on the broker" in refused
        assert "not all of the former database" in refused
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
    assert f"2 timeouts are in their table and in the ledger ({timeout_id} is the first)" in told
    moved.change('DROP TABLE "Sales_TimeoutData"')
    asked = moved("db", "adopt", "--moved", codes=[2]).err
    assert "Sales_TimeoutData of Sales is not here" in asked
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


def test_who_comes_while_a_ledger_is_moved_is_seen(moved: Program) -> None:
    """The leases are looked at once more, in the transaction that decides."""
    engine = open_engine(moved.url)
    tables = build_tables(names_for(engine))
    runs = SqlRuns(engine, tables, actor="test", version="0")
    until = (datetime.now(UTC) + timedelta(hours=1)).strftime("%Y-%m-%d %H:%M:%S.%f")
    moved.change(f"UPDATE migrator_lease SET owner = 'host/1', until = '{until}'")
    with pytest.raises(PreflightRefused, match="host/1"):
        SqlAdoption(engine, tables, runs).keep()
    engine.dispose()


def test_a_ledger_newer_than_the_program_is_left_alone(program: Program) -> None:
    """A refusal that says which release is needed."""
    program("db", "upgrade")
    program.change("UPDATE migrator_alembic_version SET version_num = '9999'")
    assert "this program only knows" in program("db", "upgrade", codes=[3]).err
    assert program.rows("SELECT version_num FROM migrator_alembic_version") == [("9999",)]


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
