"""Tests of ``migrator.delays.walk``, ``access``, ``depths`` and of what a destination misses."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

import pytest
from pika import spec

from migrator.delays.depths import LevelDepth, build_level_depths
from migrator.delays.destination_bindings import DestinationBinding
from migrator.delays.destinations import DestinationAnswers
from migrator.delays.routing import DelaysVersion, address, level_name
from migrator.delays.scan import LevelMessage, LevelScan, ScanEnd, ScanLimits, find_tagged
from migrator.delays.tagged import Place
from migrator.delays.walk import LevelAccess, LevelPass, demand_shallow, walk
from migrator.errors import DeliveryLimitNear, PreflightRefused
from migrator.nservicebus.headers import RELATED_TO_TIMEOUT_ID
from migrator.nservicebus.timeouts import QueueName
from migrator.rabbitmq.entities import QueueState, lowest_limit
from migrator.rabbitmq.properties import Properties

NOW = datetime(2026, 3, 1, 8, tzinfo=UTC)
V1, V2 = DelaysVersion
ONE_S = ScanLimits(hold_s=1.0)

# ── walking ─────────────────────────────────────────────────────────────────────────────────


def message(tag: int) -> LevelMessage:
    """Return a message of whomever."""
    return LevelMessage(tag, False, b"", Properties(b"\0\0"), 0, seen_at=NOW)


@dataclass
class Scan:
    """Delivers as much of a level as fits the time, a message a second."""

    levels: Levels
    level: int
    room: int
    end: ScanEnd | None = None

    def receive(self, *, at_most: int) -> Sequence[LevelMessage]:
        if self.level in self.levels.worn:
            raise DeliveryLimitNear("came back too often")
        waiting = self.levels.waiting[self.level]
        found = waiting[: min(at_most, self.room)]
        if self.end is not None or not found:
            self.end = self.end or ScanEnd.EMPTY
            return ()
        self.end = ScanEnd.EMPTY if found == waiting else ScanEnd.HELD_LONG_ENOUGH
        return [message(tag) for tag in found]

    def acknowledge(self, tags: Iterable[int]) -> None:
        for tag in tags:
            self.levels.waiting[self.level].remove(tag)

    def close(self) -> None:
        self.levels.closed[self.level] += 1


@dataclass
class Levels:
    """Levels in memory."""

    waiting: dict[int, list[int]]
    worn: set[int] = field(default_factory=set)
    closed: Counter[int] = field(default_factory=Counter)

    def scan(self, level: int, limits: ScanLimits, _choose: object) -> Scan:
        return Scan(self, level, int(limits.hold_s))


def through(levels: Any, meet: Any, **options: Any) -> list[LevelPass]:
    """Walk through all of *levels*; each has gone back by the time it is told."""
    found = []
    for each in walk(levels, levels.waiting, ONE_S, meet, **options):
        assert levels.closed[each.level]
        found.append(each)
    return found


def test_a_level_is_begun_again_as_long_as_it_shall_be() -> None:
    """Each pass may hold for longer; what is told is how the last one ended."""
    levels, passes = Levels({5: [1, 2, 3, 4]}), list[LevelPass]()

    def meet(_level: int, scan: LevelScan, messages: Sequence[LevelMessage]) -> int:
        scan.acknowledge([each.tag for each in messages if each.tag > 1])
        return sum(each.tag > 1 for each in messages)

    def again(found: LevelPass) -> ScanLimits | None:
        passes.append(found)
        hold_s = found.limits.hold_s * 2
        return None if found.is_whole else replace(found.limits, hold_s=hold_s)

    assert through(levels, meet, again=again) == passes[-1:]
    assert [(each.limits.hold_s, each.done) for each in passes] == [(1, 0), (2, 1), (4, 2)]
    assert levels.waiting == {5: [1]}
    assert levels.closed == {5: 3}


def test_a_worn_message_ends_a_walk_unless_levels_may_be_left() -> None:
    """Near the delivery limit nothing is held any more; whoever only looks goes on below."""
    levels = Levels({5: [1], 4: [2]}, worn={5})
    with pytest.raises(DeliveryLimitNear):
        through(levels, lambda *_: 0)
    assert levels.closed == {5: 1}
    above, below = through(levels, lambda *_: 0, leaves_worn=True)
    assert (above.is_whole, str(above.problem)) == (False, "came back too often")
    assert below.is_whole


def test_what_is_held_goes_back_when_somebody_gives_up() -> None:
    """Whatever is raised while messages are held."""

    def stop(*_: object) -> int:
        raise KeyboardInterrupt

    levels = Levels({5: [1], 4: []})
    with pytest.raises(KeyboardInterrupt):
        through(levels, stop)
    assert levels.closed == {5: 1}


def test_too_deep_a_level_is_refused() -> None:
    """And is named."""
    demand_shallow({3: 10, 4: 0}, 10)
    with pytest.raises(PreflightRefused, match=r"level 03: 11\); --max-depth"):
        demand_shallow({3: 11, 4: 10}, 10)


# ── what is between two levels ──────────────────────────────────────────────────────────────


class Management:
    """Tells of levels whose messages hang, another count each time."""

    def __init__(self, *answers: dict[int, int]) -> None:
        self.answers = [*answers]

    def queues(self, _pattern: str) -> Sequence[QueueState]:
        held = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        return [
            QueueState(name=level_name(V2, level), kind="quorum", held_back=count)
            for level, count in held.items()
        ]


def test_messages_that_hang_between_levels_are_waited_for_or_refused() -> None:
    """Their rows would count as not sent, and would be sent twice."""

    def waited(*answers: dict[int, int], patience_s: float) -> Management:
        management = Management(*answers)
        parts: dict[str, Any] = {"connection": None, "management": management}
        access = LevelAccess(**parts, purpose="test", staging_queues=list, patience_s=patience_s)
        access.wait_until_passed_on(V2)
        return management

    assert waited({4: 1}, {4: 0}, patience_s=60).answers == [{4: 0}]
    with pytest.raises(
        PreflightRefused, match=r"level 03: 32, level 12: 1\).* nothing was changed"
    ):
        waited({12: 1, 3: 32}, patience_s=0.01)


# ── depths, limits ──────────────────────────────────────────────────────────────────────────


def test_what_is_not_known_somewhere_is_not_known_in_sum() -> None:
    """A sum over some levels would look like all."""
    full = LevelDepth(level=1, ready=1, unacknowledged=2, held=3, consumers=4)
    assert [*build_level_depths(V2, [full]).totals.values()] == [1, 2, 3, 4]
    partly = build_level_depths(V2, [full, LevelDepth(level=0, ready=5, consumers=0)])
    assert [*partly.totals.values()] == [6, None, None, 4]


def queue(policy: int | None = None, argument: int | None = None) -> QueueState:
    """Return a queue with these delivery limits."""
    return QueueState(
        name="level",
        kind="quorum",
        effective_policy={} if policy is None else {"delivery-limit": policy},
        arguments={} if argument is None else {"x-delivery-limit": argument},
    )


@pytest.mark.parametrize(
    ("queues", "default", "expected"),
    [
        ([], None, None),
        ([], 20, 20),
        ([queue(), queue()], 20, 20),
        ([queue(policy=100), queue()], 20, 20),  # the other one has the broker's own
        ([queue(policy=100), queue()], None, 100),
        ([queue(policy=100), queue(argument=7)], None, 7),
        ([queue(policy=100_000), queue(policy=100_000)], 20, 100_000),
        ([queue(policy=-1)], 20, None),
        ([queue(policy=-1, argument=5)], 20, 5),
        ([queue(policy=100_000, argument=5)], 20, 5),
    ],
)
def test_the_lowest_delivery_limit_counts(
    queues: list[QueueState], default: int | None, expected: int | None
) -> None:
    """Of all queues, of policy and argument; below 0 is none (measured with RabbitMQ 4.0.5)."""
    assert lowest_limit(queues, default=default) == expected


# ── destinations ────────────────────────────────────────────────────────────────────────────

TO_QUEUE = "bind exchange nsb.v2.delay-delivery to queue Sales with key #.Sales"
TO_EXCHANGE = "bind exchange nsb.v2.delay-delivery to exchange Sales with key #.Sales"
LAST = "bind exchange Sales to queue Sales without a key"


@pytest.mark.parametrize(
    ("there", "gap", "steps"),
    [
        ("", "does not exist", ["create queue Sales", TO_QUEUE]),
        ("queue", "nothing binds it", [TO_QUEUE]),
        ("exchange", "does not exist", ["create queue Sales", LAST, TO_EXCHANGE]),
        ("queue exchange", "nothing binds it", [LAST, TO_EXCHANGE]),
        ("exchange bound", "does not exist", ["create queue Sales", LAST]),
        ("queue exchange bound", "leads nowhere", [LAST]),
        ("queue bound leads", "", []),
        ("bound leads", "", []),
    ],
)
def test_what_is_missing_is_named_with_what_mends_it(
    there: str, gap: str, steps: list[str]
) -> None:
    """The binding that lets messages out comes last, when there is a queue to hold them."""
    found = DestinationBinding(
        version=V2,
        destination=QueueName("Sales"),
        has_queue="queue" in there,
        has_exchange="exchange" in there,
        is_bound="bound" in there,
        leads_on="leads" in there,
    )
    assert found.is_open is not bool(steps)
    assert gap in found.problem
    remedy = "start its endpoint once with installers enabled, or " + ", then ".join(steps)
    assert found.remedy == (remedy if steps else "")
    assert len(found.missing) == sum(step.startswith("bind") for step in steps)


class _Asked(DestinationAnswers[str]):
    """Somebody else finds, while the first question is answered, that one answer is wrong."""

    def __init__(self) -> None:
        super().__init__(lambda: 0.0)
        self.asked = 0

    def _ask(self, names: Sequence[QueueName]) -> Mapping[QueueName, str]:
        self.asked += 1
        if self.asked == 1:
            self.forget([QueueName("Billing")])
        return dict.fromkeys(names, f"answer {self.asked}")


def test_what_is_forgotten_while_it_is_asked_for_is_asked_again() -> None:
    """An answer may be older than the message that came back; all others are remembered."""
    destinations = _Asked()
    told = [destinations.answers([QueueName("Billing"), QueueName("Sales")]) for _ in range(3)]
    assert [each[QueueName("Billing")] for each in told] == ["answer 1", "answer 2", "answer 2"]
    assert [each[QueueName("Sales")] for each in told] == ["answer 1", "answer 1", "answer 1"]


# ── whose messages they are ─────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("app_id", "timeout_id", "is_ours"),
    [
        ("migrator/a1/12.3.4", "t", True),
        ("migrator/a1/12.9.4", "t", True),
        (None, "t", False),  # a delayed retry: the header is still there, the tag is not
        ("migrator/b2/12.3.4", "t", False),
        ("migrator/a1/12.3.receipt", "t", False),
        *(("migrator/a1/12.3.4", other, False) for other in (None, "", b"\xff")),
    ],
)
def test_only_what_we_sent_names_a_row(
    app_id: str | None, timeout_id: object, is_ours: bool
) -> None:
    """By batch and index, whatever the attempt; an id of ours alone says nothing."""
    headers = {} if timeout_id is None else {RELATED_TO_TIMEOUT_ID: timeout_id}
    properties = spec.BasicProperties(app_id=app_id, headers=headers)
    raw = Properties(b"".join(properties.encode()))
    key = address(V2, 24, QueueName("Sales")).routing_key.encode()
    sent = LevelMessage(1, False, key, raw, 7, seen_at=NOW)
    found = find_tagged(sent, V2, 4, ledger_id="a1")
    assert (found is not None) is is_ours
    if found is not None:
        assert (found.row, found.timeout_id, found.body_bytes) == ((12, 4), "t", 7)
        assert (found.place, found.seen_at) == (Place(level=4, delay_s=24, version=V2), NOW)
