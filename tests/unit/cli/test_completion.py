"""Tests of ``migrator completion`` in real shells, and of the files that a package installs."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from dev.reference import man
from tests.support import cannot_run

BASH = """
source {file}
COMP_WORDS=({line} "{last}"); COMP_CWORD=$(( ${{#COMP_WORDS[@]}} - 1 ))
_migrator_completion migrator
printf '%s\\n' "${{COMPREPLY[@]}}"
"""
ZSH = """
compdef() {{ defined=$1 }}
_arguments() {{ print -r -- "$@" }}
source {file}
words=({line} "{last}"); CURRENT=$#words
$defined
"""
FISH = "source {file}; complete -C '{line} {last}'"
CALLS = {
    "bash": ["bash", "--norc", "-c", BASH],
    "zsh": ["zsh", "-f", "-c", ZSH],
    "fish": ["fish", "--no-config", "-c", FISH],
}


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder with what a package installs."""
    folder: Path = tmp_path_factory.mktemp("files")
    assert man.main([str(folder)]) == 0
    return folder


@pytest.mark.parametrize("shell", CALLS)
@pytest.mark.parametrize(
    ("line", "last", "found"),
    [
        pytest.param("migrator", "sta", {"status"}, marks=pytest.mark.slow),
        ("migrator run", "--ma", {"--map", "--management-url"}),
        ("migrator --config x.toml delays", "", {"create", "transfer", "delete"}),
        pytest.param(
            "migrator delays transfer", "--to-", {"--to-url", "--to-delays"}, marks=pytest.mark.slow
        ),
    ],
)
def test_shells_complete_verbs_and_options(
    shell: str, line: str, last: str, found: set[str], files: Path
) -> None:
    """Verbs of groups and their options as well, whatever is imported late."""
    if shutil.which(shell) is None:
        cannot_run(f"{shell} is not installed: apt-get install {shell}")
    *call, script = CALLS[shell]
    done = subprocess.run(
        [*call, script.format(file=files / man.COMPLETIONS[shell], line=line, last=last)],
        env={"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}", "HOME": str(files)},
        capture_output=True,
        text=True,
        timeout=110,
        check=False,
    )
    assert all(each in done.stdout for each in found), done.stderr
    assert "rollback" not in done.stdout


@pytest.mark.parametrize("shell", man.COMPLETIONS)
def test_the_program_prints_what_a_package_installs(shell: str, files: Path) -> None:
    """So that whoever has no package has the same."""
    done = subprocess.run(
        [sys.executable, "-m", "migrator", "completion", shell],
        capture_output=True,
        text=True,
        timeout=110,
        check=True,
    )
    assert done.stdout == (files / man.COMPLETIONS[shell]).read_text()


def test_the_manual_page_is_sound_and_has_every_verb(files: Path) -> None:
    """And every option of each, those of the program among them."""
    if shutil.which("groff") is None:
        pytest.skip("groff is not installed")
    done = subprocess.run(
        ["groff", "-man", "-Tutf8", "-P-cbou", "-ww", files / "migrator.1"],
        capture_output=True,
        text=True,
        timeout=110,
        check=True,
    )
    assert done.stderr == ""
    for told in (
        "migrator quarantine list",
        "migrator completion",  # which no list of verbs has
        "--near-due leave|dispatch",
        "--store-url URL",
    ):
        assert told in done.stdout
