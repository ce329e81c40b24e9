"""Settling a failover while nobody claims: what the broker holds puts the ledger right.

Rules of this file:

* the ledger keeps that it failed over until all is settled, so this may end anywhere and be run
  again;
* nothing is taken out of a level; what is taken away are leftovers in our own queues, whose rows
  are known to be in the store or in the ledger;
* what is not seen to its end proves nothing, and is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Final

from migrator.delays.routing import DelaysVersion
from migrator.delays.scan import (
    MAX_PREFETCH,
    LevelMessage,
    Levels,
    LevelScan,
    ScanEnd,
    ScanLimits,
)
from migrator.delays.walk import CHUNK, LevelAccess, WalkProgress, WalkTerms, demand_shallow, walk
from migrator.errors import PreflightRefused
from migrator.ledger.lease_keeper import recalling_alone
from migrator.ledger.leases import SqlLeases
from migrator.ledger.states import Mode
from migrator.ledger.work import Clock, FaultPoint, StoreEndpoint
from migrator.nservicebus.headers import RELATED_TO_TIMEOUT_ID
from migrator.nservicebus.tags import Attempt, MessageTag, UnknownTag, parse_tag, row_tag
from migrator.nservicebus.timeouts import BITS, Lane, TimeoutId
from migrator.rabbitmq.names import receipts_queue, staging_name
from migrator.recovery.adoption import SqlAdoption
from migrator.recovery.lost_window import FailoverTerms, SeenRow, Settlement, SqlFailover
from migrator.text import counted

_CLOCKS_APART: Final = timedelta(minutes=1)
"""How much the clocks of the two servers may differ."""
_NOT_WHOLE: Final = (
    "{} was not read to its end: it holds too much for --max-hold, or something else consumes it; "
    "nothing was changed"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Leftovers:
    """What our own queues hold."""

    queues: Sequence[str]
    attempts: frozenset[Attempt]
    timeouts: frozenset[TimeoutId]


@dataclass(frozen=True, slots=True, kw_only=True)
class FailoverSettlement:
    """Settles the window that the database lost; made by ``app.commands.new_settlement``."""

    failover: SqlFailover
    """Settles in store and ledger."""
    adoption: SqlAdoption
    """Gets that it is done."""
    access: LevelAccess
    """How the levels are reached."""
    version: DelaysVersion
    """Whose levels are looked through."""
    mode: Mode
    """How rows were handed over."""
    cutoff: timedelta
    """Rows due sooner are not handed over, by the settings."""
    leases: SqlLeases
    """The lanes."""
    lease_duration: timedelta
    """For how long the recall's own is taken at a time."""
    clock: Clock
    """The database's time."""
    ledger_id: str
    """By whose tag our messages are known."""
    fault: FaultPoint
    """Called at each step."""

    def run(
        self,
        endpoints: Sequence[StoreEndpoint],
        lanes: Collection[Lane],
        terms: WalkTerms,
        *,
        is_dry_run: bool,
        progress: Callable[[WalkProgress], None],
    ) -> Settlement:
        """Find what was handed over in the lost window, and record it; nobody claims meanwhile.

        Raises:
            PreflightRefused: Somebody works, or the broker could not be seen to its end. Nothing
                was changed.
        """
        sign = self.failover.last_sign()
        with recalling_alone(self.leases, self.lease_duration) as held:
            self.access.wait_until_routed()
            self.access.wait_until_passed_on(self.version)
            with self.access.open(self.version) as levels:
                left = self._leftovers(levels, lanes, terms)
                if lost := self.failover.nowhere(left.timeouts):
                    raise PreflightRefused(
                        f"migrator's queues hold messages of {counted(len(lost), 'timeout')} that "
                        f"neither the store nor the ledger has (such as {min(lost)}): find out why "
                        "before anything is removed; nothing was changed"
                    )
                seen = _seen_in_levels(levels, self.ledger_id, terms, held.check, progress)
                cutoff = min({self.cutoff, *self.failover.cutoffs(sign)})
                settling = FailoverTerms(
                    endpoints=endpoints,
                    mode=self.mode,
                    doubtful_from=sign - _CLOCKS_APART + cutoff if sign and cutoff else None,
                    left_until=self.clock.now() + terms.margin,
                    receipts=left.attempts,
                )
                found = self.failover.settle(seen, settling, held.lease, None)
                if is_dry_run:
                    return found
                self.fault("failover.found")
                self._take_away(levels, left, found, terms)
            self.fault("failover.taken_away")
            held.check()
            return self.failover.settle(seen, settling, held.lease, self.adoption.finish_failover)

    def _leftovers(self, levels: Levels, lanes: Collection[Lane], terms: WalkTerms) -> _Leftovers:
        """Return what is in the staging and receipts queues of *lanes*; all of it goes back."""
        names = [staging_name(self.version, self.ledger_id, lane) for lane in lanes]
        names += [receipts_queue(self.ledger_id, lane) for lane in lanes]
        there = self.access.existing(names)
        attempts, timeouts = set[Attempt](), set[TimeoutId]()
        for name in there:
            for message in _whole(levels.queue(name, _limits(terms)), name):
                tag = _own_tag(message, self.ledger_id)
                if tag is None:
                    raise PreflightRefused(
                        f"{name} holds a message that is not migrator's; nothing was changed"
                    )
                attempts.add(tag.attempt)
                if tag.row_index is not None and (timeout := _timeout_of(message)) is not None:
                    timeouts.add(timeout)
        return _Leftovers(queues=there, attempts=frozenset(attempts), timeouts=frozenset(timeouts))

    def _take_away(
        self, levels: Levels, left: _Leftovers, found: Settlement, terms: WalkTerms
    ) -> None:
        """Take away what would be passed again anyhow, and receipts of what is unknown."""

        def may_go(message: LevelMessage) -> bool:
            tag = _own_tag(message, self.ledger_id)
            return tag is not None and _is_leftover(tag, found)

        for name in left.queues:
            for _ in _whole(levels.queue(name, _limits(terms)), name, may_go=may_go):
                pass


def _seen_in_levels(
    levels: Levels,
    ledger_id: str,
    terms: WalkTerms,
    guard: Callable[[], None],
    progress: Callable[[WalkProgress], None],
) -> Collection[SeenRow]:
    """Return every row of the ledger whose message waits in a level."""
    waiting, found, seen = levels.ready(), set[SeenRow](), 0
    demand_shallow(waiting, terms.deepest)

    def meet(_level: int, _scan: LevelScan, messages: Sequence[LevelMessage]) -> int:
        nonlocal seen
        guard()
        seen += len(messages)
        found.update(row for each in messages if (row := _row(each, ledger_id)) is not None)
        return 0

    there = [level for level in range(BITS) if level in waiting]
    for level in walk(levels, there, terms.limits, meet):
        if not level.is_whole:
            raise PreflightRefused(_NOT_WHOLE.format(f"level {level.level:02d}"))
        progress(WalkProgress(level=level.level, seen=seen))
    return found


def _whole(
    scan: LevelScan, what: str, *, may_go: Callable[[LevelMessage], bool] = lambda _message: False
) -> Iterator[LevelMessage]:
    """Yield each message of a queue; those that *may_go* are acknowledged, the others go back.

    Raises:
        PreflightRefused: It was not seen to its end.
    """
    try:
        while found := scan.receive(at_most=CHUNK):
            yield from found
            scan.acknowledge(each.tag for each in found if may_go(each))
    finally:
        scan.close()
    if scan.end is not ScanEnd.EMPTY:
        raise PreflightRefused(_NOT_WHOLE.format(what))


def _is_leftover(tag: MessageTag, found: Settlement) -> bool:
    """Return whether nothing is to be learnt from a message: a receipt may prove a commit."""
    return tag.row_index is not None or tag.attempt not in found.committed


def _limits(terms: WalkTerms) -> ScanLimits:
    """Return limits of a queue that has one active consumer at a time."""
    return ScanLimits(prefetch=MAX_PREFETCH, hold_s=terms.hold.total_seconds())


def _own_tag(message: LevelMessage, ledger_id: str) -> MessageTag | None:
    """Return the tag of a message of our own queues; None: it is somebody else's."""
    try:
        tag = parse_tag(message.app_id)
    except UnknownTag:
        return None
    return tag if tag.ledger_id == ledger_id else None


def _timeout_of(message: LevelMessage) -> TimeoutId | None:
    """Return which timeout a message is about."""
    told = message.headers.get(RELATED_TO_TIMEOUT_ID)
    return TimeoutId(told) if isinstance(told, str) and told else None


def _row(message: LevelMessage, ledger_id: str) -> SeenRow | None:
    timeout_id = message.headers.get(RELATED_TO_TIMEOUT_ID)
    row = row_tag(message.app_id, timeout_id, ledger_id=ledger_id)
    tag = _own_tag(message, ledger_id)
    if row is None or tag is None:
        return None
    return SeenRow(row=row, attempt=tag.attempt.number)
