"""Exchanges, queues and bindings of any virtual host, as values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum


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

    def touches(self, entity: Entity) -> bool:
        """Return whether *entity* is one of its ends."""
        return self.target == entity or Entity(kind=Kind.EXCHANGE, name=self.source) == entity


def queue_entity(name: str) -> Entity:
    """Return the queue of that name."""
    return Entity(kind=Kind.QUEUE, name=name)


def exchange_entity(name: str) -> Entity:
    """Return the exchange of that name."""
    return Entity(kind=Kind.EXCHANGE, name=name)
