"""Count what a migration would do, endpoint by endpoint, without changing anything.

Only ``Store.survey`` is used, which takes no locks. The rules are those of the migration itself:
``Selection`` decides which rows, ``convert`` what becomes of each.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Final, TypeVar

from migrator.delays.routing import delay_s, entry_level
from migrator.ledger.work import StoreEndpoint
from migrator.nservicebus import headers as h
from migrator.nservicebus.conversion import BrokerLimits, Quarantine, Reason, convert, due_offset
from migrator.nservicebus.timeouts import NativeMessage, StoredTimeout, TimeoutId
from migrator.preview.report import span_of
from migrator.stores.due_times import zone_offset
from migrator.stores.endpoints import EndpointPreview, Quarantinable, Selection
from migrator.stores.ports import Store, SurveyedRow

_Key = TypeVar("_Key", str, Reason)

_EXAMPLES: Final = 3
_MOST_REPLY_QUEUES: Final = 1000


def survey(
    store: Store,
    endpoint: StoreEndpoint,
    *,
    selection: Selection,
    rules: BrokerLimits,
    now: datetime,
    progress: Callable[[int], None] = lambda _rows: None,
    max_rows: int | None = None,
) -> EndpointPreview:
    """Return what would become of each row of *endpoint*, or of its first *max_rows* or so.

    Args:
        store: Where the rows are.
        endpoint: Whose rows.
        selection: Cutoff and horizon.
        rules: Limits of the broker, and renamed destinations.
        now: Database time; one moment for all rows.
        progress: Called with the number of rows of each chunk that was read.
        max_rows: Stop after the chunk that reaches this number; None: all of them.

    Raises:
        StoreUnavailable: The database cannot be reached, or went away half-way.
    """
    tally = _Tally(endpoint, selection=selection, rules=rules, now=now)
    found = tally.found
    for rows in store.survey(endpoint):
        for row in rows:
            tally.count(row)
        progress(len(rows))
        if max_rows is not None and found.stored >= max_rows:
            found.is_complete = False
            break
    return found


class _Tally:
    """Adds up rows, one at a time, in a memory that does not grow with their number."""

    def __init__(
        self, endpoint: StoreEndpoint, *, selection: Selection, rules: BrokerLimits, now: datetime
    ) -> None:
        self._rules = rules
        self._now = now
        self._after, self._until = selection.future(now)
        self._takes_overdue = selection.takes_overdue
        self.found = EndpointPreview(endpoint=endpoint.name, source=endpoint.source)

    def count(self, row: SurveyedRow) -> None:
        """Take *row* into every sum it belongs to."""
        found, due_at = self.found, row.due_at
        found.stored += 1
        if due_at is not None:
            self._count_due(due_at, row.headers_text)
        if row.why_unclaimable is not None:
            _count_one(found.unclaimable, row.why_unclaimable, row.id)
        if row.is_in_ledger:
            found.in_ledger += 1
        elif due_at is None:
            found.without_due_time += 1
        elif due_at > self._until:
            found.beyond_horizon += 1
        elif due_at > self._after or self._takes_overdue:
            found.to_migrate += 1
            self._count_fate(row, due_at)
        else:
            found.left += 1

    def _count_due(self, due_at: datetime, headers_text: str | None) -> None:
        self.found.due[span_of(due_at - self._now)] += 1
        self.found.overdue += due_at <= self._now
        offset = zone_offset(due_offset(due_at, headers_text))
        if offset is not None:
            self.found.zone_offsets[offset] += 1

    def _count_fate(self, row: SurveyedRow, due_at: datetime) -> None:
        found, fate = self.found, self._converted(row, due_at)
        if isinstance(fate, Quarantine):
            _count_one(found.quarantine, fate.reason, fate.timeout_id, fate.detail)
            return
        found.destinations[fate.destination] += 1
        queue = str(fate.headers.get(h.CALLBACK_QUEUE) or fate.reply_to or "")
        if queue and (queue in found.reply_queues or len(found.reply_queues) < _MOST_REPLY_QUEUES):
            found.reply_queues[queue] += 1
        found.unmeasured += row.body_bytes is None
        found.bytes += (row.body_bytes or 0) + len(row.headers_text or "")
        delay = delay_s(fate.due_at, now=self._now)
        if delay:
            found.entry_levels[entry_level(delay)] += 1

    def _converted(self, row: SurveyedRow, due_at: datetime) -> NativeMessage | Quarantine:
        timeout = StoredTimeout(
            id=TimeoutId(row.id),
            row_index=0,
            destination=row.destination,
            due_at=due_at,
            body=b"",
            headers_text=row.headers_text,
        )
        found = convert(timeout, rules=self._rules, now=self._now)
        limit = self._rules.body_max_bytes
        if isinstance(found, Quarantine) or (row.body_bytes or 0) <= limit:
            return found
        return Quarantine(
            row_index=0,
            timeout_id=timeout.id,
            reason=Reason.BODY_TOO_LARGE,
            detail=f"{row.body_bytes} bytes; the broker takes {limit}",
        )


def _count_one(
    entries: dict[_Key, Quarantinable], key: _Key, timeout: str, detail: str = ""
) -> None:
    entry = entries.setdefault(key, Quarantinable(detail=detail))
    entry.count += 1
    if len(entry.examples) < _EXAMPLES:
        entry.examples.append(timeout)
