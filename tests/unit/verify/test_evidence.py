"""Tests of ``migrator.verify.evidence``."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

import pytest

from migrator.delays.routing import DelaysVersion
from migrator.nservicebus.timeouts import BatchId, EndpointName, TimeoutId
from migrator.verify.evidence import Line, NoLine, Word, build_line, parse_document, parse_line
from migrator.verify.report import Discrepancy


def line(id_: int = 1, **changes: Any) -> Line:
    """Return the line of a timeout with which nothing is wrong."""
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
        "is_intact": True,
        "delays": DelaysVersion.V2,
        "level": 21,
        "verdict": Word.AGREES,
    }
    return Line(**(fields | changes))


@pytest.mark.parametrize(
    "given",
    [
        line(),
        line(destination="Bülling\n\u2028\ud800", delays=None, level=None, verdict=Word.NOT_LOOKED),
        line(destination=None, state="quarantined", reason="no-destination"),
        line(is_intact=False, verdict=Discrepancy.CONTENT_CHANGED),
    ],
)
def test_what_is_written_is_read(given: Line) -> None:
    """Whatever destinations are called; always one line of plain ASCII."""
    raw = build_line(given)
    assert raw.endswith(b"\n")
    assert raw.count(b"\n") == 1
    assert raw.isascii()
    assert parse_line(parse_document(raw)) == given


@pytest.mark.parametrize("raw", [b"", b"\xff\n", b"{\n", b"[1]\n", b"7\n"])
def test_only_objects_are_read(raw: bytes) -> None:
    """Anything else is no line of ours."""
    with pytest.raises(NoLine):
        parse_document(raw)


@pytest.mark.parametrize(
    "change",
    [
        {"id": "x"},
        {"verdict": "fine"},
        {"due_at": 7},
        {"batch": None},
        {"due_at": "x"},
        {"delays": "v3"},
    ],
)
def test_what_is_of_another_kind_is_refused(change: dict[str, Any]) -> None:
    """Nothing is guessed from a file that somebody changed."""
    with pytest.raises(NoLine):
        parse_line(json.loads(build_line(line())) | change)


def test_what_is_missing_is_named() -> None:
    """So that a person can look."""
    document = dict(parse_document(build_line(line())))
    del document["content_hash"]
    with pytest.raises(NoLine, match="content_hash"):
        parse_line(document)
