"""Facts for preflight: asked before anything is done; nothing here changes anything."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from migrator.delays.depths import LevelDepths
from migrator.delays.destinations import DestinationBinding
from migrator.delays.routing import DelaysVersion
from migrator.errors import NotChecked
from migrator.ledger.hand_overs import HandedOver
from migrator.nservicebus.timeouts import QueueName
from migrator.rabbitmq.entities import Room


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerServer:
    """What the broker says about itself."""

    product: str
    version: tuple[int, int, int]
    """All zeros when it cannot be read."""
    version_text: str
    flags: Mapping[str, bool] | NotChecked
    """Feature flags, by name: whether enabled."""


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueProbe:
    """A queue that exists."""

    messages: int
    """Ready ones; what consumers hold is invisible here."""
    consumers: int


@dataclass(frozen=True, slots=True, kw_only=True)
class DelayEntities:
    """How far the native delays of one generation are there."""

    missing: Sequence[str]
    """Exchanges, queues and bindings that do not exist, each as a short text."""
    different: Mapping[str, str]
    """Entities that exist with other arguments: name to what differs."""
    not_checked: Sequence[NotChecked]
    """What could not be looked at (bindings, without the management API)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """A policy, or an operator policy, that applies to a queue."""

    name: str
    definition: Mapping[str, object]


class BrokerFacts(Protocol):
    """What checks ask the broker.

    Raises, each of its methods:
        TargetUnavailable: The broker cannot be reached (network).
        AccessRefused: It answered and refused (authentication, virtual host, permission).

    Absence is an answer, not an error; so is ``NotChecked``.
    """

    def server(self) -> BrokerServer:
        """Connect as the daemon would, and return what the broker says about itself."""
        ...

    def queues(self, names: Collection[str]) -> Mapping[str, QueueProbe | None]:
        """Return each of *names*, with None for a queue that does not exist."""
        ...

    def not_configurable(self, names: Collection[str]) -> Mapping[str, str]:
        """Return those of *names* that we may not declare as queues, with the broker's words.

        Makes nothing. May be empty.
        """
        ...

    def not_bindable(
        self, version: DelaysVersion, names: Collection[QueueName]
    ) -> Mapping[QueueName, str]:
        """Return those of *names* that we may not bind to the delays, with the broker's words.

        Binds nothing, and asks nothing about whether they exist. May be empty.
        """
        ...

    def delay_entities(self, version: DelaysVersion) -> DelayEntities:
        """Compare the native delays of *version* with what they must be."""
        ...

    def policies(self, names: Collection[str]) -> Mapping[str, Sequence[Policy]] | NotChecked:
        """Return the policies that apply to the queues *names*, or would once they exist."""
        ...

    def diverting(self, names: Collection[str]) -> Mapping[str, Sequence[str]] | NotChecked:
        """Return those of the exchanges *names* that give what they cannot route to another one.

        With what makes each do so: policies, also such as would apply once it exists, and its own
        argument.
        """
        ...

    def bound_names(self, version: DelaysVersion) -> frozenset[QueueName] | NotChecked:
        """Return the names that are bound to the delivery exchange by ``#.<name>``."""
        ...

    def ways(
        self, version: DelaysVersion, names: Collection[QueueName]
    ) -> Mapping[QueueName, DestinationBinding] | NotChecked:
        """Return how far the way from the delays to each of *names* is there."""
        ...

    def stuck(self, version: DelaysVersion) -> Mapping[int, int] | NotChecked:
        """Return how many expired messages wait in vain for a target, by level; no zeros."""
        ...

    def ladder(self, version: DelaysVersion) -> LevelDepths:
        """Return every level of *version* with what waits in it, as far as it is known."""
        ...

    def alarms(self) -> Sequence[str] | NotChecked:
        """Return the resource alarms in force, each as a short text."""
        ...

    def room(self) -> Room | NotChecked:
        """Return what is left for messages."""
        ...


class LedgerFacts(Protocol):
    """What checks ask the ledger."""

    def verify(self) -> str:
        """Return a short text about the ledger (version, id) when it is fit for use.

        Raises:
            LedgerMissing: There is none, or not of the version this program needs.
            LedgerCloned: It was created in another database.
            DatabaseFailedOver: Another server has taken over since.
            StoreUnavailable: It cannot be asked.
        """
        ...

    def forgets(self) -> str | None:
        """Return how its database may forget what it has committed; None: it keeps it.

        Raises:
            StoreUnavailable: It cannot be asked.
        """
        ...

    def standbys_behind(self) -> Sequence[str] | NotChecked:
        """Return its asynchronous standbys, when no synchronous one has all that was committed.

        Raises:
            StoreUnavailable: It cannot be asked.
        """
        ...


class HandOvers(Protocol):
    """What the ledger knows of timeouts that wait in the delays, or waited there."""

    def handed_over(
        self,
        *,
        due_from: datetime,
        due_until: datetime | None = None,
        handed_over_from: datetime | None = None,
    ) -> Sequence[HandedOver]:
        """Return what was handed over and is due in a range, by destination, sorted; may be empty.

        Names are those that messages went to, as far as the renaming in force now is the one
        of that time.

        Args:
            due_from: Aware, UTC; included.
            due_until: Aware, UTC; not included. None: without end.
            handed_over_from: Aware, by the ledger's clock; what was handed over before is left
                out, and not read. None: nothing is.

        Raises:
            StoreUnavailable, LedgerMissing, LedgerError: It cannot be asked; nothing was changed.
        """
        ...
