"""What would stop everything without a word: the program says what it is, and what to do."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import psycopg
from psycopg import sql

from dev.servers import wait_until
from migrator.errors import ExitCode
from tests.e2e.daemon import listen, listens, status, told
from tests.e2e.rig import Rig
from tests.e2e.rows import row

ONCE = ("run", "--endpoint", "Sales", "--once")
HOUR = timedelta(hours=1)


# ── settings that contradict each other ─────────────────────────────────────────────────────────


def test_a_horizon_before_the_cutoff_is_refused_wherever_it_is_set(
    rig: Rig, tmp_path: Path
) -> None:
    """No row is due both after the cutoff and before the horizon."""
    rig.prepare()
    rig.insert([row(HOUR) for _ in range(20)])
    done = rig.run(*ONCE, "--horizon", "30s")
    assert (done.returncode, len(rig.stored_ids())) == (ExitCode.USAGE, 20)
    assert "horizon (30s) must be at least 1m longer than cutoff (1m)" in done.stderr
    assert "use a shorter cutoff, or a longer horizon" in done.stderr

    listen(rig, tmp_path)
    process = rig.start("run", "--endpoint", "Sales", "--horizon", "3m")
    wait_until(lambda: rig.has_lane() and listens(rig), what="a daemon that works")
    answer = told(rig, command="set", setting="cutoff", value="1h")
    assert "horizon (3m) must be at least 1m longer than cutoff (1h)" in str(answer)
    rig.must("set", "cutoff", "10m", codes=(ExitCode.PREFLIGHT_REFUSED,))
    rig.stop(process)
    assert len(rig.stored_ids()) == 20


# ── a table that does not take a row back ───────────────────────────────────────────────────────


def refuse_row(rig: Rig, row_id: str, *, event: str = "INSERT") -> None:
    """Have the table refuse one row, as a constraint or trigger of whoever owns it would."""
    with rig.sql() as connection:
        connection.execute(
            "CREATE OR REPLACE FUNCTION archived() RETURNS trigger LANGUAGE plpgsql AS "
            "$$ BEGIN IF NEW.\"Id\"::text = TG_ARGV[0] THEN RAISE EXCEPTION 'archived'; END IF; "
            "RETURN NEW; END $$"
        )
        name = sql.Identifier(f"keep_{row_id}")
        text = "CREATE TRIGGER {} BEFORE {} ON {} FOR EACH ROW EXECUTE FUNCTION archived({})"
        connection.execute(
            sql.SQL(text).format(name, sql.SQL(event), rig.table, sql.Literal(row_id))
        )


def test_rows_that_their_table_does_not_take_back_stay_and_the_others_go(rig: Rig) -> None:
    """Claimed, in quarantine or in the levels; once nothing refuses them, they go as well."""
    rig.settings = {"MIGRATOR_HANDOVER__BATCH_SIZE": "30"}
    rig.prepare()
    handed_over = [row(timedelta(days=3)) for _ in range(10)]
    rig.insert(handed_over)
    rig.migrate()
    claimed = [row(timedelta(days=4)) for _ in range(30)]
    rig.insert(claimed)
    before = rig.stored()
    assert rig.run(*ONCE, fault="claim.done").returncode == -9
    assert not rig.stored_ids()
    twice = [replace(each, body=b"another one") for each in (claimed[0], handed_over[0])]
    rig.insert(twice)
    for each in (claimed[1], handed_over[1]):
        refuse_row(rig, each.id)

    foretold = json.loads(rig.must("rollback", "--dry-run", "--json"))
    assert (foretold["rows"], foretold["taken"]) == (30, 2)
    for already, found in ((0, 28 + 8), (28 + 8, 0)):
        done = rig.run("rollback", "--yes", "--json")
        assert done.returncode == ExitCode.QUARANTINED, done.stderr
        document = json.loads(done.stdout)
        recalled = document["handed_over"]["found"]
        back = document["rows"] + document["quarantined"] + recalled["restored"]
        assert (back, len(rig.stored_ids())) == (found, already + found + 2)
        assert (recalled["taken"], recalled["refused"]) == (1, 1)
        assert document["kept"] == {"id-taken": 1, "refused-by-store": 1}
        assert rig.quarantined() == {
            claimed[0].id: "id-taken",
            claimed[1].id: "refused-by-store",
        }
    (shown,) = json.loads(rig.must("quarantine", "list", "--reason", "refused-by-store", "--json"))[
        "rows"
    ]
    assert "archived" in shown["detail"]
    document = json.loads(rig.must("verify", "--json", codes=(ExitCode.DOUBTFUL,)))
    assert document["counts"] == {"in_both_places": 2}

    for each in twice:
        rig.query(sql.SQL('DELETE FROM {} WHERE "Id" = %s RETURNING 1').format(rig.table), each.id)
    rig.must("verify", codes=(ExitCode.QUARANTINED,))
    with rig.sql() as connection:
        connection.execute("DROP FUNCTION archived CASCADE")
    rig.must("rollback", "--yes")
    assert {i: r for i, r in rig.stored().items() if i in before} == before
    assert (len(rig.stored_ids()), rig.quarantined()) == (40, {})


# ── a table that keeps its rows ─────────────────────────────────────────────────────────────────


def keep_rows(rig: Rig) -> None:
    """Have every row stay that is removed, as soft deletion does; nothing is said."""
    with rig.sql() as connection:
        connection.execute(
            "CREATE FUNCTION kept() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RETURN NULL; "
            "END $$"
        )
        text = "CREATE TRIGGER soft_delete BEFORE DELETE ON {} FOR EACH ROW EXECUTE FUNCTION kept()"
        connection.execute(sql.SQL(text).format(rig.table))


def test_a_trigger_that_keeps_rows_is_named_and_nothing_is_moved(rig: Rig) -> None:
    """By preflight, which has removed a row and seen that it is still there."""
    rig.prepare()
    rig.insert([row() for _ in range(20)])
    keep_rows(rig)
    for command in (("preview", "--endpoint", "Sales"), ONCE):
        done = rig.run(*command)
        assert done.returncode == ExitCode.PREFLIGHT_REFUSED, done.stderr
        said = " ".join((done.stdout + done.stderr).split())
        assert "of 1 row, 0 were removed; rolled back" in said
        assert "drop or disable what may keep them: soft_delete" in said
    assert len(rig.stored_ids()) == 20
    assert not rig.query("SELECT 1 FROM migrator.timeout")


def test_a_trigger_that_refuses_each_removal_is_refused(rig: Rig) -> None:
    """Also where the table has fewer rows than the trial claim passes over."""
    rig.prepare()
    rows = [row() for _ in range(3)]
    rig.insert(rows)
    with rig.sql() as connection:
        connection.execute(
            "CREATE FUNCTION never() RETURNS trigger LANGUAGE plpgsql AS "
            "$$ BEGIN RAISE EXCEPTION 'rows are kept here'; END $$"
        )
        text = "CREATE TRIGGER never BEFORE DELETE ON {} FOR EACH ROW EXECUTE FUNCTION never()"
        connection.execute(sql.SQL(text).format(rig.table))
    done = rig.run("preview", "--endpoint", "Sales")
    assert done.returncode == ExitCode.PREFLIGHT_REFUSED, done.stderr
    assert "rows are kept here" in done.stdout + done.stderr
    assert rig.stored_ids() == {each.id for each in rows}


def test_a_daemon_says_that_rows_are_kept_that_came_later(rig: Rig, tmp_path: Path) -> None:
    """Its table was empty at the start; once nothing keeps them, they are moved."""
    rig.prepare()
    keep_rows(rig)
    listen(rig, tmp_path)
    process = rig.start("run", "--endpoint", "Sales")
    wait_until(lambda: rig.has_lane() and listens(rig), what="a daemon that works")
    rig.insert([row() for _ in range(20)])
    wait_until(lambda: "soft_delete" in json.dumps(status(rig)), what="a status that says so")
    with rig.sql() as connection:
        connection.execute("DROP FUNCTION kept CASCADE")
    wait_until(lambda: not rig.stored_ids(), what="rows that are moved")
    rig.stop(process)


# ── rows that others have locked ────────────────────────────────────────────────────────────────


@contextmanager
def locked(rig: Rig, ids: Sequence[str]) -> Iterator[None]:
    """Have rows locked, as a timeout manager has that is about to send them."""
    with psycopg.connect(rig.database_url.replace("+psycopg", "")) as connection:
        text = 'SELECT 1 FROM {} WHERE "Id" = ANY(%s::uuid[]) FOR UPDATE'
        connection.execute(sql.SQL(text).format(rig.table), [list(ids)])
        yield


def test_once_waits_for_rows_that_others_have_locked_and_says_what_it_left(rig: Rig) -> None:
    """For some seconds; who runs it is told how many there were, and that it is not done."""
    rig.prepare()
    rows = [row() for _ in range(20)]
    rig.insert(rows)
    with locked(rig, [each.id for each in rows[:5]]):
        done = rig.run(*ONCE, "--json")
    assert (done.returncode, len(rig.stored_ids())) == (ExitCode.QUARANTINED, 5)
    (endpoint,) = json.loads(done.stdout)["endpoints"]
    assert (endpoint["handed_over"], endpoint["locked"], endpoint["is_finished"]) == (15, 5, False)
    assert "5 rows are locked by other transactions; run it again" in endpoint["text"]

    with locked(rig, [each.id for each in rows[:5]]):
        process = rig.start(*ONCE)
        wait_until(lambda: bool(rig.doing()), what="a run that works")
        time.sleep(2)  # it has found nothing else to do meanwhile
    done = rig.finish(process)
    assert (done.returncode, len(rig.stored_ids())) == (ExitCode.DONE, 0)
