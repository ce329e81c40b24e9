"""Tests of ``migrator.delays.walk``."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime

import pytest

from migrator.delays.scan import LevelMessage, LevelScan, ScanEnd, ScanLimits
from migrator.delays.walk import LevelPass, demand_shallow, walk
from migrator.errors import DeliveryLimitNear, PreflightRefused

NOW = datetime(2026, 3, 1, 8, tzinfo=UTC)
ONE_S = ScanLimits(hold_s=1.0)


def message(tag: int) -> LevelMessage:
    """Return a message of whomever."""
    return LevelMessage(
        tag=tag,
        routing_key="",
        seen_at=NOW,
        headers={},
        message_id=None,
        raw_properties=b"",
        body=b"",
    )


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
        found = self.levels.waiting[self.level][: min(at_most, self.room)]
        if self.end is not None or not found:
            self.end = self.end or ScanEnd.EMPTY
            return ()
        whole = len(found) == len(self.levels.waiting[self.level])
        self.end = ScanEnd.EMPTY if whole else ScanEnd.HELD_LONG_ENOUGH
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

    def scan(self, level: int, limits: ScanLimits) -> Scan:
        return Scan(self, level, int(limits.hold_s))

    def ready(self) -> Mapping[int, int]:
        return {level: len(found) for level, found in self.waiting.items()}


def nothing(_level: int, _scan: LevelScan, _messages: Sequence[LevelMessage]) -> int:
    """Leave all where it is."""
    return 0


def test_levels_are_gone_through_from_the_highest() -> None:
    """A message only moves down, so each is met; all has gone back when a level is told."""
    levels, met = Levels({3: [30], 27: [270], 0: []}), list[int]()

    def meet(level: int, _scan: LevelScan, messages: Sequence[LevelMessage]) -> int:
        met.extend(each.tag for each in messages)
        return 0

    for found in walk(levels, {0, 3, 27}, ONE_S, meet):
        assert found.is_whole
        assert levels.closed[found.level] == 1
    assert met == [270, 30]
    assert list(levels.closed) == [27, 3, 0]


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

    (last,) = walk(levels, [5], ONE_S, meet, again=again)
    assert [(each.limits.hold_s, each.done) for each in passes] == [(1, 0), (2, 1), (4, 2)]
    assert last is passes[-1]
    assert last.end is ScanEnd.EMPTY
    assert levels.waiting == {5: [1]}
    assert levels.closed == {5: 3}


def test_a_worn_message_ends_a_walk_unless_levels_may_be_left() -> None:
    """Near the delivery limit nothing is held any more; whoever only looks goes on below."""
    levels = Levels({5: [1], 4: [2]}, worn={5})
    with pytest.raises(DeliveryLimitNear):
        list(walk(levels, [4, 5], ONE_S, nothing))
    assert levels.closed == {5: 1}
    above, below = walk(levels, [4, 5], ONE_S, nothing, leaves_worn=True)
    assert (above.is_whole, str(above.problem)) == (False, "came back too often")
    assert below.is_whole


def test_what_is_held_goes_back_when_somebody_gives_up() -> None:
    """Whatever is raised while messages are held."""

    def stop(_level: int, _scan: LevelScan, _messages: Sequence[LevelMessage]) -> int:
        raise KeyboardInterrupt

    levels = Levels({5: [1], 4: []})
    with pytest.raises(KeyboardInterrupt):
        list(walk(levels, [4, 5], ONE_S, stop))
    assert levels.closed == {5: 1}


def test_too_deep_a_level_is_refused() -> None:
    """And is named."""
    demand_shallow({3: 10, 4: 0}, 10)
    with pytest.raises(PreflightRefused, match=r"level 03: 11\); --deepest"):
        demand_shallow({3: 11, 4: 10}, 10)
