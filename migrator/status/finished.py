"""Which endpoints of a daemon are finished: noted when it becomes so, and when it ends.

Rules of this file: the tables are counted only of endpoints that are quiet, and seldom; first the
table and then the ledger, so that no row is between the two; what cannot be read changes nothing.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from migrator.errors import MigratorError, StoreError
from migrator.ledger.queries import LedgerQueries
from migrator.ledger.report import EndpointProgress, Progress
from migrator.ledger.work import StoreEndpoint
from migrator.nservicebus.timeouts import EndpointName
from migrator.status.remaining import (
    Remaining,
    RemainingReader,
    finished_text,
    is_finished,
    left_text,
    needs_attention,
)
from migrator.stores.endpoints import Selection
from migrator.text import counted, grouped

_log = logging.getLogger(__name__)

CHECK_EVERY: Final = timedelta(seconds=3)
QUIET_S: Final = 10.0
"""Nothing was claimed or settled for so long: then rows do not just come one by one."""
_COUNT_EVERY_S: Final = 30.0
"""A table is counted again after so long, while its endpoint is quiet."""


@dataclass(slots=True)
class _Seen:
    """One endpoint."""

    progress: EndpointProgress | None = None
    changed_s: float = float("-inf")
    count_at_s: float = float("-inf")
    remaining: Remaining | None = None
    is_finished: bool = False
    finished_at: datetime | None = None
    """When the progress was read by which it is finished, in database time."""
    needs_attention: bool = False

    def is_to_be_counted(self, now_s: float) -> bool:
        """Return whether nothing happens, and the table was not counted lately."""
        is_still = self.progress is None or not self.progress.in_flight
        return is_still and now_s >= max(self.changed_s + QUIET_S, self.count_at_s)


@dataclass(frozen=True, slots=True, kw_only=True)
class EndpointEnd:
    """One endpoint at the end of its work, or at the end of a run."""

    endpoint: EndpointName
    progress: EndpointProgress | None
    remaining: Remaining | None
    """None: it could not be counted, or its rows are not moved."""
    is_finished: bool
    locked: int = 0
    """Rows that were left because other transactions have them locked."""

    @property
    def counts(self) -> EndpointProgress:
        """What the ledger has of it, which may be no row."""
        return self.progress or EndpointProgress(endpoint=self.endpoint, rows={})

    @property
    def text(self) -> str:
        """Return it in sentences."""
        if self.is_finished and self.remaining is not None:
            return finished_text(self.progress, self.remaining)
        now = self.counts
        done = f"{grouped(now.handed_over)} moved"
        if now.dispatched:
            done += f", {grouped(now.dispatched)} sent when due"
        open_rows = [
            (now.in_flight, "in flight"),
            (now.parked, "parked"),
            (now.doubtful, "doubtful"),
            (now.quarantined, "in quarantine"),
            (self.remaining.to_move if self.remaining else 0, "still to move"),
        ]
        rest = ", ".join(f"{grouped(rows)} {what}" for rows, what in open_rows if rows)
        left = f" {left_text(self.remaining)}" if self.remaining and self.remaining.left else ""
        if self.locked:
            left += (
                f" {counted(self.locked, 'row is', 'rows are')} locked by other transactions; run "
                "it again once these have ended."
            )
        return f"{done}; {rest}.{left}" if rest else f"{done}.{left}"


class FinishWatch:
    """Knows of each endpoint whose rows are moved whether anything is left to move."""

    def __init__(
        self,
        reader: RemainingReader,
        endpoints: Sequence[StoreEndpoint],
        *,
        selection: Callable[[], Selection],
        queries: LedgerQueries,
    ) -> None:
        self._reader = reader
        self._endpoints = endpoints
        self._selection = selection
        self._queries = queries
        self._lock = threading.Lock()
        self._seen = {endpoint.name: _Seen() for endpoint in endpoints}
        self._was_polled = False
        """The first time, what was moved before the start is seen."""
        self._has_moved = False
        """Since all were finished the last time, or since the start."""

    def is_finished(self, endpoint: EndpointName, *, as_of: datetime) -> bool:
        """Return whether nothing is left to move of *endpoint*; False: it is not known, too.

        *as_of* is when the progress was read that is shown with the answer: one from before the
        endpoint was finished would say that less is moved.
        """
        seen = self._seen.get(endpoint)
        if seen is None or not seen.is_finished or seen.finished_at is None:
            return False
        return seen.finished_at <= as_of

    def remaining(self, endpoint: EndpointName) -> Remaining | None:
        """Return what was counted last; None: nothing yet, or rows of it are not moved here."""
        return self._seen[endpoint].remaining if endpoint in self._seen else None

    def note(self, progress: Progress) -> None:
        """Note what the ledger has now: where rows go on, an endpoint is not finished any more."""
        now_s = time.monotonic()
        with self._lock:
            for name, found in _by_name(progress).items():
                if (seen := self._seen.get(name)) is None:
                    continue
                before = seen.progress
                moved = self._note_progress(seen, found)
                if before is not None and before.rows == found.rows:
                    continue
                seen.changed_s = now_s
                seen.count_at_s = float("-inf")
                if found.in_flight or found.parked or moved:
                    self._leave(name, seen)
            self._was_polled = True

    def _note_progress(self, seen: _Seen, found: EndpointProgress | None) -> int:
        """Remember *found*, and that something has moved; return how many rows."""
        before, seen.progress = seen.progress, found
        moved = (found.handed_over if found else 0) - (before.handed_over if before else 0)
        self._has_moved = self._has_moved or (moved > 0 and self._was_polled)
        return moved

    def check(self) -> Sequence[EndpointEnd]:
        """Count the tables of endpoints that are quiet, and note which are finished.

        Return all of them once all are finished, and rows were moved since they were so before.
        """
        now_s = time.monotonic()
        with self._lock:
            quiet = [e for e in self._endpoints if self._seen[e.name].is_to_be_counted(now_s)]
        if not quiet:
            return ()
        try:
            counted = self._counted(quiet)
            read = self._queries.progress()
        except MigratorError as exc:
            _log.info(
                "whether endpoints are finished could not be read now",
                extra={"action": "finished_not_known", "error": str(exc)},
            )
            return ()
        with self._lock:
            was_all, progress = self._are_all_finished, _by_name(read)
            for name, remaining in counted.items():
                self._judge(name, progress.get(name), remaining, read.taken_at)
            is_new = self._are_all_finished and not was_all and self._has_moved
            self._has_moved = self._has_moved and not is_new
            return self._ends() if is_new else ()

    def _counted(self, endpoints: Sequence[StoreEndpoint]) -> Mapping[EndpointName, Remaining]:
        """Count those that can be; a table that fails keeps no other from being counted."""
        found: dict[EndpointName, Remaining] = {}
        for each in endpoints:
            try:
                found[each.name] = self._reader.read(each, self._selection())
            except StoreError as exc:
                if not exc.is_of_source:
                    raise
        return found

    def at_end(
        self, endpoints: Sequence[StoreEndpoint], locked: Mapping[EndpointName, int]
    ) -> tuple[Progress, Sequence[EndpointEnd]]:
        """Return what the ledger has, and how each of *endpoints* is at the end of a run.

        *locked* has the rows that were left because others have them locked.

        Raises:
            LedgerError: It cannot be read now.
        """
        remaining: dict[EndpointName, Remaining] = {}
        for endpoint in endpoints:
            if endpoint in self._endpoints:
                with suppress(MigratorError):  # it has ended, whether or not it can be counted
                    remaining[endpoint.name] = self._reader.read(endpoint, self._selection())
        progress = self._queries.progress()
        by_name = _by_name(progress)
        return progress, [
            EndpointEnd(
                endpoint=name,
                progress=by_name.get(name),
                remaining=remaining.get(name),
                is_finished=is_finished(by_name.get(name), remaining.get(name)),
                locked=locked.get(name, 0),
            )
            for name in (endpoint.name for endpoint in endpoints)
        ]

    @property
    def _are_all_finished(self) -> bool:
        return bool(self._seen) and all(seen.is_finished for seen in self._seen.values())

    def _ends(self) -> Sequence[EndpointEnd]:
        return [
            EndpointEnd(
                endpoint=name,
                progress=seen.progress,
                remaining=seen.remaining,
                is_finished=seen.is_finished,
            )
            for name, seen in self._seen.items()
        ]

    def _judge(
        self,
        name: EndpointName,
        progress: EndpointProgress | None,
        remaining: Remaining,
        read_at: datetime,
    ) -> None:
        seen = self._seen[name]
        seen.remaining, seen.count_at_s = remaining, time.monotonic() + _COUNT_EVERY_S
        if not is_finished(progress, remaining):
            self._leave(name, seen)
            return
        attention = needs_attention(progress, remaining)
        if seen.is_finished and attention == seen.needs_attention:
            return
        self._note_progress(seen, progress)  # a poll may be later than this
        seen.is_finished, seen.needs_attention, seen.finished_at = True, attention, read_at
        _log.log(
            logging.WARNING if attention else logging.INFO,
            "nothing of an endpoint is left to move",
            extra={
                "action": "endpoint_finished",
                "endpoint": name,
                "text": finished_text(progress, remaining),
                **_facts(progress, remaining),
            },
        )

    def _leave(self, name: EndpointName, seen: _Seen) -> None:
        if not seen.is_finished:
            return
        seen.is_finished = seen.needs_attention = False
        _log.info(
            "an endpoint that was finished has rows to move again",
            extra={"action": "endpoint_not_finished", "endpoint": name},
        )


def end_document(end: EndpointEnd) -> dict[str, object]:
    """Return one endpoint as hooks get it."""
    counts = {
        key: getattr(end.counts, key)
        for key in ("handed_over", "dispatched", "in_flight", "parked", "quarantined", "doubtful")
    }
    left = _facts(None, end.remaining) if end.remaining else {}
    return {
        "endpoint": end.endpoint,
        **counts,
        **left,
        "locked": end.locked,
        "is_finished": end.is_finished,
        "text": end.text,
    }


def _facts(progress: EndpointProgress | None, remaining: Remaining) -> dict[str, object]:
    found: dict[str, object] = {} if progress is None else {"handed_over": progress.handed_over}
    return {
        **found,
        "left": remaining.left,
        "overdue": remaining.overdue,
        "later": remaining.later,
        "sent_by": remaining.sent_by and str(remaining.sent_by),
    }


def _by_name(progress: Progress) -> Mapping[EndpointName, EndpointProgress]:
    return {each.endpoint: each for each in progress.endpoints}
