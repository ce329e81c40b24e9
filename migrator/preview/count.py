"""Count what a migration would do, endpoint by endpoint, without changing anything.

Only ``Store.survey`` is used, which takes no locks. The rules are those of the migration itself:
``Selection`` decides which rows, ``convert`` what becomes of each.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Final

from migrator.delays.routing import delay_s, entry_level
from migrator.ledger.work import StoreEndpoint
from migrator.nservicebus import headers as h
from migrator.nservicebus.conversion import BrokerLimits, Quarantine, Reason, convert, due_offset
from migrator.nservicebus.timeouts import NativeMessage, QueueName, StoredTimeout, TimeoutId
from migrator.preview.report import span_of
from migrator.stores.due_times import zone_offset
from migrator.stores.endpoints import EndpointPreview, Quarantinable, Selection
from migrator.stores.ports import Store, SurveyedRow

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
    tally = _Tally(selection=selection, rules=rules, now=now)
    for rows in store.survey(endpoint):
        for row in rows:
            tally.count(row)
        progress(len(rows))
        if max_rows is not None and tally.stored >= max_rows:
            return tally.preview(endpoint, is_complete=False)
    return tally.preview(endpoint, is_complete=True)


class _Tally:
    """Adds up rows, one at a time, in a memory that does not grow with their number."""

    def __init__(self, *, selection: Selection, rules: BrokerLimits, now: datetime) -> None:
        self._rules = rules
        self._now = now
        self._after, self._until = selection.future(now)
        self._takes_overdue = selection.takes_overdue
        self._rows: Counter[str] = Counter()
        self._bytes = 0
        self._quarantine: defaultdict[Reason, Quarantinable] = defaultdict(Quarantinable)
        self._destinations: Counter[QueueName] = Counter()
        self._due: Counter[str] = Counter()
        self._zones: Counter[timedelta] = Counter()
        self._levels: Counter[int] = Counter()
        self._reply_queues: Counter[str] = Counter()
        self._unclaimable: defaultdict[str, Quarantinable] = defaultdict(Quarantinable)

    @property
    def stored(self) -> int:
        """How many rows were counted."""
        return self._rows["stored"]

    def count(self, row: SurveyedRow) -> None:
        """Take *row* into every sum it belongs to."""
        self._rows["stored"] += 1
        if row.due_at is not None:
            self._count_due(row.due_at, row.headers_text)
        if row.why_unclaimable is not None:
            _count_one(self._unclaimable[row.why_unclaimable], row.id)
        kind = self._kind(row)
        self._rows[kind] += 1
        if kind == "to_migrate" and row.due_at is not None:
            self._count_fate(row, row.due_at)

    def _kind(self, row: SurveyedRow) -> str:
        if row.is_in_ledger:
            return "in_ledger"
        if row.due_at is None:
            return "without_due_time"
        if row.due_at > self._until:
            return "beyond_horizon"
        if row.due_at > self._after or self._takes_overdue:
            return "to_migrate"
        return "left"

    def _count_due(self, due_at: datetime, headers_text: str | None) -> None:
        self._due[span_of(due_at - self._now)] += 1
        self._rows["overdue"] += due_at <= self._now
        offset = zone_offset(due_offset(due_at, headers_text))
        if offset is not None:
            self._zones[offset] += 1

    def _count_fate(self, row: SurveyedRow, due_at: datetime) -> None:
        found = self._converted(row, due_at)
        if isinstance(found, Quarantine):
            self._count_quarantine(found)
            return
        self._destinations[found.destination] += 1
        self._count_replies(found)
        self._rows["unmeasured"] += row.body_bytes is None
        self._bytes += (row.body_bytes or 0) + len(row.headers_text or "")
        delay = delay_s(found.due_at, now=self._now)
        if delay:
            self._levels[entry_level(delay)] += 1

    def _count_replies(self, found: NativeMessage) -> None:
        queue = found.headers.get(h.CALLBACK_QUEUE) or found.reply_to
        if queue and (queue in self._reply_queues or len(self._reply_queues) < _MOST_REPLY_QUEUES):
            self._reply_queues[str(queue)] += 1

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

    def _count_quarantine(self, found: Quarantine) -> None:
        entry = self._quarantine[found.reason]
        entry.detail = entry.detail or found.detail
        _count_one(entry, found.timeout_id)

    def preview(self, endpoint: StoreEndpoint, *, is_complete: bool) -> EndpointPreview:
        """Return the sums."""
        return EndpointPreview(
            endpoint=endpoint.name,
            source=endpoint.source,
            is_complete=is_complete,
            stored=self.stored,
            in_ledger=self._rows["in_ledger"],
            without_due_time=self._rows["without_due_time"],
            left=self._rows["left"],
            beyond_horizon=self._rows["beyond_horizon"],
            to_migrate=self._rows["to_migrate"],
            overdue=self._rows["overdue"],
            quarantine=dict(self._quarantine),
            destinations=dict(self._destinations),
            due=dict(self._due),
            zone_offsets=dict(self._zones),
            bytes=self._bytes,
            entry_levels=dict(self._levels),
            unclaimable=dict(self._unclaimable),
            reply_queues=dict(self._reply_queues),
            unmeasured=self._rows["unmeasured"],
        )


def _count_one(entry: Quarantinable, timeout: str) -> None:
    entry.count += 1
    if len(entry.examples) < _EXAMPLES:
        entry.examples.append(timeout)
