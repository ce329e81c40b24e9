"""Tests of ``migrator.cli.output``: what is written, and where."""

from __future__ import annotations

import io
import json
import os
import shutil
import stat
import tempfile
import threading
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import MappingProxyType

import pytest

from migrator.cli.output import demand_place, write_file, write_json, write_table
from migrator.errors import ConfigError
from migrator.ledger.states import Mode

NOW = datetime(2026, 3, 10, 9, 30, tzinfo=UTC)


def test_a_document_names_its_schema(capsys: pytest.CaptureFixture[str]) -> None:
    """First, and values are plain."""
    frozen: Mapping[str, int] = MappingProxyType({"a": 1})
    data = {"at": NOW, "age": timedelta(minutes=1), "mode": Mode.STAGED, "map": frozen, "x": "ü"}
    write_json("thing", {**data, "other": {1}.pop})
    found = json.loads(capsys.readouterr().out)
    assert next(iter(found)) == "schema"
    assert found.pop("other").startswith("<built-in")
    assert found == {
        "schema": "migrator/thing/1",
        "at": "2026-03-10T09:30:00+00:00",
        "age": 60.0,
        "mode": "staged",
        "map": {"a": 1},
        "x": "ü",
    }


def test_a_table_has_numbers_on_the_right() -> None:
    """Names with brackets stay as they are, nothing is cut, and no line ends in blanks."""
    out = io.StringIO()
    rows = [("[red]x[/red]", 5, True, NOW, None), ("y", 12345, False, NOW, "q" * 150)]
    write_table(("name", "count", "fine", "at", "more"), rows, stream=out)
    assert out.getvalue().splitlines() == [
        "name           count  fine  at                         more",
        "[red]x[/red]       5  yes   2026-03-10 09:30:00+00:00",
        "y             12 345  no    2026-03-10 09:30:00+00:00  " + "q" * 150,
    ]


def mode(path: Path) -> int:
    """Return the permissions of *path*."""
    return stat.S_IMODE(path.stat().st_mode)


def test_a_new_file_is_for_its_owner_only(tmp_path: Path) -> None:
    """Whatever the umask says, and nothing is left beside it."""
    before = os.umask(0)
    try:
        write_file(tmp_path / "r.html", "Größe")
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
        write_file(link, "new")
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
        write_file(file, "new")
    assert [(each.name, each.read_text()) for each in tmp_path.iterdir()] == [("r.html", "old")]


def test_what_is_no_file_is_written_to(tmp_path: Path) -> None:
    """A pipe gets the text, and stays a pipe."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    demand_place(pipe)
    writer = threading.Thread(target=write_file, args=(pipe, "text"))
    writer.start()
    with pipe.open() as reader:
        assert reader.read() == "text\n"
    writer.join()
    assert stat.S_ISFIFO(pipe.stat().st_mode)


def test_a_place_is_demanded_beforehand(tmp_path: Path) -> None:
    """So that nobody waits for a report that cannot be written."""
    demand_place(tmp_path / "r.html")
    with pytest.raises(ConfigError, match="is a folder; name a file in it"):
        demand_place(tmp_path)
    with pytest.raises(ConfigError, match="cannot be written: there is no folder"):
        demand_place(tmp_path / "absent" / "r.html")


OTHER = 12345
by_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")


@by_root
@pytest.mark.parametrize("way", ["file", "folder", "dangling"])
def test_a_link_of_another_user_is_not_followed(tmp_path: Path, way: str) -> None:
    """Neither at the end of the path nor on the way: it would choose what is overwritten."""
    shared, ours = tmp_path / "shared", tmp_path / "ours"
    shared.mkdir()
    shared.chmod(0o1777)
    ours.mkdir()
    precious = ours / "r.html"
    if way != "dangling":
        precious.write_text("precious")
    link = shared / ("link" if way == "folder" else "r.html")
    link.symlink_to(ours if way == "folder" else precious)
    path = link / "r.html" if way == "folder" else link
    os.lchown(link, OTHER, OTHER)
    for act in (demand_place, lambda path: write_file(path, "new")):
        with pytest.raises(ConfigError, match=f"{path} cannot be written: the link {link} belongs"):
            act(path)
    assert [each.read_text() for each in ours.iterdir()] == ["precious"] * (way != "dangling")
    os.lchown(link, 0, 0)
    write_file(path, "new")
    assert precious.read_text() == "new\n"


@by_root
@pytest.mark.parametrize("place", ["/dev/shm", "/tmp"])  # noqa: S108
@pytest.mark.parametrize("owner", [0, OTHER])
def test_what_another_user_has_put_there_learns_nothing(place: str, owner: int) -> None:
    """A file is replaced by one of our own, without its mode; a pipe is not written to."""
    folder = Path(tempfile.mkdtemp(dir=place))
    folder.chmod(0o755 if owner else 0o1777)
    os.chown(folder, owner, owner)
    try:
        _put_by_another(folder)
    finally:
        shutil.rmtree(folder)


def _put_by_another(folder: Path) -> None:
    file, pipe = folder / "r.html", folder / "pipe"
    file.write_text("theirs")
    file.chmod(0o666)
    os.mkfifo(pipe)
    for path in (file, pipe):
        os.chown(path, OTHER, OTHER)
    write_file(file, "new")
    assert (file.read_text(), mode(file), file.stat().st_uid) == ("new\n", 0o600, 0)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    with pytest.raises(ConfigError, match="cannot be written: it belongs to another user"):
        write_file(pipe, "new")
    assert os.read(reader, 10) == b""
    os.close(reader)


def test_what_the_shell_opened_is_written_to(tmp_path: Path) -> None:
    """Whoever it belongs to: a terminal stays its user's under sudo."""
    reading, writing = os.pipe()
    write_file(Path(f"/dev/fd/{writing}"), "text")
    os.close(writing)
    with os.fdopen(reading) as stream:
        assert stream.read() == "text\n"
