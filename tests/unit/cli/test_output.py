"""Tests of ``migrator.cli.output``."""

from __future__ import annotations

import io
import json
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from types import MappingProxyType

import pytest

from migrator.cli.output import console, say, write_json, write_table, write_text
from migrator.ledger.states import Mode

NOW = datetime(2026, 3, 10, 9, 30, tzinfo=UTC)


def test_a_document_names_its_schema(capsys: pytest.CaptureFixture[str]) -> None:
    """First, and values are plain."""
    frozen: Mapping[str, int] = MappingProxyType({"a": 1})
    data = {"at": NOW, "age": timedelta(minutes=1), "mode": Mode.STAGED, "map": frozen, "x": "ü"}
    write_json("thing", {**data, "other": {1}.pop})
    found = json.loads(capsys.readouterr().out)
    assert next(iter(found)) == "schema"
    assert found.pop("other").startswith("<built-in")
    assert found == {
        "schema": "migrator/thing/1",
        "at": "2026-03-10T09:30:00+00:00",
        "age": 60.0,
        "mode": "staged",
        "map": {"a": 1},
        "x": "ü",
    }


def test_a_table_has_numbers_on_the_right() -> None:
    """Names with brackets stay as they are, and no line ends in blanks."""
    out = io.StringIO()
    rows = [("[red]x[/red]", 5, True, NOW, None), ("y", 12345, False, NOW, 0.5)]
    write_table(("name", "count", "fine", "at", "more"), rows, title="things", stream=out)
    assert out.getvalue().splitlines() == [
        "things",
        "name           count  fine  at                         more",
        "[red]x[/red]       5  yes   2026-03-10 09:30:00+00:00",
        "y             12 345  no    2026-03-10 09:30:00+00:00  0.5",
    ]
    assert all(line == line.rstrip() for line in out.getvalue().splitlines())


def test_nothing_is_cut_without_a_terminal() -> None:
    """A pipe has no width."""
    out = io.StringIO()
    write_table(("name",), [("q" * 199,)], stream=out)
    assert "q" * 199 in out.getvalue()


def test_columns_without_names_have_no_head() -> None:
    """For pairs of fact and value."""
    out = io.StringIO()
    write_table(("", ""), [("a", "b")], stream=out)
    assert out.getvalue() == "a  b\n"


def test_a_terminal_gets_the_table_as_it_is() -> None:
    """Rich knows its width."""

    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    out = Terminal()
    assert console(out).is_terminal
    write_table(("a",), [("b",)], stream=out)
    assert "b" in out.getvalue()


def test_data_and_talk_are_apart(capsys: pytest.CaptureFixture[str]) -> None:
    """Stdout and stderr."""
    write_text("data")
    say("talk")
    assert capsys.readouterr() == ("data\n", "talk\n")
