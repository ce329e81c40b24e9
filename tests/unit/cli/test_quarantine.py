"""Tests of ``migrator.cli.quarantine``."""

from __future__ import annotations

import base64
import json

import pytest

from migrator.errors import StoreUnavailable
from tests.unit.cli.conftest import Program

STATES = "SELECT state, count(*) FROM migrator_timeout GROUP BY state ORDER BY state"


@pytest.fixture
def aside(program: Program) -> Program:
    """The program, with two rows in quarantine and one handed over."""
    program("db", "upgrade")
    program.record("handed_over")
    reasons = ["no-destination", "unroutable", None]
    program.change(*(_row(n, reason) for n, reason in enumerate(reasons)))
    return program


def _row(number: int, reason: str | None) -> str:
    state = f"'quarantined', '{reason}', 'why'" if reason else "NULL, NULL, NULL"
    return (
        "INSERT INTO migrator_timeout (id, source, endpoint, store_id, batch_id, row_index,"
        " destination, saga_id, due, body, headers, persistence_version, content_hash, state,"
        " reason, reason_detail)"
        f" VALUES ({number + 1}, 'Sales_TimeoutData', 'Sales', 'id-{number}', 1, {number},"
        " NULL, NULL, '2030-01-01 00:00:00.000000', x'00ff41', '{\"a\": \"ü\"}', '6.6.5.0', 'h',"
        f" {state})"
    )


def test_rows_are_listed(aside: Program) -> None:
    """Those in quarantine, and no others."""
    ended = aside("quarantine", "list")
    assert "id-0" in ended.out
    assert "id-2" not in ended.out
    assert ended.err == "2 rows\n"
    document = aside("quarantine", "list", "--json").document
    assert document["schema"] == "migrator/quarantine/1"
    assert [row["reason"] for row in document["rows"]] == ["no-destination", "unroutable"]


@pytest.mark.parametrize(
    ("options", "count"),
    [
        (["--reason", "unroutable"], 1),
        (["--endpoint", "Billing"], 0),
        (["--endpoint", "Billing", "--endpoint", "Sales"], 2),
        (["--limit", "1"], 1),
    ],
)
def test_rows_may_be_chosen(aside: Program, options: list[str], count: int) -> None:
    """None found is fine, too; a typing error would find nothing and look fine."""
    ended = aside("quarantine", "list", "--json", *options)
    assert len(ended.document["rows"]) == count
    assert ("may be more" in aside("quarantine", "list", *options).err) == ("--limit" in options)
    assert "no-destination" in aside("quarantine", "list", "--reason", "x", codes=[2]).err


def test_one_row_is_shown_with_its_content(aside: Program) -> None:
    """Bytes that are no text are escaped, and a large body is cut for people."""
    shown = aside("quarantine", "show", "id-1").out
    for text in ("unroutable", '{"a": "ü"}', "body (3 bytes)", "\\xffA"):
        assert text in shown
    document = aside("quarantine", "show", "id-1", "--json").document
    assert document["schema"] == "migrator/quarantined-timeout/1"
    assert base64.b64decode(document["rows"][0]["body_base64"]) == b"\x00\xffA"
    assert "'id-2' is in quarantine" in aside("quarantine", "show", "id-2", codes=[2]).err
    aside.change("UPDATE migrator_timeout SET body = zeroblob(3000)")
    assert "1 000 more bytes; see export" in aside("quarantine", "show", "id-1").out


def test_rows_are_tried_again(aside: Program) -> None:
    """They wait for the next run, and the audit trail knows."""
    ended = aside("quarantine", "retry", "--reason", "unroutable")
    assert ended.err == (
        "1 row to be tried again: by a running `migrator run` within seconds, "
        "else by the next one\n"
    )
    assert aside.rows(STATES) == [(None, 2), ("quarantined", 1)]
    assert aside.rows("SELECT kind FROM migrator_event") == [("quarantine_retried",)]
    assert aside("quarantine", "retry", "--id", "id-0", "--json").document == {
        "schema": "migrator/quarantine-retry/1",
        "rows": 1,
    }


def test_rows_of_several_endpoints_are_meant_at_once(aside: Program) -> None:
    """By each verb; the audit trail says of which, and others stay as they are."""
    for name, number in (("Billing", 3), ("Shipping", 4)):
        aside.change(_row(number, "unroutable").replace("'Sales", f"'{name}"))
    both = ("--endpoint", "Billing", "--endpoint", "Sales")
    assert "3 rows written" in aside("quarantine", "export", *both).err
    found = aside("quarantine", "show", "id-3", *both, "--json").document["rows"]
    assert [each["endpoint"] for each in found] == ["Billing"]
    assert aside("quarantine", "retry", *both, "--id", "id-3", "--json").document["rows"] == 1
    assert aside("quarantine", "discard", *both, "--yes", "--json").document["rows"] == 2
    assert aside("quarantine", "list").err == "1 row\n"
    details = [json.loads(text) for (text,) in aside.rows("SELECT detail FROM migrator_event")]
    assert [each["endpoint"] for each in details] == ["Billing, Sales"] * 2


def with_table(program: Program) -> None:
    """Make the table of Sales, with one timeout; seed refuses an endpoint that was run."""
    program("seed", "--yes", "--endpoint", "Shop", "--count", "1")
    program.change('ALTER TABLE "Shop_TimeoutData" RENAME TO "Sales_TimeoutData"')


def test_rows_of_a_dispatcher_go_back_into_their_table(aside: Program) -> None:
    """There the dispatcher looks for them; the others wait for the next run as ever."""
    with_table(aside)
    aside.change("UPDATE migrator_batch SET mode = 'dispatch'")
    ended = aside("quarantine", "retry", "--id", "id-1")
    assert "1 of them is back in their tables" in ended.err
    assert aside.rows("SELECT count(*) FROM migrator_batch WHERE lane = 0") == [(1,)]
    assert aside.rows(STATES) == [(None, 1), ("quarantined", 1), ("released", 1)]
    assert aside.rows('SELECT count(*) FROM "Sales_TimeoutData"') == [(2,)]


def test_rows_are_given_up(aside: Program) -> None:
    """With --yes alone; then they are in nobody's way, and a purge may have them."""
    assert "add --yes" in aside("quarantine", "discard", codes=[2]).err
    assert aside("quarantine", "discard", "--reason", "unroutable", "--yes").err == (
        "1 row discarded\n"
    )
    assert aside.rows(STATES) == [(None, 1), ("discarded", 1), ("quarantined", 1)]
    assert aside.rows("SELECT kind FROM migrator_event") == [("quarantine_discarded",)]
    (endpoint,) = aside("status", "--json").document["endpoints"]
    assert (endpoint["quarantined"], endpoint["rows"]["discarded"]) == (1, 1)
    assert aside("quarantine", "discard", "--yes", "--json").document["rows"] == 1
    assert aside("quarantine", "list").err == "0 rows\n"
    aside.change(
        "UPDATE migrator_batch SET handed_over_at = '2020-01-01 00:00:00.000000'",
        "UPDATE migrator_timeout SET due = '2020-01-01 00:00:00.000000'",
    )
    assert aside("db", "purge", "--yes").err == "3 rows deleted\n"


def test_rows_that_are_given_up_refuse_no_decommission(
    aside: Program, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It says how they leave the quarantine; that is the way out."""
    monkeypatch.setenv("MIGRATOR_BROKER__URL", "amqp://127.0.0.1:9")
    with_table(aside)
    look = ("decommission", "--endpoint", "Sales", "--dry-run", "--json")

    def refusals() -> dict[str, str]:
        found = aside(*look, codes=[3]).document["refusals"]
        return {each["code"]: each["remedy"] for each in found}

    assert "discard" in refusals()["quarantined_rows"]
    aside("quarantine", "discard", "--yes")
    assert "quarantined_rows" not in refusals()


def test_rows_are_exported_whole(aside: Program) -> None:
    """One document per line, the first names the form; nothing leaves the quarantine."""
    ended = aside("quarantine", "export", "--output", "out.jsonl")
    assert (ended.out, ended.err) == ("", "2 rows written\n")
    text = (aside.folder / "out.jsonl").read_text()
    head, *rows = [json.loads(line) for line in text.splitlines()]
    assert head == {"schema": "migrator/quarantine-export/1"}
    assert [row["id"] for row in rows] == ["id-0", "id-1"]
    assert rows[0]["headers_text"] == '{"a": "ü"}'
    assert aside.rows(STATES) == [(None, 1), ("quarantined", 2)]
    assert aside("quarantine", "export").out == text
    assert "there is no folder" in aside("quarantine", "export", "--output", "no/x", codes=[2]).err


def test_an_export_is_for_its_owner_and_whole(
    aside: Program, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has what the messages say; what was there before stays if it fails half-way."""
    file = aside.folder / "out.jsonl"
    aside("quarantine", "export", "--output", "out.jsonl")
    assert file.stat().st_mode & 0o777 == 0o600
    before = file.read_text()

    def fails(*_: object) -> None:
        raise StoreUnavailable("the database went away")

    monkeypatch.setattr("migrator.quarantine.decisions.timeout_document", fails)
    aside("quarantine", "export", "--output", "out.jsonl", codes=[4])
    assert file.read_text() == before
    assert [*aside.folder.glob(".migrator-*")] == []
