"""What brokers hold and say, as values: exchanges, queues, bindings, policies, nodes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from migrator.text import grouped


class Kind(StrEnum):
    """What an entity is."""

    EXCHANGE = "exchange"
    QUEUE = "queue"


@dataclass(frozen=True, slots=True, kw_only=True)
class Entity:
    """A queue or an exchange."""

    kind: Kind
    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Binding:
    """A binding between two entities; those of the default exchange do not count."""

    source: str
    """An exchange."""
    target: Entity
    key: str
    arguments: Mapping[str, object] = field(default_factory=dict, hash=False)

    @property
    def target_is_queue(self) -> bool:
        """Whether it leads to a queue."""
        return self.target.kind is Kind.QUEUE

    def touches(self, entity: Entity) -> bool:
        """Return whether *entity* is one of its ends."""
        return self.target == entity or Entity(kind=Kind.EXCHANGE, name=self.source) == entity


def queue_entity(name: str) -> Entity:
    """Return the queue of that name."""
    return Entity(kind=Kind.QUEUE, name=name)


def exchange_entity(name: str) -> Entity:
    """Return the exchange of that name."""
    return Entity(kind=Kind.EXCHANGE, name=name)


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueFacts:
    """What anybody may learn about a queue."""

    name: str
    ready: int
    consumers: int
    is_silent: bool = False
    """It exists, and does not answer; the counts are unknown, and 0 here."""
    is_hidden: bool = False
    """We may not look: whether it exists is unknown, and the counts are 0 here."""


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
    """Name of the user policy; the API names no operator policy here. None unless ``is_told``."""
    effective_policy: Mapping[str, object] = field(default_factory=dict)
    """What policies decide; it beats the queue's own arguments."""
    total: int = 0
    ready: int = 0
    ready_bytes: int = 0
    unacked: int = 0
    held_back: int = 0
    """Expired or rejected, waiting for a place to be dead-lettered to (``messages_dlx``)."""
    consumers: int = 0

    @property
    def messages(self) -> int:
        """All messages, whether or not the broker counts held ones in its total."""
        return max(self.total, self.ready + self.unacked + self.held_back)

    @property
    def is_calm(self) -> bool:
        """Whether it is surely empty, and has no consumer."""
        return self.is_told and not self.messages and not self.consumers


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueMembers:
    """Where a quorum queue is kept, as the broker knows it now."""

    queue: str
    vhost: str
    leader: str
    """A node; empty: none leads. The broker may name one that is not online any more."""
    members: Sequence[str]
    """The nodes that keep a copy."""
    online: Sequence[str]
    """Those of them on which the queue's process runs."""

    @property
    def is_led(self) -> bool:
        """Whether its leader and the greater part of its members are there."""
        return self.leader in self.online and 2 * len(self.online) > len(self.members)

    @property
    def offline(self) -> Sequence[str]:
        """The members on whose nodes the queue's process does not run."""
        return [node for node in self.members if node not in self.online]

    @property
    def process(self) -> str:
        """The name of its process on each node, as Erlang writes it."""
        prefix = "%2F" if self.vhost == "/" else self.vhost
        name = f"{prefix}_{self.queue}".replace("\\", "\\\\").replace("'", "\\'")
        return f"'{name}'"


@dataclass(frozen=True, slots=True, kw_only=True)
class RejectLimit:
    """How much a queue takes before it rejects what is published to it."""

    queue: str
    ready: int
    limit: int
    unit: str
    """``messages`` or ``bytes``."""

    @property
    def is_reached(self) -> bool:
        """Whether it rejects what is published now."""
        return self.ready >= self.limit

    @property
    def text(self) -> str:
        """How full it is, in words."""
        return f"{grouped(self.ready)} of {grouped(self.limit)} {self.unit}"


def reject_limits(queue: QueueState) -> Sequence[RejectLimit]:
    """Return at what *queue* begins to reject messages; empty: it never does.

    Of policy and argument the smaller length counts. Which of them decides how it overflows
    differs: the policy for a quorum queue, the argument for a classic one.
    """
    policy, arguments = queue.effective_policy, queue.arguments
    overflows = [policy.get("overflow"), arguments.get("x-overflow")]
    if queue.kind != "quorum":
        overflows.reverse()
    overflow = next((each for each in overflows if each is not None), None)
    if overflow not in ("reject-publish", "reject-publish-dlx"):
        return ()
    found = []
    for key, unit, ready in (
        ("max-length", "messages", queue.ready),
        ("max-length-bytes", "bytes", queue.ready_bytes),
    ):
        given = [policy.get(key), arguments.get(f"x-{key}")]
        limits = [each for each in given if isinstance(each, int)]
        if limits:
            found.append(RejectLimit(queue=queue.name, ready=ready, limit=min(limits), unit=unit))
    return found


def lowest_limit(queues: Iterable[QueueState], *, default: int | None) -> int | None:
    """Return how often a message may come back into any of *queues*; None: as often as it likes.

    *default* is what the broker itself sets for a queue that nothing is said of. Of policy and
    argument the lower one counts; below 0 stands for no limit. Without a queue it is *default*.
    """
    limits = [_limit(queue, default) for queue in queues] or [default]
    return min((limit for limit in limits if limit is not None), default=None)


def _limit(queue: QueueState, default: int | None) -> int | None:
    told = (queue.effective_policy.get("delivery-limit"), queue.arguments.get("x-delivery-limit"))
    given = [limit for limit in told if isinstance(limit, int)]
    if not given:
        return default
    return min((limit for limit in given if limit >= 0), default=None)


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeState:
    """One node: what makes it block publishers, and what it has left for messages."""

    node: str
    is_running: bool
    memory: bool = False
    """Whether its memory alarm is on."""
    disk: bool = False
    """The same of its disk."""
    left_bytes: int | None = None
    """On disk, above what must stay free; None: a young node does not tell."""


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
