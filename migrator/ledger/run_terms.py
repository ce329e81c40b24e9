"""Where a run sends its timeouts, recorded with it for every daemon that finishes its batches.

Two daemons of one ledger may have different maps, virtual hosts, brokers or delays. A batch goes
where the daemon that claimed it would have sent it, whichever daemon adopts it. A daemon that is
connected to another place leaves the batch alone.

Rule of this file: what an older run did not record is taken from the present settings.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Self


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerPlace:
    """A virtual host of one cluster, and one version of the delays there; None is unknown.

    Not the address: the nodes, ports and names by which a cluster is reached may change.
    """

    cluster: str | None
    vhost: str | None
    delays: str | None
    """``v1`` or ``v2``."""

    def __str__(self) -> str:
        return (
            f"virtual host {self.vhost or 'unknown'} of cluster {self.cluster or 'unknown'}, "
            f"delays {self.delays or 'unknown'}"
        )

    def may_be(self, other: BrokerPlace) -> bool:
        pairs = (
            (self.cluster, other.cluster),
            (self.vhost, other.vhost),
            (self.delays, other.delays),
        )
        return all(mine is None or theirs is None or mine == theirs for mine, theirs in pairs)


ANYWHERE = BrokerPlace(cluster=None, vhost=None, delays=None)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunTerms:
    place: BrokerPlace = ANYWHERE
    renamed: Mapping[str, str] = field(default_factory=dict)
    """Old queue name to new one."""
    own_queue: str
    """The endpoint's input queue: where replies without an address go."""
    topology: str
    """Whether a destination's exchange or its queue is bound to the delays."""
    may_bind: bool
    """Whether the migrator binds destinations to the delays, or expects them to be bound."""
    body_max_bytes: int

    def options(self) -> dict[str, object]:
        return {
            "cluster": self.place.cluster,
            "vhost": self.place.vhost,
            "delays": self.place.delays,
            "map": dict(self.renamed),
            "queue": self.own_queue,
            "topology": self.topology,
            "binds": self.may_bind,
            "max_message_bytes": self.body_max_bytes,
        }

    @classmethod
    def read(cls, options: Mapping[str, Any], now: RunTerms) -> Self:
        """Return the terms in a run's *options*; missing ones come from *now*."""
        return cls(
            place=read_place(options),
            renamed=options.get("map", now.renamed),
            own_queue=options.get("queue", now.own_queue),
            topology=options.get("topology", now.topology),
            may_bind=options.get("binds", now.may_bind),
            body_max_bytes=options.get("max_message_bytes", now.body_max_bytes),
        )


def read_place(options: Mapping[str, Any]) -> BrokerPlace:
    return BrokerPlace(
        cluster=options.get("cluster"), vhost=options.get("vhost"), delays=options.get("delays")
    )
