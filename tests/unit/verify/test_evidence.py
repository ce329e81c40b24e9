"""Tests of ``migrator.verify.evidence``, on a real disk."""

from __future__ import annotations

import hashlib
import json
import stat
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from migrator.errors import ConfigError
from migrator.verify.evidence import build_line, open_evidence
from migrator.verify.report import Discrepancy, EvidenceRecord, RowStatus
from tests.unit.verify.world import V2
from tests.unit.verify.world import record as row

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
    seen: dict[str, Any] = {"delays": V2, "level": 21, "verdict": RowStatus.AGREES}
    return row(id_, due_at=datetime(2026, 3, 10, 9, 30, 0, 5, tzinfo=UTC), **(seen | changes))


def checked(path: Path) -> list[dict[str, Any]]:
    """Return the lines of a file, whose last one must have the right digest."""
    raw = path.read_bytes().splitlines(keepends=True)
    last = json.loads(raw[-1])
    assert last["sha256"] == hashlib.sha256(b"".join(raw[:-1])).hexdigest()
    assert last["totals"]["lines"] == len(raw) - 2
    return [json.loads(each) for each in raw]


# ── lines ───────────────────────────────────────────────────────────────────────────────────────


def test_a_line_tells_all_but_what_is_in_a_timeout() -> None:
    """Public: scripts of auditors read it."""
    assert json.loads(build_line(record())) == {
        "id": 1,
        "endpoint": "Sales",
        "source": "Sales_TimeoutData",
        "timeout_id": "t1",
        "batch": 1,
        "row_index": 1,
        "destination": "Shipping",
        "due_at": "2026-03-10T09:30:00.000005+00:00",
        "state": "handed_over",
        "reason": None,
        "content_hash": "ab",
        "is_intact": True,
        "delays": "v2",
        "level": 21,
        "verdict": "agrees",
    }


def test_a_line_is_one_of_plain_ascii() -> None:
    """Whatever destinations are called."""
    raw = build_line(record(destination="Bülling\n\u2028\ud800", level=None))
    assert raw.isascii()
    assert [raw.count(b"\n"), raw[-1:]] == [1, b"\n"]
    told = json.loads(raw)
    assert (told["destination"], told["level"]) == ("Bülling\n\u2028\ud800", None)


# ── the file ────────────────────────────────────────────────────────────────────────────────────


def test_a_file_takes_its_place_when_it_is_whole(tmp_path: Path) -> None:
    """With what was found out later; before, nothing is there. Nobody else may read it."""
    path = tmp_path / "e.jsonl"
    with open_evidence(path, ABOUT) as file:
        file.write([record(1), record(2, verdict=RowStatus.NOT_SEEN, level=None)])
        file.amend({2: record(2, verdict=Discrepancy.MISSING, level=None)})
        file.write([record(3)])
        assert not [*tmp_path.iterdir()]
        digest = file.finish({"verdict": "discrepant"})
    first, *lines, last = checked(path)
    assert first == {"schema": "migrator/evidence/1", **ABOUT}
    assert [(each["id"], each["verdict"]) for each in lines] == [
        (1, "agrees"),
        (2, "missing_from_levels"),
        (3, "agrees"),
    ]
    verdicts = {"agrees": 2, "missing_from_levels": 1}
    assert last["totals"] == {"lines": 3, "verdicts": verdicts, "verdict": "discrepant"}
    assert last["sha256"] == digest
    assert [*tmp_path.iterdir()] == [path]
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_nothing_stays_of_what_is_interrupted(tmp_path: Path) -> None:
    """Half a file is evidence of nothing."""
    with suppress(KeyboardInterrupt), open_evidence(tmp_path / "e.jsonl", ABOUT) as file:
        file.write([record(1)])
        raise KeyboardInterrupt
    assert not [*tmp_path.iterdir()]


def test_a_file_that_is_there_is_never_overwritten(tmp_path: Path) -> None:
    """Neither at the beginning nor, when it came meanwhile, at the end."""
    path = tmp_path / "e.jsonl"
    with open_evidence(path, ABOUT) as file:
        path.write_text("mine")
        with pytest.raises(ConfigError, match="already exists"):
            file.finish({})
    with pytest.raises(ConfigError, match="already exists"), open_evidence(path, ABOUT):
        pass
    assert [*tmp_path.iterdir()] == [path]
    assert path.read_text() == "mine"


def test_a_place_that_is_not_there_is_named(tmp_path: Path) -> None:
    """As is any other that cannot be written to."""
    with (
        pytest.raises(ConfigError, match=r"nowhere/e\.jsonl cannot be written: No such file"),
        open_evidence(tmp_path / "nowhere" / "e.jsonl", ABOUT),
    ):
        pass
