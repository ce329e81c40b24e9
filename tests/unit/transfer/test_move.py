"""Moving between levels, with levels and a target in memory."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any, cast

import pytest
from pika import spec

from migrator.delays.destinations import Destinations
from migrator.delays.routing import (
    DelaysVersion,
    Unreachable,
    address,
    entry_level,
    parse_routing_key,
)
from migrator.delays.scan import LevelMessage, ScanEnd, ScanLimits
from migrator.errors import TargetUnavailable
from migrator.nservicebus.conversion import Reason
from migrator.nservicebus.headers import DELAY_IN_SECONDS, TIME_SENT
from migrator.nservicebus.timeouts import QueueName
from migrator.nservicebus.wiretime import build_wire_time
from migrator.rabbitmq.messages import EncodedMessage, PublishResult
from migrator.rabbitmq.properties import Properties
from migrator.transfer.broker import TransferLink
from migrator.transfer.move import Movable, Outcome, Stays, Transfer, WhyLeft
from migrator.transfer.rules import RETRIES, TransferRequest

NOW = datetime(2026, 3, 1, 8, tzinfo=UTC)
V1, V2 = DelaysVersion.V1, DelaysVersion.V2
DAY_S = 86_400


def message(
    name: str, delay_s: int = DAY_S, *, to: str = "Billing", **changes: Any
) -> LevelMessage:
    """Return an honest message, seen in its first level right after it was published."""
    key = address(V1, delay_s, QueueName(to)).routing_key
    sent = {TIME_SENT: build_wire_time(NOW), DELAY_IN_SECONDS: delay_s} | changes.pop("more", {})
    properties = spec.BasicProperties(headers=changes.pop("headers", sent), message_id=name)
    fields: dict[str, Any] = {
        "tag": 0,
        "is_redelivered": False,
        "raw_key": key.encode(),
        "seen_at": NOW,
        "properties": Properties(b"".join(properties.encode())),
    }
    body = changes.pop("body", name.encode())
    fields |= {"body_bytes": len(body), "kept_body": body}
    return LevelMessage(**(fields | changes))


class FakeScan:
    """Delivers what is in one level; ends early after *window* messages that stayed."""

    def __init__(self, waiting: list[LevelMessage], limits: ScanLimits, window: int) -> None:
        self.waiting, self.limits, self.window = waiting, limits, window
        self.end: ScanEnd | None = None
        self.is_closed = False
        self._seen: list[LevelMessage] = []
        self._held: set[int] = set()

    def receive(self, *, at_most: int) -> Sequence[LevelMessage]:
        new = [each for each in self.waiting if each not in self._seen]
        if not new or len(self._held) >= self.window:
            self.end = ScanEnd.HELD_LONG_ENOUGH if new else ScanEnd.EMPTY
            return ()
        begin = len(self._seen)
        self._seen += new[:at_most]
        self._held.update(range(begin, len(self._seen)))
        return [replace(each, tag=begin + n) for n, each in enumerate(new[:at_most])]

    def acknowledge(self, tags: Iterable[int]) -> None:
        for tag in tags:
            self._held.remove(tag)
            self.waiting.remove(self._seen[tag])

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
    moved: list[EncodedMessage] = field(default_factory=list)
    asked: list[str] = field(default_factory=list)
    scans: list[FakeScan] = field(default_factory=list)
    largest_header_bytes = 1000

    def __post_init__(self) -> None:
        self.levels = cast(Any, self)
        self._target, self._exchanges = V2, tuple(str(level) for level in range(28))

    def put(self, *messages: LevelMessage, level: int = entry_level(DAY_S)) -> None:
        self.queues.setdefault(level, []).extend(messages)

    def scan(self, level: int, limits: ScanLimits, _choose: object = None) -> FakeScan:
        waiting = self.queues.setdefault(level, [])
        self.scans.append(FakeScan(waiting, limits, self.window * int(limits.hold_s) // 20))
        return self.scans[-1]

    def ready(self) -> Mapping[int, int]:
        return {level: len(found) for level, found in self.queues.items()}

    def publish(self, copies: Iterable[EncodedMessage], answers: PublishResult) -> None:
        for copy in copies:
            if self.fails_at is not None and len(self.moved) >= self.fails_at:
                raise TargetUnavailable("cut")
            destination = copy.routing_key[56:]
            if destination in self.returned:
                answers.returned.add(copy.row_index)
            elif destination not in self.nacked:
                answers.confirmed.add(copy.row_index)
                self.moved.append(copy)

    def publish_poison(
        self, queue: str, messages: Collection[LevelMessage], answers: PublishResult
    ) -> None:
        """Take none of them."""

    def serve(self) -> None: ...

    def unreachable(self, names: Collection[QueueName]) -> Mapping[QueueName, Unreachable]:
        self.asked += names
        refusal = Unreachable(reason=Reason.DESTINATION_UNKNOWN, detail="no such queue")
        return {name: refusal for name in names if name in self.missing}

    def transfer(self, *, chunk: int = 3, believe_headers: bool = True) -> Transfer:
        """Return a transfer of everything here."""
        return Transfer(
            link=self,
            destinations=cast(Destinations, self),
            request=TransferRequest(
                verb="migrate", source=V1, target=V2, believe_headers=believe_headers
            ),
            has_our_clock=True,
            body_max_bytes=100,
            now=lambda: NOW,
            chunk=chunk,
        )


def _run(place: Place, **plan: Any) -> Outcome:
    return place.transfer(**plan).run()


def test_a_message_that_is_due_has_no_delay() -> None:
    """It is routed through at once, by the native exchange; a delay enters by our own."""
    place = Place()
    place.put(message("late", 1, seen_at=NOW - timedelta(seconds=9)), level=0)
    place.put(message("late too", 1, seen_at=NOW - timedelta(seconds=9), headers={}), level=0)
    place.put(message("in time"))
    _run(place)
    assert [(copy.exchange, parse_routing_key(copy.routing_key)[0]) for copy in place.moved] == [
        ("16", DAY_S),
        ("nsb.v2.delay-level-00", 0),
        ("nsb.v2.delay-level-00", 0),
    ]


def test_what_cannot_be_believed_is_late_by_what_is_told() -> None:
    """The report has their number and the most that one is late."""
    place = Place()
    place.put(message("retry", more={RETRIES: "1"}), message("honest"))
    outcome = _run(place)
    assert (outcome.uncertain, outcome.largest_uncertainty) == (1, timedelta(seconds=2**16))
    place.put(message("honest"))
    assert _run(place, believe_headers=False).uncertain == 1


def test_destinations_are_asked_for_once_and_in_portions() -> None:
    """Each name in a level, so many at a time that the connections are served between."""
    place = Place(missing={"Gone"})
    place.put(*(message(f"g{n}", to="Gone") for n in range(4)))
    place.put(*(message(f"m{n}", to=f"Queue{n}") for n in range(50)))
    outcome = _run(place, chunk=100)
    assert (outcome.moved, outcome.left) == (50, 4)
    assert sorted(place.asked) == sorted(["Gone", *(f"Queue{n}" for n in range(50))])


def test_what_the_broker_gives_back_or_refuses_stays() -> None:
    """A returned message names a destination without a way; a nacked one may be tried again."""
    place = Place(returned={"Blind"}, nacked={"Full"})
    place.put(*(message(f"b{n}", to="Blind") for n in range(5)), message("f", to="Full"))
    place.put(message("odd", raw_key=b"odd"))  # its copy is refused, too
    outcome = _run(place)
    assert outcome.why_left == {WhyLeft.DESTINATION_UNBOUND: 5, WhyLeft.REFUSED: 2}
    assert "could not route" in outcome.destinations[QueueName("Blind")].detail
    assert (outcome.moved, outcome.poison, len(place.queues[16])) == (0, 0, 7)


@pytest.mark.parametrize(
    ("changes", "kind"),
    [
        ({}, Movable),
        ({"more": {"CC": ["elsewhere"]}}, WhyLeft.COPIES),
        ({"body": b"x" * 101}, WhyLeft.TOO_LARGE),
        ({"more": {"long": "x" * 800}}, WhyLeft.TOO_LARGE),
        ({"properties": Properties(b"what?")}, type(None)),
        ({"raw_key": b"\xff"}, type(None)),
        ({"raw_key": b"odd"}, type(None)),
    ],
)
def test_what_becomes_of_a_message_is_known_before_anything_is_sent(
    changes: dict[str, Any], kind: object
) -> None:
    """What the target would not take stays, what nobody can read is put aside."""
    found = Place().transfer().judge(16, message("m", **changes))
    assert (found.why if isinstance(found, Stays) else type(found)) == kind


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
    assert (outcome.moved, outcome.left) == (0, 8)
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
    assert parse_routing_key(place.moved[0].routing_key)[0] == 2**28 - 1
