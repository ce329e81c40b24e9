"""What checks are about: the parts they ask, and the operator's choices as plain values."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final

from migrator.delays.routing import DelaysVersion
from migrator.ledger.report import OpenCommit
from migrator.ledger.states import Mode
from migrator.ledger.work import Clock
from migrator.nservicebus.timeouts import QueueName
from migrator.preflight.ports import BrokerFacts, LedgerFacts
from migrator.stores.due_times import DueTimeRules
from migrator.stores.endpoints import EndpointPreview
from migrator.stores.ports import Store

MIGRATE: Final = "migrate"
DISPATCH: Final = "dispatch"
FORWARD: Final = "forward"
MOVING: Final = (MIGRATE, FORWARD)
"""Modes in which stored rows are moved into the native delays."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Satellites:
    """The queues of one endpoint whose timeout manager we are to be."""

    endpoint: str
    queue: str
    """Its input queue; the satellites are named after it."""
    error_queue: str
    retry_queues: Sequence[str]
    """Ours, whether they exist already or not; may be empty."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Choices:
    """What the operator decided, as far as it matters here."""

    version: DelaysVersion
    mode: Mode
    cutoff: timedelta
    may_bind: bool
    """False: all endpoints support native delays and bind themselves."""
    accepts_suffix_collisions: bool
    own_queues: Sequence[str]
    """Our staging and receipts queues, whether they exist already or not."""
    own_exchanges: Sequence[str]
    """Our exchanges before the levels, whether they exist already or not."""
    modes: Mapping[str, str]
    """What is done for each configured endpoint: MIGRATE, DISPATCH or FORWARD."""
    queues: Mapping[str, str]
    """The input queue of each configured endpoint."""
    satellites: Sequence[Satellites]
    """Of the chosen endpoints in mode dispatch or forward."""
    sends_near_due: bool
    """Our dispatcher sends the rows that are too near to be moved."""
    due_times: DueTimeRules = field(default_factory=DueTimeRules)
    vhost: str = "/"
    held: Collection[QueueName] = ()
    """Destinations that an earlier run could not reach, and whose rows it left in the store."""
    other_commits: Sequence[OpenCommit] = ()
    """Batches of ended processes that only a run into other delays can settle."""

    def mode_of(self, endpoint: str) -> str:
        """Return what is done for *endpoint*."""
        return self.modes.get(endpoint, MIGRATE)

    @property
    def retry_queues(self) -> Sequence[str]:
        """Our retry queues for all satellites; may be empty."""
        return [name for each in self.satellites for name in each.retry_queues]


@dataclass(frozen=True, slots=True, kw_only=True)
class Context:
    """Everything checks may ask; each check takes only what it needs of it."""

    store: Store
    ledger: LedgerFacts
    clock: Clock
    """The database's."""
    wall_clock: Callable[[], datetime]
    """This machine's; aware, UTC."""
    broker: BrokerFacts
    endpoint_names: Sequence[str]
    """As the operator named them; empty: all the store has."""
    previews: Sequence[EndpointPreview] | None
    """None: rows were not looked at, so what depends on them is not checked."""
    choices: Choices

    @property
    def names(self) -> Sequence[str]:
        """The endpoints that are meant; empty when nobody can tell."""
        if self.endpoint_names or self.previews is None:
            return self.endpoint_names
        return [preview.endpoint for preview in self.previews]

    def has(self, *modes: str) -> bool:
        """Return whether a chosen endpoint is in one of *modes*; yes, when nobody can tell."""
        return not self.names or any(self.choices.mode_of(name) in modes for name in self.names)

    @property
    def needs_delays(self) -> bool:
        """Whether messages are to enter the native delays."""
        return self.has(*MOVING)

    def previews_of(self, *modes: str) -> Sequence[EndpointPreview] | None:
        """Return the previews of endpoints in one of *modes*; None: rows were not looked at."""
        if self.previews is None:
            return None
        return [p for p in self.previews if self.choices.mode_of(p.endpoint) in modes]
