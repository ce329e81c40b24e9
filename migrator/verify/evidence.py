"""The lines of an evidence file: one per timeout of the ledger, as values and as JSON.

Rules of this file: a line says what a timeout is, where it is and what was found, and never what
is in it; a line is plain ASCII and ends with a line feed; what is read back is checked, because
it comes from a file. Source: docs/verify.md.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any, Final

from migrator.delays.routing import DelaysVersion
from migrator.nservicebus.timeouts import BatchId, EndpointName, TimeoutId
from migrator.verify.report import Discrepancy

SCHEMA: Final = "migrator/evidence/1"
_LONGEST_SHOWN: Final = 60


class Word(StrEnum):
    """What was found of a timeout when nothing is wrong with it. Public: codes are stable."""

    AGREES = "agrees"
    """It is as the ledger says, as far as its state can be looked at."""
    LEFT = "left"
    """It was handed over and is due by now: nobody can look at it any more."""
    NOT_LOOKED = "not_looked"
    """It should be in a level; nobody looked into the levels."""
    NOT_SEEN = "not_seen"
    """It should be in a level and was not seen, but that does not prove that it is missing."""


class NoLine(ValueError):
    """The text is not a line that ``build_line`` wrote."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """One timeout."""

    id: int
    """The ledger's own, ascending."""
    endpoint: EndpointName
    source: str
    timeout_id: TimeoutId
    batch: BatchId
    row_index: int
    destination: str | None
    due_at: datetime
    """Aware, UTC."""
    state: str
    reason: str | None
    content_hash: str
    is_intact: bool
    delays: DelaysVersion | None
    """In which generation its message was seen; None: nobody looked, or it was not seen."""
    level: int | None
    verdict: Word | Discrepancy


def build_line(line: Line) -> bytes:
    """Return *line* as JSON."""
    return build_document(
        {
            "id": line.id,
            "endpoint": line.endpoint,
            "source": line.source,
            "timeout_id": line.timeout_id,
            "batch": line.batch,
            "row_index": line.row_index,
            "destination": line.destination,
            "due_at": line.due_at.isoformat(),
            "state": line.state,
            "reason": line.reason,
            "content_hash": line.content_hash,
            "is_intact": line.is_intact,
            "delays": line.delays and str(line.delays),
            "level": line.level,
            "verdict": str(line.verdict),
        }
    )


def build_document(document: Mapping[str, object]) -> bytes:
    """Return any line of the file: its first, its last, or one of a timeout."""
    return json.dumps(document, separators=(",", ":")).encode("ascii") + b"\n"


def parse_document(raw: bytes) -> Mapping[str, Any]:
    """Return what any line of the file holds.

    Raises:
        NoLine: It is not a JSON object.
    """
    try:
        found = json.loads(raw)
    except ValueError as exc:
        raise NoLine(f"{raw[:_LONGEST_SHOWN]!r} is not JSON") from exc
    if not isinstance(found, dict):
        raise NoLine(f"{raw[:_LONGEST_SHOWN]!r} is not an object")
    return found


def parse_line(document: Mapping[str, Any]) -> Line:
    """Return the line that *document* was read from.

    Raises:
        NoLine: Something is missing or of another kind.
    """
    try:
        return Line(
            id=int(document["id"]),
            endpoint=EndpointName(str(document["endpoint"])),
            source=str(document["source"]),
            timeout_id=TimeoutId(str(document["timeout_id"])),
            batch=BatchId(int(document["batch"])),
            row_index=int(document["row_index"]),
            destination=_text(document["destination"]),
            due_at=datetime.fromisoformat(document["due_at"]),
            state=str(document["state"]),
            reason=_text(document["reason"]),
            content_hash=str(document["content_hash"]),
            is_intact=bool(document["is_intact"]),
            delays=None if document["delays"] is None else DelaysVersion(document["delays"]),
            level=None if document["level"] is None else int(document["level"]),
            verdict=_verdict(str(document["verdict"])),
        )
    except (KeyError, TypeError, ValueError) as exc:
        raise NoLine(f"not a timeout's line: {type(exc).__name__} {exc}") from exc


def _text(value: object) -> str | None:
    return None if value is None else str(value)


def _verdict(value: str) -> Word | Discrepancy:
    try:
        return Word(value)
    except ValueError:
        return Discrepancy(value)
