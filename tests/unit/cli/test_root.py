"""Tests of ``migrator.cli.root``."""

from __future__ import annotations

import json
import logging
import re
import shlex
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from migrator.cli import root
from migrator.config.loading import leaves
from migrator.config.sources import variable
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


@pytest.mark.parametrize("name", COMMANDS)
def test_help_ends_in_examples_that_parse(program: Program, name: str) -> None:
    """Each has the verb and options that exist; --json is one, and twins are variables."""
    shown = program(*name.split(), "--help").out
    options, _, ending = shown.partition("Examples:")
    lines = [line.partition("| ")[0].partition(" > ")[0].strip() for line in ending.splitlines()]
    examples = [line for line in lines if re.match(r"(MIGRATOR_\S+ )?migrator ", line)]
    assert examples
    for example in examples:
        words = shlex.split(example.removeprefix("MIGRATOR_HANDOVER__CUTOFF=0s "))
        assert words[0] == "migrator"
        assert set(name.split()) <= set(words)
        program(*words[1:], "--help")
    assert "--json" in options
    assert set(re.findall(r"\[env:\s+(MIGRATOR_\w+)", options)) <= VARIABLES
    assert "--cutoff " not in options or "MIGRATOR_HANDOVER__CUTOFF" in options


@pytest.mark.parametrize(
    "arguments",
    [
        ["bogus"],
        ["status", "--bogus"],
        ["db", "resolve", "x"],
        ["preview", "--map", "=B"],
        ["preview", "--map", "A="],
    ],
)
def test_wrong_usage_ends_with_2(program: Program, arguments: list[str]) -> None:
    """And nothing on stdout, with --json an object on stderr; the help tells all exit codes."""
    ended = program(*arguments, codes=[2])
    assert ended.out == ""
    assert ended.err
    for told in (
        program(*arguments, "--json", codes=[2]),
        program("--json", *arguments, codes=[2]),
    ):
        assert told.out == ""
        document = json.loads(told.err)
        assert document.pop("error") in ended.err
        assert (document.pop("remedy") or "see `migrator").startswith("see `migrator")
        assert document == {"schema": "migrator/error/1", "exit_code": 2, "outcome": "usage"}
    shown = program("--help").out
    assert all(re.search(rf"\b{code} \w", shown) for code in range(7))


def test_renamings_are_one_mapping(program: Program) -> None:
    """Blanks round the names do not count; an = in the new name does."""
    program("seed", "--yes", "--endpoint", "A.B", "--count", "1")
    pairs = ("--map", "A.B = D=E", "--map", "X=Y")
    (endpoint,) = program("preview", "--offline", *pairs, "--json", codes=[3]).document["endpoints"]
    assert endpoint["destinations"] == {"D=E": 1}


@pytest.mark.parametrize(("flag", "level"), [("-v", logging.DEBUG), ("--json", logging.INFO)])
def test_verbosity_is_the_log_level(program: Program, flag: str, level: int) -> None:
    """One -v is enough for debug lines."""
    program(flag, "config")
    assert logging.getLogger().level == level


def test_addresses_come_from_files(program: Program, tmp_path: Path) -> None:
    """As from the settings' own; one that every user can read is refused before it is used."""
    file = tmp_path / "store-url"
    file.write_text("postgresql+psycopg://nsb:swordfish@db/sales\n")
    given = [f"--{name}-url-file={file}" for name in ("store", "broker", "management")]
    rows = {row["key"]: row for row in program(*given, "config", "--json").document["settings"]}
    for key in ("store.url", "broker.url", "broker.management_url"):
        shown = "postgresql+psycopg://nsb:***@db/sales"
        assert (rows[key]["value"], rows[key]["origin"]) == (shown, f"file {file}")
    with tempfile.NamedTemporaryFile("w", dir="/var/tmp") as shared:
        shared.write("postgresql+psycopg://nsb:swordfish@db/sales\n")
        shared.flush()
        Path(shared.name).chmod(0o644)
        said = program("--store-url-file", shared.name, "preview", codes=[2]).err
    assert "store.url_file (option --store-url-file): every user of this machine can read" in said
    both = ("--store-url", "sqlite://", "--store-url-file", str(file), "preview")
    assert "keep one of the two" in program(*both, codes=[2]).err


def test_a_secret_that_is_missing_names_every_way_to_set_it(program: Program) -> None:
    """File, secret file, environment and option; exit code 2."""
    said = program("--store-url", "", "preview", codes=[2]).err
    for way in ("migrator.toml", "store.url_file", "MIGRATOR_STORE__URL", "--store-url"):
        assert way in said


@pytest.mark.parametrize(
    ("failure", "code", "line"),
    [
        (LedgerMissing("no ledger"), 3, "no ledger"),
        (StoreUnavailable("no x://nsb:swordfish@db"), 4, "no x://nsb:***@db"),
        (AccessRefused("no entry"), 4, "no entry"),
        (HandOverDoubtful("who knows"), 6, "who knows"),
        (IllegalTransition("no such step"), 1, "no such step"),
        (MigratorError("something"), 1, "something"),
        (ZeroDivisionError("oops"), 1, "bug: ZeroDivisionError: oops; -vv shows where"),
    ],
)
def test_an_error_is_one_line_and_its_exit_code(
    program: Program, monkeypatch: pytest.MonkeyPatch, failure: Exception, code: int, line: str
) -> None:
    """On stderr; tracebacks are for those who ask, and even they see no password."""

    def fail(_loaded: object) -> None:
        raise failure

    monkeypatch.setattr("migrator.config.describe", fail)
    ended = program("config", codes=[code])
    assert (ended.out, ended.err.splitlines()[-1]) == ("", f"migrator: {line}")
    assert "Traceback" not in ended.err
    ended = program("-vv", "config", codes=[code])
    assert "Traceback" in ended.err
    assert "swordfish" not in ended.err
    assert "-vv" not in ended.err.splitlines()[-1]
    document = json.loads(program("config", "--json", codes=[code]).err)
    assert (document["error"], document["exit_code"]) == (line, code)


def test_global_options_are_settings(program: Program) -> None:
    """The strongest ones; a table tells which file was read as talk."""
    (program.folder / "mine.toml").write_text("[handover]\nlanes = 3\n")
    options = ("--config", "mine.toml", "--store-url", "x://a:b@c", "--broker-url", "y")
    document = program(*options, "config", "--json").document
    found = {row["key"]: row for row in document["settings"]}
    assert (document["schema"], document["file"]) == ("migrator/config/1", "mine.toml")
    assert found["store.url"]["value"] == "x://a:***@c"
    assert found["store.url"]["origin"] == "option --store-url"
    assert found["broker.url"]["value"] == "***"
    assert found["handover.lanes"] == {
        "key": "handover.lanes",
        "value": 3,
        "origin": "file mine.toml",
        "meaning": "batches handed over in parallel",
    }
    assert program("--json", "config").document["file"] is None
    assert program("config", "--json", *options).document == document
    assert program("db", "--config", "none.toml", "--json", "upgrade", codes=[2]).out == ""
    ended = program(*options, "config")
    assert "file mine.toml" in ended.out
    assert ended.err.splitlines()[1:] == ["settings file: mine.toml"]


@pytest.mark.parametrize("option", ["--store-url", "--broker-url", "--management-url"])
def test_a_password_on_the_command_line_is_warned_of(program: Program, option: str) -> None:
    """Everybody on the machine sees it; the option that takes a file is named, also by the help."""
    warning = (
        f"warning: every user of this machine can see the password in {option} while the command "
        f"runs; put the address into a file and use {option}-file"
    )
    address = "amqp://guest:sword fish@broker"
    for call in (("config", option, address), (option, address, "config", "--json")):
        assert program(*call).err.splitlines()[0] == warning
    assert "warning" not in program("config", option, "amqp://guest@broker").err
    assert f"{option}-file" in program("--help").out.partition(f"{option} URL")[2][:200]


def test_the_same_of_the_broker_that_messages_go_to(program: Program) -> None:
    """Which is no setting."""
    call = ("delays", "transfer", "--to-url", "amqp://a:swordfish@127.0.0.1:1")
    ended = program(*call, codes=[2, 3, 4])
    assert ended.err.startswith("warning: every user of this machine can see the password in --to-")
    assert "--to-url-file" in program("delays", "transfer", "--help").out.partition("--to-url U")[2]
