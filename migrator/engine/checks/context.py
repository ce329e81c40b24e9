"""What checks are about: the parts they ask, and the operator's choices as plain values."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from migrator.domain.preview import EndpointPreview
from migrator.domain.routing import DelaysVersion
from migrator.domain.states import Mode
from migrator.ports import BrokerFacts, Clock, LedgerFacts, Store


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
