"""What was asked for, and what happened to the messages of all levels."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from datetime import timedelta
from enum import StrEnum

from migrator.delays.routing import DelaysVersion
from migrator.nservicebus.conversion import Reason
from migrator.nservicebus.timeouts import QueueName
from migrator.rabbitmq.names import PREFIX


@dataclass(frozen=True, slots=True, kw_only=True)
class TransferRequest:
    """What an operator asked for."""

    verb: str
    """Names the poison queue."""
    source: DelaysVersion
    target: DelaysVersion
    target_url: str | None = None
    """None: the same broker."""
    believe_headers: bool = True
    is_dry: bool = False
    """Only count; everything goes back."""

    @property
    def poison_queue(self) -> str:
        """Where unreadable messages go, on the source."""
        return f"{PREFIX}poison.{self.verb}"


class WhyLeft(StrEnum):
    """Why a message stayed where it was."""

    DESTINATION_UNKNOWN = Reason.DESTINATION_UNKNOWN.value
    """The target has no such queue."""
    DESTINATION_UNBOUND = Reason.DESTINATION_UNBOUND.value
    """Nothing leads to the queue, and nothing may be made to."""
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
