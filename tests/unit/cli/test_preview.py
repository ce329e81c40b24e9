"""Tests of ``migrator.cli.preview``."""

from __future__ import annotations

import json
import shlex

import pytest

from tests.unit.cli.conftest import Program
from tests.unit.reports.reading import read

SNAPSHOT = "SELECT * FROM Sales_TimeoutData ORDER BY Id"


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


def test_a_preview_needs_no_ledger_and_no_broker(program: Program) -> None:
    """It may be the very first thing an operator does."""
    program("seed", "--endpoint", "Sales", "--count", "5")
    assert program("preview", "--json").document["endpoints"][0]["stored"] == 5


@pytest.mark.parametrize("arguments", [["--json"], ["--format", "json"]])
def test_a_preview_is_json_on_demand(program: Program, arguments: list[str]) -> None:
    """With every count under its documented name."""
    program.seeded()
    document = program("preview", "--cutoff", "0s", "--horizon", "15d", *arguments).document
    assert document["schema"] == "migrator/preview/1"
    assert (document["cutoff_s"], document["horizon_s"]) == (0, 15 * 86_400)
    (endpoint,) = document["endpoints"]
    assert endpoint["stored"] == 20 == endpoint["to_migrate"] + endpoint["beyond_horizon"]
    assert endpoint["destinations"] == {"Sales": endpoint["to_hand_over"]}


def test_a_preview_may_go_into_a_file(program: Program) -> None:
    """Nothing is on stdout then."""
    program.seeded()
    ended = program("preview", "--json", "--output", "preview.json")
    assert (ended.out, ended.err) == ("", "written to preview.json\n")
    assert json.loads((program.folder / "preview.json").read_text())["endpoints"]
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


def test_a_page_needs_no_ledger(program: Program) -> None:
    """It says that none was read."""
    program("seed", "--endpoint", "Sales", "--count", "5")
    page = read(program("preview", "--format", "html").out)
    assert "ledger none was read" in page.text
    assert "migrator run --all-endpoints" in page.text


def test_the_estimate_follows_the_rate(program: Program, monkeypatch: pytest.MonkeyPatch) -> None:
    """A rate limit makes it longer."""
    program.seeded()
    assert program("preview", "--rate", "5", "--json").document["estimated_s"] == 4.0
    monkeypatch.setenv("MIGRATOR_HANDOVER__RATE_LIMIT", "2")
    assert program("preview", "--rate", "5", "--json").document["estimated_s"] == 10.0


def test_an_empty_table_is_short(program: Program) -> None:
    """No destinations, no levels, nothing to quarantine."""
    program("seed", "--endpoint", "Sales", "--count", "0")
    shown = program("preview").out
    assert "destination" not in shown
    assert "entry level" not in shown
    assert shown.splitlines()[-1].startswith("0 messages")


def test_warnings_are_told(program: Program) -> None:
    """Rows without a due time, and columns in local time."""
    program.seeded(count=5)
    program.change(
        "UPDATE Sales_TimeoutData SET Time = NULL"
        " WHERE Id = (SELECT min(Id) FROM Sales_TimeoutData)",
        "UPDATE Sales_TimeoutData SET Time = strftime('%Y-%m-%d %H:%M:%f', Time, '+2 hours')"
        " WHERE Id = (SELECT max(Id) FROM Sales_TimeoutData)",
    )
    shown = program("preview").out
    assert "1 rows have no due time" in shown
    assert "1 rows have a due column +2 h from their own header" in shown


def test_rows_that_are_not_moved_are_told_apart(program: Program) -> None:
    """In mode dispatch all rows are sent when due, whatever cutoff and horizon say."""
    program.seeded(count=5)
    program("seed", "--endpoint", "Billing", "--count", "3", "--seed", "1")
    (program.folder / "migrator.toml").write_text(
        '[[endpoints]]\nname = "Sales"\nmode = "dispatch"\n'
        '[[endpoints]]\nname = "Billing"\nmode = "forward"\n'
    )
    document = program("preview", "--cutoff", "3000d", "--horizon", "3001d", "--json").document
    (moved,) = document["endpoints"]
    (sent,) = document["dispatched"]
    assert (moved["endpoint"], moved["left"], document["estimated_s"]) == ("Billing", 3, 0)
    assert (sent["endpoint"], sent["stored"], sent["to_send"]) == ("Sales", 5, 5)
    assert sent["destinations"] == {"Sales": 5}
    assert document["modes"] == {"Sales": "dispatch", "Billing": "forward"}
    shown = program("preview", "--cutoff", "3000d").out
    assert "mode dispatch: nothing is moved" in shown
    assert "mode forward: new timeouts go straight into the delays" in shown
    assert "sent by migrator when due (due before the cutoff)" in shown
    assert "left to the timeout manager" not in shown
    assert "entry level" not in shown


def test_rows_before_the_cutoff_are_ours_on_demand(program: Program) -> None:
    """Otherwise they are left to the timeout manager."""
    program.seeded(count=2)
    assert "left to the timeout manager" in program("preview").out
    assert "sent by migrator when due" in program("preview", "--near-due", "dispatch").out
