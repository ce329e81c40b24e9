"""Recovering from a failover while nothing claims: the ledger is corrected by what the broker has.

Rules of this file:

* the ledger keeps that it failed over until all is recorded, so this may end anywhere and be run
  again;
* nothing is removed from a level; what is removed are leftovers in migrator's own queues, whose
  rows are known to be in the store or in the ledger;
* a queue that was not read to its end proves nothing, and is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from migrator.delays.broker import BrokerFacts
from migrator.delays.routing import DelaysVersion
from migrator.delays.scan import (
    MAX_PREFETCH,
    LevelMessage,
    Levels,
    LevelScan,
    ScanEnd,
    ScanLimits,
    find_tagged,
)
from migrator.delays.tagged import TaggedMessage
from migrator.delays.walk import CHUNK, LevelAccess, WalkProgress, WalkTerms, demand_shallow, walk
from migrator.errors import PreflightRefused
from migrator.ledger.lease_keeper import recalling_alone
from migrator.ledger.leases import SqlLeases
from migrator.ledger.states import Mode
from migrator.ledger.work import Clock, FaultPoint, StoreEndpoint
from migrator.nservicebus.headers import RELATED_TO_TIMEOUT_ID
from migrator.nservicebus.tags import Attempt, MessageTag, find_tag
from migrator.nservicebus.timeouts import BITS, Lane, TimeoutId
from migrator.rabbitmq.names import receipts_queue, staging_name
from migrator.recovery.adoption import LedgerLocation, owners_on_broker
from migrator.recovery.lost_window import FailoverTerms, LostWindow, RecoveredWindow
from migrator.text import counted

_CLOCKS_APART: Final = timedelta(minutes=1)
"""How much the clocks of the two servers may differ."""
_NOT_WHOLE: Final = (
    "{} was not read to its end: it contains too much for --max-hold, or has another consumer; "
    "nothing was changed"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Leftovers:
    """What migrator's own queues contain."""

    queues: Sequence[str]
    attempts: frozenset[Attempt]
    timeouts: frozenset[TimeoutId]


@dataclass(frozen=True, slots=True, kw_only=True)
class FailoverRecovery:
    """Recovers the window that the database lost; made by ``app.recovery``."""

    window: LostWindow
    location: LedgerLocation
    broker: BrokerFacts
    access: LevelAccess
    version: DelaysVersion
    """Whose levels are read."""
    mode: Mode
    """How rows were handed over."""
    cutoff: timedelta
    """Rows due sooner are not handed over, by the settings."""
    endpoints: Sequence[StoreEndpoint]
    """Whose rows of the window may have been sent."""
    lanes: Collection[Lane]
    timeouts_queues: Collection[str]
    """Queues of timeout managers that a daemon of this ledger replaces."""
    leases: SqlLeases
    lease_duration: timedelta
    """For how long the recall's own is taken at a time."""
    clock: Clock
    """The database's time."""
    ledger_id: str
    fault: FaultPoint
    """Called at each step."""

    def demand_no_owner(self) -> None:
        """Return when the broker shows no process that works on this ledger.

        Raises:
            PreflightRefused: A process works on it. Nothing was changed.
        """
        found = owners_on_broker(
            self.broker, self.location.ledger_id, self.lanes, self.timeouts_queues
        )
        if found:
            raise PreflightRefused("; ".join(found) + ". Nothing was changed")

    def run(
        self,
        terms: WalkTerms,
        *,
        is_dry_run: bool,
        progress: Callable[[WalkProgress], None],
    ) -> RecoveredWindow:
        """Find what was handed over in the lost window, and record it; nothing claims meanwhile.

        Raises:
            PreflightRefused: A process works on it, or the broker could not be read to its end.
                Nothing was changed.
        """
        heartbeat = self.window.last_heartbeat()
        with recalling_alone(self.leases, self.lease_duration) as held:
            self.access.wait_until_routed()
            self.access.wait_until_passed_on(self.version)
            with self.access.open(self.version) as levels:
                left = self._leftovers(levels, terms)
                if lost := self.window.nowhere(left.timeouts):
                    raise PreflightRefused(
                        f"migrator's queues contain messages of {counted(len(lost), 'timeout')} "
                        f"that neither the store nor the ledger has (such as {min(lost)}): find "
                        "out why before anything is removed; nothing was changed"
                    )
                seen = _seen_in_levels(levels, self.ledger_id, terms, held.check, progress)
                bounds = self._terms(heartbeat, left, terms)
                found = self.window.recover(seen, bounds, held.lease, is_dry_run=True)
                if is_dry_run:
                    return found
                self.fault("failover.found")
                self._remove(levels, left, found, terms)
            self.fault("failover.taken_away")
            held.check()
            return self.window.recover(seen, bounds, held.lease, is_dry_run=False)

    def _terms(
        self, heartbeat: datetime | None, left: _Leftovers, terms: WalkTerms
    ) -> FailoverTerms:
        cutoff = min({self.cutoff, *self.window.cutoffs(heartbeat)})
        return FailoverTerms(
            endpoints=self.endpoints,
            mode=self.mode,
            doubtful_from=heartbeat - _CLOCKS_APART + cutoff if heartbeat and cutoff else None,
            left_until=self.clock.now() + terms.margin,
            receipts=left.attempts,
        )

    def _leftovers(self, levels: Levels, terms: WalkTerms) -> _Leftovers:
        """Return what is in the staging and receipts queues; all of it goes back."""
        names = [staging_name(self.version, self.ledger_id, lane) for lane in self.lanes]
        names += [receipts_queue(self.ledger_id, lane) for lane in self.lanes]
        there = self.access.existing(names)
        attempts, timeouts = set[Attempt](), set[TimeoutId]()
        for name in there:
            with _read_to_end(levels, name, terms) as scan:
                while messages := scan.receive(at_most=CHUNK):
                    for message in messages:
                        tag = find_tag(message.properties.app_id, self.ledger_id)
                        if tag is None:
                            raise PreflightRefused(
                                f"{name} contains a message that is not migrator's; nothing was "
                                "changed"
                            )
                        attempts.add(tag.attempt)
                        if tag.row_index is not None and (timeout := _timeout_of(message)):
                            timeouts.add(timeout)
        return _Leftovers(queues=there, attempts=frozenset(attempts), timeouts=frozenset(timeouts))

    def _remove(
        self, levels: Levels, left: _Leftovers, found: RecoveredWindow, terms: WalkTerms
    ) -> None:
        """Remove what would be published again anyhow, and receipts of unknown attempts."""
        for name in left.queues:
            with _read_to_end(levels, name, terms) as scan:
                while messages := scan.receive(at_most=CHUNK):
                    app_ids = [(each.tag, each.properties.app_id) for each in messages]
                    tags = [(at, find_tag(app_id, self.ledger_id)) for at, app_id in app_ids]
                    scan.acknowledge(at for at, tag in tags if tag and _is_leftover(tag, found))


def _seen_in_levels(
    levels: Levels,
    ledger_id: str,
    terms: WalkTerms,
    guard: Callable[[], None],
    progress: Callable[[WalkProgress], None],
) -> Collection[TaggedMessage]:
    """Return the messages of rows of the ledger that wait in a level."""
    version, waiting, found, seen = levels.version, levels.ready(), set[TaggedMessage](), 0
    demand_shallow(waiting, terms.deepest)

    def meet(level: int, _scan: LevelScan, messages: Sequence[LevelMessage]) -> int:
        nonlocal seen
        guard()
        seen += len(messages)
        tagged = (find_tagged(each, version, level, ledger_id=ledger_id) for each in messages)
        found.update(each for each in tagged if each is not None)
        return 0

    there = [level for level in range(BITS) if level in waiting]
    for level in walk(levels, there, terms.limits, meet):
        if not level.is_whole:
            raise PreflightRefused(_NOT_WHOLE.format(f"level {level.level:02d}"))
        progress(WalkProgress(level=level.level, seen=seen))
    return found


@contextmanager
def _read_to_end(levels: Levels, name: str, terms: WalkTerms) -> Iterator[LevelScan]:
    """Scan a queue that has one active consumer at a time; what is not acknowledged goes back.

    Raises:
        PreflightRefused: It was not read to its end.
    """
    limits = ScanLimits(prefetch=MAX_PREFETCH, hold_s=terms.hold.total_seconds())
    scan = levels.queue(name, limits)
    try:
        yield scan
    finally:
        scan.close()
    if scan.end is not ScanEnd.EMPTY:
        raise PreflightRefused(_NOT_WHOLE.format(name))


def _is_leftover(tag: MessageTag, found: RecoveredWindow) -> bool:
    """Return whether nothing is to be learnt from a message: a receipt may prove a commit."""
    return tag.row_index is not None or tag.attempt not in found.committed


def _timeout_of(message: LevelMessage) -> TimeoutId | None:
    """Return which timeout a message is about."""
    told = message.properties.header(RELATED_TO_TIMEOUT_ID)
    return TimeoutId(told) if isinstance(told, str) and told else None
