"""Tests of the file of settings that nobody named: who can have another user obey it."""

from __future__ import annotations

import itertools
import os
import shutil
import signal
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

import pytest

from dev.processes import wait_until
from migrator.config import load
from migrator.errors import ConfigError

VICTIM: Final = 65534
ATTACKER: Final = 12345
pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root can be two users")


@pytest.fixture
def folder(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The current folder, which every user may enter, of the victim."""
    made = Path(tempfile.mkdtemp(prefix="migrator-default-"))
    made.chmod(0o755)
    os.chown(made, VICTIM, VICTIM)
    monkeypatch.chdir(made)
    yield made
    monkeypatch.undo()
    shutil.rmtree(made)


@contextmanager
def acting_as(uid: int) -> Iterator[None]:
    """Be another user for a while."""
    os.setegid(uid)
    os.seteuid(uid)
    try:
        yield
    finally:
        os.seteuid(0)
        os.setegid(0)


@contextmanager
def exchanging(*names: str) -> Iterator[None]:
    """Have a process of the attacker's put links to *names* into the current folder, in turn."""
    child = os.fork()
    if child == 0:
        try:
            os.setgroups([])
            os.setgid(ATTACKER)
            os.setuid(ATTACKER)
            for each in itertools.cycle(names):
                os.symlink(each, "next")  # noqa: PTH211 - as fast as it can be
                os.replace("next", "migrator.toml")  # noqa: PTH105 - the same
        finally:
            os._exit(1)
    try:
        yield
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)


def write(file: Path, lanes: int, owner: int) -> None:
    """Write settings that say how many lanes there are, and give the file away."""
    file.write_text(f"[handover]\nlanes = {lanes}\n")
    os.chown(file, owner, owner)


def lanes() -> int:
    """Return how many lanes the settings in force say."""
    return load(environ={}).settings.handover.lanes


def test_a_file_that_was_not_named_must_be_ours(folder: Path) -> None:
    """Whoever runs the program in a folder of others does not obey them; named, it is read."""
    file = folder / "migrator.toml"
    write(file, 2, VICTIM)
    with acting_as(VICTIM):
        assert lanes() == 2
    file.chmod(0o646)
    with acting_as(VICTIM), pytest.raises(ConfigError, match="not used: other users may write it"):
        lanes()
    with acting_as(VICTIM):
        assert load(file=file, environ={}).settings.handover.lanes == 2
    file.chmod(0o644)
    folder.chmod(0o777)
    with acting_as(VICTIM), pytest.raises(ConfigError, match="may write to the folder"):
        lanes()
    folder.chmod(0o1777)
    with acting_as(VICTIM):
        assert lanes() == 2
    os.chown(folder, ATTACKER, ATTACKER)
    with acting_as(VICTIM), pytest.raises(ConfigError, match=f"{folder} belongs to another user"):
        lanes()


def test_root_takes_none_but_from_etc(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not even root's own: who is root comes by folders of everybody."""
    os.chown(folder, 0, 0)
    write(folder / "migrator.toml", 2, 0)
    with pytest.raises(ConfigError, match="root takes one that was not named from /etc only"):
        lanes()
    assert load(file=folder / "migrator.toml", environ={}).settings.handover.lanes == 2
    with tempfile.TemporaryDirectory(prefix="migrator-test-", dir="/etc") as made:
        write(Path(made) / "migrator.toml", 3, 0)
        monkeypatch.chdir(made)
        assert lanes() == 3
        monkeypatch.chdir(folder)


@pytest.mark.parametrize("victim", [0, VICTIM])
def test_who_exchanges_the_file_meanwhile_gains_nothing(folder: Path, victim: int) -> None:
    """A user with a folder of their own has a trusted file and one of theirs take turns."""
    os.chown(folder, ATTACKER, ATTACKER)
    folder.chmod(0o777)
    write(folder / "good", 2, victim)
    write(folder / "evil", 7, ATTACKER)
    obeyed = 0
    with exchanging("good", "evil"):
        wait_until((folder / "migrator.toml").exists, what="the first exchange")
        for _ in range(500):
            with suppress(ConfigError), acting_as(victim):
                obeyed += lanes() == 7
    assert obeyed == 0
