"""Tests of ``migrator.cli.preview``."""

from __future__ import annotations

import json
import shlex

import pytest

from migrator.app import preview as app_preview
from migrator.preview import count
from tests.unit.cli.conftest import Program
from tests.unit.reports.reading import read


def test_a_preview_counts_and_changes_nothing(program: Program) -> None:
    """Store and ledger are the same afterwards, byte for byte."""
    program.seeded("--destinations", "Billing,Shipping", "--bad", "3")
    tables = [name for (name,) in program.rows("SELECT name FROM sqlite_master WHERE type='table'")]
    before = {table: program.rows(f"SELECT * FROM {table}") for table in tables}
    ended = program("preview", "--endpoint", "Sales")
    assert {table: program.rows(f"SELECT * FROM {table}") for table in tables} == before
    assert "Sales (Sales_TimeoutData)" in ended.out
    assert "unreadable-headers" in ended.out
    assert "Billing" in ended.out
    assert "about" in ended.out.splitlines()[-1]


def test_a_preview_may_go_into_a_file(program: Program, monkeypatch: pytest.MonkeyPatch) -> None:
    """With every count under its documented name; nothing is on stdout then."""
    program.seeded()
    monkeypatch.setenv("MIGRATOR_HANDOVER__RATE_LIMIT", "2")
    limits = ("--cutoff", "0s", "--horizon", "15d", "--rate", "5")
    ended = program("preview", *limits, "--format", "json", "--output", "preview.json")
    assert (ended.out, ended.err) == ("", "written to preview.json\n")
    document = json.loads((program.folder / "preview.json").read_text())
    assert document["schema"] == "migrator/preview/1"
    assert (document["cutoff_s"], document["horizon_s"]) == (0, 15 * 86_400)
    (endpoint,) = document["endpoints"]
    assert endpoint["stored"] == 20 == endpoint["to_migrate"] + endpoint["beyond_horizon"]
    assert endpoint["destinations"] == {"Sales": endpoint["to_hand_over"]}
    assert document["estimated_s"] == endpoint["to_hand_over"] / 2
    ended = program("preview", "--output", "absent/preview.txt", codes=[2])
    assert "absent/preview.txt cannot be written" in ended.err


@pytest.mark.parametrize(
    ("options", "text"),
    [
        (["--format", "xml"], "must be table, json or html"),
        (["--format", "html", "--json"], "exclude each other"),
        (["--format", "html", "--output", "."], "is a folder"),
    ],
)
def test_other_forms_are_refused(program: Program, options: list[str], text: str) -> None:
    """Before anything is read."""
    assert text in program("preview", *options, codes=[2]).err


def test_a_preview_is_a_page_on_demand(program: Program) -> None:
    """With the numbers of the JSON document, the ledger, and commands that mean the same rows."""
    program.seeded("--destinations", "Billing,Shipping", "--bad", "4")
    options = ("--endpoint", "Sales", "--cutoff", "0s", "--map", "Billing=New Billing")
    document = program("preview", *options, "--json").document
    page = read(program("preview", *options, "--format", "html").out)
    lines = page.table("What would become of its timeouts")
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
    assert "New Billing" in program(*shlex.split(f"check {again}"), codes=[3]).out  # has no queue


def test_a_preview_needs_no_ledger_and_no_broker(program: Program) -> None:
    """It may be the very first thing an operator does; a page says that none was read."""
    program("seed", "--yes", "--endpoint", "Sales", "--count", "5")
    page = read(program("preview", "--format", "html").out)
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
    document = program("preview", "--cutoff", "3000d", "--horizon", "3001d", "--json").document
    (moved,) = document["endpoints"]
    (sent,) = document["dispatched"]
    assert (moved["endpoint"], moved["left"], document["estimated_s"]) == ("Billing", 2, 0)
    assert (sent["endpoint"], sent["stored"], sent["to_send"]) == ("Sales", 5, 5)
    assert sent["destinations"] == {"Sales": 5}
    assert document["modes"] == {"Sales": "dispatch", "Billing": "forward"}
    shown = program("preview", "--cutoff", "3000d").out
    for said in (
        "mode dispatch: nothing is moved",
        "mode forward: new timeouts go straight into the delays",
        "sent by migrator when due (due before the cutoff)",
        "1 rows have no due time",
        "1 rows have a due column +2 h from their own header",
    ):
        assert said in shown
    assert "left to the timeout manager" not in shown
    assert "entry level" not in shown


def test_what_was_only_sampled_says_so(program: Program, monkeypatch: pytest.MonkeyPatch) -> None:
    """In each form; what the sample found is in no sum, and --exact finds all of it."""
    monkeypatch.setattr(count, "SAMPLE_ROWS", 30)
    program.seeded(count=40)
    broken = "UPDATE Sales_TimeoutData SET Headers = '{\"a\": 1}'"
    program.change(f"{broken} WHERE Id = (SELECT min(Id) FROM Sales_TimeoutData)")
    lost = "UPDATE Sales_TimeoutData SET Destination = '@', Headers = '{}'"
    program.change(f"{lost} WHERE Id = (SELECT max(Id) FROM Sales_TimeoutData)")
    for options in ((), ("--exact",)):
        document = program("preview", *options, "--json").document
        (endpoint,) = document["endpoints"]
        shown = program("preview", *options).out
        page = read(program("preview", *options, "--format", "html").out)
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
        for said in ("30 of the others as a sample", "at most", "to quarantine, of the sample"):
            assert said in shown
        for said in (
            "30 other timeouts as a sample",
            "at least 1 would be set aside",
            "of 30 sampled timeouts 1 would be, too",
            "migrator preview --exact",
        ):
            assert said in page.text


def test_what_will_come_late_is_told(program: Program, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever sends it: in each form, with the second and how late."""
    monkeypatch.setattr(app_preview, "dues_per_s", lambda _cost_s: 5.0)
    program.seeded()
    program.change("UPDATE Sales_TimeoutData SET Time = '2031-05-06 07:08:09.000000'")
    document = program("preview", "--json").document
    due = "2031-05-06T07:08:09+00:00"
    assert document["bursts"] == [{"due_from": due, "due_until": due, "rows": 20, "late_s": 4.0}]
    said = "20 timeouts are due at 2031-05-06T07:08:09Z: the last will come about 4 s late"
    assert said in program("preview").out
    page = read(program("preview", "--format", "html").out)
    assert "20 timeouts due at 2031-05-06 07:08:09 UTC: the last will come about 4" in page.text
