"""What an operator decides about rows in quarantine, by the command line or in a daemon."""

from __future__ import annotations

import base64
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Final

from migrator.ledger.report import QuarantinedRow, QuarantinedTimeout, QuarantineFilter
from migrator.ledger.states import Mode

if TYPE_CHECKING:  # the command line waits for no database before it needs one
    from migrator.quarantine.rows import SqlQuarantine
    from migrator.stores.ports import Claims

RETRIED: Final = "quarantine_retried"
DISCARDED: Final = "quarantine_discarded"
EXPORT_HEADER: Final = {"schema": "migrator/quarantine-export/1"}
"""The first line of an export."""


@dataclass(frozen=True, slots=True, kw_only=True)
class QuarantineDecision:
    """What was done with rows in quarantine; the caller records it as an event."""

    event: str
    which: QuarantineFilter
    rows: int
    returned: int = 0
    """Rows among them that are in their tables again, for a dispatcher."""

    @property
    def detail(self) -> Mapping[str, object]:
        """What the audit trail keeps."""
        named = self.which.endpoints
        return {
            "endpoint": None if named is None else ", ".join(sorted(named)),
            "reason": self.which.reason,
            "id": self.which.timeout_id,
            "rows": self.rows,
        }


def retry(
    quarantine: SqlQuarantine, claims: Claims, which: QuarantineFilter, *, mode: Mode
) -> QuarantineDecision:
    """Put rows of a dispatcher back into their tables, and all others into new batches."""
    returned = claims.release_quarantined(None, replace(which, mode=Mode.DISPATCH))
    rows = returned + quarantine.retry(which, mode=mode)
    return QuarantineDecision(event=RETRIED, which=which, rows=rows, returned=returned)


def discard(quarantine: SqlQuarantine, which: QuarantineFilter) -> QuarantineDecision:
    """Let rows never be sent."""
    return QuarantineDecision(event=DISCARDED, which=which, rows=quarantine.discard(which))


def exported(quarantine: SqlQuarantine, which: QuarantineFilter) -> Iterator[Mapping[str, object]]:
    """Yield a document for each row, in the order of the ledger; they are read page by page."""
    after = 0
    while page := quarantine.full(which, after=after):
        yield from map(timeout_document, page)
        after = page[-1].row.key


def row_document(row: QuarantinedRow) -> Mapping[str, object]:
    """Return a row without its content."""
    document = asdict(row)
    del document["key"]
    return document | {"id": document.pop("timeout_id")}


def timeout_document(found: QuarantinedTimeout) -> Mapping[str, object]:
    """Return a row with everything the store had; its body is in base64."""
    document = asdict(replace(found, body=None))
    body = None if found.body is None else base64.b64encode(found.body).decode("ascii")
    del document["row"], document["body"]
    return {**row_document(found.row), **document, "body_base64": body}
