"""What remains of each endpoint in its store, who sends what is not moved, and how far it is.

A daemon and ``migrator status`` read it by the same reader and judge it by the same rules,
``phase_of`` and ``is_finished``.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from enum import StrEnum
from typing import TYPE_CHECKING, Final

from migrator.errors import MigratorError
from migrator.ledger.report import EndpointProgress
from migrator.ledger.work import Clock, StoreEndpoint
from migrator.nservicebus.timeouts import EndpointName, RunId
from migrator.stores.endpoints import Selection
from migrator.stores.ports import Claims, Store, TableCount
from migrator.stores.requests import trial_request
from migrator.text import build_duration, grouped
from migrator.throttle.reasons import PauseReason, Signal

if TYPE_CHECKING:  # most of what only reads the ledger asks no broker
    from migrator.delays.broker import BrokerFacts

MIGRATE: Final = "migrate"
DISPATCH: Final = "dispatch"
"""Modes of an endpoint, as settings and documents have them."""
_SENDER_FOR_S: Final = 30.0
"""Who consumes a queue of the timeout manager is asked no oftener."""


class Phase(StrEnum):
    """How far an endpoint is whose rows are moved. Public: codes are stable."""

    MOVING = "moving"
    WAITING = "waiting"
    """Something keeps its rows: a reason to claim nothing, or destinations."""
    REFUSED = "refused"
    """A check of the start refuses it, until its cause is gone."""
    FINISHED = "finished"


class SentBy(StrEnum):
    """Who sends the rows that are due too soon to be moved. Public: codes are stable."""

    MIGRATOR = "migrator"
    TIMEOUT_MANAGER = "timeout_manager"
    NOBODY = "nobody"
    NOT_KNOWN = "not_known"


@dataclass(frozen=True, slots=True, kw_only=True)
class Remaining:
    """The rows of one endpoint that are in its store."""

    counted_at: datetime
    """Aware, UTC, by the database."""
    in_store: int
    is_exact: bool
    """False: too many to be counted; all but whether there is anything *to_move* is estimated."""
    to_move: int
    """Would be claimed now, unless something holds them back or the ledger has them already."""
    left: int
    """Due before the cutoff; not moved."""
    overdue: int
    """Of those, due already."""
    later: int
    """Due after the horizon, or without a due time; not moved now."""
    cutoff: timedelta
    due: Sequence[tuple[str, int]]
    """By how soon they are due, soonest first."""
    sent_by: SentBy | None = None
    """None: none is left."""
    queue: str = ""
    """The queue by which a timeout manager sends them."""

    @property
    def unattended(self) -> int:
        """Overdue rows that nobody sends."""
        return self.overdue if self.sent_by is SentBy.NOBODY else 0


def build_remaining(
    counted: TableCount,
    selection: Selection,
    now: datetime,
    *,
    has_any_to_move: bool | None = None,
) -> Remaining:
    """Return what *counted*, with the ``limits`` of *selection*, says.

    *has_any_to_move* decides where not all rows were counted.
    """
    overdue, until_cutoff, until_horizon = counted.until
    left = 0 if selection.takes_overdue else until_cutoff
    later = sum(rows for _, rows in counted.due) - until_horizon
    to_move = counted.rows - left - later
    if has_any_to_move is not None:
        to_move = max(to_move, 1) if has_any_to_move else 0
        later = counted.rows - left - to_move
    return Remaining(
        counted_at=now,
        in_store=counted.rows,
        is_exact=counted.is_all,
        to_move=to_move,
        left=left,
        overdue=min(overdue, left),
        later=later,
        cutoff=selection.cutoff,
        due=counted.due,
    )


def limits(selection: Selection, now: datetime) -> Sequence[datetime]:
    """Return the limits that ``build_remaining`` needs of a count."""
    return now, *selection.future(now)


# ── the rule ────────────────────────────────────────────────────────────────────────────────────


def is_finished(progress: EndpointProgress | None, remaining: Remaining | None) -> bool:
    """Return whether nothing is left to move of an endpoint.

    Nothing is claimed and not settled, nothing is parked, and the store has no row that could be
    claimed. It must have been counted before *progress* was read: what was claimed in between is in
    flight then.

    Args:
        progress: None: the ledger has no row of it.
        remaining: None: not counted, so it is not known to be finished.
    """
    if remaining is None or remaining.to_move:
        return False
    return progress is None or not (progress.in_flight or progress.doubtful or progress.parked)


def phase_of(
    progress: EndpointProgress | None,
    *,
    is_finished: bool,
    holds: Sequence[PauseReason] = (),
    has_parked: bool,
    is_worked_on: bool = True,
) -> Phase:
    """Return how far an endpoint is whose rows are moved.

    Args:
        progress: None: the ledger has no row of it.
        is_finished: By the rule above.
        holds: Why nothing of it is claimed, as far as that is known.
        has_parked: Whether a destination of its rows takes no messages.
        is_worked_on: Whether any process has a lane.
    """
    if is_finished:
        return Phase.FINISHED
    if any(each.signal is Signal.REFUSED for each in holds):
        return Phase.REFUSED
    has_only_parked = has_parked and not (progress and progress.in_flight)
    return Phase.WAITING if holds or has_only_parked or not is_worked_on else Phase.MOVING


def needs_attention(progress: EndpointProgress | None, remaining: Remaining | None) -> bool:
    """Return whether rows stay, once it is finished, that nobody sends."""
    aside = progress.quarantined if progress else 0
    return bool(aside or (remaining and remaining.unattended))


def percentage(progress: EndpointProgress | None, remaining: Remaining | None) -> float | None:
    """Return how much of what is to be moved is moved, 0 to 100; None: it cannot be told.

    100 only when all is; rows that are left to others do not count.
    """
    if remaining is None:
        return None
    done = progress.handed_over if progress else 0
    open_rows = remaining.in_store - remaining.left
    if progress:
        open_rows += progress.in_flight + progress.quarantined + progress.doubtful
        open_rows += progress.parked
    if not open_rows:
        return 100.0
    return min(done * 1000 // (done + open_rows) / 10, 99.9)


# ── in words ────────────────────────────────────────────────────────────────────────────────────


def finished_text(progress: EndpointProgress | None, remaining: Remaining) -> str:
    """Return what an endpoint that is finished has done, and what is left, in sentences."""
    done = progress.handed_over if progress else 0
    aside = progress.quarantined if progress else 0
    kept = f", {grouped(aside)} in quarantine" if aside else ""
    said = [f"Done: {grouped(done)} moved{kept}."]
    if remaining.left:
        said.append(left_text(remaining))
    if remaining.later:
        said.append(
            f"{grouped(remaining.later)} stay in the store: due after the horizon, or without a "
            "due time."
        )
    return " ".join(said)


def left_text(remaining: Remaining) -> str:
    """Return who sends the rows that are due too soon to be moved."""
    left, cutoff = grouped(remaining.left), build_duration(remaining.cutoff)
    verb = "is" if remaining.left == 1 else "are"
    if remaining.sent_by is SentBy.MIGRATOR:
        return f"{left} {verb} due too soon to be moved (cutoff {cutoff}): migrator sends them."
    said = f"{left} {verb} left to the timeout manager (cutoff {cutoff})"
    overdue = f"{grouped(remaining.overdue)} overdue"
    if remaining.overdue in (0, remaining.left):
        overdue = "all overdue" if remaining.overdue else "none overdue"
    if remaining.sent_by is SentBy.TIMEOUT_MANAGER:
        return f"{said}, which is running."
    if remaining.sent_by is not SentBy.NOBODY:
        return f"{said}: {overdue}; whether it is running is not known."
    nobody = f"nothing consumes `{remaining.queue}`: run with `--cutoff 0s`"
    return f"{said}: {overdue}, and {nobody}"


def kept_text(purge_after: timedelta | None, what: str = "what was moved") -> str | None:
    """Return that the ledger keeps the content of *what* for good; None: it does not."""
    if purge_after is not None:
        return None
    return (
        f"The ledger keeps headers and bodies of {what} for good: set `ledger.purge_after`, or run "
        "`migrator db purge`."
    )


# ── reading it ──────────────────────────────────────────────────────────────────────────────────


@dataclass(kw_only=True, eq=False)
class RemainingReader:
    """Counts what is in the stores, and asks who sends what is left there; any thread may ask."""

    store: Store
    claims: Claims
    clock: Clock
    broker: BrokerFacts | None
    """None: the settings name none."""
    modes: Mapping[str, str]
    """The mode of endpoints by name; all others are migrated."""
    input_queues: Mapping[str, str]
    """Those of the endpoints in the settings, by name."""
    sends_near_due: bool
    """Whether migrator sends what is left of endpoints that are migrated."""

    def __post_init__(self) -> None:
        self._lock = threading.Lock()
        self._senders: dict[EndpointName, tuple[float, SentBy, str]] = {}

    def read(self, endpoint: StoreEndpoint, selection: Selection) -> Remaining:
        """Return what is in the store of *endpoint*; *selection* is what a run would take of it.

        Raises:
            StoreError, StoreUnavailable, LedgerError: It cannot be counted.
        """
        now = self.clock.now()
        counted = self.store.count(endpoint.source, now, limits=limits(selection, now))
        has_any = None if counted.is_all else self._has_any(endpoint, selection, now)
        found = build_remaining(counted, selection, now, has_any_to_move=has_any)
        if not found.left:
            return found
        sent_by, queue = self._sender(endpoint.name)
        return replace(found, sent_by=sent_by, queue=queue)

    def _has_any(self, endpoint: StoreEndpoint, selection: Selection, now: datetime) -> bool:
        """Return whether a claim may find something, of a table too large to be counted."""
        after, until = selection.future(now)
        asked = replace(
            trial_request(RunId(0), endpoint),
            due_after=None if selection.takes_overdue else after,
            due_until=until,
        )
        return bool(self.claims.promising([asked]))

    def _sender(self, endpoint: EndpointName) -> tuple[SentBy, str]:
        with self._lock:
            asked_s, sent_by, queue = self._senders.get(endpoint, (0.0, SentBy.NOT_KNOWN, ""))
            if endpoint not in self._senders or time.monotonic() - asked_s > _SENDER_FOR_S:
                sent_by, queue = self._ask_for_sender(endpoint)
                self._senders[endpoint] = time.monotonic(), sent_by, queue
        return sent_by, queue

    def _ask_for_sender(self, endpoint: EndpointName) -> tuple[SentBy, str]:
        if self.sends_near_due or self.modes.get(endpoint, MIGRATE) != MIGRATE:
            return SentBy.MIGRATOR, ""
        if self.broker is None:
            return SentBy.NOT_KNOWN, ""
        try:
            queue, runs = self.broker.timeout_manager(self.input_queues, endpoint)
        except MigratorError:
            return SentBy.NOT_KNOWN, ""
        if runs is None:
            return SentBy.NOT_KNOWN, ""
        return SentBy.TIMEOUT_MANAGER if runs else SentBy.NOBODY, queue
