"""Rows whose destination takes no messages wait in the ledger, cost nothing, and then go on.

docs/adr/0013-parked-rows.md says why they leave their table.
"""

from __future__ import annotations

import json
import signal
import time
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any, Final

import pytest
from psycopg import sql

from dev.processes import wait_until
from tests.e2e.arrivals import Receiver
from tests.e2e.dispatching import prepare_dispatcher, start_dispatcher
from tests.e2e.rig import Rig
from tests.e2e.rows import Row, nameless, row
from tests.e2e.test_answers import await_others, times_arrived

GONE: Final = "Gone"
TOMORROW: Final = timedelta(days=1)


def rows_for(count: int, destination: str | None = GONE, due: timedelta = TOMORROW) -> list[Row]:
    """Return rows for a destination that is not there yet."""
    return [row(due + timedelta(milliseconds=n), destination=destination) for n in range(count)]


def with_others(rows: Sequence[Row]) -> list[Row]:
    """Return *rows* with one of a destination that is there, or nothing would be begun."""
    return [*rows, row(TOMORROW)]


def parked(rig: Rig) -> int:
    """Return how many rows are parked."""
    query = "SELECT coalesce(sum(size), 0) FROM migrator.batch WHERE state = 'parked'"
    return int(rig.query(query)[0][0])


def await_parked(rig: Rig, count: int) -> None:
    """Wait until so many rows are parked, and none is in the table."""
    wait_until(lambda: parked(rig) == count and not rig.has_rows(), what=f"{count} parked rows")


def status(rig: Rig) -> dict[str, Any]:
    """Return what `migrator status` knows."""
    found: dict[str, Any] = json.loads(rig.must("status", "--json"))
    return found


# ── what they cost ──────────────────────────────────────────────────────────────────────────


def reads(rig: Rig) -> int:
    """Return how much of the legacy table was ever read: rows, and entries of its indexes."""
    found = rig.query(
        sql.SQL(
            "SELECT t.seq_tup_read + (SELECT sum(i.idx_tup_read) FROM pg_stat_user_indexes i "
            "WHERE i.relid = t.relid) FROM pg_stat_user_tables t WHERE t.relid = {}::regclass"
        ).format(rig.table.as_string(None))
    )
    return int(found[0][0])


@pytest.mark.parametrize("count", [1000, pytest.param(5000, marks=pytest.mark.slow)])
def test_parked_rows_are_not_read_at_rest(rig: Rig, count: int) -> None:
    """Whatever their number, looks for new rows pass none of them, and no batch is made."""
    rig.prepare()
    rig.insert(with_others(rows_for(count)))
    daemon = rig.start("run", "--endpoint", "Sales")
    await_parked(rig, count)
    time.sleep(3.0)  # the last claims, and what they read, are told by then
    before, batches = reads(rig), rig.query("SELECT max(id) FROM migrator.batch")
    time.sleep(6.0)
    found = reads(rig) - before
    print(f"{count} parked rows: {found} reads in 6 s")
    assert found <= 50
    assert rig.query("SELECT max(id) FROM migrator.batch") == batches
    rig.stop(daemon)


# ── how they go on ──────────────────────────────────────────────────────────────────────────


def create_bound_queue(rig: Rig) -> None:
    """Make what was missing."""
    rig.create_receivers(GONE)


@pytest.mark.parametrize(
    "is_restarted",
    [pytest.param(False, marks=pytest.mark.slow, id="running"), pytest.param(True, id="killed")],
)
def test_rows_go_on_once_their_queue_is_there(rig: Rig, is_restarted: bool) -> None:
    """Also those that only their headers send there, and after a kill while all were parked."""
    rig.prepare()
    rows = [
        *rows_for(30),
        *rows_for(10, due=timedelta(0)),
        *(nameless(GONE, TOMORROW) for _ in range(5)),
    ]
    rig.insert(with_others(rows))
    daemon = rig.start("run", "--endpoint", "Sales", MIGRATOR_HANDOVER__CUTOFF="0s")
    await_parked(rig, 45)
    if is_restarted:
        rig.kill(daemon)
    create_bound_queue(rig)
    if is_restarted:
        daemon = rig.start("run", "--endpoint", "Sales", MIGRATOR_HANDOVER__CUTOFF="0s")
    with Receiver(rig.broker_url, GONE) as receiver:
        receiver.wait(lambda: len(receiver.arrivals) >= 10, seconds=25.0)
        assert times_arrived(receiver, rows[30:40]) == [1] * 10
    wait_until(lambda: not parked(rig), what="no parked rows")
    wait_until(lambda: not status(rig)["held"], what="nothing held")
    rig.stop(daemon)
    account = rig.account([*rows[:30], *rows[40:]], GONE)
    assert (account.lost, account.duplicated) == ((), ())


def test_rows_go_on_once_the_binding_is_repaired(rig: Rig) -> None:
    """An exchange that leads nowhere gives due messages back: one row a time tries it."""
    rig.management_url = None  # which knows that it leads nowhere
    rig.prepare("Billing", GONE)
    with rig.amqp() as connection:
        connection.channel().queue_unbind(GONE, GONE, "")
    rows = rows_for(20, due=timedelta(0))
    rig.insert(with_others(rows))
    daemon = rig.start("run", "--endpoint", "Sales", MIGRATOR_HANDOVER__CUTOFF="0s")
    await_parked(rig, 20)
    (held,) = status(rig)["held"]
    assert (held["reason"], held["rows"]) == ("unroutable", 20)
    with rig.amqp() as connection:
        connection.channel().queue_bind(GONE, GONE, "")
    with Receiver(rig.broker_url, GONE) as receiver:
        await_others(receiver, rows, seconds=25.0)
    wait_until(lambda: not status(rig)["held"], what="nothing held")
    rig.stop(daemon)


def test_a_dispatcher_parks_rows_and_sends_them_later(rig: Rig, tmp_path: Path) -> None:
    """As hand-over does; nothing is read meanwhile, and a kill changes nothing."""
    prepare_dispatcher(rig, tmp_path)
    rig.create_receivers("Billing", "Sales.Timeouts", "error")
    rows = rows_for(20, due=timedelta(0))
    rig.insert(rows)
    daemon = start_dispatcher(rig)
    await_parked(rig, 20)
    (held,) = status(rig)["held"]
    assert (held["destination"], held["rows"]) == (GONE, 20)
    rig.kill(daemon)
    daemon = start_dispatcher(rig)
    create_bound_queue(rig)
    with Receiver(rig.broker_url, GONE) as receiver:
        await_others(receiver, rows, seconds=25.0)
    rig.stop(daemon)
    assert rig.batch_states().keys() == {"dispatched"}


@pytest.mark.punctual
def test_fresh_rows_stay_punctual_while_parked_ones_go(rig: Rig) -> None:
    """Thousands of rows go on at once; others are late by less than two seconds."""
    rig.prepare()
    rig.insert(with_others(rows_for(8000, due=timedelta(hours=-1))))
    settings = {"MIGRATOR_HANDOVER__CUTOFF": "0s", "MIGRATOR_HANDOVER__SWEEP_INTERVAL": "200ms"}
    daemon = rig.start("run", "--endpoint", "Sales", **settings)
    await_parked(rig, 8000)
    create_bound_queue(rig)
    wait_until(lambda: parked(rig) < 8000, what="parked rows that go on")
    with Receiver(rig.broker_url, "Billing") as receiver:
        fresh = rows_for(10, destination="Billing", due=timedelta(0))
        rig.insert(fresh)
        await_others(receiver, fresh)
        assert parked(rig) > 0, "all were gone already"
    rig.stop(daemon)


# ── what kills them not ─────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    "step",
    [
        pytest.param("park.held", marks=pytest.mark.slow),
        "park.parked",
        pytest.param("unpark.freed", marks=pytest.mark.slow),
        "unpark.taken",
    ],
)
def test_a_kill_between_any_two_steps_loses_and_doubles_nothing(rig: Rig, step: str) -> None:
    """What it left is found by the next start, wherever it is."""
    rig.prepare()
    rows, others = rows_for(30), rows_for(30, destination="Billing")
    rig.insert([*rows, *others])
    if step.startswith("un"):
        rig.migrate()
        create_bound_queue(rig)
    process = rig.start("run", "--endpoint", "Sales", "--once", fault=f"{step}:1")
    assert rig.finish(process).returncode == -signal.SIGKILL
    create_bound_queue(rig)
    rig.must("run", "--endpoint", "Sales", "--once")
    account = rig.account([*rows, *others], GONE, "Billing")
    assert (account.found, account.lost, account.duplicated) == (60, (), ())
    assert parked(rig) == 0


# ── what operators see and do ───────────────────────────────────────────────────────────────


def test_parked_rows_are_counted_and_go_back_byte_for_byte(rig: Rig) -> None:
    """In `run --once`, `status` and `verify`; a rollback puts them into their table."""
    rig.prepare()
    rows = [*rows_for(20), *rows_for(5, due=timedelta(days=2), destination=f"{GONE}@OLDBOX")]
    rig.insert(rows)
    before = rig.stored()
    rig.insert([row(TOMORROW)])
    done = rig.run("run", "--endpoint", "Sales", "--once", "--json")
    assert done.returncode == 5
    (held,) = json.loads(done.stdout)["held"]
    assert (held["destination"], held["reason"], held["rows"]) == (GONE, "destination-unknown", 25)
    assert (rig.has_rows(), parked(rig)) == (False, 25)
    found = status(rig)
    (sales,), (held,) = found["endpoints"], found["held"]
    assert (sales["rows"], sales["in_flight"], held["rows"]) == (
        {"handed_over": 1, "parked": 25},
        0,
        25,
    )
    (balance,) = json.loads(rig.must("verify", "--json"))["endpoints"]
    assert (balance["claimed"], balance["parked"], balance["unaccounted"]) == (26, 25, 0)
    rig.must("rollback", "--keep-handed-over", "--yes")
    assert rig.stored() == before
    found = status(rig)
    assert (found["held"], found["endpoints"][0]["rows"]) == (
        [],
        {"handed_over": 1, "released": 25},
    )
