"""Tests of ``migrator.cli.results``."""

from __future__ import annotations

import os
import stat
import threading
from pathlib import Path

import pytest

from migrator.cli.results import demand_place, write_file
from migrator.errors import ConfigError


def mode(path: Path) -> int:
    """Return the permissions of *path*."""
    return stat.S_IMODE(path.stat().st_mode)


def test_a_new_file_is_for_its_owner_only(tmp_path: Path) -> None:
    """Whatever the umask says, and nothing is left beside it."""
    before = os.umask(0)
    try:
        write_file("--output", tmp_path / "r.html", "Größe")
    finally:
        os.umask(before)
    assert (tmp_path / "r.html").read_text() == "Größe\n"
    assert mode(tmp_path / "r.html") == 0o600
    assert list(tmp_path.iterdir()) == [tmp_path / "r.html"]


def test_a_file_that_is_there_is_replaced_and_keeps_its_mode(tmp_path: Path) -> None:
    """Who has it open goes on reading what was there; a link stays a link."""
    file, link = tmp_path / "r.html", tmp_path / "link"
    file.write_text("old")
    file.chmod(0o644)
    link.symlink_to(file)
    with file.open() as reader:
        write_file("--output", link, "new")
        assert reader.read() == "old"
    assert (file.read_text(), mode(file), link.is_symlink()) == ("new\n", 0o644, True)


def test_what_fails_leaves_everything_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The disk is full: the old report is still there, and nothing beside it."""

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    file = tmp_path / "r.html"
    file.write_text("old")
    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(ConfigError, match=r"r\.html cannot be written: No space left"):
        write_file("--output", file, "new")
    assert [(each.name, each.read_text()) for each in tmp_path.iterdir()] == [("r.html", "old")]


def test_what_is_no_file_is_written_to(tmp_path: Path) -> None:
    """A pipe gets the text, and stays a pipe."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    demand_place("--output", pipe)
    writer = threading.Thread(target=write_file, args=("--output", pipe, "text"))
    writer.start()
    with pipe.open() as reader:
        assert reader.read() == "text\n"
    writer.join()
    assert stat.S_ISFIFO(pipe.stat().st_mode)


def test_a_place_is_demanded_beforehand(tmp_path: Path) -> None:
    """So that nobody waits for a report that cannot be written."""
    demand_place("--output", tmp_path / "r.html")
    with pytest.raises(ConfigError, match="is a folder; name a file in it"):
        demand_place("--output", tmp_path)
    with pytest.raises(ConfigError, match="cannot be written: no folder"):
        demand_place("--output", tmp_path / "absent" / "r.html")
