"""The commands of the quickstart and of the how-tos run, in their order, on a real broker."""

from __future__ import annotations

import logging
import os
import re
import shlex
import subprocess
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final

import pytest

from migrator import config
from migrator.cli import main
from tests.docs.test_reference import program

ROOT: Final = Path(__file__).resolve().parents[2]
DOCS: Final = ROOT / "docs"
WRITTEN: Final = (*sorted(DOCS.rglob("*.md")), ROOT / "README.md")
SEED: Final = "migrator seed --yes --endpoint {} --count 20 --due-from 1h --due-to 30d"
MOVED: Final = (
    "migrator db upgrade",
    SEED.format("Sales"),
    "migrator delays create",
    "migrator run --all-endpoints --once --cutoff 0s",
)
PREPARED: Final[Mapping[str, Sequence[str]]] = {
    "quickstart.md": (),
    "how-to/staging.md": (SEED.format("Sales"),),
    "how-to/rehearse.md": (SEED.format("Sales"),),
    "how-to/migrate-one-endpoint.md": (SEED.format("Sales"), "migrator delays create"),
    "how-to/migrate-many.md": (SEED.format("Billing"), *MOVED),
    "how-to/roll-back.md": MOVED,
    "how-to/blue-green-broker.md": (),
    "how-to/nhibernate.md": (
        "export MIGRATOR_STORE__KIND=nhibernate",
        "migrator db upgrade",
        SEED.format("Sales.Orders"),
        "migrator delays create",
    ),
}
"""Every page whose commands are run, with what its reader has done before."""
_NOT_RUN: Final = {
    f"how-to/{name}.md"
    for name in (
        *("azure", "cluster", "leave-v1", "mysql"),
        *("oracle", "ravendb", "sql-server", "vendor-tools"),
    )
}
"""Pages for servers that are not at hand here; they say so, or tests/e2e types their commands. The
vendor's tools are compared, and have no commands of ours.
"""
SHORT: Final = {"quickstart.md", "how-to/blue-green-broker.md"}
"""The others' commands are nearly all on these, too: they are only run with all tests."""
_ADDRESSES: Final = {
    "MIGRATOR_STORE__URL",
    "MIGRATOR_BROKER__URL",
    "MIGRATOR_BROKER__MANAGEMENT_URL",
}


def blocks(page: Path, language: str) -> list[str]:
    """Return the code blocks of a page, also those in lists."""
    text = page.read_text(encoding="utf-8")
    return re.findall(rf"^ *```{language}\n(.*?)^ *```", text, re.MULTILINE | re.DOTALL)


def lines(page: Path) -> Iterator[str]:
    """Yield the lines of a page's blocks in ``bash``, in their order."""
    for block in blocks(page, "bash"):
        yield from (line.strip() for line in block.splitlines() if line.strip())


@dataclass
class Reader:
    """Somebody who types what a page says, with addresses of their own."""

    monkeypatch: pytest.MonkeyPatch
    vhost: Any

    def type(self, line: str) -> None:
        """Do one line; a command must end well."""
        line = line.replace("amqp://migrator@green/%2F", self.vhost.amqp_url)
        words = shlex.split(line)
        if words[0] == "export":
            self._export(words[1])
        elif words[0] == "migrator":
            with pytest.raises(SystemExit) as ended:
                main(words[1:])
            assert not ended.value.code, line
        elif words[0] == "curl":
            ours = line.replace("%2F", self.vhost.name)
            subprocess.run(["bash", "-c", f"{ours} --fail --silent"], check=True, timeout=100)
        else:
            assert words[0] == "source", line

    def _export(self, assignment: str) -> None:
        name, _, value = assignment.partition("=")
        assert config.load(environ={name: value}).settings
        if name not in _ADDRESSES or value.startswith("sqlite:"):
            self.monkeypatch.setenv(name, value)


@pytest.fixture
def reader(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, vhost: Any, database: str
) -> Iterator[Reader]:
    """Somebody in an empty folder, with a database and a broker."""
    for name in [name for name in os.environ if name.startswith("MIGRATOR_")]:
        monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MIGRATOR_STORE__URL", database)
    monkeypatch.setenv("MIGRATOR_BROKER__URL", vhost.amqp_url)
    monkeypatch.setenv("MIGRATOR_BROKER__MANAGEMENT_URL", vhost.node.management_url)
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield Reader(monkeypatch, vhost)
    logging.captureWarnings(capture=False)
    root.handlers[:], root.level = handlers, level


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=[] if name in SHORT else [pytest.mark.slow]) for name in PREPARED],
)
def test_commands_of_a_page_run(name: str, reader: Reader) -> None:
    """Typed one after the other, each of them ends with exit code 0."""
    if name != "quickstart.md":  # which makes its queue itself
        for queue in ("Sales", "Sales.Orders", "Billing"):
            path = f"queues/{reader.vhost.name}/{queue}"
            reader.vhost.node.api("PUT", path, {"durable": True})
    for line in (*PREPARED[name], *lines(DOCS / name)):
        reader.type(line)


def test_commands_can_be_typed_as_they_are() -> None:
    """Nothing that a command wants is missing in a block of commands, and each value is legal."""
    for line in {line for path in WRITTEN for line in lines(path)}:
        if line.startswith("migrator "):
            command = program()
            words = shlex.split(line, comments=True)[1:]
            if words[0].startswith("--"):  # a global option and its value
                words = words[2:]
            while hasattr(command, "commands"):
                command = command.commands[words.pop(0)]
            command.make_context(line, words, obj=SimpleNamespace(keep=lambda *_: None))


def test_every_how_to_is_tried() -> None:
    """No page for hands is left out."""
    found = {str(path.relative_to(DOCS)) for path in (DOCS / "how-to").glob("*.md")}
    assert found == set(PREPARED) - {"quickstart.md"} | _NOT_RUN


def test_settings_of_the_how_tos_load(tmp_path: Path) -> None:
    """Files and variables that are shown, in the README as well, are accepted."""
    for name in ("store-url", "broker-url"):
        (tmp_path / name).write_text("sqlite:///x")
    readme = WRITTEN[-1]
    file = tmp_path / "migrator.toml"
    for path in (*(DOCS / "how-to").glob("*.md"), readme):
        for text in blocks(path, "toml"):
            file.write_text(text)
            settings = config.load(file=file, environ={}).settings
            assert len(settings.endpoints) == len(tomllib.loads(text).get("endpoints", ()))
    found = dict(re.findall(r"export (MIGRATOR_\w+)=(\S+)", readme.read_text(encoding="utf-8")))
    assert len(found) == 3
    assert config.load(environ=found).settings.broker.management_url is not None
