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
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from enum import StrEnum
from typing import TYPE_CHECKING, Final

from migrator.delays.destinations import Destinations
from migrator.delays.routing import (
    TOP_LEVEL,
    Topology,
    Unreachable,
    delay_s,
    parse_routing_key,
)
from migrator.delays.scan import LevelMessage, LevelScan, ScanLimits, utc_now
from migrator.delays.tagged import Place
from migrator.delays.topology import delivery_limit, inspect_delays
from migrator.delays.walk import LevelPass, walk
from migrator.errors import ConfigError, PreflightRefused
from migrator.nservicebus.conversion import Reason
from migrator.nservicebus.headers import BROKER_INSTRUCTIONS
from migrator.nservicebus.timeouts import QueueName
from migrator.rabbitmq.addresses import parse_addresses
from migrator.rabbitmq.connection import ConnectionSettings, LastUsed
from migrator.rabbitmq.entities import Kind
from migrator.rabbitmq.frames import Keep
from migrator.rabbitmq.messages import EncodedMessage, PublishResult
from migrator.rabbitmq.publisher import WindowLimits
from migrator.rabbitmq.server import is_our_clock
from migrator.text import counted
from migrator.transfer.broker import Side, TransferLink, is_same_place
from migrator.transfer.rules import Due, TransferRequest, due_of, new_headers

if TYPE_CHECKING:  # not every broker has the API, and its client is slow to import
    from migrator.rabbitmq.management import ManagementApi

_ASKED_AT_ONCE: Final = 20
"""Destinations; nothing else happens on the connections meanwhile."""
_PREFETCH: Final = 4000
_LONGEST_HOLD_S: Final = 160.0
"""Then a level is given up in which so much has to stay that nothing else is reached."""
_HEADER_RESERVE_BYTES: Final = 256
"""What is written anew: TimeSent and DelayInSeconds."""


class WhyLeft(StrEnum):
    """Why a message stayed where it was."""

    DESTINATION_UNKNOWN = Reason.DESTINATION_UNKNOWN.value
    """The target has no such queue."""
    DESTINATION_UNBOUND = Reason.DESTINATION_UNBOUND.value
    """Nothing leads to the queue, and nothing may be made to."""
    NO_PERMISSION = Reason.NO_PERMISSION.value
    """We may not bind it on the target."""
    EXCHANGE_TYPE = Reason.EXCHANGE_TYPE.value
    """The exchange of its name is no fanout."""
    TOO_LARGE = "too-large"
    """Headers or body are larger than the target takes."""
    COPIES = "copies"
    """It carries CC or BCC: the broker would send copies by keys with the old delay."""
    REFUSED = "refused"
    """The target did not take it now (a limit of its queue); run again."""


@dataclass(slots=True)
class LevelOutcome:
    """One level of the source."""

    moved: int = 0
    poison: int = 0
    left: int = 0
    is_complete: bool = True
    """False: what had to stay held too long hid what may be behind it."""

    @property
    def found(self) -> int:
        """How many messages were met."""
        return self.moved + self.poison + self.left


@dataclass(slots=True)
class DestinationOutcome:
    """The messages for one destination."""

    moved: int = 0
    left: int = 0
    detail: str = ""
    """Why messages were left, in words."""


@dataclass(slots=True)
class Outcome:
    """Everything that was found, or in a dry run would be; filled while the work goes on."""

    levels: dict[int, LevelOutcome] = field(default_factory=dict)
    destinations: dict[QueueName, DestinationOutcome] = field(default_factory=dict)
    why_left: Counter[WhyLeft] = field(default_factory=Counter)
    uncertain: int = 0
    """Moved messages whose headers could not be believed; they come as late as they may be."""
    largest_uncertainty: timedelta = timedelta(0)
    """The most that one of them may be late."""

    @property
    def moved(self) -> int:
        """How many messages have a confirmed copy in the target and are gone from the source."""
        return sum(level.moved for level in self.levels.values())

    @property
    def poison(self) -> int:
        """How many unreadable messages are in the poison queue now."""
        return sum(level.poison for level in self.levels.values())

    @property
    def left(self) -> int:
        """How many messages stayed in the source."""
        return sum(level.left for level in self.levels.values())

    @property
    def unfinished(self) -> list[int]:
        """Levels of which not everything was seen, highest first."""
        return [number for number, level in self.levels.items() if not level.is_complete]


# ── moving ────────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True, kw_only=True)
class TransferSettings:
    """What the settings say of both brokers."""

    connection: ConnectionSettings
    """The source; the other broker is spoken to with the same certificates."""
    management: ManagementApi | None
    """Of the source."""
    topology: Topology
    may_bind: bool
    """Whether destinations may be bound to the target's delays."""
    use_entries: bool
    limits: WindowLimits
    body_max_bytes: int


@contextmanager
def open_transfer(
    request: TransferRequest,
    settings: TransferSettings,
    *,
    on_progress: Callable[[Outcome], None] = lambda _outcome: None,
) -> Iterator[Transfer]:
    """Open what *request* needs, and close it at the end.

    Raises:
        ConfigError: Source and target are the same.
        PreflightRefused: Levels are missing; nothing was changed.
        TargetUnavailable, AccessRefused: A broker cannot be used.
    """
    source = Side(connection=settings.connection, version=request.source)
    target = Side(connection=_target(settings.connection, request), version=request.target)
    _check_places(source, target, request)
    _check_delays(source, role="source", whole=False)
    _check_delays(target, role="target", whole=True)
    link = TransferLink(
        source,
        target,
        settings.limits,
        delivery_limit=delivery_limit(source.connection, settings.management, source.version),
        use_entries=settings.use_entries and not request.is_dry,
    )
    try:
        yield Transfer(
            link=link,
            destinations=_destinations(target, request, settings),
            request=request,
            has_our_clock=bool(is_our_clock(source.connection, utc_now)),
            body_max_bytes=settings.body_max_bytes,
            on_progress=on_progress,
        )
    finally:
        link.close()


@dataclass(frozen=True, slots=True, kw_only=True)
class Movable:
    """A message that can be published anew."""

    message: LevelMessage
    destination: QueueName
    due: Due


@dataclass(frozen=True, slots=True, kw_only=True)
class Stays:
    """A message that must not be touched, or that no queue took."""

    destination: QueueName | None
    """None: it is not readable, and was not taken by the poison queue."""
    why: WhyLeft
    detail: str


@dataclass(kw_only=True)
class Transfer:
    """Moves everything from the levels of one side to those of another."""

    link: TransferLink
    """Has the levels of the source; publishes to the target, and to the poison queue."""
    destinations: Destinations
    """Of the target; in a dry run, ones that bind nothing."""
    request: TransferRequest
    has_our_clock: bool
    """Whether the source's clock is ours; if not, fewer due times can be told exactly."""
    body_max_bytes: int
    """Larger bodies the target does not take."""
    now: Callable[[], datetime] = utc_now
    """This machine's time, aware, UTC; that of the ``seen_at`` of messages."""
    chunk: int = 1000
    """Messages published before they are acknowledged."""
    on_progress: Callable[[Outcome], None] = lambda _outcome: None
    """Called after every chunk."""
    outcome: Outcome = field(default_factory=Outcome)
    """Kept up to date, so that it tells what was done before an error."""
    _refused: dict[QueueName, Unreachable] = field(default_factory=dict)
    _left: list[Stays] = field(default_factory=list)
    """What the current scan of a level leaves; an earlier one met the same messages."""

    def waiting(self) -> int:
        """Return how many messages are in the source's levels, as far as a count tells."""
        return sum(self.link.levels.ready().values())

    def run(self) -> Outcome:
        """Go through all levels and return what happened to the messages.

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
        def again(found: LevelPass) -> ScanLimits | None:
            if found.is_whole or self.request.is_dry:
                return None
            limits = found.fewer or found.limits
            if not found.done:
                if limits.hold_s >= _LONGEST_HOLD_S:
                    return None
                limits = replace(limits, hold_s=2 * limits.hold_s)
            self._left.clear()
            return limits

        self._left.clear()
        first = ScanLimits(prefetch=_PREFETCH)
        (last,) = walk(
            self.link.levels,
            [level],
            first,
            self._chunk,
            choose=self._choose,
            again=again,
            at_most=self.chunk,
        )
        outcome = self.outcome
        outcome.levels[level].is_complete = last.is_whole
        outcome.levels[level].left = len(self._left)
        for each in self._left:
            outcome.why_left[each.why] += 1
            if each.destination is not None:
                found = outcome.destinations.setdefault(each.destination, DestinationOutcome())
                found.left += 1
                found.detail = each.detail
        self.on_progress(outcome)

    def _choose(self, _properties: bytes, _body_bytes: int) -> Keep:
        """Choose to keep bodies where messages are moved."""
        return Keep.HEAD if self.request.is_dry else Keep.ALL

    # ── one chunk ───────────────────────────────────────────────────────────────────────────

    def _chunk(self, level: int, scan: LevelScan, messages: Sequence[LevelMessage]) -> int:
        """Move or leave *messages*; return how many are gone from the source."""
        movable: list[Movable] = []
        poison: list[LevelMessage] = []
        for message in messages:
            found = self.judge(level, message)
            if found is None:
                poison.append(message)
            elif isinstance(found, Stays):
                self._left.append(found)
            else:
                movable.append(found)
        done = self._move(level, self._reachable(movable), scan)
        done += self._publish_poison(level, poison, scan)
        self.on_progress(self.outcome)
        return done

    def judge(self, level: int, message: LevelMessage) -> Movable | Stays | None:
        """Return what is to become of *message*; reachability of its destination is not asked.

        None: its route is unknown: it is not readable, or not of the delays.
        """
        if message.problem is not None:
            return None
        try:
            delay_s, destination = parse_routing_key(message.routing_key)
        except ValueError:
            return None
        size = len(message.properties.raw) + _HEADER_RESERVE_BYTES
        why, detail = WhyLeft.TOO_LARGE, ""
        if not BROKER_INSTRUCTIONS.isdisjoint(message.properties.headers):
            why, detail = WhyLeft.COPIES, "a message requests copies with a CC or BCC header"
        elif message.body_bytes > self.body_max_bytes:
            detail = f"a body of {counted(message.body_bytes, 'byte')}"
        elif size > self.link.largest_header_bytes:
            detail = f"headers of {counted(size, 'byte')}"
        if detail:
            return Stays(destination=destination, why=why, detail=detail)
        due = due_of(
            message.properties.headers,
            Place(level, delay_s, self.request.source),
            seen_at=message.seen_at,
            has_our_clock=self.has_our_clock,
            believe_headers=self.request.believe_headers,
        )
        return Movable(message=message, destination=destination, due=due)

    def _leave(self, destination: QueueName | None, why: WhyLeft, detail: str) -> None:
        self._left.append(Stays(destination=destination, why=why, detail=detail))

    def _reachable(self, movable: list[Movable]) -> list[Movable]:
        """Bind the destinations on the target; return the messages that will arrive."""
        names = sorted({each.destination for each in movable} - self._refused.keys())
        for start in range(0, len(names), _ASKED_AT_ONCE):
            some = names[start : start + _ASKED_AT_ONCE]
            self._refused.update(self.destinations.unreachable(some))
            self.link.serve()
        for each in movable:
            if refusal := self._refused.get(each.destination):
                self._leave(each.destination, WhyLeft(refusal.reason.value), refusal.detail)
        return [each for each in movable if each.destination not in self._refused]

    def _move(self, level: int, movable: list[Movable], scan: LevelScan) -> int:
        answers = PublishResult()
        if self.request.is_dry:
            answers.confirmed.update(range(len(movable)))
        elif movable:
            self.link.publish(self._copies(movable), answers)
            scan.acknowledge(movable[key].message.tag for key in sorted(answers.confirmed))
        for key, each in enumerate(movable):
            if key in answers.confirmed:
                self._count_moved(each)
            elif key in answers.returned:
                detail = f"{each.destination!r}: the broker could not route to it"
                self._refused[each.destination] = Unreachable(
                    reason=Reason.DESTINATION_UNBOUND, detail=detail
                )
                self._leave(each.destination, WhyLeft.DESTINATION_UNBOUND, detail)
            else:
                self._leave(each.destination, WhyLeft.REFUSED, "the target did not accept it now")
        self.outcome.levels[level].moved += len(answers.confirmed)
        return len(answers.confirmed)

    def _copies(self, movable: list[Movable]) -> Iterator[EncodedMessage]:
        for key, each in enumerate(movable):
            now = max(self.now(), each.message.seen_at)  # a clock that was set back
            wait_s = delay_s(each.due.at, now=now)
            headers = new_headers(each.message.properties.headers, each.due.at, delay_s=wait_s)
            yield self.link.copy(
                key, each.message, each.destination, delay_s=wait_s, headers=headers
            )

    def _publish_poison(self, level: int, poison: list[LevelMessage], scan: LevelScan) -> int:
        answers = PublishResult()
        if self.request.is_dry:
            answers.confirmed.update(message.tag for message in poison)
        elif poison:
            self.link.publish_poison(self.request.poison_queue, poison, answers)
            scan.acknowledge(sorted(answers.confirmed))
        self.outcome.levels[level].poison += len(answers.confirmed)
        for _ in range(len(poison) - len(answers.confirmed)):
            self._leave(None, WhyLeft.REFUSED, "")
        return len(answers.confirmed)

    def _count_moved(self, moved: Movable) -> None:
        self.outcome.destinations.setdefault(moved.destination, DestinationOutcome()).moved += 1
        if moved.due.is_proved:
            self.outcome.uncertain += 1
            largest = max(self.outcome.largest_uncertainty, moved.due.uncertainty)
            self.outcome.largest_uncertainty = largest


# ── what must be right first ──────────────────────────────────────────────────────────────────────


def _target(source: ConnectionSettings, request: TransferRequest) -> ConnectionSettings:
    if request.target_url is None:
        return source
    return replace(source, nodes=parse_addresses(request.target_url), last_used=LastUsed())


def _check_places(source: Side, target: Side, request: TransferRequest) -> None:
    """Refuse to move messages to where they come from: they would be met again for ever."""
    if request.target_url is None or source.version is not target.version:
        return
    if is_same_place(source.connection, target.connection):
        raise ConfigError(
            "source and target are the same virtual host of the same broker, and the same "
            "generation of delays; name another target"
        )


def _check_delays(side: Side, *, role: str, whole: bool) -> None:
    """Refuse where levels are missing: of the source, only the queues are needed."""
    found = inspect_delays(side.connection, side.version, find_bindings=None)
    unfit = [each for each in found.missing if whole or each.startswith(Kind.QUEUE)]
    unfit += found.different if whole else ()
    if unfit:
        listed = ", ".join(unfit[:3])
        raise PreflightRefused(
            f"{side.connection.address}: {len(unfit)} entities of the {role}'s delays "
            f"{side.version} are missing or different ({listed} ...); nothing was changed. "
            f"`migrator delays create --delays {side.version}` makes what is missing"
        )


def _destinations(
    target: Side, request: TransferRequest, settings: TransferSettings
) -> Destinations:
    knows_bindings = request.target_url is None and not request.is_dry
    management = settings.management if knows_bindings else None
    return Destinations(
        target.connection,
        target.version,
        topology=settings.topology,
        bind=settings.may_bind and not request.is_dry,
        find_bindings=management.bindings_from if management else None,
    )
