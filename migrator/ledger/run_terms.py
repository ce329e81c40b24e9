"""Where a run sends its timeouts, kept with it: whoever finishes its batches sends them there.

Two daemons of one ledger may have different maps, virtual hosts, brokers or delays. A batch that
one of them claimed goes where that one would have sent it, whichever daemon adopts the batch. A
daemon that is connected to another place leaves the batch alone.

Rule of this file: what an older run did not record is taken to be as it is now.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Self


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerPlace:
    """A virtual host of one cluster, and one version of the delays there.

    Not the address: the nodes, ports and names by which a cluster is reached may change.
    """

    cluster: str | None
    """As the broker calls it; None: not known, so that it may be any."""
    vhost: str | None
    """None: as above."""
    delays: str | None
    """``v1`` or ``v2``; None: as above."""

    def __str__(self) -> str:
        """Return it for people."""
        return (
            f"virtual host {self.vhost or 'unknown'} of cluster {self.cluster or 'unknown'}, "
            f"delays {self.delays or 'unknown'}"
        )

    def may_be(self, other: BrokerPlace) -> bool:
        """Return whether nothing that is known of both differs."""
        pairs = (
            (self.cluster, other.cluster),
            (self.vhost, other.vhost),
            (self.delays, other.delays),
        )
        return all(mine is None or theirs is None or mine == theirs for mine, theirs in pairs)


ANYWHERE = BrokerPlace(cluster=None, vhost=None, delays=None)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunTerms:
    """Whatever decides where a run's timeouts go, and as what."""

    place: BrokerPlace = ANYWHERE
    renamed: Mapping[str, str] = field(default_factory=dict)
    """Old queue name to new one."""
    own_queue: str
    """The endpoint's input queue: where replies go that name no address."""
    topology: str
    """Whether a destination's exchange or its queue is bound to the delays."""
    may_bind: bool
    """Whether destinations are bound to the delays, or are taken to be."""
    body_max_bytes: int
    """A larger body goes to quarantine."""

    def options(self) -> dict[str, object]:
        """Return what the run records; ``read`` reads it."""
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
        """Return the terms in a run's *options*; what they do not say is as in *now*."""
        return cls(
            place=read_place(options),
            renamed=options.get("map", now.renamed),
            own_queue=options.get("queue", now.own_queue),
            topology=options.get("topology", now.topology),
            may_bind=options.get("binds", now.may_bind),
            body_max_bytes=options.get("max_message_bytes", now.body_max_bytes),
        )


def read_place(options: Mapping[str, Any]) -> BrokerPlace:
    """Return where a run with these *options* sends its timeouts."""
    return BrokerPlace(
        cluster=options.get("cluster"), vhost=options.get("vhost"), delays=options.get("delays")
    )
