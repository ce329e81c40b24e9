"""What the README shows is so: its settings load, its commands exist, its exit codes are ours."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any, Final

import pytest

from migrator import config
from migrator.cli.root import every_verb
from migrator.errors import ExitCode

ROOT: Final = Path(__file__).parents[2]
README: Final = (ROOT / "README.md").read_text(encoding="utf-8")


def blocks(language: str) -> list[str]:
    """Return the README's code blocks in *language*."""
    return re.findall(rf"^```{language}\n(.*?)^```", README, flags=re.MULTILINE | re.DOTALL)


def commands() -> list[str]:
    """Return every `migrator …` line of the blocks, and those in running text."""
    lines = [
        line.partition("#")[0].strip() for block in blocks("bash") for line in block.split("\n")
    ]
    inline = re.findall(r"`(migrator [a-z][^`…]*)`", README)
    return sorted({line for line in (*lines, *inline) if line.startswith("migrator ")})


@pytest.mark.parametrize("line", commands())
def test_commands_exist_with_these_options(line: str) -> None:
    """Each verb is known, and so is each option it is shown with."""
    command: Any = every_verb()
    words = shlex.split(line)[1:]
    while words and hasattr(command, "commands"):
        command = command.commands[words.pop(0)]
    known = {option for parameter in command.params for option in parameter.opts}
    assert {word for word in words if word.startswith("--")} <= known


def test_settings_load(tmp_path: Path) -> None:
    """The settings file is accepted, and its secrets come from the files it names."""
    more, text = blocks("toml")
    file = tmp_path / "migrator.toml"
    file.write_text(text)
    (tmp_path / "store-url").write_text("sqlite:///x\n")
    (tmp_path / "broker-url").write_text("host=rabbit;username=nsb\n")
    environ = {"CREDENTIALS_DIRECTORY": str(tmp_path)}
    loaded = config.load(file=file, environ=environ).settings
    assert loaded.store.url is not None
    assert loaded.store.url.get_secret_value() == "sqlite:///x"
    assert [endpoint.name for endpoint in loaded.endpoints] == ["Sales"]
    file.write_text(more)
    (endpoint,) = config.load(file=file, environ={}).settings.endpoints
    assert (endpoint.name, str(endpoint.mode)) == ("Sales", "dispatch")


def test_variables_are_settings() -> None:
    """Each variable of the examples is one that migrator knows."""
    found = dict(re.findall(r"export (MIGRATOR_\w+)=(\S+)", README))
    assert len(found) == 3
    assert config.load(environ=found).settings.broker.management_url is not None


def test_exit_codes_are_all_there() -> None:
    """No more and no fewer than the program has."""
    assert [int(n) for n in re.findall(r"^\| (\d+) \|", README, flags=re.MULTILINE)] == list(
        ExitCode
    )


def test_defaults_are_as_told() -> None:
    """The cutoff of a minute, the staged mode and the second generation of delays."""
    defaults = config.load(environ={}).settings
    assert defaults.handover.cutoff.total_seconds() == 60
    assert (str(defaults.handover.mode), str(defaults.broker.delays)) == ("staged", "v2")


def test_named_files_exist() -> None:
    """Links, programs and the files that answer questions are where the README says."""
    named = re.findall(r"`(?:migrator/)?([a-z_]+/[a-z_/]*(?:\.py)?)`", README)
    links = re.findall(r"\]\(([A-Za-z./-]+)\)", README)
    scripts = re.findall(r"^(\./dev/\w+)", README, flags=re.MULTILINE)
    assert named
    for name in (*named, *links, *scripts):
        assert (ROOT / name).exists() or (ROOT / "migrator" / name).exists(), name
