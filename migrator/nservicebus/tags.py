"""The tag each of our messages carries in ``app-id``: which row of which attempt it is.

``migrator/<ledger id>/<batch>.<attempt>.<row index>``, with ``receipt`` in place of the index
for the message that proves a commit. NServiceBus neither sets nor reads ``app-id``.
Source: design section 5.2.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from migrator.nservicebus.timeouts import BatchId

TAG: Final = b"migrator/"
"""What every tag begins with, as it is on the wire."""
_RECEIPT: Final = "receipt"
_FORM: Final = re.compile(r"migrator/([0-9a-z]{1,40})/(\d{1,18})\.(\d{1,9})\.(\d{1,9}|receipt)")


class UnknownTag(ValueError):
    """The text is no tag of migrator: the message is foreign."""


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class Attempt:
    """One attempt at handing over one batch."""

    batch: BatchId
    number: int


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageTag:
    """Which message of which attempt; ``row_index`` is None for the receipt."""

    ledger_id: str
    attempt: Attempt
    row_index: int | None


def build_tag(ledger_id: str, attempt: Attempt, row_index: int | None) -> str:
    """Return the ``app-id`` of a row's message, or of the receipt when *row_index* is None."""
    return f"{tag_of_rows(ledger_id, attempt)}{_RECEIPT if row_index is None else row_index}"


def tag_of_rows(ledger_id: str, attempt: Attempt) -> str:
    """Return what the tags of all rows of *attempt* begin with; the row index follows."""
    return f"migrator/{ledger_id}/{attempt.batch}.{attempt.number}."


def parse_tag(app_id: str | None) -> MessageTag:
    """Return the tag that *app_id* was built from.

    Raises:
        UnknownTag: It was not built by ``build_tag``.
    """
    found = _FORM.fullmatch(app_id or "")
    if found is None:
        raise UnknownTag(f"app-id {(app_id or '')[:80]!a} is not a tag of migrator")
    return _tag(found)


def _tag(found: re.Match[str]) -> MessageTag:
    ledger_id, batch, attempt, last = found.groups()
    return MessageTag(
        ledger_id=ledger_id,
        attempt=Attempt(batch=BatchId(int(batch)), number=int(attempt)),
        row_index=None if last == _RECEIPT else int(last),
    )


def find_tag(app_id: str | None, ledger_id: str) -> MessageTag | None:
    """Return the tag in *app_id*; None: it is none of the ledger *ledger_id*."""
    found = _FORM.fullmatch(app_id or "")
    return None if found is None or found[1] != ledger_id else _tag(found)
