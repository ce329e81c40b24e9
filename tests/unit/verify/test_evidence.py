"""Tests of ``migrator.verify.evidence``, on a real disk."""

from __future__ import annotations

import hashlib
import json
import stat
from contextlib import ExitStack, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from migrator.delays.routing import DelaysVersion
from migrator.errors import ConfigError
from migrator.nservicebus.timeouts import BatchId, EndpointName, TimeoutId
from migrator.verify.evidence import EvidenceFile, build_line, open_evidence
from migrator.verify.report import Discrepancy, EvidenceRecord, RowStatus

ABOUT = {
    "taken_at": "2026-03-10T09:30:00+00:00",
    "ledger": "a1",
    "version": "1",
    "delays": "v2",
    "scan": True,
    "endpoints": [],
}


def record(id_: int = 1, **changes: Any) -> EvidenceRecord:
    """Return the record of a timeout with which nothing is wrong."""
    fields: dict[str, Any] = {
        "id": id_,
        "endpoint": EndpointName("Sales"),
        "source": "public.Sales_TimeoutData",
        "timeout_id": TimeoutId(f"t{id_}"),
        "batch": BatchId(7),
        "row_index": 3,
        "destination": "Billing",
        "due_at": datetime(2026, 3, 10, 9, 30, 0, 5, tzinfo=UTC),
        "state": "handed_over",
        "reason": None,
        "content_hash": "ab",
        "handed_over_at": None,
        "is_intact": True,
        "delays": DelaysVersion.V2,
        "level": 21,
        "verdict": RowStatus.AGREES,
    }
    return EvidenceRecord(**(fields | changes))


def checked(path: Path) -> list[dict[str, Any]]:
    """Return the lines of a file, whose last one must have the right digest."""
    raw = path.read_bytes().splitlines(keepends=True)
    last = json.loads(raw[-1])
    assert last["sha256"] == hashlib.sha256(b"".join(raw[:-1])).hexdigest()
    assert last["totals"]["lines"] == len(raw) - 2
    return [json.loads(each) for each in raw]


def partial(path: Path) -> Path:
    """Return the file that is written before *path* is."""
    return path.with_name(path.name + ".partial")


# ── lines ───────────────────────────────────────────────────────────────────────────────────────


def test_a_line_tells_all_but_what_is_in_a_timeout() -> None:
    """Public: scripts of auditors read it."""
    assert json.loads(build_line(record())) == {
        "id": 1,
        "endpoint": "Sales",
        "source": "public.Sales_TimeoutData",
        "timeout_id": "t1",
        "batch": 7,
        "row_index": 3,
        "destination": "Billing",
        "due_at": "2026-03-10T09:30:00.000005+00:00",
        "state": "handed_over",
        "reason": None,
        "content_hash": "ab",
        "is_intact": True,
        "delays": "v2",
        "level": 21,
        "verdict": "agrees",
    }


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"destination": "Bülling\n\u2028\ud800"}, {"destination": "Bülling\n\u2028\ud800"}),
        (
            {"delays": None, "level": None, "verdict": RowStatus.NOT_LOOKED},
            {"delays": None, "level": None, "verdict": "not_looked"},
        ),
        ({"verdict": Discrepancy.CONTENT_CHANGED}, {"verdict": "content_changed"}),
    ],
)
def test_a_line_is_one_of_plain_ascii(changes: dict[str, Any], told: dict[str, Any]) -> None:
    """Whatever destinations are called."""
    raw = build_line(record(**changes))
    assert raw.endswith(b"\n")
    assert raw.count(b"\n") == 1
    assert raw.isascii()
    assert json.loads(raw).items() >= told.items()


# ── the file ────────────────────────────────────────────────────────────────────────────────────


def test_a_file_takes_its_place_when_it_is_whole(tmp_path: Path) -> None:
    """Before, nothing is there; nobody else may read it, neither before nor after."""
    path = tmp_path / "e.jsonl"
    with open_evidence(path, ABOUT) as file:
        file.write([record(1), record(2)])
        assert not path.exists()
        assert stat.S_IMODE(partial(path).stat().st_mode) == 0o600
        file.finish({"verdict": "balanced"})
    first, *lines, last = checked(path)
    assert first == {"schema": "migrator/evidence/1", **ABOUT}
    assert [each["id"] for each in lines] == [1, 2]
    assert last["totals"] == {"lines": 2, "verdicts": {"agrees": 2}, "verdict": "balanced"}
    assert list(tmp_path.iterdir()) == [path]
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_nothing_stays_of_what_is_interrupted(tmp_path: Path) -> None:
    """Half a file is evidence of nothing."""
    with suppress(KeyboardInterrupt), open_evidence(tmp_path / "e.jsonl", ABOUT) as file:
        file.write([record(1)])
        raise KeyboardInterrupt
    assert not [*tmp_path.iterdir()]


@pytest.mark.parametrize("kept", [0, 1, 9, 20, 100, 500])
def test_what_a_kill_left_is_begun_anew(tmp_path: Path, kept: int) -> None:
    """Wherever it was cut off, also within the first line, and whatever it was about."""
    path = tmp_path / "e.jsonl"
    left = EvidenceFile(path, {"schema": "migrator/evidence/1", **ABOUT, "ledger": "b2"})
    left.write([record(each) for each in range(9)])
    left._stream.flush()
    raw = partial(path).read_bytes()
    left.close()
    partial(path).write_bytes(raw[:kept])
    partial(path).with_name("e.jsonl.amended").write_text("left by a kill")
    with open_evidence(path, ABOUT) as file:
        file.write([record(1)])
        file.finish({})
    first, line, _ = checked(path)
    assert (first["ledger"], line["id"]) == ("a1", 1)
    assert list(tmp_path.iterdir()) == [path]


def test_lines_are_replaced_all_at_once(tmp_path: Path) -> None:
    """Then the digest and the totals are those of the new lines, and writing goes on."""
    path = tmp_path / "e.jsonl"
    with open_evidence(path, ABOUT) as file:
        file.write([record(1), record(2, verdict=RowStatus.NOT_SEEN, level=None)])
        file.amend({2: record(2, verdict=Discrepancy.MISSING, level=None)})
        file.write([record(3)])
        digest = file.finish({})
    *_, last = checked(path)
    assert last["sha256"] == digest
    assert last["totals"]["verdicts"] == {"agrees": 2, "missing_from_levels": 1}
    assert list(tmp_path.iterdir()) == [path]
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_a_file_that_is_there_is_never_overwritten(tmp_path: Path) -> None:
    """Neither at the beginning nor, when it came meanwhile, at the end; then ours stays beside."""
    path = tmp_path / "e.jsonl"
    with open_evidence(path, ABOUT) as file:
        path.write_text("mine")
        with pytest.raises(ConfigError, match="is there now"):
            file.finish({})
    checked(partial(path))
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
        first.write([record(1)])
        first.amend({1: record(1)})
        with pytest.raises(ConfigError, match="another verification"):
            stack.enter_context(open_evidence(path, ABOUT))


@pytest.mark.parametrize("raw", [b"what?\n", b'{"id":1}\n', b"[]\n"])
def test_what_we_never_wrote_is_left_alone(tmp_path: Path, raw: bytes) -> None:
    """Somebody may miss it."""
    path = tmp_path / "e.jsonl"
    partial(path).write_bytes(raw)
    with pytest.raises(ConfigError, match="is not what"), open_evidence(path, ABOUT):
        pass
    assert partial(path).read_bytes() == raw


def test_a_place_that_is_not_there_is_named(tmp_path: Path) -> None:
    """And so is a link that leads elsewhere."""
    with (
        pytest.raises(ConfigError, match="No such file"),
        open_evidence(tmp_path / "nowhere" / "e.jsonl", ABOUT),
    ):
        pass
    partial(tmp_path / "e.jsonl").symlink_to(tmp_path / "elsewhere")
    with (
        pytest.raises(ConfigError, match="cannot be written"),
        open_evidence(tmp_path / "e.jsonl", ABOUT),
    ):
        pass
    assert not (tmp_path / "elsewhere").exists()
