"""What was found on a broker, above all of its native delays, as values.

``unknown`` is never a synonym of fine: it says that nobody could look, and why.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from migrator.delays.routing import DelaysVersion
from migrator.rabbitmq.entities import Binding, Kind


class Presence(StrEnum):
    """Whether an entity is there as it should be."""

    PRESENT = "present"
    ABSENT = "absent"
    WRONG = "wrong"
    """It exists with another type or other arguments than the vendor declares."""
    UNKNOWN = "unknown"
    """It exists, but could not be compared (a permission is missing)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EntityFinding:
    """One exchange or queue of the delays."""

    kind: Kind
    name: str
    presence: Presence
    detail: str = ""
    """The broker's own words where it is wrong or unknown."""
    ready: int | None = None
    """Messages waiting in it; None for exchanges, and where nobody could look."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BindingFindings:
    """Which of the expected bindings exist."""

    missing: tuple[Binding, ...] = ()
    not_checked: str = ""
    """Why nobody looked; empty when somebody did."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DelaysInspection:
    """All entities of one generation, in the order in which they would be declared."""

    version: DelaysVersion
    entities: tuple[EntityFinding, ...]
    bindings: BindingFindings

    def having(self, presence: Presence) -> tuple[EntityFinding, ...]:
        """Return the entities in that condition."""
        return tuple(entity for entity in self.entities if entity.presence is presence)

    @property
    def is_absent(self) -> bool:
        """Whether nothing of this generation exists."""
        return all(entity.presence is Presence.ABSENT for entity in self.entities)

    @property
    def is_usable(self) -> bool:
        """Whether nothing speaks against it: all there, nothing wrong, no binding missing."""
        unfit = {Presence.ABSENT, Presence.WRONG}
        return not self.bindings.missing and all(e.presence not in unfit for e in self.entities)

    @property
    def ready_by_level(self) -> dict[str, int]:
        """Messages waiting in each level queue that was seen."""
        return {entity.name: entity.ready for entity in self.entities if entity.ready is not None}
