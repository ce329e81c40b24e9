"""Count what a migration would do, endpoint by endpoint, without changing anything.

The rules are those of the migration itself: ``Selection`` decides which rows, ``convert`` what
becomes of each. A SQL database counts by itself, which is many times as fast as converting: by
destination and by spans of due times whose ends are all that matters, such as cutoff, horizon and
the delays at which a higher level begins. Then these rows are converted:

* those that look odd, by their sizes, headers or destination: what becomes of them is counted;
* those due so near the beginning of a level that their own header decides about it;
* a sample of the others, one of each kind first. What it finds is never told as a sum.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Final, TypeVar

from migrator.database.failures import is_of_row
from migrator.delays.routing import delay_s, entry_level
from migrator.ledger.work import StoreEndpoint
from migrator.nservicebus import headers as h
from migrator.nservicebus.conversion import (
    BrokerLimits,
    Quarantine,
    Reason,
    convert,
    destination_of,
    due_offset,
    is_internal,
    unusable_in_name,
    utf8_bytes,
)
from migrator.nservicebus.timeouts import (
    BITS,
    MAX_QUEUE_NAME_BYTES,
    NativeMessage,
    QueueName,
    StoredTimeout,
    TimeoutId,
)
from migrator.preview.report import SPANS, span_of
from migrator.stores.due_times import zone_offset
from migrator.stores.endpoints import EndpointPreview, Quarantinable, Sample, Selection
from migrator.stores.ports import Store
from migrator.stores.requests import RowGroup, ScannedRow, SummaryRequest
from migrator.text import counted, grouped

if TYPE_CHECKING:  # only stores in a SQL database have one
    from migrator.stores.sql.summary import TableSummary

_Key = TypeVar("_Key", str, Reason)

SAMPLE_ROWS: Final = 1000
"""Converted of an endpoint; one that has no more of them is converted as a whole."""
_EXAMPLES: Final = 3
_MOST_REPLY_QUEUES: Final = 1000
_ROUNDING: Final = timedelta(seconds=1)
"""By so much a row's own header may refine its due column."""
_ADDED_BYTES: Final = 4096
"""More than a header frame has beside what is stored."""
_MOST_UTF8: Final = 3
"""Bytes of UTF-8 for each that a database keeps, in whatever character set."""


def scan(
    store: Store,
    endpoint: StoreEndpoint,
    *,
    selection: Selection,
    rules: BrokerLimits,
    now: datetime,
    progress: Callable[[int], None] = lambda _rows: None,
    max_rows: int | None = None,
    is_exact: bool = True,
) -> EndpointPreview:
    """Return what would become of each row of *endpoint*, or of its first *max_rows* or so.

    Args:
        store: Where the rows are.
        endpoint: Whose rows.
        selection: Cutoff and horizon.
        rules: Limits of the broker, and renamed destinations.
        now: Database time; one moment for all rows.
        progress: Called with the number of rows of each chunk that was read or counted.
        max_rows: Stop after the chunk that reaches this number; None: all of them.
        is_exact: Convert every row; else have the database count, if it can and they are many.

    Raises:
        StoreUnavailable: The database cannot be reached, or went away half-way.
    """
    tally = _Tally(endpoint, selection=selection, rules=rules, now=now)
    if not is_exact:
        opened = store.summary(endpoint, _request(selection, rules, now, max_rows))
        try:
            if opened is not None and _count_in_database(opened, tally, progress):
                return tally.found
        except Exception as exc:
            if not is_of_row(exc):
                raise
            # a row cannot be read: each is read by itself, and the odd ones say so
            tally = _Tally(endpoint, selection=selection, rules=rules, now=now)
    found = tally.found
    for rows in store.scan(endpoint):
        for row in rows:
            tally.count(row)
        progress(len(rows))
        if max_rows is not None and found.stored >= max_rows:
            found.is_complete = False
            break
    return found


def _request(
    selection: Selection, rules: BrokerLimits, now: datetime, max_rows: int | None
) -> SummaryRequest:
    """Return which rows are to migrate, and which sizes are odd."""
    after, until = selection.future(now)
    room = rules.frame_max_bytes - rules.x_death_reserve_bytes - _ADDED_BYTES
    return SummaryRequest(
        due_after=None if selection.takes_overdue else after,
        due_until=until,
        headers_max_bytes=room // _MOST_UTF8 if rules.frame_max_bytes else None,
        body_max_bytes=rules.body_max_bytes,
        max_rows=max_rows,
    )


def _count_in_database(
    opened: AbstractContextManager[TableSummary], tally: _Tally, progress: Callable[[int], None]
) -> bool:
    """Count what the database counts, and convert what it cannot judge.

    Returns whether that was done; False: there are so few rows that all can be converted.
    """
    spans = _Spans(tally)
    with opened as summary:
        groups = summary.groups(spans.ends)
        rows = sum(group.rows for group in groups)
        if rows <= SAMPLE_ROWS:
            return False
        tally.found.is_complete = summary.is_whole
        strange, plain, near = set[str](), list[RowGroup](), set[int]()
        has_odd = False
        for group in groups:
            due_at = spans.due_at(group.slot)
            tally.found.count_due(group.first_due, group.last_due)
            if not tally.count_fate(due_at, rows=group.rows, is_in_ledger=group.is_in_ledger):
                continue
            name = tally.destination(group.destination)
            if group.is_odd or name is None:
                has_odd = True
                if name is None and group.destination is not None:
                    strange.add(group.destination)
            elif group.slot in spans.near:
                near.add(group.slot)
            else:
                tally.count_plain(name, due_at, group)
                plain.append(group)
        for chunk in summary.odd_rows(strange) if has_odd else ():
            tally.convert_all(chunk)
        for slot in sorted(near):
            for chunk in summary.rows_due(*spans.limits(slot), not_for=strange):
                tally.convert_all(chunk)
        tally.convert_sample(_sample(summary, plain, strange))
    progress(rows)
    return True


def _sample(
    summary: TableSummary, groups: Sequence[RowGroup], strange: set[str]
) -> Iterable[ScannedRow]:
    """Return a row of each group, or of as many groups as there may be, and others beside them."""
    ids = [group.an_id for group in sorted(groups, key=lambda g: (g.slot, g.destination))]
    chosen = (
        ids
        if len(ids) <= SAMPLE_ROWS
        else [ids[place * len(ids) // SAMPLE_ROWS] for place in range(SAMPLE_ROWS)]
    )
    found = {row.id: row for row in summary.rows_called(chosen)}
    if groups and len(found) < SAMPLE_ROWS:
        found |= {row.id: row for row in summary.sample_rows(SAMPLE_ROWS, not_for=strange)}
    return list(found.values())[:SAMPLE_ROWS]


class _Spans:
    """Spans of due times in which every row has the same fate, step and level."""

    def __init__(self, tally: _Tally) -> None:
        now = tally.now
        begins = [now + timedelta(seconds=2**bit - 1) for bit in range(BITS)]
        """Of each level: the longest delay of the one below, or none."""
        around = [(each - _ROUNDING, each + _ROUNDING) for each in begins]
        fixed = [now, tally.after, tally.until, *(now + span for _, span in SPANS)]
        self.ends: Sequence[datetime] = sorted({*fixed, *(end for ends in around for end in ends)})
        self.near = {
            slot
            for slot, end in enumerate(self.ends)
            if any(first < end <= last for first, last in around)
        }
        """Where a row's own header decides which level it enters."""

    def due_at(self, slot: int | None) -> datetime | None:
        """Return a moment that stands for all of a span; None: for rows without due time."""
        if slot is None:
            return None
        return self.ends[slot] if slot < len(self.ends) else self.ends[-1] + _ROUNDING

    def limits(self, slot: int) -> tuple[datetime, datetime]:
        """Return a span (exclusive, inclusive), which is neither the first nor the last."""
        return self.ends[slot - 1], self.ends[slot]


class _Tally:
    """Adds up rows in a memory that does not grow with their number."""

    def __init__(
        self, endpoint: StoreEndpoint, *, selection: Selection, rules: BrokerLimits, now: datetime
    ) -> None:
        self._rules = rules
        self.now = now
        self.after, self.until = selection.future(now)
        self._takes_overdue = selection.takes_overdue
        self.found = EndpointPreview(endpoint=endpoint.name, source=endpoint.source)

    def count(self, row: ScannedRow) -> None:
        """Take *row* into every sum it belongs to."""
        self._count_offset(row)
        self.found.count_due(row.due_at)
        if row.why_unclaimable is not None:
            _count_one(self.found.unclaimable, row.why_unclaimable, row.id)
        if self.count_fate(row.due_at, rows=1, is_in_ledger=row.is_in_ledger):
            self.convert_all([row])

    def count_fate(self, due_at: datetime | None, *, rows: int, is_in_ledger: bool) -> bool:
        """Count *rows* that are due at the same moment; return whether they are to migrate."""
        found = self.found
        found.stored += rows
        if due_at is not None:
            found.due[span_of(due_at - self.now)] += rows
            found.overdue += rows * (due_at <= self.now)
        if is_in_ledger:
            found.in_ledger += rows
        elif due_at is None:
            found.without_due_time += rows
        elif due_at > self.until:
            found.beyond_horizon += rows
        elif due_at > self.after or self._takes_overdue:
            found.to_migrate += rows
            return True
        else:
            found.left += rows
        return False

    def count_plain(self, name: QueueName, due_at: datetime | None, group: RowGroup) -> None:
        """Count rows that go to *name*, and of which nothing else has to be known."""
        self._count_destination(name, group.destination, group.rows)
        self.found.bytes += group.bytes
        if due_at is not None:
            self._count_level(due_at, group.rows)

    def destination(self, column: str | None) -> QueueName | None:
        """Return where rows go whose column says so; None: each row has to be looked at."""
        name = destination_of(column, {}, self._rules.destination_map)
        is_usable = unusable_in_name(name) is None and not is_internal(name)
        return name if is_usable and 0 < utf8_bytes(name) <= MAX_QUEUE_NAME_BYTES else None

    def convert_all(self, rows: Iterable[ScannedRow]) -> None:
        """Count what would become of *rows*, which are to migrate and counted as that."""
        found = self.found
        for row in rows:
            fate = self._converted(row)
            if isinstance(fate, Quarantine):
                _count_one(found.quarantine, fate.reason, fate.timeout_id, fate.detail)
                continue
            self._count_destination(fate.destination, row.destination, 1)
            self._count_reply_queue(fate)
            found.unmeasured += row.body_bytes is None
            found.bytes += (row.body_bytes or 0) + utf8_bytes(row.headers_text or "")
            self._count_level(fate.due_at, 1)

    def convert_sample(self, rows: Iterable[ScannedRow]) -> None:
        """Note what conversion finds in *rows*, which are counted already."""
        sample = self.found.sample = Sample()
        for row in rows:
            sample.rows += 1
            self._count_offset(row)
            fate = self._converted(row)
            if isinstance(fate, Quarantine):
                _count_one(sample.quarantine, fate.reason, fate.timeout_id, fate.detail)
            else:
                self._count_reply_queue(fate)

    def _count_destination(self, name: QueueName, column: str | None, rows: int) -> None:
        self.found.destinations[name] += rows
        if column is not None and "@" in column:
            queue = h.queue_part(column)
            if queue and queue not in self._rules.destination_map:
                self.found.machine_addresses[column] += rows

    def _count_offset(self, row: ScannedRow) -> None:
        if row.due_at is not None:
            offset = zone_offset(due_offset(row.due_at, row.headers_text))
            if offset is not None:
                self.found.zone_offsets[offset] += 1

    def _count_reply_queue(self, fate: NativeMessage) -> None:
        queues = self.found.reply_queues
        queue = str(fate.headers.get(h.CALLBACK_QUEUE) or fate.reply_to or "")
        if queue and (queue in queues or len(queues) < _MOST_REPLY_QUEUES):
            queues[queue] += 1

    def _count_level(self, due_at: datetime, rows: int) -> None:
        delay = delay_s(due_at, now=self.now)
        if delay:
            self.found.entry_levels[entry_level(delay)] += rows

    def _converted(self, row: ScannedRow) -> NativeMessage | Quarantine:
        if row.why_unreadable is not None:
            return Quarantine(
                row_index=0,
                timeout_id=TimeoutId(row.id),
                reason=Reason.UNPROCESSABLE,
                detail=row.why_unreadable,
            )
        timeout = StoredTimeout(
            id=TimeoutId(row.id),
            row_index=0,
            destination=row.destination,
            due_at=row.due_at or self.now,
            body=b"",
            headers_text=row.headers_text,
        )
        found = convert(timeout, rules=self._rules, now=self.now)
        limit = self._rules.body_max_bytes
        if isinstance(found, Quarantine) or (row.body_bytes or 0) <= limit:
            return found
        return Quarantine(
            row_index=0,
            timeout_id=timeout.id,
            reason=Reason.BODY_TOO_LARGE,
            detail=f"{counted(row.body_bytes or 0, 'byte')}; the broker takes {grouped(limit)}",
        )


def _count_one(
    entries: dict[_Key, Quarantinable], key: _Key, timeout: str, detail: str = ""
) -> None:
    entry = entries.setdefault(key, Quarantinable(detail=detail))
    entry.count += 1
    if len(entry.examples) < _EXAMPLES:
        entry.examples.append(timeout)
