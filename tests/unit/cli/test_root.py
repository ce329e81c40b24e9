"""Tests of ``migrator.cli.root``."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from typing import Any

import pytest

import migrator
from migrator.cli import root
from migrator.config.load import leaves, variable
from migrator.errors import (
    AccessRefused,
    HandOverDoubtful,
    IllegalTransition,
    LedgerMissing,
    MigratorError,
    StoreUnavailable,
)
from tests.unit.cli.conftest import Program

VARIABLES = {variable(path) for path, _ in leaves()} | {"MIGRATOR_CONFIG"}


def commands() -> Iterator[tuple[str, Any]]:
    """Yield every command with its full name."""
    waiting = [("", root.every_verb())]
    while waiting:
        name, command = waiting.pop()
        inside = getattr(command, "commands", {})
        if not inside:
            yield name.strip(), command
        waiting += [(f"{name} {inner}", found) for inner, found in inside.items()]


COMMANDS = dict(sorted(commands()))


def test_the_verbs_are_the_documented_ones() -> None:
    """The command line is public."""
    assert list(COMMANDS) == [
        "batch list",
        "batch resolve",
        "broker grants",
        "check",
        "config show",
        "db adopt",
        "db current",
        "db grants",
        "db sql",
        "db upgrade",
        "decommission",
        "delays canary",
        "delays create",
        "delays delete",
        "delays inspect",
        "delays migrate",
        "delays transfer",
        "delays verify",
        "drain",
        "endpoints",
        "ledger purge",
        "pause",
        "preview",
        "quarantine export",
        "quarantine list",
        "quarantine retry",
        "quarantine show",
        "recall",
        "resume",
        "rollback",
        "run",
        "seed",
        "set",
        "status",
        "stop",
        "verify",
    ]


@pytest.mark.parametrize("name", COMMANDS)
def test_help_ends_in_examples_that_parse(program: Program, name: str) -> None:
    """Each example names the verb and only options that exist."""
    shown = program(*name.split(), "--help").out
    examples = [
        line.partition("| ")[0].partition(" > ")[0].strip()
        for line in shown.splitlines()
        if re.match(r" +(MIGRATOR_\S+ )?migrator ", line)
    ]
    assert "Examples:" in shown
    assert examples
    for example in examples:
        words = shlex.split(example.removeprefix("MIGRATOR_HANDOVER__CUTOFF=0s "))
        assert words[0] == "migrator"
        assert set(name.split()) <= set(words)
        program(*words[1:], "--help")


@pytest.mark.parametrize("name", COMMANDS)
def test_every_verb_writes_json_on_demand(name: str) -> None:
    """The option is there; the tests of each verb look at the document."""
    assert any("--json" in parameter.opts for parameter in COMMANDS[name].params)


@pytest.mark.parametrize("name", ["", *COMMANDS])
def test_options_name_their_environment_twin(program: Program, name: str) -> None:
    """And that variable is a setting."""
    shown = " ".join(program(*name.split(), "--help").out.split())
    twins = set(re.findall(r"\[env: (MIGRATOR_\w+)", shown))
    assert twins <= VARIABLES
    for option, twin in (("--cutoff", "MIGRATOR_HANDOVER__CUTOFF"), ("--store-url", "MIGRATOR_ST")):
        assert f"{option} " not in shown.partition("Examples:")[0] or twin in shown


def test_the_version_is_told(program: Program) -> None:
    """On stdout, alone."""
    assert program("--version").out == f"migrator {migrator.__version__}\n"


def test_help_tells_the_exit_codes(program: Program) -> None:
    """They are public, too."""
    shown = program("--help").out
    for code in range(7):
        assert re.search(rf"\b{code} \w", shown)


@pytest.mark.parametrize("arguments", [["bogus"], ["status", "--bogus"], ["batch", "resolve", "x"]])
def test_wrong_usage_ends_with_2(program: Program, arguments: list[str]) -> None:
    """And nothing on stdout."""
    ended = program(*arguments, codes=[2])
    assert ended.out == ""
    assert ended.err


def failing(monkeypatch: pytest.MonkeyPatch, failure: BaseException) -> None:
    """Let ``config show`` fail."""

    def fail(_loaded: object) -> None:
        raise failure

    monkeypatch.setattr("migrator.config.describe", fail)


@pytest.mark.parametrize(
    ("failure", "code"),
    [
        (LedgerMissing("no ledger"), 3),
        (StoreUnavailable("no store"), 4),
        (AccessRefused("no entry"), 4),
        (HandOverDoubtful("who knows"), 6),
        (IllegalTransition("no such step"), 1),
        (MigratorError("something"), 1),
    ],
)
def test_an_error_is_one_line_and_its_exit_code(
    program: Program, monkeypatch: pytest.MonkeyPatch, failure: MigratorError, code: int
) -> None:
    """On stderr; stdout stays empty."""
    failing(monkeypatch, failure)
    ended = program("config", "show", codes=[code])
    assert (ended.out, ended.err.splitlines()[-1]) == ("", f"migrator: {failure}")
    assert "Traceback" not in ended.err


def test_a_bug_is_one_line_too(program: Program, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the way to more."""
    failing(monkeypatch, ZeroDivisionError("oops"))
    ended = program("config", "show", codes=[1])
    assert "migrator: bug: ZeroDivisionError: oops; -vv shows where" in ended.err
    assert "Traceback" not in ended.err


def test_tracebacks_are_for_those_who_ask(
    program: Program, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And even they see no password."""
    failing(monkeypatch, StoreUnavailable("no postgresql://nsb:swordfish@db"))
    ended = program("-vv", "config", "show", codes=[4])
    assert "Traceback" in ended.err
    assert "swordfish" not in ended.err
    failing(monkeypatch, ZeroDivisionError("oops"))
    assert "-vv" not in program("-vv", "config", "show", codes=[1]).err.splitlines()[-1]


def test_global_options_are_settings(program: Program) -> None:
    """The strongest ones."""
    ended = program("--store-url", "x://a:b@c", "--broker-url", "y", "config", "show", "--json")
    found = {row["key"]: row for row in ended.document["settings"]}
    assert found["store.url"]["value"] == "x://a:***@c"
    assert found["store.url"]["origin"] == "option --store-url"
    assert found["broker.url"]["value"] == "***"


def test_verbs_are_called_through_main() -> None:
    """Anything else is a bug, and says so."""
    with pytest.raises(TypeError, match="through"):
        root.program(["config", "show"], standalone_mode=False)


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
