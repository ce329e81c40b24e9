"""The mark each of our messages carries in ``app-id``: which row of which pass it is.

``migrator/<ledger id>/<batch>.<attempt>.<row index>``, with ``receipt`` in place of the index
for the message that proves a commit. NServiceBus neither sets nor reads ``app-id``.
Source: design section 5.2.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from migrator.nservicebus.timeouts import BatchId, TimeoutId

_RECEIPT: Final = "receipt"
_FORM: Final = re.compile(r"migrator/([0-9a-z]{1,40})/(\d{1,18})\.(\d{1,9})\.(\d{1,9}|receipt)")


class ForeignMark(ValueError):
    """The text is not a mark of ours: somebody else's message."""


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class Pass:
    """One attempt at handing over one batch."""

    batch: BatchId
    attempt: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Mark:
    """Which message of which pass; ``row_index`` is None for the receipt."""

    ledger_id: str
    batch_pass: Pass
    row_index: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class RowMark:
    """Which row of the ledger a message is, by its mark and by the timeout it says it is."""

    batch: BatchId
    row_index: int
    timeout_id: TimeoutId


def build_mark(ledger_id: str, batch_pass: Pass, row_index: int | None) -> str:
    """Return the ``app-id`` of a row's message, or of the receipt when *row_index* is None."""
    last = _RECEIPT if row_index is None else row_index
    return f"migrator/{ledger_id}/{batch_pass.batch}.{batch_pass.attempt}.{last}"


def parse_mark(app_id: str | None) -> Mark:
    """Return the mark that *app_id* was built from.

    Raises:
        ForeignMark: It was not built by ``build_mark``.
    """
    found = _FORM.fullmatch(app_id or "")
    if found is None:
        raise ForeignMark(f"app-id {(app_id or '')[:80]!a} is no mark of ours")
    ledger_id, batch, attempt, last = found.groups()
    return Mark(
        ledger_id=ledger_id,
        batch_pass=Pass(batch=BatchId(int(batch)), attempt=int(attempt)),
        row_index=None if last == _RECEIPT else int(last),
    )


def row_mark(app_id: str | None, timeout_id: object, *, ledger_id: str) -> RowMark | None:
    """Return which row of the ledger *ledger_id* a message is; None: it is nobody's we know.

    Only what migrator itself published bears the mark. The id alone proves nothing: a timeout
    manager writes it as well, and a delayed retry of what was delivered long ago still has it.

    Args:
        app_id: The message's.
        timeout_id: Its header ``NServiceBus.RelatedToTimeoutId``.
        ledger_id: Ours.
    """
    try:
        mark = parse_mark(app_id)
    except ForeignMark:
        return None
    if mark.ledger_id != ledger_id or mark.row_index is None:
        return None
    if not isinstance(timeout_id, str) or not timeout_id:
        return None
    return RowMark(
        batch=mark.batch_pass.batch,
        row_index=mark.row_index,
        timeout_id=TimeoutId(timeout_id),
    )
