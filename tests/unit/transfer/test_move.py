"""Moving between levels, with levels and a target in memory."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from migrator.delays.destinations import Destinations
from migrator.delays.routing import DelaysVersion, Unreachable, address, entry_level
from migrator.delays.scan import LevelMessage, Levels, LevelScan, ScanEnd, ScanLimits
from migrator.errors import TargetUnavailable
from migrator.nservicebus.conversion import Reason
from migrator.nservicebus.headers import DELAY_IN_SECONDS, TIME_SENT
from migrator.nservicebus.timeouts import QueueName
from migrator.nservicebus.wiretime import build_wire_time
from migrator.rabbitmq.messages import PublishResult
from migrator.transfer.broker import Move, TransferLink
from migrator.transfer.move import Judge, Transfer
from migrator.transfer.report import Outcome, TransferRequest, WhyLeft
from migrator.transfer.rules import RETRIES

NOW = datetime(2026, 3, 1, 8, tzinfo=UTC)
V1, V2 = DelaysVersion.V1, DelaysVersion.V2
DAY_S = 86_400


def message(
    name: str, delay_s: int = DAY_S, *, to: str = "Billing", **changes: Any
) -> LevelMessage:
    """Return an honest message, seen in its first level right after it was published."""
    key = address(V1, delay_s, QueueName(to)).routing_key
    headers = {TIME_SENT: build_wire_time(NOW), DELAY_IN_SECONDS: delay_s}
    fields: dict[str, Any] = {
        "tag": 0,
        "routing_key": key,
        "seen_at": NOW,
        "headers": headers | changes.pop("more", {}),
        "message_id": name,
        "raw_properties": b"\0\0",
        "body": name.encode(),
    }
    return LevelMessage(**(fields | changes))


@dataclass
class FakeScan:
    """Delivers what is in one level; ends early after *window* messages that stayed."""

    waiting: list[LevelMessage]
    limits: ScanLimits
    window: int
    end: ScanEnd | None = None
    is_closed: bool = False
    _seen: set[str | None] = field(default_factory=set)
    _tags: dict[int, LevelMessage] = field(default_factory=dict)

    def receive(self, *, at_most: int) -> Sequence[LevelMessage]:
        new = [m for m in self.waiting if m.message_id not in self._seen]
        if not new or len(self._tags) >= self.window:
            self.end = ScanEnd.HELD_LONG_ENOUGH if new else ScanEnd.EMPTY
            return ()
        given = []
        for each in new[:at_most]:
            self._seen.add(each.message_id)
            tagged = replace(each, tag=len(self._seen))
            self._tags[tagged.tag] = each
            given.append(tagged)
        return given

    def acknowledge(self, tags: Iterable[int]) -> None:
        for tag in tags:
            self.waiting.remove(self._tags.pop(tag))

    def close(self) -> None:
        self.is_closed = True


@dataclass
class Place(TransferLink):
    """Levels, a target, and destinations: all of it in memory."""

    queues: dict[int, list[LevelMessage]] = field(default_factory=dict)
    window: int = 10_000
    missing: set[str] = field(default_factory=set)
    returned: set[str] = field(default_factory=set)
    nacked: set[str] = field(default_factory=set)
    fails_at: int | None = None
    moved: list[Move] = field(default_factory=list)
    poison: list[tuple[str, LevelMessage]] = field(default_factory=list)
    asked: list[str] = field(default_factory=list)
    scans: list[FakeScan] = field(default_factory=list)
    largest_header_bytes: int = 1000

    def put(self, *messages: LevelMessage, level: int | None = None) -> None:
        for each in messages:
            where = entry_level(DAY_S) if level is None else level
            self.queues.setdefault(where, []).append(each)

    # the source

    def scan(self, level: int, limits: ScanLimits) -> FakeScan:
        waiting = self.queues.setdefault(level, [])
        self.scans.append(FakeScan(waiting, limits, self.window * int(limits.hold_s) // 20))
        return self.scans[-1]

    def ready(self) -> Mapping[int, int]:
        return {level: len(found) for level, found in self.queues.items()}

    # the target

    def move(self, moves: Iterable[Move], answers: PublishResult) -> None:
        for move in moves:
            if self.fails_at is not None and len(self.moved) >= self.fails_at:
                raise TargetUnavailable("cut")
            destination = move.address.routing_key[56:]
            if destination in self.returned:
                answers.returned.add(move.key)
            elif destination not in self.nacked:
                answers.confirmed.add(move.key)
                self.moved.append(move)

    def publish_poison(
        self, queue: str, messages: Collection[LevelMessage], answers: PublishResult
    ) -> None:
        for each in messages:
            if "nobody" not in self.nacked:
                self.poison.append((queue, each))
                answers.confirmed.add(each.tag)

    def serve(self) -> None: ...

    def unreachable(self, names: Collection[QueueName]) -> Mapping[QueueName, Unreachable]:
        self.asked += names
        refusal = Unreachable(reason=Reason.DESTINATION_UNKNOWN, detail="no such queue")
        return {name: refusal for name in names if name in self.missing}

    def transfer(
        self, *, chunk: int = 3, believe_headers: bool = True, is_dry: bool = False
    ) -> Transfer:
        """Return a transfer of everything here."""
        return Transfer(
            levels=self,
            link=self,
            destinations=FakeDestinations(self),
            judge=Judge(
                version=V1,
                believe_headers=believe_headers,
                has_our_clock=True,
                header_max_bytes=self.largest_header_bytes,
                body_max_bytes=100,
            ),
            request=TransferRequest(verb="migrate", source=V1, target=V2, is_dry=is_dry),
            now=lambda: NOW,
            chunk=chunk,
        )


class FakeDestinations(Destinations):
    """What is missing in a place."""

    def __init__(self, place: Place) -> None:
        self.unreachable = place.unreachable  # type: ignore[method-assign]  # a fake


_levels: type[Levels] = Place
_scan: type[LevelScan] = FakeScan


def _run(place: Place, **plan: Any) -> Outcome:
    return place.transfer(**plan).run()


def test_levels_are_emptied_from_the_highest_down() -> None:
    """Every message is published once, with its delay, and acknowledged."""
    place = Place()
    place.put(*(message(f"m{n}") for n in range(7)))
    place.put(message("high", 2**20), level=20)
    outcome = _run(place)
    assert (outcome.moved, outcome.left, outcome.poison) == (8, 0, 0)
    assert [move.message.message_id for move in place.moved] == [
        "high",
        *(f"m{n}" for n in range(7)),
    ]
    assert place.moved[1].address == address(V2, DAY_S, QueueName("Billing"))
    assert place.moved[1].headers == {DELAY_IN_SECONDS: DAY_S}
    assert all(not waiting for waiting in place.queues.values())
    assert list(outcome.levels) == list(range(27, -1, -1))
    assert outcome.levels[16].found == 7
    assert outcome.unfinished == []
    assert all(scan.is_closed for scan in place.scans)
    assert len(place.scans) == 28


def test_a_message_that_is_due_has_no_delay() -> None:
    """It is routed through at once."""
    place = Place()
    place.put(message("late", 1, seen_at=NOW - timedelta(seconds=9)), level=0)
    place.put(message("late too", 1, seen_at=NOW - timedelta(seconds=9), headers={}), level=0)
    _run(place)
    assert [(move.delay_s, move.address.level) for move in place.moved] == [(0, 0), (0, 0)]


def test_what_cannot_be_believed_is_late_by_what_is_told() -> None:
    """The report has their number and the most that one is late."""
    place = Place()
    place.put(message("retry", more={RETRIES: "1"}), message("honest"))
    outcome = _run(place)
    assert (outcome.uncertain, outcome.largest_uncertainty) == (1, timedelta(seconds=2**16))
    place.put(message("honest"))
    assert _run(place, believe_headers=False).uncertain == 1


def test_destinations_that_are_missing_keep_their_own_messages() -> None:
    """Others move; each name is asked for once in a level, and the words are kept."""
    place = Place(missing={"Gone"})
    place.put(*(message(f"g{n}", to="Gone") for n in range(4)), message("b"))
    outcome = _run(place)
    assert (outcome.moved, outcome.left) == (1, 4)
    assert outcome.why_left == {WhyLeft.DESTINATION_UNKNOWN: 4}
    gone = outcome.destinations[QueueName("Gone")]
    assert (gone.moved, gone.left, gone.detail) == (0, 4, "no such queue")
    assert place.asked.count("Gone") == 1
    assert len(place.queues[16]) == 4


def test_many_destinations_are_asked_for_in_portions() -> None:
    """So that the connections are served between."""
    place = Place()
    place.put(*(message(f"m{n}", to=f"Queue{n}") for n in range(50)))
    assert _run(place, chunk=100).moved == 50
    assert sorted(set(place.asked)) == sorted(f"Queue{n}" for n in range(50))


def test_what_the_broker_gives_back_or_refuses_stays() -> None:
    """A returned message names a destination without a way; a nacked one may be tried again."""
    place = Place(returned={"Blind"}, nacked={"Full", "nobody"})
    place.put(*(message(f"b{n}", to="Blind") for n in range(5)), message("f", to="Full"))
    place.put(message("odd", routing_key="odd"))
    outcome = _run(place)
    assert outcome.why_left == {WhyLeft.DESTINATION_UNBOUND: 5, WhyLeft.REFUSED: 2}
    assert "no way" in outcome.destinations[QueueName("Blind")].detail
    assert (outcome.moved, outcome.poison, len(place.queues[16])) == (0, 0, 7)


def test_poison_goes_into_its_queue_and_stops_nothing() -> None:
    """Unreadable properties, and keys that are not of the delays."""
    place = Place()
    place.put(message("deep", problem="too deep"), message("odd", routing_key="odd"), message("b"))
    outcome = _run(place)
    assert (outcome.moved, outcome.poison, outcome.left) == (1, 2, 0)
    assert [(queue, each.message_id) for queue, each in place.poison] == [
        ("migrator.poison.migrate", "deep"),
        ("migrator.poison.migrate", "odd"),
    ]


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"more": {"CC": ["elsewhere"]}}, WhyLeft.COPIES),
        ({"body": b"x" * 101}, WhyLeft.TOO_LARGE),
        ({"raw_properties": b"x" * 800}, WhyLeft.TOO_LARGE),
    ],
)
def test_what_the_target_would_not_take_stays(changes: dict[str, Any], why: WhyLeft) -> None:
    """It is left where it is, with its reason, before anything is sent."""
    place = Place()
    place.put(message("m", **changes))
    outcome = _run(place)
    assert (outcome.why_left, outcome.moved) == ({why: 1}, 0)


def test_a_dry_run_changes_nothing() -> None:
    """It counts what would be moved, put aside and left, each once."""
    place = Place(missing={"Gone"})
    place.put(message("b"), message("g", to="Gone"), message("odd", routing_key="odd"))
    outcome = _run(place, is_dry=True)
    assert (outcome.moved, outcome.left, outcome.poison) == (1, 1, 1)
    assert (place.moved, place.poison, len(place.queues[16])) == ([], [], 3)


def test_a_level_begins_anew_after_the_hold_time() -> None:
    """What stays is counted once, and what is behind it is reached."""
    place = Place(missing={"Gone"}, window=4)
    place.put(*(m for n in range(6) for m in (message(f"g{n}", to="Gone"), message(f"b{n}"))))
    outcome = _run(place, chunk=2)
    assert (outcome.moved, outcome.left) == (6, 6)
    assert outcome.why_left == {WhyLeft.DESTINATION_UNKNOWN: 6}
    holds = [scan.limits.hold_s for scan in place.scans if scan.waiting is place.queues[16]]
    assert holds[0] == 20
    assert holds[-1] > 20


def test_a_level_that_only_holds_what_stays_is_given_up() -> None:
    """When even the longest hold shows nothing else; the level is named."""
    place = Place(missing={"Gone"}, window=1)
    place.put(*(message(f"g{n}", to="Gone") for n in range(40)), message("behind"))
    outcome = _run(place, chunk=1)
    assert outcome.unfinished == [16]
    assert outcome.moved == 0
    assert outcome.left == 8
    assert outcome.levels[15].is_complete


def test_an_error_leaves_what_was_not_confirmed() -> None:
    """What was moved before is told; the scan is closed; running again goes on."""
    place = Place(fails_at=4)
    place.put(*(message(f"m{n}") for n in range(7)))
    transfer = place.transfer()
    with pytest.raises(TargetUnavailable):
        transfer.run()
    assert transfer.outcome.moved == 3
    assert len(place.queues[16]) == 4
    assert all(scan.is_closed for scan in place.scans)
    place.fails_at = None
    assert _run(place).moved == 4


def test_a_clock_that_was_set_back_makes_no_longer_delay() -> None:
    """A delay never counts from before the message was seen."""
    place = Place()
    place.put(message("m", 2**28 - 1, seen_at=NOW + timedelta(hours=1), headers={}), level=27)
    _run(place)
    assert place.moved[0].delay_s == 2**28 - 1
