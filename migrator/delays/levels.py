"""What was found on a broker, above all of its native delays, as values.

``unknown`` is never a synonym of fine: it says that nobody could look, and why.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from migrator.delays.routing import BindingSpec, DelaysVersion
from migrator.rabbitmq.entities import Kind


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

    missing: tuple[BindingSpec, ...] = ()
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


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueState:
    """One queue as the management API tells it; counts lag by some seconds."""

    name: str
    kind: str
    """``classic``, ``quorum`` or ``stream``."""
    is_told: bool = True
    """False in a queue's first seconds: the broker tells no counts and no policy yet."""
    arguments: Mapping[str, object] = field(default_factory=dict)
    policy: str | None = None
    effective_policy: Mapping[str, object] = field(default_factory=dict)
    """What policies decide; it beats the queue's own arguments."""
    total: int = 0
    ready: int = 0
    unacked: int = 0
    held_back: int = 0
    """Expired or rejected, waiting for a place to be dead-lettered to (``messages_dlx``)."""
    consumers: int = 0


def lowest_limit(queues: Iterable[QueueState], *, default: int | None) -> int | None:
    """Return how often a message may come back into any of *queues*; None: as often as it likes.

    *default* is what the broker itself sets for a queue that nothing is said of. Of policy and
    argument the lower one counts; below 0 stands for no limit. Without a queue it is *default*.
    """
    limits = [_limit(queue, default) for queue in queues] or [default]
    return min((limit for limit in limits if limit is not None), default=None)


def _limit(queue: QueueState, default: int | None) -> int | None:
    told = (
        queue.effective_policy.get("delivery-limit"),
        queue.arguments.get("x-delivery-limit"),
    )
    given = [limit for limit in told if isinstance(limit, int)]
    if not given:
        return default
    return min((limit for limit in given if limit >= 0), default=None)


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeAlarms:
    """What makes a node block publishers."""

    node: str
    is_running: bool
    memory: bool
    disk: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerFacts:
    """What the broker says about itself on any AMQP connection."""

    product: str
    version: str
    cluster_name: str
    frame_max_bytes: int

    @property
    def release(self) -> tuple[int, ...]:
        """Return the version as numbers, without a pre-release suffix; empty when unreadable."""
        numbers = self.version.partition("-")[0].partition("+")[0].split(".")
        return tuple(int(n) for n in numbers) if all(n.isdigit() for n in numbers) else ()


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyRule:
    """A policy as it is written, whatever it applies to now."""

    name: str
    pattern: str
    """A regular expression over names."""
    apply_to: str
    """``all``, ``queues``, ``classic_queues``, ``quorum_queues``, ``exchanges`` …"""
    priority: int
    is_operator: bool
    """Operator policies apply beside the others, not instead of them."""
    definition: Mapping[str, object] = field(default_factory=dict)
