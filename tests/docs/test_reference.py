"""The documentation says what the code does: generated pages are fresh, written ones exist."""

from __future__ import annotations

import ast
import re
import shlex
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import typer

from dev.reference import __main__ as reference
from dev.reference import layers, ledger, names, words
from migrator.cli.root import every_verb
from migrator.config import Endpoint
from migrator.config.loading import leaves
from migrator.config.sources import variable
from migrator.errors import ExitCode
from migrator.ledger.states import BatchState, Event, RowState
from migrator.ledger.tables import BATCH_TIMES
from migrator.nservicebus.conversion import Reason
from migrator.preflight.registry import CHECKS, DELAY_CHECKS
from migrator.throttle.reasons import Signal

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
WRITTEN = sorted(
    path
    for path in (*DOCS.rglob("*.md"), ROOT / "README.md")
    if path not in {DOCS / "reference" / name for name in reference.PAGES}
)
_COMMAND = re.compile(r"`(migrator [^`]+)`|^\s*(?:\$ )?(migrator [^#\n]+)", re.MULTILINE)
_LINK = re.compile(r"\]\((?!https?:)([^)]+)\)")


def page(name: str) -> str:
    """Return a committed page of the reference."""
    return (DOCS / "reference" / name).read_text(encoding="utf-8")


def relative(path: Path) -> str:
    """Return *path* as a test's name shows it."""
    return str(path.relative_to(ROOT))


@pytest.fixture(scope="module")
def fresh(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with pages written just now."""
    folder = tmp_path_factory.mktemp("reference")
    reference.write(folder)
    return folder


@pytest.mark.parametrize("name", reference.PAGES)
def test_committed_page_is_what_the_code_says_now(name: str, fresh: Path) -> None:
    """Each generated page is byte for byte what the generator writes."""
    written = (fresh / name).read_text(encoding="utf-8")
    assert page(name) == written, f"docs/reference/{name} is out of date: run ./dev/docs"


def test_the_layers_are_drawn_as_the_imports_are() -> None:
    """No arrow goes up or in a circle; ``layers.drawn`` refuses that."""
    drawn = layers.PAGE.read_text(encoding="utf-8")
    assert drawn == layers.page(), "docs/architecture.md is out of date: run ./dev/docs"


def names_and_lines() -> Iterator[tuple[str, str]]:
    """Yield pages of the reference, each with what begins a line of it."""
    yield from (("quarantine-reasons.md", f"| `{each}` |") for each in Reason)
    yield from (("log-actions.md", f"| `{each}` |") for each in words.LOG_ACTIONS)
    yield from (("exit-codes.md", f"| {int(each)} |") for each in ExitCode)
    yield from (("checks.md", f"| `{each}` |") for each in (*CHECKS, *DELAY_CHECKS))
    yield from (("cli.md", f"## {' '.join(each)}\n") for each, _ in names.helps())
    yield from (("settings.md", f"`{variable(each)}`") for each, _ in leaves())
    yield from (("settings.md", f"| `{each}` |") for (each,), _ in leaves(Endpoint))


def test_every_name_is_documented() -> None:
    """Reasons, log actions, exit codes, checks, verbs and settings each have a line."""
    assert [(name, line) for name, line in names_and_lines() if line not in page(name)] == []
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    assert [int(n) for n in re.findall(r"^\| (\d+) \|", readme, re.MULTILINE)] == list(ExitCode)


def actions() -> Iterator[tuple[str, str]]:
    """Yield every literal log action in the source, with its place."""
    for file in sorted((ROOT / "migrator").rglob("*.py")):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Dict):
                for key, value in zip(node.keys, node.values, strict=True):
                    is_action = isinstance(key, ast.Constant) and key.value == "action"
                    if is_action and isinstance(value, ast.Constant):
                        yield str(value.value), f"{relative(file)}:{node.lineno}"


def test_every_log_action_in_the_source_is_documented() -> None:
    """Alerts rely on the list."""
    assert [each for each in actions() if each[0] not in words.LOG_ACTIONS] == []
    assert list(words.LOG_ACTIONS) == sorted(words.LOG_ACTIONS)


@pytest.mark.parametrize(
    ("sentences", "known"),
    [
        (words.EXIT_CODES, set(ExitCode)),
        (words.BATCH_STATES, set(BatchState)),
        (words.ROW_STATES, set(RowState)),
        (words.EVENTS, set(Event)),
        (words.CHECKS, {*CHECKS, *DELAY_CHECKS}),
    ],
    ids=["exit codes", "batch states", "row states", "events", "checks"],
)
def test_sentences_are_about_names_that_exist(
    sentences: Mapping[Any, object], known: set[Any]
) -> None:
    """No name lacks its sentence, and no sentence has outlived its name."""
    assert set(sentences) == known


def test_every_signal_is_on_the_page_of_throttling() -> None:
    """And no signal there is gone."""
    text = (DOCS / "throttling.md").read_text(encoding="utf-8")
    assert set(re.findall(r"^\| `(\w+)` \|", text, re.MULTILINE)) == set(Signal)


def test_sentences_about_columns_are_about_columns_that_exist() -> None:
    """No sentence has outlived its column, and the times of a batch need none."""
    found = {f"{table}.{name}" for table, name in ledger.ledger_columns()}
    assert set(words.COLUMNS) == found - {f"batch.{name}" for name in BATCH_TIMES}


# ── pages written by hand ───────────────────────────────────────────────────────────────────


def commands_in(text: str) -> Iterator[str]:
    """Yield every call of the program in *text*."""
    for quoted, line in _COMMAND.findall(text):
        yield (quoted or line).strip()


def options_of(command: Any) -> set[str]:
    """Return the names of a command's options."""
    names = {
        name for parameter in command.get_params(typer.Context(command)) for name in parameter.opts
    }
    return names | {"-h", "--help"}


@cache
def program() -> Any:
    """Return the program with all its verbs."""
    return every_verb()


def mistakes_in(call: str) -> Iterator[str]:
    """Yield the verbs and options of *call* that the program does not have."""
    command = program()
    for word in shlex.split(call.replace("…", ""))[1:]:
        name = word.partition("=")[0]
        verbs = getattr(command, "commands", {})
        if name.startswith("-"):
            if name not in options_of(command):
                yield f"{call}: no option {name}"
        elif name.strip(",") in verbs:
            command = verbs[name.strip(",")]
        elif verbs and name.isalpha() and name.islower():
            yield f"{call}: no verb {name}"


@pytest.mark.parametrize("path", WRITTEN, ids=relative)
def test_every_command_and_setting_in_a_page_exists(path: Path) -> None:
    """Nobody types a command or a setting from a page and is told that there is no such thing."""
    text = path.read_text(encoding="utf-8")
    assert [mistake for call in commands_in(text) for mistake in mistakes_in(call)] == []
    known = {".".join(setting) for setting, _ in leaves()}
    sections = "|".join({name.partition(".")[0] for name in known if "." in name})
    assert set(re.findall(rf"`((?:{sections})\.[a-z_.]+)", text)) <= known


def test_every_link_leads_somewhere() -> None:
    """Files that are linked to exist, and so do the headings named in them."""
    for path in (*DOCS.rglob("*.md"), ROOT / "README.md"):
        for link in _LINK.findall(path.read_text(encoding="utf-8")):
            name, _, anchor = link.partition("#")
            target = (path.parent / name).resolve() if name else path
            assert target.is_file(), link
            assert not anchor or anchor in anchors(target.read_text(encoding="utf-8")), link


def anchors(text: str) -> set[str]:
    """Return the anchors that headings get."""
    headings = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_every_page_is_linked_from_the_index() -> None:
    """Nothing has to be found by chance."""
    index = (DOCS / "index.md").read_text(encoding="utf-8")
    linked = {(DOCS / link).resolve() for link in _LINK.findall(index)}
    assert set(DOCS.rglob("*.md")) - {DOCS / "index.md"} - linked == set()


def test_the_promise_is_the_same_everywhere() -> None:
    """The pages quote the README word for word."""
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    promise = next(line for line in readme.splitlines() if line.startswith("> No timeout"))
    for name in ("hand-over.md", "promise.md"):
        assert promise in (DOCS / name).read_text(encoding="utf-8").splitlines()
