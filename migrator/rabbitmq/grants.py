"""The least a broker user needs, as text for whoever administers the broker."""

from __future__ import annotations

import re
import shlex
from collections.abc import Collection
from dataclasses import dataclass
from typing import Final

from migrator.delays.routing import DelaysVersion, delivery_exchange
from migrator.rabbitmq.names import PREFIX

_OURS = re.escape(PREFIX)
_DEFAULT_EXCHANGE: Final = "amq.default"
"""What permissions call the exchange without a name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Grants:
    """The three patterns of a RabbitMQ permission."""

    configure: str
    write: str
    read: str

    def command(self, *, user: str, vhost: str) -> str:
        """Return the ``rabbitmqctl`` command that grants them."""
        patterns = (self.configure, self.write, self.read)
        return shlex.join(("rabbitmqctl", "set_permissions", "-p", vhost, user, *patterns))


def least_grants(
    version: DelaysVersion,
    *,
    destinations: Collection[str] | None = None,
    binds_destinations: bool = True,
    creates_delays: bool = False,
    satellites: Collection[str] = (),
    sends_when_due: bool = False,
) -> Grants:
    """Return the patterns for migrating into *version*, and for dispatching.

    Args:
        version: Generation of the delays.
        destinations: Queue names to be bound or sent to; None: any, so all may be written to.
        binds_destinations: False when all endpoints support native delays and bind themselves.
        creates_delays: Whether migrator shall declare the delay levels as well.
        satellites: Queues of timeout managers to be consumed; what fails leaves them by the
            default exchange.
        sends_when_due: Whether timeouts are sent to their destinations without a delay.
    """
    native = re.escape(delivery_exchange(version).removesuffix("delivery"))
    configure = _anchored([_OURS, native] if creates_delays else [_OURS])
    read = _anchored([_OURS, native, *map(_exactly, sorted(satellites))])
    dispatches = sends_when_due or bool(satellites)
    writes_to_destinations = binds_destinations or dispatches
    if writes_to_destinations and destinations is None:
        return Grants(configure=configure, write=".*", read=read)
    names = sorted(destinations or ()) if writes_to_destinations else []
    names += [_DEFAULT_EXCHANGE] if dispatches else []
    return Grants(
        configure=configure,
        write=_anchored([_OURS, native, *map(_exactly, names)]),
        read=read,
    )


def grants_text(grants: Grants, *, user: str, vhost: str) -> str:
    """Return what to run, and why each pattern is needed."""
    return "\n".join(
        (
            f"# Least permissions for migrator's user {user!r} in virtual host {vhost!r}.",
            "# configure: its own exchanges and queues (staging, receipts, retries …)",
            "# write: publish to them and to the delays, and be bound: levels and destinations;",
            "#   a dispatcher sends to destinations, and what fails by the default exchange",
            "# read: consume its own queues, bind from the delivery exchange, recall from levels;",
            "#   a dispatcher consumes the satellites of its endpoints",
            grants.command(user=user, vhost=vhost),
        )
    )


def _exactly(name: str) -> str:
    return f"{re.escape(name)}$"


def _anchored(starts: Collection[str]) -> str:
    return f"^({'|'.join(starts)})"
