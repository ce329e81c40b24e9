"""Tests of ``migrator.cli.settings``."""

from __future__ import annotations

import pytest

from tests.unit.cli.conftest import Program


@pytest.mark.parametrize("arguments", [["--json", "config", "show"], ["config", "show", "--json"]])
def test_settings_are_shown_as_json(program: Program, arguments: list[str]) -> None:
    """The option may stand before the verb or after it."""
    document = program(*arguments).document
    assert document["schema"] == "migrator/config/1"
    assert document["file"] is None
    found = {row["key"]: row for row in document["settings"]}
    assert found["handover.lanes"] == {
        "key": "handover.lanes",
        "value": 1,
        "origin": "default",
        "meaning": "batches worked on side by side",
    }
    assert found["store.url"]["origin"] == "env MIGRATOR_STORE__URL"


def test_settings_are_shown_as_a_table(program: Program) -> None:
    """With their origin; which file was read is talk."""
    (program.folder / "mine.toml").write_text("[handover]\nlanes = 3\n")
    ended = program("--config", "mine.toml", "config", "show")
    assert "handover.lanes" in ended.out
    assert "file mine.toml" in ended.out
    assert ended.err == "settings file: mine.toml\n"


def test_wrong_settings_are_listed(program: Program, monkeypatch: pytest.MonkeyPatch) -> None:
    """Exit code 2, and every problem."""
    monkeypatch.setenv("MIGRATOR_HANDOVER__LANES", "0")
    monkeypatch.setenv("MIGRATOR_STORE_URL", "x")
    ended = program("config", "show", codes=[2])
    assert ended.err.startswith("migrator: 2 wrong settings:\n")
