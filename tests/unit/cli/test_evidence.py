"""Tests of ``migrator.cli.evidence``, on a real disk."""

from __future__ import annotations

import hashlib
import json
import stat
from contextlib import ExitStack
from pathlib import Path

import pytest

from migrator.cli.evidence import open_evidence
from migrator.errors import ConfigError
from migrator.verify.evidence import Word, build_line
from migrator.verify.report import Discrepancy
from tests.unit.verify.test_evidence import line

ABOUT = {
    "taken_at": "2026-03-10T09:30:00+00:00",
    "ledger": "a1",
    "version": "1",
    "delays": "v2",
    "scan": True,
    "endpoints": [],
}


def write(path: Path, *ids: int) -> None:
    """Begin, or go on with, evidence that is then interrupted."""
    with open_evidence(path, ABOUT) as file:
        file.write(list(file.taken_over()))
        file.write([line(each) for each in ids])


def finish(path: Path) -> list[str]:
    """Go on with evidence and finish it; return its lines."""
    with open_evidence(path, ABOUT) as file:
        file.write(list(file.taken_over()))
        file.finish({"verdict": "balanced"})
    return _checked(path)


def _checked(path: Path) -> list[str]:
    raw = path.read_bytes().splitlines(keepends=True)
    last = json.loads(raw[-1])
    assert last["sha256"] == hashlib.sha256(b"".join(raw[:-1])).hexdigest()
    assert last["totals"]["lines"] == len(raw) - 2
    return [each.decode() for each in raw]


def partial(path: Path) -> Path:
    """Return the file that is written before *path* is."""
    return path.with_name(path.name + ".partial")


def test_a_file_takes_its_place_when_it_is_whole(tmp_path: Path) -> None:
    """Before, nothing is there; nobody else may read it, neither before nor after."""
    path = tmp_path / "e.jsonl"
    write(path, 1, 2)
    assert not path.exists()
    assert stat.S_IMODE(partial(path).stat().st_mode) == 0o600
    lines = finish(path)
    assert [json.loads(each).get("id") for each in lines] == [None, 1, 2, None]
    assert json.loads(lines[0])["schema"] == "migrator/evidence/1"
    assert json.loads(lines[-1])["totals"] == {
        "lines": 2,
        "verdicts": {"agrees": 2},
        "verdict": "balanced",
    }
    assert list(tmp_path.iterdir()) == [path]
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


@pytest.mark.parametrize("cut", range(1, 60, 7))
def test_a_torn_line_is_written_anew(tmp_path: Path, cut: int) -> None:
    """Wherever it was cut off, also within the first line."""
    path, whole = tmp_path / "e.jsonl", tmp_path / "whole.jsonl"
    for each in (path, whole):
        write(each, 1, 2, 3)
    raw = partial(path).read_bytes()
    partial(path).write_bytes(raw[: -cut * len(raw) // 60])
    with open_evidence(path, ABOUT) as file:
        lines = list(file.taken_over())
        file.write(lines)
        there = [found.id for found in lines]
    write(path, *({1, 2, 3} - set(there)))
    assert finish(path) == finish(whole)


def test_a_file_that_was_whole_already_goes_on(tmp_path: Path) -> None:
    """Killed between its last line and its move, the totals are written anew."""
    path = tmp_path / "e.jsonl"
    write(path, 1)
    lines = finish(path)
    path.rename(partial(path))
    assert finish(path) == lines


def test_lines_are_replaced_all_at_once(tmp_path: Path) -> None:
    """Then the digest and the totals are those of the new lines, and writing goes on."""
    path = tmp_path / "e.jsonl"
    partial(path).with_name("e.jsonl.amended").write_text("left by a kill")
    with open_evidence(path, ABOUT) as file:
        file.write([line(1), line(2, verdict=Word.NOT_SEEN, level=None)])
        file.amend({2: line(2, verdict=Discrepancy.MISSING, level=None)})
        file.write([line(3)])
        digest = file.finish({})
    lines = _checked(path)
    assert json.loads(lines[-1])["sha256"] == digest
    assert json.loads(lines[-1])["totals"]["verdicts"] == {
        "agrees": 2,
        "missing_from_levels": 1,
    }
    assert list(tmp_path.iterdir()) == [path]
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


@pytest.mark.parametrize(
    "change", [{"ledger": "b2"}, {"scan": False}, {"endpoints": ["Sales"]}, {"version": "2"}]
)
def test_the_evidence_of_something_else_is_refused(
    tmp_path: Path, change: dict[str, object]
) -> None:
    """What was written stays, and the refusal says what to do."""
    path = tmp_path / "e.jsonl"
    write(path, 1)
    before = partial(path).read_bytes()
    with (
        pytest.raises(ConfigError, match="call it as before, or delete the file"),
        open_evidence(path, ABOUT | change),
    ):
        pass
    assert partial(path).read_bytes() == before


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"taken_at": "2026-03-11T09:30:01+00:00"}, "was begun 2026-03-10 09:30 UTC, more than 24"),
        ({"taken_at": "2026-03-11T09:30:00"}, "no time in its first line"),
    ],
)
def test_what_is_too_old_is_refused(tmp_path: Path, change: dict[str, object], told: str) -> None:
    """A day is the most that what a file says may be apart; nothing is deleted unasked."""
    path = tmp_path / "e.jsonl"
    write(path, 1)
    before = partial(path).read_bytes()
    with pytest.raises(ConfigError, match=told), open_evidence(path, ABOUT | change):
        pass
    assert partial(path).read_bytes() == before
    with open_evidence(path, ABOUT | {"taken_at": "2026-03-11T09:30:00+00:00"}) as file:
        assert len(list(file.taken_over())) == 1
    assert json.loads(partial(path).read_text().splitlines()[0])["taken_at"] == ABOUT["taken_at"]


@pytest.mark.parametrize("read", [0, 1, 2, 3])
def test_interrupted_while_it_goes_on_what_was_there_stays(tmp_path: Path, read: int) -> None:
    """Until all of it was read, the lines are written beside it."""
    path = tmp_path / "e.jsonl"
    write(path, 1, 2, 3)
    before = partial(path).read_bytes()
    with open_evidence(path, ABOUT) as file:
        earlier = iter(file.taken_over())
        for _ in range(read):
            file.write([next(earlier)])
    assert partial(path).read_bytes() == before
    with open_evidence(path, ABOUT) as file:
        first, *_ = file.taken_over()
        file.write([first, line(9)])
    with open_evidence(path, ABOUT) as file:
        assert [each.id for each in file.taken_over()] == [1, 9]


def test_a_file_that_is_there_is_never_overwritten(tmp_path: Path) -> None:
    """Neither at the beginning nor, when it came meanwhile, at the end."""
    path = tmp_path / "e.jsonl"
    with open_evidence(path, ABOUT) as file:
        path.write_text("mine")
        with pytest.raises(ConfigError, match="is there now"):
            file.finish({})
    with pytest.raises(ConfigError, match="is there already"), open_evidence(path, ABOUT):
        pass
    assert path.read_text() == "mine"


def test_one_writes_at_a_time(tmp_path: Path) -> None:
    """Two would write each other's lines."""
    path = tmp_path / "e.jsonl"
    with ExitStack() as stack:
        first = stack.enter_context(open_evidence(path, ABOUT))
        with pytest.raises(ConfigError, match="another verification"):
            stack.enter_context(open_evidence(path, ABOUT))
        first.write([line(1)])
        first.amend({1: line(1)})
        with pytest.raises(ConfigError, match="another verification"):
            stack.enter_context(open_evidence(path, ABOUT))


@pytest.mark.parametrize("raw", [b"what?\n", b'{"id":1}\n', b"[]\n"])
def test_what_we_never_wrote_is_refused(tmp_path: Path, raw: bytes) -> None:
    """Nothing is appended to a stranger's file."""
    path = tmp_path / "e.jsonl"
    write(path, 1)
    with partial(path).open("ab") as stream:
        stream.write(raw + build_line(line(2)))
    with open_evidence(path, ABOUT) as file, pytest.raises(ConfigError, match="is not what"):
        list(file.taken_over())
    partial(path).write_bytes(raw)
    with pytest.raises(ConfigError), open_evidence(path, ABOUT):
        pass


def test_a_place_that_is_not_there_is_named(tmp_path: Path) -> None:
    """And so is a link that leads elsewhere."""
    with pytest.raises(ConfigError, match="No such file"):
        write(tmp_path / "nowhere" / "e.jsonl")
    partial(tmp_path / "e.jsonl").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(ConfigError, match="cannot be written"):
        write(tmp_path / "e.jsonl")
    assert not (tmp_path / "elsewhere").exists()
