"""Going through the levels from the highest to the lowest, moving what is found.

Rules:

* a message leaves the source only after the target confirmed its copy; a crash between the two
  duplicates it, with the same message id. At most the last two chunks are between the two;
* messages only go down, so one descending pass meets each that was there when it began, and those
  that others publish into a level that is still to come;
* a level is left when its queue is empty but for what has to stay. What stays is held meanwhile,
  so that it is not delivered again and again; once it was held for long enough it goes back, and
  the level begins anew. Without progress the time grows, and in the end the level is given up;
* delays are computed when the window lets a message through, never before.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final, Protocol

from migrator.delays.destinations import Destinations
from migrator.delays.routing import TOP_LEVEL, Address, DelaysVersion, Unreachable, address, delay_s
from migrator.delays.scan import LevelMessage, Levels, LevelScan, ScanEnd, ScanLimits
from migrator.nservicebus.conversion import Reason
from migrator.nservicebus.timeouts import QueueName
from migrator.rabbitmq.messages import PublishResult
from migrator.transfer.judging import Judge, Movable, Stays
from migrator.transfer.outcome import DestinationOutcome, LevelOutcome, Outcome, WhyLeft
from migrator.transfer.rules import new_headers

_ASKED_AT_ONCE: Final = 20
"""Destinations; nothing else happens on the connections meanwhile."""
_LONGEST_HOLD_S: Final = 160.0
"""Then a level is given up in which so much has to stay that nothing else is reached."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Move:
    """One message on its way into the levels of the target, mandatory."""

    key: int
    """What the answer names it by; unique in its call."""
    message: LevelMessage
    address: Address
    delay_s: int
    """0: routed through to the destination at once, and returned if there is none."""
    headers: Mapping[str, str | int]
    """Set in place of the message's own of these names."""


class Relocator(Protocol):
    """Publishes what was found: into another broker or generation, or aside.

    Of a message's properties only these change: headers of the way so far go, those of ``Move``
    are set, and ``expiration`` and ``user-id`` go, because a broker would drop the message early
    for the one and refuse it from us for the other.
    """

    @property
    def largest_header_bytes(self) -> int:
        """The most that properties and headers of a message may take."""
        ...

    def move(self, moves: Iterable[Move], answers: PublishResult) -> None:
        """Publish *moves*, drawn as the window allows; return once each was answered.

        *answers* is filled meanwhile, so that it tells what was answered before an error.

        Raises:
            TargetUnavailable: A connection went away, or the broker blocked us past the
                deadline. What is in neither set is unknown.
        """
        ...

    def put_aside(
        self, queue: str, messages: Collection[LevelMessage], answers: PublishResult
    ) -> None:
        """Publish copies of *messages*, by tag, to a queue on the source, declared if need be.

        Their headers say in addition where they were found.

        Raises:
            TargetUnavailable: As ``move`` does.
        """
        ...

    def serve(self) -> None:
        """Let the connections do what is due (heartbeats), without waiting."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class RelocationPlan:
    """How a relocation works."""

    target: DelaysVersion
    poison_queue: str
    is_dry: bool = False
    """Only count; everything goes back."""
    chunk: int = 1000
    """Messages published before they are acknowledged."""
    scan: ScanLimits = field(default_factory=lambda: ScanLimits(prefetch=4000))


@dataclass(slots=True)
class _Window:
    """What one scan of a level did."""

    done: int = 0
    left: int = 0
    why_left: Counter[WhyLeft] = field(default_factory=Counter)
    left_for: dict[QueueName, DestinationOutcome] = field(default_factory=dict)

    def leave(self, destination: QueueName | None, why: WhyLeft, detail: str) -> None:
        """Count a message that stays."""
        self.left += 1
        self.why_left[why] += 1
        if destination is not None:
            found = self.left_for.setdefault(destination, DestinationOutcome())
            found.left += 1
            found.detail = detail


class Relocation:
    """Moves everything from the levels of one side to those of another."""

    def __init__(
        self,
        *,
        levels: Levels,
        relocator: Relocator,
        destinations: Destinations,
        judge: Judge,
        plan: RelocationPlan,
        now: Callable[[], datetime],
        on_progress: Callable[[Outcome], None] = lambda _outcome: None,
    ) -> None:
        """Connect the parts; nothing happens yet.

        Args:
            levels: The source.
            relocator: Publishes to the target, and aside.
            destinations: Of the target; in a dry run, ones that bind nothing.
            judge: What becomes of a message.
            plan: How to work.
            now: This machine's time, aware, UTC; that of the ``seen_at`` of messages.
            on_progress: Called after every chunk.
        """
        self._levels = levels
        self._relocator = relocator
        self._destinations = destinations
        self._judge = judge
        self._plan = plan
        self._now = now
        self._on_progress = on_progress
        self._refused: dict[QueueName, Unreachable] = {}
        self.outcome = Outcome()
        """Kept up to date, so that it tells what was done before an error."""

    def run(self) -> Outcome:
        """Go through all levels and return what became of the messages.

        Raises:
            DeliveryLimitNear: A message must not be held once more. What was moved is moved.
            TargetUnavailable: A connection was lost. Running again goes on; at most the messages
                of the last two chunks are duplicated, with the same ids.
        """
        for level in range(TOP_LEVEL, -1, -1):
            self.outcome.levels[level] = LevelOutcome()
            self._refused.clear()  # an operator may have mended it meanwhile
            self._level(level)
        return self.outcome

    def _level(self, level: int) -> None:
        limits = self._plan.scan
        hold_s = limits.hold_s
        while True:
            window = _Window()
            end = self._scan(level, window, hold_s)
            if end is ScanEnd.EMPTY or self._plan.is_dry:
                break
            if not window.done:
                if hold_s >= _LONGEST_HOLD_S:
                    break
                hold_s *= 2
        self.outcome.levels[level].is_complete = end is ScanEnd.EMPTY
        self._settle(level, window)

    def _scan(self, level: int, window: _Window, hold_s: float) -> ScanEnd:
        given = self._plan.scan
        limits = ScanLimits(prefetch=given.prefetch, hold_s=hold_s, quiet_s=given.quiet_s)
        scan = self._levels.scan(level, limits)
        try:
            while messages := scan.receive(at_most=self._plan.chunk):
                self._chunk(level, messages, window, scan)
                self._on_progress(self.outcome)
        finally:
            scan.close()
        return scan.end or ScanEnd.HELD_LONG_ENOUGH

    def _settle(self, level: int, window: _Window) -> None:
        """Count what the last scan of a level left; earlier ones met the same messages."""
        self.outcome.levels[level].left += window.left
        self.outcome.why_left += window.why_left
        for name, left in window.left_for.items():
            found = self.outcome.destinations.setdefault(name, DestinationOutcome())
            found.left += left.left
            found.detail = left.detail
        self._on_progress(self.outcome)

    # ── one chunk ───────────────────────────────────────────────────────────────────────────

    def _chunk(
        self, level: int, messages: Sequence[LevelMessage], window: _Window, scan: LevelScan
    ) -> None:
        movable: list[Movable] = []
        poison: list[LevelMessage] = []
        for message in messages:
            match self._judge.judge(level, message):
                case Movable() as found:
                    movable.append(found)
                case Stays() as found:
                    window.leave(found.destination, found.why, found.detail)
                case _:
                    poison.append(message)
        self._move(level, self._reachable(movable, window), window, scan)
        self._put_aside(level, poison, window, scan)

    def _reachable(self, movable: list[Movable], window: _Window) -> list[Movable]:
        """Bind the destinations on the target; return the messages that will arrive."""
        self._ask({each.destination for each in movable} - self._refused.keys())
        reachable = []
        for each in movable:
            refusal = self._refused.get(each.destination)
            if refusal is None:
                reachable.append(each)
            else:
                window.leave(each.destination, WhyLeft(refusal.reason.value), refusal.detail)
        return reachable

    def _ask(self, names: Collection[QueueName]) -> None:
        listed = sorted(names)
        for start in range(0, len(listed), _ASKED_AT_ONCE):
            some = listed[start : start + _ASKED_AT_ONCE]
            self._refused.update(self._destinations.unreachable(some))
            self._relocator.serve()

    def _move(self, level: int, movable: list[Movable], window: _Window, scan: LevelScan) -> None:
        answers = PublishResult()
        if self._plan.is_dry:
            answers.confirmed.update(range(len(movable)))
        elif movable:
            self._relocator.move(self._moves(movable), answers)
            scan.acknowledge(movable[key].message.tag for key in sorted(answers.confirmed))
        for key, each in enumerate(movable):
            if key in answers.confirmed:
                self._count_moved(level, each, window)
            elif key in answers.returned:
                self._refused[each.destination] = _returned(each.destination)
                detail = self._refused[each.destination].detail
                window.leave(each.destination, WhyLeft.DESTINATION_UNBOUND, detail)
            else:
                window.leave(each.destination, WhyLeft.REFUSED, "the target did not take it now")

    def _moves(self, movable: list[Movable]) -> Iterator[Move]:
        for key, each in enumerate(movable):
            now = max(self._now(), each.message.seen_at)  # a clock that was set back
            wait_s = delay_s(each.due.at, now=now)
            yield Move(
                key=key,
                message=each.message,
                address=address(self._plan.target, wait_s, each.destination),
                delay_s=wait_s,
                headers=new_headers(each.message.headers, each.due.at, delay_s=wait_s),
            )

    def _put_aside(
        self, level: int, poison: list[LevelMessage], window: _Window, scan: LevelScan
    ) -> None:
        answers = PublishResult()
        if self._plan.is_dry:
            answers.confirmed.update(message.tag for message in poison)
        elif poison:
            self._relocator.put_aside(self._plan.poison_queue, poison, answers)
            scan.acknowledge(sorted(answers.confirmed))
        self.outcome.levels[level].aside += len(answers.confirmed)
        window.done += len(answers.confirmed)
        for _ in range(len(poison) - len(answers.confirmed)):
            window.leave(None, WhyLeft.REFUSED, "")

    def _count_moved(self, level: int, moved: Movable, window: _Window) -> None:
        window.done += 1
        self.outcome.levels[level].moved += 1
        self.outcome.destinations.setdefault(moved.destination, DestinationOutcome()).moved += 1
        if moved.due.is_proved:
            self.outcome.uncertain += 1
            largest = max(self.outcome.largest_uncertainty, moved.due.uncertainty)
            self.outcome.largest_uncertainty = largest


def _returned(name: QueueName) -> Unreachable:
    return Unreachable(
        reason=Reason.DESTINATION_UNBOUND, detail=f"{name!r}: the broker found no way to it"
    )
