"""What is to become of one message found in a level."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from migrator.delays.routing import DelaysVersion, parse_routing_key
from migrator.delays.scan import LevelMessage
from migrator.nservicebus.headers import BROKER_INSTRUCTIONS
from migrator.nservicebus.timeouts import QueueName
from migrator.transfer.outcome import WhyLeft
from migrator.transfer.rules import Due, Sighting, due_of

_HEADER_RESERVE_BYTES: Final = 256
"""What is written anew: TimeSent and DelayInSeconds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Movable:
    """A message that can be published anew."""

    message: LevelMessage
    destination: QueueName
    due: Due


@dataclass(frozen=True, slots=True, kw_only=True)
class Stays:
    """A message that must not be touched."""

    message: LevelMessage
    destination: QueueName
    why: WhyLeft
    detail: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Poison:
    """A message that nobody can tell the way of: not readable, or not of the delays."""

    message: LevelMessage


@dataclass(frozen=True, slots=True, kw_only=True)
class Judge:
    """Knows where messages were found, and what the target takes."""

    version: DelaysVersion
    """Of the levels in which they were found."""
    believe_headers: bool
    has_our_clock: bool
    """Whether times that the source wrote can be compared with ours."""
    header_max_bytes: int
    body_max_bytes: int

    def judge(self, level: int, message: LevelMessage) -> Movable | Stays | Poison:
        """Return what is to become of *message*; reachability of its destination is not asked."""
        if message.problem is not None:
            return Poison(message=message)
        try:
            delay_s, destination = parse_routing_key(message.routing_key)
        except ValueError:
            return Poison(message=message)
        obstacle = self._obstacle(message)
        if obstacle is not None:
            why, detail = obstacle
            return Stays(message=message, destination=destination, why=why, detail=detail)
        sighting = Sighting(
            version=self.version,
            level=level,
            delay_s=delay_s,
            seen_at=message.seen_at,
            headers=message.headers,
            has_our_clock=self.has_our_clock,
        )
        due = due_of(sighting, believe_headers=self.believe_headers)
        return Movable(message=message, destination=destination, due=due)

    def _obstacle(self, message: LevelMessage) -> tuple[WhyLeft, str] | None:
        if not BROKER_INSTRUCTIONS.isdisjoint(message.headers):
            return WhyLeft.COPIES, "a message asks for copies by a header CC or BCC"
        if len(message.body) > self.body_max_bytes:
            return WhyLeft.TOO_LARGE, f"a body of {len(message.body)} bytes"
        size = len(message.raw_properties) + _HEADER_RESERVE_BYTES
        if size > self.header_max_bytes:
            return WhyLeft.TOO_LARGE, f"headers of {size} bytes"
        return None
