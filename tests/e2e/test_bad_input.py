"""Bad input: one clear line that names the object and the remedy, and nothing is lost."""

from __future__ import annotations

import json
import secrets
import subprocess
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import pytest
from psycopg import sql

from dev.postgres import PostgresServer
from dev.processes import wait_until
from migrator.cli.check import exit_code
from migrator.delays.routing import level_name
from migrator.preflight.findings import Finding, Level
from tests.e2e.rig import Rig
from tests.e2e.rows import row

PASSWORD: Final = "hunter2-hunter2"
USAGE, REFUSED, UNREACHABLE = 2, 3, 4
Done = subprocess.CompletedProcess[str]


def complains(done: Done, code: int, *words: str) -> str:
    """Demand the exit code, one complaint with all *words*, no traceback and no password."""
    assert done.returncode == code, done.stderr
    assert "Traceback" not in done.stderr
    assert PASSWORD not in done.stderr + done.stdout
    complaint = done.stderr.rpartition("migrator: ")[2].strip()
    assert done.stderr.count("migrator: ") == 1
    for word in words:
        assert word in complaint, complaint
    return complaint


def findings(done: Done) -> dict[str, list[Finding]]:
    """Return what ``check --json`` found, by check; its exit code has to fit."""
    assert PASSWORD not in done.stderr + done.stdout
    found: dict[str, list[Finding]] = {}
    for each in json.loads(done.stdout)["findings"]:
        finding = Finding(**{**each, "level": Level(each["level"])})
        found.setdefault(finding.check, []).append(finding)
    assert done.returncode == exit_code(f for each in found.values() for f in each)
    return found


def refusals(found: dict[str, list[Finding]]) -> dict[str, Finding]:
    """Return the first refusal of each check that refused."""
    return {
        check: next(f for f in each if f.level is Level.REFUSED)
        for check, each in found.items()
        if any(f.level is Level.REFUSED for f in each)
    }


def run_once(rig: Rig, **env: str) -> subprocess.Popen[str]:
    """Start a migration of the rig's endpoint."""
    return rig.start("run", "--endpoint", rig.endpoint, "--once", **env)


def with_user(url: str, user: str, password: str = PASSWORD) -> str:
    """Return *url* with another user."""
    parts = urlsplit(url)
    return parts._replace(netloc=f"{user}:{password}@{parts.hostname}:{parts.port}").geturl()


# ── where, and who ──────────────────────────────────────────────────────────────────────────


@pytest.mark.slow
def test_addresses_that_lead_nowhere(rig: Rig) -> None:
    """Wrong port, database, password and virtual host are told apart, and nothing is claimed."""
    rig.prepare()
    rig.insert([row(), row()])
    stored = rig.stored()
    base = rig.broker_url.rpartition("/")[0]
    wrong = {
        "port": f"amqp://guest:{PASSWORD}@127.0.0.1:1/%2F",
        "password": with_user(rig.broker_url, "guest"),
        "vhost": f"{base}/no-such-vhost",
    }
    nowhere = f"postgresql+psycopg://migrator:{PASSWORD}@127.0.0.1:1/sales"
    store = run_once(rig, MIGRATOR_STORE__URL=nowhere)
    other = f"{rig.database_url.rpartition('/')[0]}/no-such-database"
    database = rig.start("check", "--json", MIGRATOR_STORE__URL=other)
    nonsense = rig.start("status", MIGRATOR_STORE__URL=f"oracle://u:{PASSWORD}@db/sales")
    runs = {what: run_once(rig, MIGRATOR_BROKER__URL=url) for what, url in wrong.items()}
    checks = {
        what: rig.start("check", "--json", MIGRATOR_BROKER__URL=url) for what, url in wrong.items()
    }
    complains(rig.finish(store), UNREACHABLE, "127.0.0.1", "cannot be reached", "store.url")
    turned_away = refusals(findings(rig.finish(database)))["store-reachable"]
    assert "it answers, but refuses" in turned_away.text
    assert "no-such-database" in turned_away.text
    complains(rig.finish(nonsense), USAGE, "store.url", "postgresql+psycopg://")
    told = {what: complains(rig.finish(each), UNREACHABLE) for what, each in runs.items()}
    found = {
        what: refusals(findings(rig.finish(each)))["broker-reachable"]
        for what, each in checks.items()
    }
    assert "cannot be reached" in found["port"].text
    for what in ("password", "vhost"):
        assert "does not let us in" in found[what].text
    assert "no-such-vhost" in found["vhost"].text
    assert "no-such-vhost" in told["vhost"]
    assert "guest" in told["password"]
    assert len({finding.text for finding in found.values()}) == len(wrong)
    assert len(set(told.values())) == len(wrong)
    assert all(finding.remedy for finding in found.values())
    assert rig.stored() == stored


@pytest.mark.slow
def test_a_database_role_without_delete(rig: Rig) -> None:
    """A role that may not delete is told so; the grants that migrator prints are enough."""
    rig.prepare()
    rig.insert([row(), row()])
    role = f"limited_{secrets.token_hex(4)}"
    named = sql.Identifier(role)
    with rig.sql() as connection:
        connection.execute(sql.SQL("CREATE ROLE {} LOGIN").format(named))
        for what in (
            "SELECT, INSERT, UPDATE ON {table} TO {role}",
            "USAGE ON SCHEMA migrator TO {role}",
            "ALL ON ALL TABLES IN SCHEMA migrator TO {role}",
            "ALL ON ALL SEQUENCES IN SCHEMA migrator TO {role}",
        ):
            text = sql.SQL("GRANT " + what)
            connection.execute(text.format(table=rig.table, role=named))
    stored = rig.stored()
    try:
        url = with_user(rig.database_url, role)
        done = rig.finish(run_once(rig, MIGRATOR_STORE__URL=url))
        complains(done, REFUSED, "DELETE", "Sales_TimeoutData", "migrator db grants")
        assert rig.stored() == stored
        grants = rig.must("db", "grants", "--role", role, "--endpoint", "Sales")
        with rig.sql() as connection:
            connection.execute(sql.SQL("DROP OWNED BY {}").format(named))
            connection.execute(grants.encode())
        rig.migrate(MIGRATOR_STORE__URL=url)
        assert rig.stored() == {}
    finally:
        with rig.sql() as connection:
            connection.execute(sql.SQL("DROP OWNED BY {}").format(named))
            connection.execute(sql.SQL("DROP ROLE {}").format(named))


@pytest.mark.slow
def test_a_broker_user_without_configure(rig: Rig, vhost: Any) -> None:
    """Staged says what is missing, direct makes do; the printed grants are enough for staged."""
    rig.prepare()
    user = f"limited-{secrets.token_hex(4)}"
    vhost.node.add_user(user, PASSWORD)
    vhost.node.set_permissions(vhost.name, user, configure="")
    rows = [row() for _ in range(40)]
    rig.insert(rows[:20])
    stored = rig.stored()
    url = with_user(rig.broker_url, user)
    checked = rig.start("check", "--json", MIGRATOR_BROKER__URL=url)
    staged = rig.finish(run_once(rig, MIGRATOR_BROKER__URL=url))
    complains(staged, REFUSED, "migrator broker grants", "staged", "direct")
    assert set(refusals(findings(rig.finish(checked)))) == {"broker-rights"}
    assert rig.stored() == stored
    rig.migrate("--mode", "direct", MIGRATOR_BROKER__URL=url)
    assert not [e for e in _exchanges(vhost) if e.startswith("migrator.entry.")]
    least = json.loads(rig.must("broker", "grants", "--json"))
    patterns = {kind: least[kind] for kind in ("configure", "write", "read")}
    vhost.node.set_permissions(vhost.name, user, **patterns)
    rig.insert(rows[20:])
    rig.migrate("--mode", "staged", MIGRATOR_BROKER__URL=url)
    assert [e for e in _exchanges(vhost) if e.startswith("migrator.entry.")]
    account = rig.account(rows, "Billing")
    assert (account.found, account.lost, account.duplicated) == (40, (), ())


def test_a_broker_user_without_the_right_to_bind(rig: Rig, vhost: Any) -> None:
    """Refused at the start; found out later, it is trouble of the lane. Never of the rows."""
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
    complains(refused, REFUSED, "queue 'Billing'", "set_permissions", "migrator broker grants")
    assert rig.stored() == stored

    ours["write"] = "^(migrator|nsb|Billing)"
    vhost.node.set_permissions(vhost.name, user, **ours)
    daemon = rig.start("run", "--endpoint", "Sales", MIGRATOR_BROKER__URL=url)
    wait_until(lambda: not rig.stored_ids(), what="Billing's rows are taken")
    rows += [row(destination="Shipping") for _ in range(10)]
    rig.insert(rows[10:])
    wait_until(lambda: "'Shipping'" in rig.must("status"), what="status names the destination")
    assert rig.quarantined() == {}
    ours["write"] = ".*"
    vhost.node.set_permissions(vhost.name, user, **ours)
    wait_until(lambda: rig.batch_states().keys() == {"handed_over"}, what="all go on")
    assert '"lane_trouble"' in rig.stop(daemon)
    assert rig.quarantined() == {}
    assert len(rig.drain_levels()) == 20


def _exchanges(vhost: Any) -> list[str]:
    return [each["name"] for each in vhost.node.api("GET", f"exchanges/{vhost.name}")]


# ── what has to be there first ──────────────────────────────────────────────────────────────


def test_what_has_to_be_made_first(rig: Rig) -> None:
    """No ledger, no such endpoint, no delays: each names the command or the choice."""
    rig.create_store()
    rig.insert([row(), row()])
    stored = rig.stored()
    without_ledger = run_once(rig)
    checked = rig.start("check", "--json")
    status = rig.start("status")
    complains(rig.finish(without_ledger), REFUSED, "ledger", "migrator db upgrade")
    complains(rig.finish(status), REFUSED, "ledger", "migrator db upgrade")
    refused = refusals(findings(rig.finish(checked)))
    assert refused["ledger"].remedy == "migrator db upgrade"
    assert refused["delay-entities"].remedy == "migrator delays create --delays v2"
    rig.must("db", "upgrade")
    unknown = rig.start("run", "--endpoint", "Slaes", "--once")
    without_delays = run_once(rig)
    complains(rig.finish(unknown), REFUSED, "'Slaes'", "it has: Sales")
    complains(rig.finish(without_delays), REFUSED, "missing", "migrator delays create")
    assert rig.stored() == stored


@pytest.mark.slow
def test_a_level_queue_with_wrong_arguments(rig: Rig) -> None:
    """One level made by hand is named by create, inspect and run; nobody changes it."""
    rig.create_store()
    rig.insert([row(), row()])
    stored = rig.stored()
    rig.must("db", "upgrade")
    level = level_name(rig.delays, 5)
    with rig.amqp() as connection:
        connection.channel().queue_declare(level, durable=True)
    complains(rig.run("delays", "create"), UNREACHABLE, level)
    inspected, refused = rig.start("delays", "inspect", "--json"), run_once(rig)
    done = rig.finish(inspected)
    assert done.returncode == REFUSED
    different = [f for f in json.loads(done.stdout)["findings"] if f["state"] == "different"]
    assert [f["subject"] for f in different] == [level]
    complains(rig.finish(refused), REFUSED, level, "other arguments")
    assert rig.stored() == stored


# ── settings ────────────────────────────────────────────────────────────────────────────────


@pytest.fixture
def unplugged(tmp_path: Path) -> Rig:
    """A rig that is connected to nothing."""
    return Rig(database_url="", broker_url="", settings={"MIGRATOR_CONFIG": str(tmp_path / "m")})


def test_all_wrong_settings_at_once(unplugged: Rig, tmp_path: Path) -> None:
    """Unknown keys in file and environment suggest the nearest; all problems come together."""
    file = tmp_path / "migrator.toml"
    file.write_text('[handover]\nbatchsize = 5\nlanes = 0\n[store]\nkind = "oracle"\n')
    done = unplugged.run(
        *("--config", str(file), "run", "--endpoint", "Sales", "--cutoff", "soon"),
        MIGRATOR_HANDOVER__CUTTOFF="1m",
    )
    complains(
        done, USAGE,
        "handover.batchsize", "did you mean handover.batch_size?",
        "MIGRATOR_HANDOVER__CUTTOFF", "did you mean MIGRATOR_HANDOVER__CUTOFF?",
        "handover.lanes", "store.kind", "handover.cutoff", "--cutoff", str(file),
        "5 wrong settings",
    )  # fmt: skip


def test_config_show_masks_secrets(tmp_path: Path) -> None:
    """Passwords from the file appear nowhere, in text or JSON, and origins are told."""
    file = tmp_path / "migrator.toml"
    file.write_text(
        f'[store]\nurl = "postgresql+psycopg://nsb:{PASSWORD}@db/sales"\n'
        f'[broker]\nurl = "host=rabbit;username=nsb;password={PASSWORD}"\n'
        f'management_url = "https://nsb:{PASSWORD}@rabbit:15671"\n'
    )
    rig = Rig(database_url="", broker_url="")
    clean = {key: value for key, value in rig.environment().items() if "MIGRATOR_" not in key}
    for as_json in ([], ["--json"]):
        done = subprocess.run(
            [*rig.program, "--config", str(file), "config", "show", *as_json],
            env=clean, capture_output=True, text=True, check=True,
        )  # fmt: skip
        assert PASSWORD not in done.stdout + done.stderr
        assert "nsb" in done.stdout
        assert "rabbit" in done.stdout
        assert str(file) in done.stdout + done.stderr


# ── others that are at work ─────────────────────────────────────────────────────────────────


@pytest.mark.slow
def test_a_cloned_database_is_refused(
    rig: Rig, postgres_server: PostgresServer, vhost: Any
) -> None:
    """A copy of the database must not touch the queues of the original until it is adopted."""
    rig.prepare()
    rig.insert([row(), row()])
    original = rig.database_url.rpartition("/")[2]
    copy = postgres_server.create_database(template=original)
    try:
        rig.database_url = postgres_server.url(copy)
        stored = rig.stored()
        refused, checked = run_once(rig), rig.start("check", "--json")
        complains(rig.finish(refused), REFUSED, "migrator db adopt")
        assert "ledger" in refusals(findings(rig.finish(checked)))
        assert rig.stored() == stored
        rig.must("db", "adopt", "--yes")
        rig.migrate()
        assert rig.stored() == {}
    finally:
        postgres_server.drop_database(copy)


@pytest.mark.slow
@pytest.mark.parametrize("step", ["staged.staged:1", "staged.nacked:1"])
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


def test_others_at_work_on_store_and_broker(rig: Rig, vhost: Any) -> None:
    """A half-finished run of the vendor's tool and a blanket policy are refused, each by name."""
    rig.prepare()
    rig.insert([row(), row()])
    stored = rig.stored()
    vhost.node.set_policy(vhost.name, "blanket", pattern=".*", overflow="drop-head")
    with rig.amqp() as connection:
        connection.channel().queue_declare("TimeoutMigrationTool_Staging", durable=True)
    with rig.sql() as connection:
        connection.execute(
            'CREATE TABLE "TimeoutsMigration_State" ("MigrationRunId" varchar(500) PRIMARY KEY,'
            ' "EndpointName" varchar(500), "Status" int, "RunParameters" text)'
        )
        connection.execute(
            """INSERT INTO "TimeoutsMigration_State" VALUES ('run-7', 'Sales', 1, '{}')"""
        )
    started = run_once(rig), rig.start("check", "--json")
    done, checked = (rig.finish(each) for each in started)
    complains(
        done, REFUSED,
        "run run-7 of endpoint Sales is unfinished", "TimeoutMigrationTool_Staging",
        "policy blanket", "overflow", "narrow its pattern", "abort it with the vendor's tool",
    )  # fmt: skip
    assert {"policies", "vendor-run"} == set(refusals(findings(checked)))
    assert rig.stored() == stored


@pytest.mark.slow
def test_suffix_collisions_are_refused_until_accepted(rig: Rig) -> None:
    """`#.Sales` catches what goes to `My.Sales`, too; one setting accepts the double."""
    rig.prepare("Sales", "My.Sales")
    rows = [row(destination="My.Sales"), row(destination="Sales")]
    rig.insert(rows)
    stored = rig.stored()
    text = complains(
        rig.finish(run_once(rig)), REFUSED, "My.Sales", "handover.accept_suffix_collisions"
    )
    assert "also reach Sales" in text
    assert rig.stored() == stored
    rig.migrate(MIGRATOR_HANDOVER__ACCEPT_SUFFIX_COLLISIONS="true")
    account = rig.account(rows, "Sales", "My.Sales")
    assert (account.found, account.lost, account.duplicated) == (2, (), ())
