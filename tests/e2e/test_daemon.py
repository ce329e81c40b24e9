"""What a running daemon is told, looks at, gets over and tells, day by day."""

from __future__ import annotations

import json
import re
import signal
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from functools import partial
from pathlib import Path

import httpx
import pytest
from sqlalchemy import make_url

from dev.processes import free_port, wait_until
from tests.conftest import Vhost
from tests.e2e.daemon import jobs, listen, listens, noted, signals, status, told
from tests.e2e.rig import Rig
from tests.e2e.rows import row
from tests.support.proxy import Proxy
from tests.support.service_manager import ServiceManager

# ── what it is told ───────────────────────────────────────────────────────────────────────────────


TOKEN = "correct horse battery"
SETTINGS = """\
[[endpoints]]
name = "Sales"
[[endpoints]]
name = "Shop"
[handover]
batch_size = 100
"""


def test_an_operator_pauses_resumes_sets_and_drains(rig: Rig, vhost: Vhost, tmp_path: Path) -> None:
    """Nothing of a paused endpoint is claimed, the other goes on; who, what and result are kept."""
    rig.config = tmp_path / "migrator.toml"
    rig.config.write_text(SETTINGS, encoding="utf-8")
    shop = Rig(rig.database_url, rig.broker_url, endpoint="Shop")
    shop.create_store()
    listen(rig, tmp_path)
    rig.settings |= {
        "MIGRATOR_WEB__LISTEN": f"127.0.0.1:{(port := free_port())}",
        "MIGRATOR_WEB__TOKEN": TOKEN,
        "MIGRATOR_PROBE__EVERY": "1100ms",
        "MIGRATOR_PROBE__LEVELS": "0",
    }
    rig.prepare()
    process = rig.start("run", MIGRATOR_PROBE__CAPACITY="true")
    wait_until(lambda: listens(rig), what="a daemon that listens")
    assert (tmp_path / "control.sock").stat().st_mode & 0o777 == 0o660
    said = rig.must("pause", "--endpoint", "Sales", "--reason", "index rebuild")
    assert said.startswith("Sales is paused")
    rig.insert([row() for _ in range(5)])
    shop.insert([row() for _ in range(5)])
    wait_until(lambda: not shop.stored_ids(), what="the other endpoint")
    assert len(rig.stored_ids()) == 5
    (hold,) = status(rig)["holds"]
    assert (hold["signal"], hold["endpoint"]) == ("paused", "Sales")
    assert hold["observed"].startswith("index rebuild (")
    no = told(rig, command="pause", endpoint="Billing", reason="a mistake")
    assert (no["is_done"], "does not work on Billing" in no["text"]) == (False, True)
    with httpx.Client(base_url=f"http://127.0.0.1:{port}", trust_env=False) as client:
        assert client.get("/").headers["location"] == "/page/login"
        assert client.get("/status").status_code == 401
        assert client.post("/control", json={"command": "resume"}).status_code == 401
        assert client.get("/metrics").status_code == 200
        client.headers["authorization"] = f"Bearer {TOKEN}"
        wait_until(lambda: "Sales" in client.get("/status").text, what="the status")
        assert client.post("/control", json={"command": "resume"}).json()["is_done"]
    by_daemon = json.loads(rig.must("status", "--json"))
    by_ledger = json.loads(rig.must("status", "--json", MIGRATOR_WEB__SOCKET=""))
    assert (by_daemon["told_by"], by_ledger["told_by"]) == ("daemon", "ledger")
    assert by_daemon["quarantine"] == by_ledger["quarantine"]
    assert told(rig, command="set", setting="lanes", value="2", who="Jo")["is_done"]
    wait_until(lambda: not rig.stored_ids(), what="rows of what was paused")
    assert status(rig)["settings"]["lanes"] == "2"
    rig.insert([row(headers={"NServiceBus.MessageId": "m" * 256})])
    base = f"http://127.0.0.1:{port}"
    with httpx.Client(base_url=base, trust_env=False, headers={"origin": base}) as browser:
        browser.post("/page/login", data={"token": TOKEN, "name": "alice"})
        seen, database = browser.get("/").text, make_url(rig.database_url)
        for where in (
            f"database {database.database} at {database.host}",
            f"virtual host {vhost.name}",
            f"ledger {rig.ledger_id()}",
        ):
            assert where in seen
        assert re.search(r", for [\d.]+ (second|minute)s?</span>", seen)
        aside = partial(browser.get, "/page/quarantine")
        wait_until(lambda: "Try again" in aside().text, what="a row set aside")
        (secret, *_) = re.findall(r'name="csrf" value="([^"]+)"', aside().text)
        browser.post("/page/retry", data={"csrf": secret, "endpoint": "Sales"})
        assert "1 row of the quarantine tried again" in aside().text
    wait_until(lambda: bool(noted(rig, "quarantine_retried")), what="a note of it")
    assert noted(rig, "quarantine_retried")[0]["rows"] == 1
    wait_until(lambda: len(status(rig)["ledger"]["lanes"]) == 2, what="two lanes")
    wait_until(lambda: jobs(rig)["probe"]["last"] is not None, what="a probe that came back")
    assert [probe["level"] for probe in noted(rig, "probe")[0]["probes"]] == [0]
    assert {"throttle", "look", "scan", "held-destinations"} < set(jobs(rig))
    wait_until(lambda: jobs(rig)["capacity"]["last"] is not None, what="the levels' capacity")
    wait_until(lambda: bool(noted(rig, "capacity_measured")), what="a note of it")
    (kept,) = noted(rig, "capacity_measured")
    assert jobs(rig)["capacity"]["last"]["detail"]["exchange_cost_s"] == kept["exchange_cost_s"]
    rig.must("pause", "--reason", "until Monday")
    # events are written in the background
    wait_until(lambda: len(noted(rig, "hold_began")) == 2, what="a note of it")
    rig.kill(process)
    (tmp_path / "control.sock").unlink()
    rig.insert([row()])
    process = rig.start("run")
    wait_until(lambda: listens(rig), what="a daemon after a restart")
    holds = status(rig)["holds"]
    assert [hold["endpoint"] for hold in holds] == ["Sales", "Shop"]
    assert all(hold["observed"].startswith("until Monday (") for hold in holds)
    assert len(rig.stored_ids()) == 1
    assert told(rig, command="resume")["is_done"]
    wait_until(lambda: not rig.stored_ids(), what="rows after the restart")
    rig.must("stop")
    assert "pause_kept" in (ended := rig.finish(process)).stderr
    assert ended.returncode == 5  # the row that was tried again is in quarantine again
    assert not (tmp_path / "control.sock").exists()
    commands = noted(rig, "command")
    assert sorted(each["command"] for each in commands) == [
        *("drain", "pause", "pause", "pause", "resume", "resume", "retry", "set")
    ]
    assert any("Jo" in each["who"] for each in commands)
    assert {each["who"] for each in commands if each["command"] == "retry"} == {
        "alice, status page from 127.0.0.1"
    }
    assert all(each["who"] and each["answer"] for each in commands)
    assert len(noted(rig, "hold_began")) == 4  # of one, of all, and of each after the restart
    assert len(noted(rig, "hold_ended")) == 3


def test_settings_are_read_anew_upon_sighup(rig: Rig, tmp_path: Path) -> None:
    """What can change does, the service manager hears of it, and wrong settings change nothing."""
    flag_file = tmp_path / "wait"
    flag_file.touch()
    rig.config = tmp_path / "migrator.toml"
    rig.config.write_text(SETTINGS.partition('[[endpoints]]\nname = "Shop"')[0], encoding="utf-8")
    listen(rig, tmp_path)
    rig.prepare()
    with ServiceManager(tmp_path / "notify") as manager:
        process = rig.start("run", NOTIFY_SOCKET=manager.address)
        wait_until(lambda: "READY=1" in manager.messages(), what="a daemon")
        rig.config.write_text(
            f"{SETTINGS}rate_limit = 50\nlanes = 2\n[throttle]\nflag_file = '{flag_file}'\n",
            encoding="utf-8",
        )
        process.send_signal(signal.SIGHUP)
        wait_until(lambda: bool(noted(rig, "reload")), what="a reload")
        wait_until(lambda: manager.messages().count("READY=1") == 2, what="READY")
        (told,) = [each for each in manager.messages() if each.startswith("RELOADING=1\n")]
        assert told.partition("\nMONOTONIC_USEC=")[2].isdigit()
        wait_until(lambda: signals(rig) == ["flag_file"], what="a hold for the file")
        found = status(rig)
        assert (found["settings"]["rate_limit"], found["settings"]["lanes"]) == ("50", "2")
        rig.insert([row()])
        flag_file.unlink()
        wait_until(lambda: not rig.stored_ids(), what="going on without the file")
        rig.config.write_text("[handover]\nlanes = 0\n", encoding="utf-8")
        process.send_signal(signal.SIGHUP)
        wait_until(lambda: len(noted(rig, "reload")) == 2, what="another reload")
        assert status(rig)["settings"]["lanes"] == "2"
        log = rig.stop(process)
    done, refused = noted(rig, "reload")
    settings = ["handover.batch_size", "handover.lanes", "handover.rate_limit"]
    assert done["changed"] == [*settings, "throttle.flag_file"]
    assert done["needs_restart"] == ["endpoints"]
    assert not refused["is_done"]
    assert "reload_refused" in log


# ── what it looks at by itself ────────────────────────────────────────────────────────────────────


def test_a_harmful_policy_holds_until_it_is_gone_and_a_lost_binding_is_made_again(
    rig: Rig, vhost: Vhost, tmp_path: Path
) -> None:
    """Nobody has to resume; rows stored meanwhile are moved then, and the ledger has it all."""
    listen(rig, tmp_path)
    rig.settings |= {
        "MIGRATOR_BROKER__RECHECK_INTERVAL": "500ms",
        "MIGRATOR_HANDOVER__SWEEP_INTERVAL": "200ms",
    }
    rig.prepare()
    rig.insert([row()])
    process = rig.start("run", "--endpoint", "Sales")
    wait_until(lambda: listens(rig), what="a daemon that listens")
    wait_until(lambda: not rig.stored_ids(), what="the first row")
    wait_until(lambda: _outcome(rig) == "fine", what="a first look")
    harmful = {"overflow": "drop-head", "alternate_exchange": "others"}
    vhost.node.set_policy(vhost.name, "all", pattern=".*", **harmful)
    wait_until(lambda: signals(rig) == ["broker_check"], what="a hold")
    (hold,) = status(rig)["holds"]
    assert hold["observed"].startswith("policy all: it sets overflow on ")
    assert hold["limit"].startswith("narrow its pattern so that it leaves these queues alone")
    rig.insert([row()])
    wait_until(lambda: _outcome(rig) == "refused", what="its report")
    with rig.amqp() as connection:
        connection.channel().exchange_unbind("Billing", "nsb.v2.delay-delivery", "#.Billing")
    assert len(rig.stored_ids()) == 1
    vhost.node.delete_policy(vhost.name, "all")
    wait_until(lambda: not rig.stored_ids(), what="going on by itself")
    assert signals(rig) == []
    wait_until(lambda: _outcome(rig) == "fine", what="nothing to find")
    log = rig.stop(process)
    outcomes = [each["outcome"] for each in noted(rig, "recheck")]
    assert [outcomes[0], outcomes[-1]] == ["fine", "fine"]
    assert "refused" in outcomes
    assert [each["signal"] for each in noted(rig, "hold_ended")] == ["broker_check"]
    assert "destinations_bound_again" in log


def _outcome(rig: Rig) -> str | None:
    """Return what came of the last look; None: there was none yet."""
    last = jobs(rig)["recheck"]["last"]
    return None if last is None else str(last["outcome"])


@pytest.mark.punctual
def test_a_locked_table_holds_its_endpoint(rig: Rig, tmp_path: Path) -> None:
    """As a new index locks it; the other endpoint goes on, and the hold ends by itself."""
    shop = Rig(rig.database_url, rig.broker_url, endpoint="Shop")
    shop.create_store()
    listen(rig, tmp_path)
    rig.settings |= {
        "MIGRATOR_THROTTLE__MAX_DATABASE_LATENCY": "1s",  # more than a busy machine makes of it
        "MIGRATOR_THROTTLE__EVERY": "200ms",
        "MIGRATOR_HANDOVER__SWEEP_INTERVAL": "200ms",
    }
    rig.prepare()
    process = rig.start("run", "--all-endpoints")
    wait_until(lambda: listens(rig), what="a daemon that listens")
    with rig.sql() as connection, connection.transaction():
        connection.execute('LOCK TABLE "Sales_TimeoutData" IN SHARE MODE')
        wait_until(lambda: bool(signals(rig)), what="a hold")
        (hold,) = status(rig)["holds"]
        assert (hold["signal"], hold["endpoint"]) == ("database_latency", "Sales")
        assert "public.Sales_TimeoutData took more than" in hold["observed"]
        shop.insert([row() for _ in range(10)])
        wait_until(lambda: not shop.stored_ids(), what="the other endpoint")
    wait_until(lambda: not signals(rig), what="the end of the hold")
    rig.insert([row()])
    wait_until(lambda: not rig.stored_ids(), what="going on by itself")
    rig.stop(process)


@pytest.mark.slow
def test_settled_rows_are_purged_and_progress_stays(rig: Rig, tmp_path: Path) -> None:
    """Without a command; what still waits in the levels stays in the ledger as well."""
    listen(rig, tmp_path)
    rig.settings |= {
        "MIGRATOR_LEDGER__PURGE_AFTER": "1s",
        "MIGRATOR_LEDGER__PURGE_EVERY": "500ms",
        "MIGRATOR_DISPATCH__REMEMBER": "1s",
        "MIGRATOR_HANDOVER__SWEEP_INTERVAL": "200ms",
        "MIGRATOR_HANDOVER__CUTOFF": "0s",
    }
    rig.prepare()
    soon, later = timedelta(seconds=2), row()
    rig.insert([row(soon), row(soon), later, replace(row(), headers="{oops")])
    process = rig.start("run", "--endpoint", "Sales")
    wait_until(
        lambda: sum(each["rows"] for each in noted(rig, "ledger_purged")) == 2,
        what="a purge of both",
    )
    wait_until(lambda: jobs(rig)["ledger-purge"]["last"] is not None, what="its report")
    job = jobs(rig)["ledger-purge"]
    assert (job["when"], job["last"]["outcome"]) == ("500ms", "done")
    process.terminate()
    assert rig.finish(process).returncode == 5
    query = "SELECT store_id, state FROM migrator.timeout WHERE state IS NULL OR state <> %s"
    assert rig.query(query, "quarantined") == [(later.id, None)]
    assert rig.query("SELECT sum(size), sum(purged) FROM migrator.batch") == [(4, 2)]
    assert len(rig.drain_levels()) == 1


def written(rig: Rig, *, leases: bool) -> int:
    """Return how many rows were written so far, of leases or of all else; undone ones count."""
    ((rows,),) = rig.query(
        "SELECT coalesce(sum(n_tup_ins + n_tup_upd + n_tup_del), 0)::int"
        " FROM pg_stat_user_tables WHERE (relname = 'lease') = %s",
        leases,
    )
    return int(rows)


@pytest.mark.punctual
def test_an_idle_daemon_only_renews_its_leases(rig: Rig) -> None:
    """It looks at all endpoints without writing; and a row that is due goes out within 2 s."""
    rig.settings |= {"MIGRATOR_HANDOVER__CUTOFF": "0s", "MIGRATOR_HANDOVER__LEASE": "16s"}
    rig.prepare()
    others = [replace(rig, endpoint=f"Other{number}") for number in range(5)]
    for other in others:
        other.create_store()
    rig.start("run", "--all-endpoints", "--lanes", "2")

    idle = "SELECT count(*) FROM migrator.lease WHERE doing = 'idle'"

    def renews() -> None:
        renewed = written(rig, leases=True)
        wait_until(lambda: written(rig, leases=True) >= renewed + 2, what="renewals")

    wait_until(lambda: rig.query(idle) == [(2,)], what="a daemon that rests")
    renews()  # the server counts late what was written before
    before = written(rig, leases=False)
    renews()
    assert written(rig, leases=False) == before

    late = row(due_in=timedelta(0))
    others[-1].insert([late])
    wait_until(lambda: rig.batch_states()["handed_over"] == 1, what="the row handed over")
    ((done,),) = rig.query("SELECT handed_over_at FROM migrator.batch")
    assert done - late.due_at < timedelta(seconds=2)


# ── what it gets over ─────────────────────────────────────────────────────────────────────────────


@pytest.mark.slow
def test_a_daemon_goes_on_with_the_next_node(
    rig: Rig, vhost: Vhost, proxy: Callable[[str], Proxy]
) -> None:
    """Its node goes away in the middle: all arrives once, and log and status name the other."""
    rig.prepare()
    rows = [row() for _ in range(600)]
    rig.insert(rows)
    first, second = proxy(vhost.amqp_url), proxy(vhost.amqp_url)
    urls = [line.url(vhost.amqp_url) for line in (first, second)]
    managed = f"http://127.0.0.1:{free_port()},{vhost.node.management_url}"
    daemon = rig.start(
        *("run", "--endpoint", "Sales"),
        MIGRATOR_BROKER__URL=",".join(urls),
        MIGRATOR_BROKER__MANAGEMENT_URL=managed,
        MIGRATOR_HANDOVER__BATCH_SIZE="50",
        MIGRATOR_HANDOVER__RATE_LIMIT="150",
    )
    wait_until(partial(rig.has_handed_over, 3), what="handing over")
    first.refuse()
    first.cut()
    wait_until(rig.is_done, what="the last receipt")
    # the ledger is told at the next renewal of the lease
    wait_until(lambda: f"(at 127.0.0.1:{second.port})" in rig.doing(), what="the other node")
    said = rig.stop(daemon)
    nodes = [json.loads(line) for line in said.splitlines() if '"broker_node"' in line]
    assert {each["node"] for each in nodes} == {f"127.0.0.1:{p.port}" for p in (first, second)}
    account = rig.account(rows, "Billing")
    assert (account.lost, account.duplicated) == ((), ())


def held(rig: Rig) -> dict[str, str]:
    """Return what `status` tells of destinations that cannot be reached: why, by name."""
    found = json.loads(rig.must("status", "--json"))["held"]
    return {each["destination"]: each["reason"] for each in found}


def test_a_missing_queue_empties_nothing_into_quarantine(rig: Rig) -> None:
    """The others go on; once the queue is made, its rows do, too, under the running daemon."""
    rig.prepare("Billing")
    rows = [row(timedelta(days=1, seconds=n), destination="Shipping@APP01") for n in range(300)]
    others = [row(timedelta(days=1, seconds=n)) for n in range(0, 200, 2)]
    rig.insert([*rows, *others])
    daemon = rig.start("run", "--endpoint", "Sales")
    waiting = dict.fromkeys((each.id for each in rows), "destination-unknown")
    wait_until(lambda: rig.parked() == waiting, what="parked rows")
    wait_until(lambda: held(rig) == {"Shipping": "destination-unknown"}, what="status")
    assert rig.quarantined() == {}
    rig.create_receivers("Shipping")
    wait_until(rig.is_done, what="the rows that were parked are handed over")
    wait_until(lambda: held(rig) == {}, what="status")
    said = rig.stop(daemon)
    assert '"destination_held"' in said
    assert '"destination_reached"' in said
    assert rig.quarantined() == {}
    account = rig.account([*rows, *others], "Billing", "Shipping")
    assert (account.found, account.lost, account.duplicated) == (400, (), ())


# ── what it tells ─────────────────────────────────────────────────────────────────────────────────


def test_hooks_are_told_what_happened(rig: Rig, tmp_path: Path) -> None:
    """Start, quarantine and the end of a run, and that it was undone."""
    write = tmp_path / "write"
    write.write_text('#!/bin/sh\ncat >>"$(readlink -f "$0").told"\n', encoding="utf-8")
    write.chmod(0o755)
    events = ("START", "THROTTLE", "QUARANTINE", "FINISHED", "ROLLBACK", "FAILURE")
    rig.settings = {f"MIGRATOR_HOOKS__{event}": str(write) for event in events}
    rig.prepare()
    rig.insert([row(), row(), replace(row(), headers="{oops"), row(timedelta(days=4))])
    rig.must("run", "--endpoint", "Sales", "--once", codes=(5,))
    rig.must("rollback", "--yes")
    found = [json.loads(line) for line in Path(f"{write}.told").read_text().splitlines()]
    assert [each["event"] for each in found] == [*("start", "quarantine", "finished", "rollback")]
    start, aside, end, rollback = (each["facts"] for each in found)
    assert start == {"endpoints": ["Sales"]}
    assert (aside["rows"], aside["endpoints"]) == (1, {"Sales": 1})
    (counts,) = end["endpoints"]
    assert (counts["handed_over"], counts["quarantined"]) == (3, 1)
    assert rollback["quarantined"] == 1
    assert "verb" not in rollback


def test_a_run_ends_with_who_sends_what_is_left(rig: Rig) -> None:
    """Also if it had nothing to do: exit code 0 alone would look as if nothing were left."""
    rig.prepare()
    rig.insert([row(-timedelta(hours=1)) for _ in range(3)])
    once = ("run", "--endpoint", "Sales", "--once")
    said = (
        "are left to the timeout manager (cutoff 1m): all overdue, and nothing consumes "
        "`Sales.TimeoutsDispatcher`: run with `--cutoff 0s`"
    )
    assert f"\nSales: Done: 0 moved. 3 {said}\n" in rig.must(*once)
    rig.insert([row()])
    (found,) = json.loads(rig.must(*once, "--json"))["endpoints"]
    assert (found["is_finished"], found["text"]) == (True, f"Done: 1 moved. 3 {said}")
    assert "\nSales: Done: 4 moved.\n" in rig.must(*once, "--cutoff", "0s")


@pytest.mark.parametrize("purge_after", ["", "90d"])
def test_whoever_decides_is_told_what_the_ledger_keeps(rig: Rig, purge_after: str) -> None:
    """Before it begins and once it is finished, unless it is purged in time."""
    if purge_after:
        rig.settings["MIGRATOR_LEDGER__PURGE_AFTER"] = purge_after
    rig.prepare()
    rig.insert([row() for _ in range(3)])
    once = ("run", "--endpoint", "Sales", "--once")
    said = [rig.must("preview"), json.loads(rig.must("preview", "--json"))["content_kept"]]
    ended = rig.run(*once, "--json")
    logged = [json.loads(line) for line in ended.stderr.splitlines() if "content_kept" in line]
    said += [json.loads(ended.stdout)["content_kept"], *(line["text"] for line in logged)]
    said += [rig.must(*once), rig.must("status")]
    said += [json.loads(rig.must("status", "--json"))["content_kept"]]
    kept = re.compile(r"keeps headers and bodies of (3 messages \(.+B\)|what was moved) for good")
    found = [kept.search(" ".join((text or "").split())) for text in said]
    assert [each is not None for each in found] == [not purge_after] * (6 if purge_after else 7)


def test_a_daemon_is_finished_until_new_rows_come(rig: Rig, tmp_path: Path) -> None:
    """It says what is left and that nobody sends it, in status, metric, log and hook."""
    hook = tmp_path / "hook"
    hook.write_text('#!/bin/sh\ncat >>"$(readlink -f "$0").told"\n', encoding="utf-8")
    hook.chmod(0o755)
    listen(rig, tmp_path)
    rig.settings["MIGRATOR_HOOKS__FINISHED"] = str(hook)
    rig.settings["MIGRATOR_WEB__LISTEN"] = f"127.0.0.1:{(port := free_port())}"
    rig.prepare()
    rig.insert([*(row() for _ in range(30)), *(row(-timedelta(hours=1)) for _ in range(3))])
    process = rig.start("run", "--endpoint", "Sales")
    wait_until(lambda: listens(rig), what="a daemon that listens")

    def is_so(state: str) -> bool:
        (endpoint,) = status(rig)["working_on"]
        return bool(endpoint["state"] == state)

    wait_until(partial(is_so, "finished"), what="the end of the work")
    (endpoint,) = status(rig)["working_on"]
    said = (
        "Done: 30 moved. 3 are left to the timeout manager (cutoff 1m): all overdue, and nothing "
        "consumes `Sales.TimeoutsDispatcher`: run with `--cutoff 0s`"
    )
    assert (endpoint["text"], endpoint["percent"]) == (said, 100)
    metrics = httpx.get(f"http://127.0.0.1:{port}/metrics").text
    assert 'migrator_endpoint_state{endpoint="Sales",state="finished"} 1.0' in metrics
    left = 'migrator_left_rows{due="overdue",endpoint="Sales",sent_by="nobody"} 3.0'
    assert left in metrics
    rig.insert([row() for _ in range(5)])
    wait_until(partial(is_so, "moving"), what="new rows")
    with rig.amqp() as connection:  # a timeout manager
        channel = connection.channel()
        channel.queue_declare("Sales.TimeoutsDispatcher")
        channel.basic_consume("Sales.TimeoutsDispatcher", lambda *_: None)
        wait_until(partial(is_so, "finished"), what="the end once more")
    lines = [json.loads(line) for line in rig.stop(process).splitlines()]
    ends = [line for line in lines if line.get("action") == "endpoint_finished"]
    assert [line["text"].partition(".")[0] for line in ends[:2]] == [
        *("Done: 30 moved", "Done: 35 moved")
    ]
    assert ends[0]["level"] == "warning"
    assert any(line.get("action") == "endpoint_not_finished" for line in lines)
    told = [json.loads(line) for line in Path(f"{hook}.told").read_text().splitlines()]
    assert [each["facts"]["endpoints"][0]["handed_over"] for each in told] == [30, 35]
    assert told[0]["text"] == f"Sales: {said}"
