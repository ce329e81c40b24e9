"""Bad input: one clear line that names the object and the remedy, and nothing is lost."""

from __future__ import annotations

import json
import re
import secrets
import subprocess
import time
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import pytest

from dev.postgres import PostgresServer
from dev.processes import wait_until
from tests.e2e.daemon import listen, listens, signals, status
from tests.e2e.rig import Rig
from tests.e2e.rows import Row, row

PASSWORD: Final = "hunter2-hunter2"
USAGE, REFUSED, UNREACHABLE, QUARANTINED = 2, 3, 4, 5
Done = subprocess.CompletedProcess[str]


def complains(done: Done, code: int, *words: str) -> str:
    """Demand the exit code, one complaint with all *words*, no traceback and no password."""
    assert done.returncode == code, done.stderr
    assert "Traceback" not in done.stderr
    assert PASSWORD not in done.stderr + done.stdout
    complaint = done.stderr.rpartition("migrator: ")[2].strip()
    assert done.stderr.count("migrator: ") == 1
    assert [word for word in words if word not in complaint] == [], complaint
    return complaint


def run_once(rig: Rig, **env: str) -> subprocess.Popen[str]:
    """Start a migration of the rig's endpoint."""
    return rig.start("run", "--endpoint", rig.endpoint, "--once", **env)


def with_user(url: str, user: str, password: str = PASSWORD) -> str:
    """Return *url* with another user."""
    parts = urlsplit(url)
    return parts._replace(netloc=f"{user}:{password}@{parts.hostname}:{parts.port}").geturl()


@pytest.mark.slow
def test_addresses_that_lead_nowhere(rig: Rig) -> None:
    """Wrong port, database, password and virtual host are told apart, and nothing is claimed."""
    rig.prepare()
    rig.insert([row(), row()])
    stored = rig.stored()
    broker, database = (url.rpartition("/")[0] for url in (rig.broker_url, rig.database_url))
    nowhere = f"postgresql+psycopg://migrator:{PASSWORD}@127.0.0.1:1/sales"
    expected: dict[tuple[str, str], tuple[Any, ...]] = {
        ("BROKER", f"amqp://guest:{PASSWORD}@127.0.0.1:1/%2F"): (UNREACHABLE, "cannot be reached"),
        ("BROKER", with_user(rig.broker_url, "guest")): (UNREACHABLE, "guest"),
        ("BROKER", f"{broker}/no-such-vhost"): (UNREACHABLE, "no-such-vhost"),
        ("STORE", nowhere): (UNREACHABLE, "127.0.0.1", "cannot be reached", "store.url"),
        ("STORE", f"{database}/no-such-database"): (UNREACHABLE, "no-such-database"),
        ("STORE", f"oracle://u:{PASSWORD}@nowhere.invalid/x"): (UNREACHABLE, "store.url"),
        ("STORE", f"informix://u:{PASSWORD}@db/x"): (USAGE, "store.url", "postgresql+psycopg://"),
    }
    runs = {(key, url): run_once(rig, **{f"MIGRATOR_{key}__URL": url}) for key, url in expected}
    told = {complains(rig.finish(runs[place]), *said) for place, said in expected.items()}
    assert len(told) == len(expected)
    assert rig.stored() == stored


@pytest.mark.slow
def test_a_broker_user_without_the_right_to_bind(rig: Rig, vhost: Any) -> None:
    """Refused at the start when it may bind none; found out later, the rows wait."""
    rig.prepare("Billing", "Shipping")
    user = f"limited-{secrets.token_hex(4)}"
    vhost.node.add_user(user, PASSWORD)
    ours = {"configure": "^migrator", "write": "^(migrator|nsb)", "read": "^(migrator|nsb)"}
    vhost.node.set_permissions(vhost.name, user, **ours)
    rows = [row() for _ in range(10)]
    rig.insert(rows)
    stored = rig.stored()
    url = with_user(rig.broker_url, user)
    refused = rig.finish(run_once(rig, MIGRATOR_BROKER__URL=url))
    complains(refused, REFUSED, "queue 'Billing'", "set_permissions", "migrator db grants --broker")
    assert rig.stored() == stored

    ours["write"] = "^(migrator|nsb|Billing)"
    vhost.node.set_permissions(vhost.name, user, **ours)
    daemon = rig.start("run", "--endpoint", "Sales", MIGRATOR_BROKER__URL=url)
    wait_until(lambda: not rig.stored_ids(), what="Billing's rows are taken")
    rows += [row(destination="Shipping") for _ in range(10)]
    rig.insert(rows[10:])
    wait_until(lambda: "no-permission" in rig.must("status"), what="status names the destination")
    assert rig.quarantined() == {}
    ours["write"] = ".*"
    vhost.node.set_permissions(vhost.name, user, **ours)
    wait_until(rig.is_done, what="all go on")
    assert '"lane_trouble"' not in rig.stop(daemon)
    assert rig.quarantined() == {}
    account = rig.account(rows, "Billing", "Shipping")
    assert (account.found, account.lost, account.duplicated) == (20, (), ())


@pytest.mark.slow
@pytest.mark.parametrize("step", ["staged.confirmed:1", "staged.nacked:1"])
def test_a_moved_database_goes_on_where_it_was(
    rig: Rig, postgres_server: PostgresServer, vhost: Any, step: str
) -> None:
    """Killed in a hand-over, then moved: what the broker holds is finished under the same id."""
    rig.prepare()
    rows = [row() for _ in range(50)]
    rig.insert(rows)
    killed = rig.run("run", "--endpoint", "Sales", "--once", fault=step)
    assert killed.returncode == -9
    moved = postgres_server.create_database(template=rig.database_url.rpartition("/")[2])
    try:
        rig.database_url = postgres_server.url(moved)
        complains(rig.run("db", "adopt", "--moved", "--yes"), REFUSED, "lane 0")
        with rig.sql() as connection:
            connection.execute("UPDATE migrator.lease SET until = now()")
        rig.must("db", "adopt", "--moved", "--yes")
        rig.migrate()
        account = rig.account(rows, "Billing")
        assert (account.lost, account.duplicated, account.found) == ((), (), 50)
    finally:
        postgres_server.drop_database(moved)


def bad() -> Row:
    """Return a row that cannot become a message, wherever it goes."""
    return replace(row(), headers="not JSON")


def rows_with_bad_ones(good: int, bad_ones: int) -> list[Row]:
    """Return rows of which the *good* are due first."""
    return [row(timedelta(days=3, seconds=n)) for n in range(good)] + [
        replace(bad(), due_at=datetime.now(UTC) + timedelta(days=4, seconds=n))
        for n in range(bad_ones)
    ]


def test_too_many_bad_rows_pause_their_endpoint(rig: Rig, tmp_path: Path) -> None:
    """No other one, and until somebody resumes it, also across a restart; then as many again."""
    listen(rig, tmp_path)
    rig.settings |= {
        "MIGRATOR_HANDOVER__BATCH_SIZE": "50",
        "MIGRATOR_HANDOVER__MAX_QUARANTINED": "60",
    }
    rig.prepare()
    other = replace(rig, endpoint="Other")
    other.create_store()
    rig.insert(rows_with_bad_ones(200, 1200))
    process = rig.start("run", "--all-endpoints")
    wait_until(lambda: listens(rig) and signals(rig) == ["quarantine_limit"], what="a pause")
    (hold,) = status(rig)["holds"]
    assert hold["endpoint"] == "Sales"
    assert "claimed rows went to quarantine" in hold["observed"]
    wait_until(partial(rig.has_handed_over, 4), what="the good ones")
    other.insert([row()])
    wait_until(lambda: not other.stored_ids(), what="the other endpoint's row")
    first = len(rig.quarantined())
    assert 60 < first <= 60 + 5 * 50  # what was claimed ahead
    process.terminate()
    assert rig.finish(process).returncode == QUARANTINED

    process = rig.start("run", "--all-endpoints")
    wait_until(lambda: listens(rig) and signals(rig) == ["quarantine_limit"], what="the pause")
    time.sleep(1)
    assert len(rig.quarantined()) == first
    assert "resumed" in rig.must("resume", "--endpoint", "Sales")
    wait_until(lambda: len(rig.quarantined()) > first + 60, what="some more")
    wait_until(lambda: signals(rig) == ["quarantine_limit"], what="the next pause")
    assert rig.stored_ids()
    process.terminate()
    assert rig.finish(process).returncode == QUARANTINED


def test_a_run_to_the_end_leaves_an_endpoint_of_bad_rows(rig: Rig) -> None:
    """With exit code 3, and the next one goes on; a queue that is missing is no reason."""
    rig.settings |= {
        "MIGRATOR_HANDOVER__BATCH_SIZE": "50",
        "MIGRATOR_HANDOVER__MAX_QUARANTINED": "60",
    }
    rig.prepare()
    rig.insert([row(), *(row(destination="Missing") for _ in range(300))])
    once = ("run", "--endpoint", "Sales", "--once")
    for _ in range(2):  # also when nothing but what is parked is left
        document = json.loads(rig.must(*once, "--json", codes=(QUARANTINED,)))
        (held,), (end,) = document["held"], document["endpoints"]
        assert (held["destination"], held["reason"]) == ("Missing", "destination-unknown")
        assert (end["is_finished"], end["text"]) == (False, "1 moved; 300 parked.")
        assert (rig.quarantined(), held["rows"], rig.stored_ids()) == ({}, 300, set())

    rig.insert(rows_with_bad_ones(100, 600))
    done = rig.run(*once)
    assert done.returncode == REFUSED, done.stderr[-3000:]
    assert "too many of its rows went to quarantine" in done.stderr
    first = len(rig.quarantined())
    assert re.search(
        rf"^Sales: \d+ moved; 300 parked, {first} in quarantine, \d+ still to", done.stdout, re.M
    )
    assert 60 < first <= 60 + 5 * 50
    assert len(rig.stored_ids()) == 600 - first
    rig.must(*once, codes=(REFUSED,))
    assert len(rig.quarantined()) > first


def test_rows_that_only_their_headers_send_to_a_missing_queue_are_parked_as_well(rig: Rig) -> None:
    """However many they are, they are no reason to stop."""
    rig.settings |= {
        "MIGRATOR_HANDOVER__BATCH_SIZE": "50",
        "MIGRATOR_HANDOVER__MAX_QUARANTINED": "60",
    }
    rig.prepare()
    rig.insert([row(), *(replace(row(destination="Missing"), destination="") for _ in range(600))])
    rig.must("run", "--endpoint", "Sales", "--once", codes=(QUARANTINED,))
    parked = rig.parked()
    assert (len(parked), {*parked.values()}) == (600, {"destination-unknown"})
    assert (rig.quarantined(), rig.stored_ids()) == ({}, set())
