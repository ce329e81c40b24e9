"""The documentation says what the code does: generated pages are fresh, written ones exist."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from dev.reference import __main__ as reference
from dev.reference import ledger, names, words
from migrator.cli.root import every_verb
from migrator.config import Endpoint
from migrator.config.load import leaves, variable
from migrator.errors import ExitCode
from migrator.ledger.states import BatchState, Event, RowState
from migrator.ledger.tables import BATCH_TIMES
from migrator.nservicebus.conversion import Reason
from migrator.preflight.registry import CHECKS, DELAY_CHECKS
from migrator.service.logs import ACTIONS

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


def test_two_writings_are_the_same(fresh: Path, tmp_path: Path) -> None:
    """Nothing of the moment, the machine or the folder gets into a page."""
    reference.write(tmp_path)
    for name in reference.PAGES:
        text = (fresh / name).read_bytes()
        assert text == (tmp_path / name).read_bytes()
        assert str(tmp_path.parent).encode() not in text
        assert str(ROOT).encode() not in text
        assert b"\x1b" not in text


def test_every_reason_is_documented() -> None:
    """Each quarantine code has a line."""
    assert [r for r in Reason if f"| `{r}` |" not in page("quarantine-reasons.md")] == []


def test_every_log_action_is_documented() -> None:
    """Each action has a line."""
    assert [a for a in ACTIONS if f"| `{a}` |" not in page("log-actions.md")] == []


def test_every_exit_code_is_documented() -> None:
    """Each code has a line, in the reference and in the README."""
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    for code in ExitCode:
        assert f"\n| {int(code)} |" in page("exit-codes.md")
        assert f"\n| {int(code)} |" in readme


def test_every_setting_is_documented() -> None:
    """Each setting has a line with its variable."""
    text = page("settings.md")
    assert [p for p, _ in leaves() if f"`{variable(p)}`" not in text] == []
    assert [p for (p,), _ in leaves(Endpoint) if f"| `{p}` |" not in text] == []


def test_every_verb_is_documented() -> None:
    """Each verb has a heading."""
    text = page("cli.md")
    assert [p for p, _ in names.helps() if f"## {' '.join(p)}\n" not in text] == []


def test_every_check_is_documented() -> None:
    """Each check has a line."""
    assert [
        name for name in (*CHECKS, *DELAY_CHECKS) if f"| `{name}` |" not in page("checks.md")
    ] == []


@pytest.mark.parametrize(
    ("sentences", "known"),
    [
        (words.REASONS, set(Reason)),
        (words.EXIT_CODES, set(ExitCode)),
        (words.BATCH_STATES, set(BatchState)),
        (words.ROW_STATES, set(RowState)),
        (words.EVENTS, set(Event)),
        (words.CHECKS, {*CHECKS, *DELAY_CHECKS}),
    ],
    ids=["reasons", "exit codes", "batch states", "row states", "events", "checks"],
)
def test_sentences_are_about_names_that_exist(
    sentences: Mapping[Any, object], known: set[Any]
) -> None:
    """No name lacks its sentence, and no sentence has outlived its name."""
    assert set(sentences) == known


def test_sentences_about_columns_are_about_columns_that_exist() -> None:
    """No sentence has outlived its column, and the times of a batch need none."""
    found = {f"{table}.{name}" for table, name in ledger.ledger_columns()}
    assert set(words.COLUMNS) == found - {f"batch.{name}" for name in BATCH_TIMES}


def test_a_name_without_a_sentence_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """The generator says which name lacks a sentence instead of writing half a page."""
    monkeypatch.setattr(words, "REASONS", {})
    with pytest.raises(SystemExit, match="no sentence for"):
        names.quarantine_reasons()


def test_values_that_are_not_in_this_version_are_not_offered() -> None:
    """The hand-over's modes are among those of a batch, which has one more."""
    (line,) = [ln for ln in page("settings.md").splitlines() if "MIGRATOR_HANDOVER__MODE" in ln]
    assert "| `staged`, `direct` |" in line


# ── pages written by hand ───────────────────────────────────────────────────────────────────


def commands_in(text: str) -> Iterator[str]:
    """Yield every call of the program in *text*."""
    for quoted, line in _COMMAND.findall(text):
        yield (quoted or line).strip()


def options_of(command: Any) -> set[str]:
    """Return the names of a command's options."""
    names = {name for parameter in command.params for name in parameter.opts}
    return names | {"-h", "--help"}


def mistakes_in(call: str) -> Iterator[str]:
    """Yield the verbs and options of *call* that the program does not have."""
    command: Any = every_verb()
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


@pytest.mark.parametrize(
    "call",
    [
        "migrator abdicate",
        "migrator run --endpoint Sales --fast",
        "migrator batch forget 42",
        "migrator check --broker-url amqp://rabbit",
    ],
)
def test_a_command_that_does_not_exist_is_found(call: str) -> None:
    """The next test would notice: verbs and options of later versions are mistakes."""
    assert list(mistakes_in(call))


@pytest.mark.parametrize("path", WRITTEN, ids=relative)
def test_every_command_in_a_page_exists(path: Path) -> None:
    """Nobody types a command from a page and is told that there is no such thing."""
    calls = commands_in(path.read_text(encoding="utf-8"))
    assert [mistake for call in calls for mistake in mistakes_in(call)] == []


@pytest.mark.parametrize("path", sorted(DOCS.rglob("*.md")), ids=relative)
def test_every_link_leads_somewhere(path: Path) -> None:
    """Files that are linked to exist, and so do the headings named in them."""
    for link in _LINK.findall(path.read_text(encoding="utf-8")):
        name, _, anchor = link.partition("#")
        target = (path.parent / name).resolve() if name else path
        assert target.is_file(), link
        if anchor:
            assert anchor in anchors(target.read_text(encoding="utf-8")), link


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


def test_every_setting_named_in_a_page_exists() -> None:
    """Settings in running text are spelt as the program spells them."""
    known = {".".join(path) for path, _ in leaves()}
    sections = {path[0] for path, _ in leaves() if len(path) > 1}
    pattern = re.compile(rf"`((?:{'|'.join(sections)})\.[a-z_.]+)")
    for path in WRITTEN:
        named = set(pattern.findall(path.read_text(encoding="utf-8")))
        assert named <= known, relative(path)
