"""Tests of ``migrator.cli.preview``."""

from __future__ import annotations

import json
import re
import shlex
import sys

import pytest

from migrator.app import preview as app_preview
from migrator.app.preflight import check_context
from migrator.app.servers import open_servers
from migrator.cli.session import Session
from migrator.delays.topology import DelayEntities
from migrator.errors import TargetUnavailable
from migrator.preview import count
from tests.unit.cli.conftest import Program
from tests.unit.preflight.fakes import queue
from tests.unit.reports.reading import read


def test_a_preview_counts_and_changes_nothing(program: Program) -> None:
    """Store and ledger are the same afterwards, byte for byte."""
    program.seeded("--destinations", "Billing,Shipping", "--bad", "3")
    tables = [name for (name,) in program.rows("SELECT name FROM sqlite_master WHERE type='table'")]
    before = {table: program.rows(f"SELECT * FROM {table}") for table in tables}
    ended = program("preview", "--offline", "--endpoint", "Sales")
    assert {table: program.rows(f"SELECT * FROM {table}") for table in tables} == before
    assert "unreadable-headers" in ended.out
    assert "Billing" in ended.out
    assert "messages/s" in ended.out


def test_a_preview_may_go_into_a_file(program: Program, monkeypatch: pytest.MonkeyPatch) -> None:
    """With every count under its documented name; nothing is on stdout then."""
    program.seeded()
    monkeypatch.setenv("MIGRATOR_HANDOVER__RATE_LIMIT", "2")
    limits = ("--cutoff", "0s", "--horizon", "15d", "--rate", "5")
    ended = program("preview", "--offline", *limits, "--json", "--output", "preview.json")
    assert (ended.out, ended.err) == ("", "written to preview.json\n")
    document = json.loads((program.folder / "preview.json").read_text())
    assert document["schema"] == "migrator/preview/1"
    assert (document["cutoff_s"], document["horizon_s"]) == (0, 15 * 86_400)
    (endpoint,) = document["endpoints"]
    assert endpoint["stored"] == 20 == endpoint["to_migrate"] + endpoint["beyond_horizon"]
    assert endpoint["destinations"] == {"Sales": endpoint["to_hand_over"]}
    assert document["estimated_s"] == endpoint["to_hand_over"] / 2
    ended = program("preview", "--offline", "--output", "absent/preview.txt", codes=[2])
    assert "absent/preview.txt cannot be written" in ended.err


def test_a_name_with_dots_is_told_by_the_rows(program: Program) -> None:
    """Its table has lost them; where rows do not tell, a warning says so until it is named."""
    program("db", "upgrade")
    program("seed", "--yes", "--endpoint", "Billing.Eu", "--count", "3")
    found = program("preview", "--offline", "--all-endpoints", "--json").document["endpoints"]
    assert [each["endpoint"] for each in found] == ["Billing.Eu"]
    program.change("UPDATE Billing_Eu_TimeoutData SET Destination = 'Audit'")
    told = program("preview", "--offline", "--all-endpoints").out
    assert "its endpoint is called Billing_Eu here" in " ".join(told.split())
    named = program("preview", "--offline", "--endpoint", "Billing.Eu").out
    assert "is called" not in named
    assert "Billing.Eu" in named


@pytest.mark.parametrize(
    ("options", "text"),
    [
        (["--format", "xml"], "must be table or html"),
        (["--format", "html", "--json"], "exclude each other"),
        (["--format", "html", "--output", "."], "is a folder"),
    ],
)
def test_other_forms_are_refused(program: Program, options: list[str], text: str) -> None:
    """Before anything is read."""
    assert text in program("preview", "--offline", *options, codes=[2]).err


def test_a_preview_is_a_page_on_demand(program: Program) -> None:
    """With the numbers of the JSON document, the ledger, and commands that mean the same rows."""
    program.seeded("--destinations", "Billing,Shipping", "--bad", "4")
    options = ("--endpoint", "Sales", "--cutoff", "0s", "--map", "Billing=New Billing")
    document = program("preview", "--offline", *options, "--json").document
    page = read(program("preview", "--offline", *options, "--format", "html").out)
    lines = page.table("What would happen to its timeouts")
    (endpoint,) = document["endpoints"]
    assert lines["stored"][0] == endpoint["stored"] == 20
    assert lines["… to hand over"][0] == endpoint["to_hand_over"]
    drawn = page.table("Messages by destination")
    assert {name: [count] for name, count in endpoint["destinations"].items()}.items() <= (
        drawn.items()
    )
    ((ledger_id,),) = program.rows("SELECT id FROM migrator_ledger")
    assert ledger_id in page.text
    again = "--endpoint Sales --cutoff 0s --map 'Billing=New Billing'"
    assert f"migrator run {again}" in page.text
    assert "New Billing" in program(*shlex.split(f"preview {again}"), codes=[3]).out  # has no queue


def test_a_preview_needs_no_ledger_and_no_broker(program: Program) -> None:
    """It may be the very first thing an operator does; a page says that none was read."""
    program("seed", "--yes", "--endpoint", "Sales", "--count", "5")
    page = read(program("preview", "--offline", "--format", "html", codes=[3]).out)
    assert "ledger none was read" in page.text
    assert "migrator run --all-endpoints" in page.text


def test_rows_that_are_not_moved_are_told_apart(program: Program) -> None:
    """In mode dispatch all rows are sent when due, whatever cutoff and horizon say."""
    program.seeded(count=5)
    program("seed", "--yes", "--endpoint", "Billing", "--count", "3", "--seed", "1")
    for name, mode in (("Sales", "dispatch"), ("Billing", "forward")):
        with (program.folder / "migrator.toml").open("a") as file:
            file.write(f'[[endpoints]]\nname = "{name}"\nmode = "{mode}"\n')
    program.change(
        "UPDATE Billing_TimeoutData SET Time = NULL"
        " WHERE Id = (SELECT min(Id) FROM Billing_TimeoutData)",
        "UPDATE Billing_TimeoutData SET Time = strftime('%Y-%m-%d %H:%M:%f', Time, '+2 hours')"
        " WHERE Id = (SELECT max(Id) FROM Billing_TimeoutData)",
    )
    document = program(
        "preview", "--offline", "--cutoff", "3000d", "--horizon", "3001d", "--json"
    ).document
    (moved,) = document["endpoints"]
    (sent,) = document["dispatched"]
    assert (moved["endpoint"], moved["left"], document["estimated_s"]) == ("Billing", 2, 0)
    assert (sent["endpoint"], sent["stored"], sent["to_send"]) == ("Sales", 5, 5)
    assert sent["destinations"] == {"Sales": 5}
    assert document["modes"] == {"Sales": "dispatch", "Billing": "forward"}
    shown = " ".join(program("preview", "--offline", "--cutoff", "3000d").out.split())
    for said in (
        "Sales dispatch",
        "2 rows due too soon will be sent by migrator when due",
        "1 row without a due time",
        "1 row with a due column +2 h off its own header",
    ):
        assert said in shown
    assert "left to its timeout manager" not in shown


def test_what_was_only_sampled_says_so(program: Program, monkeypatch: pytest.MonkeyPatch) -> None:
    """In each form; what the sample found is in no sum, and --exact finds all of it."""
    monkeypatch.setattr(count, "SAMPLE_ROWS", 30)
    program.seeded(count=40)
    broken = "UPDATE Sales_TimeoutData SET Headers = '{\"a\": 1}'"
    program.change(f"{broken} WHERE Id = (SELECT min(Id) FROM Sales_TimeoutData)")
    lost = "UPDATE Sales_TimeoutData SET Destination = '@', Headers = '{}'"
    program.change(f"{lost} WHERE Id = (SELECT max(Id) FROM Sales_TimeoutData)")
    for options in ((), ("--exact",)):
        document = program("preview", "--offline", *options, "--json").document
        (endpoint,) = document["endpoints"]
        shown = " ".join(program("preview", "--offline", *options).out.split())
        page = read(program("preview", "--offline", *options, "--format", "html").out)
        reasons = {each["reason"]: each["count"] for each in endpoint["quarantine"]}
        if options:
            assert endpoint["sample"] is None
            assert reasons == {"no-destination": 1, "unreadable-headers": 1}
            assert "sample" not in shown + page.text
            continue
        assert reasons == {"no-destination": 1}
        (found,) = endpoint["sample"]["quarantine"]
        assert (found["reason"], found["count"]) == ("unreadable-headers", 1)
        assert endpoint["sample"]["rows"] == 30
        for said in ("30 of the others as a sample", "at most", "1 of 30 sampled"):
            assert said in shown
        for said in (
            "30 other timeouts as a sample",
            "at least 1 would go to quarantine",
            "of 30 sampled timeouts 1 would, too",
            "migrator preview --exact",
        ):
            assert said in page.text


def test_what_will_come_late_is_told(program: Program, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever sends it: in each form, with the second and how late."""
    monkeypatch.setattr(app_preview, "dues_per_s", lambda _cost_s: 5.0)
    program.seeded()
    program.change("UPDATE Sales_TimeoutData SET Time = '2031-05-06 07:08:09.000000'")
    document = program("preview", "--offline", "--json").document
    due = "2031-05-06T07:08:09+00:00"
    assert document["bursts"] == [{"due_from": due, "due_until": due, "rows": 20, "late_s": 4.0}]
    said = "20 timeouts fall due at 2031-05-06T07:08:09Z: the last will arrive about 4 seconds late"
    assert said in program("preview", "--offline").out.replace("\n", " ")
    page = read(program("preview", "--offline", "--format", "html").out)
    assert "20 timeouts due at 2031-05-06 07:08:09 UTC: the last will arrive about 4" in page.text


def test_all_is_fine_only_when_everything_was_asked(program: Program) -> None:
    """Passes are one line; what is odd comes first and is counted in the headline."""
    program.seeded()
    fine = dict.fromkeys(("Sales", "Sales.TimeoutsDispatcher"), queue(1))
    program.broker.probes = fine
    shown = program("preview").out
    assert shown.startswith("20 timeouts of 1 endpoint; 20 would be moved.\n")
    assert re.search(r"\n\d+ checks passed; -v lists them\n", shown)
    assert "store-reachable" not in shown
    assert "store-reachable" in program("-v", "preview").out
    assert max(map(len, shown.splitlines())) <= 100
    assert "the broker was not asked" in program("preview", "--offline").out
    del program.broker.probes["Sales"]
    ended = program("preview", codes=[3])
    assert ended.out.startswith("A run would be refused for 1 reason; 20 timeouts")
    assert "20 would wait for a destination that cannot be reached" in ended.out.replace("\n", " ")
    document = program("preview", "--json", codes=[3]).document
    assert (document["verdict"], document["waiting"]) == ("refused", {"Sales": 20})
    document = program("preview", "--offline", "--json").document
    assert (document["asks_broker"], document["waiting"]) == (False, None)


def test_the_shortest_and_the_longest_due_are_told(program: Program) -> None:
    """Of each endpoint: one that is overdue, one that has a single row, and one that has none."""
    program("db", "upgrade")
    for name, rows, *due in (
        ("Billing", 1, "+2 hours"),
        ("Sales", 3, "-3 hours", "+5 minutes", "+40 days"),
        ("Shipping", 1),
    ):
        program("seed", "--yes", "--endpoint", name, "--count", str(rows), "--seed", "1")
        table = f"{name}_TimeoutData"
        for after, each in enumerate(due):
            a_row = f"(SELECT Id FROM {table} ORDER BY Id LIMIT 1 OFFSET {after})"
            moment = f"strftime('%Y-%m-%d %H:%M:%f', 'now', '{each}', '+50 seconds')"
            program.change(f"UPDATE {table} SET Time = {moment} WHERE Id = {a_row}")
    program.change("DELETE FROM Shipping_TimeoutData")
    lines = program("preview", "--offline").out.partition("\n\n")[2].splitlines()
    assert [re.split(r" {2,}", line)[:5] for line in lines[:4]] == [
        ["endpoint", "mode", "stored", "shortest due", "longest due"],
        ["Billing", "migrate", "1", "in 2h", "in 2h"],
        ["Sales", "migrate", "3", "2h 59m ago", "in 40d"],
        ["Shipping", "migrate", "0", "none", "none"],
    ]


RED, YELLOW, GREEN = "\x1b[1;31m", "\x1b[33m", "\x1b[32m"


def test_findings_have_colours_on_a_terminal(
    program: Program, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As the headline has; none in a pipe or a file, and none where nobody wants them."""
    monkeypatch.setenv("TERM", "xterm-256color")
    for name in ("NO_COLOR", "FORCE_COLOR", "TTY_COMPATIBLE"):
        monkeypatch.delenv(name, raising=False)
    program.seeded()
    program.broker.probes = dict.fromkeys(("Sales", "Sales.TimeoutsDispatcher"), queue(1))
    assert "\x1b" not in program("-v", "preview").out
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)
    shown = program("-v", "preview").out
    assert shown.startswith(f"{GREEN}20 timeouts")
    assert f"\n{GREEN}ok" in shown
    program.change("UPDATE Sales_TimeoutData SET Headers = '{'")
    assert program("preview").out.startswith(f"{YELLOW}20 timeouts")
    del program.broker.probes["Sales"]
    program.change("UPDATE Sales_TimeoutData SET Headers = '{}' WHERE rowid % 2")
    shown = program("preview", codes=[3]).out
    assert shown.startswith(f"{RED}A run would be refused")
    assert f"\n{RED}refused" in shown
    assert f"\n{YELLOW}warning" in shown
    program("preview", "--output", "preview.txt", codes=[3])
    assert "\x1b" not in (program.folder / "preview.txt").read_text()
    monkeypatch.setenv("NO_COLOR", "1")
    assert re.findall(r"\x1b\[[\d;]*3\d", program("preview", codes=[3]).out) == []


def test_who_sends_what_is_left_is_told(program: Program) -> None:
    """A timeout manager that runs, or nobody, or nobody knows."""
    program.seeded()
    program.broker.probes = dict.fromkeys(("Sales", "Sales.TimeoutsDispatcher"), queue(1))
    left = ("preview", "--cutoff", "3000d")
    assert "its timeout manager runs and sends the 20 rows" in program(*left).out
    assert "whether it runs was not checked" in program(*left, "--offline").out
    del program.broker.probes["Sales.TimeoutsDispatcher"]
    assert "nothing consumes Sales.TimeoutsDispatcher" in " ".join(program(*left).out.split())
    levels = {f["check"]: f["level"] for f in program("preview", "--json").document["findings"]}
    assert (levels["unattended-rows"], levels["ledger"]) == ("warning", "ok")


def test_a_refusal_ends_with_3_and_a_broker_that_is_gone_with_4(program: Program) -> None:
    """With the remedy; whatever else was refused. A missing ledger does not end the checks."""
    program("seed", "--yes", "--endpoint", "Sales", "--count", "1")
    program.broker.entities = DelayEntities(missing=["x"], different={}, not_checked=())
    shown = program("preview", codes=[3]).out
    assert "migrator delays create --delays v2" in shown
    assert "migrator db upgrade" in shown
    assert (
        "the store has no such endpoint"
        in program("preview", "--endpoint", "Nobody", codes=[3]).out
    )
    program.broker.failure = TargetUnavailable("gone")
    document = program("preview", "--json", codes=[4]).document
    assert (document["verdict"], document["waiting"]) == ("refused", None)


def test_settings_become_what_checks_ask_for(program: Program) -> None:
    """Our queues, once a ledger's id names them, and those of endpoints we dispatch for."""
    (program.folder / "migrator.toml").write_text(
        '[handover]\nnear_due = "dispatch"\nlanes = 2\n[dispatch]\nretry_delays = ["10s", "1m"]\n'
        '[[endpoints]]\nname = "Sales"\nmode = "dispatch"\nqueue = "In"\nerror_queue = "bad"\n'
        '[[endpoints]]\nname = "Billing"\nmode = "forward"\n'
        '[[endpoints]]\nname = "Stock"\n'
    )
    settings = Session(file=program.folder / "migrator.toml").settings()
    with open_servers(settings, must_exist=False) as servers:
        assert check_context(servers, (), None).own_queues == ()
        program("db", "upgrade")
        found = check_context(servers, (), None)
        only = check_context(servers, ("Billing", "Stock"), None).satellites
    assert len(found.own_queues) == 4
    assert all(name.startswith("migrator.") for name in found.own_queues)
    assert [(s.endpoint, s.queue, s.error_queue) for s in found.satellites] == [
        ("Sales", "In", "bad"),
        ("Billing", "Billing", "error"),
    ]
    retries = ["migrator.retry.In.Timeouts.10", "migrator.retry.In.Timeouts.60"]
    assert found.satellites[0].retry_queues == retries
    assert [s.endpoint for s in only] == ["Billing"]
    assert dict(found.modes) == {"Sales": "dispatch", "Billing": "forward", "Stock": "migrate"}
    assert (found.queues["Sales"], found.sends_near_due) == ("In", True)


@pytest.mark.parametrize(("own", "missing"), [("", "failed"), ('error_queue = "bad"\n', "bad")])
def test_the_error_queue_must_be_there(program: Program, own: str, missing: str) -> None:
    """That of ``[dispatch]``, unless the endpoint has one of its own."""
    program.seeded()
    (program.folder / "migrator.toml").write_text(
        '[dispatch]\nerror_queue = "failed"\n[[endpoints]]\nname = "Sales"\nmode = "dispatch"\n'
        + own
    )
    there = {"Sales", "Sales.Timeouts", "error", "failed", "bad"} - {missing}
    program.broker.probes = {name: queue() for name in there}
    found = program("preview", "--json", codes=[3]).document["findings"]
    refused = [(f["check"], f["subject"]) for f in found if f["level"] == "refused"]
    assert refused == [("satellite-queues", missing)]
    program.broker.probes[missing] = queue()
    program("preview")
