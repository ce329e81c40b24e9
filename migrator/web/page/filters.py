"""Which rows of the quarantine a page shows, as an address has it."""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import urlencode

from starlette.exceptions import HTTPException

from migrator.ledger.report import QuarantineFilter
from migrator.nservicebus.conversion import Reason


def address_of(which: QuarantineFilter, after: int = 0) -> str:
    """Return where those rows are shown whose key is above *after*."""
    given = {"endpoint": which.endpoint, "reason": which.reason, "after": after or None}
    query = urlencode({key: value for key, value in given.items() if value is not None})
    return "/page/quarantine" + (f"?{query}" if query else "")


def filter_of(given: Mapping[str, str]) -> QuarantineFilter:
    """Return what *given* asks for; empty: all."""
    reason = given.get("reason") or None
    if reason is not None and reason not in set(Reason):
        raise HTTPException(400, "there is no such reason")
    return QuarantineFilter(endpoint=given.get("endpoint") or None, reason=reason)


def number_of(given: Mapping[str, str], key: str) -> int:
    """Return a number that is not negative; 0 when it is not given."""
    text = given.get(key, "0")
    if not text.isascii() or not text.isdigit() or len(text) > 18:
        raise HTTPException(400, f"{key} must be a number")
    return int(text)
