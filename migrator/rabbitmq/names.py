"""Names of the entities migrator itself puts on the broker, and the least rights it needs.

All names begin with ``migrator.``; those of delays name their generation, such as ``v2``.

Public, because operators write policies and permissions for them. Source: design section 5.
"""

from __future__ import annotations

import hashlib
import re
import shlex
from collections.abc import Collection
from dataclasses import dataclass
from enum import Enum, auto
from typing import Final

from migrator.nservicebus.timeouts import Lane

PREFIX: Final = "migrator."
_V2: Final = "v2"
_OURS = re.escape(PREFIX)
_DEFAULT_EXCHANGE: Final = "amq.default"
"""What permissions call the exchange without a name."""
_DELAYS: Final = ("nsb.delay-", "nsb.v2.")
"""How the names of both generations begin."""
_LOOKS_WANT_RIGHTS: Final = (4, 2, 6)
_LOOKS_WANT_CONFIGURE: Final = ((4, 2, 6), (4, 3, 0))
_NAME_BYTES: Final = 255
_DIGEST_CHARS: Final = 16


def entry_exchange(version: str, level: int) -> str:
    """Return the fanout exchange that leads straight into the queue of *level*."""
    return f"{PREFIX}entry.{version}.{level:02d}"


def router_exchange(version: str) -> str:
    """Return the headers exchange that staged messages are dead-lettered to."""
    return f"{PREFIX}router.{version}"


def staging_name(version: str, ledger_id: str, lane: Lane) -> str:
    """Return the name shared by a lane's staging exchange and its staging queue.

    The queue dead-letters to the router of one generation, so each generation has its own.
    """
    suffix = "" if version == _V2 else f".{version}"
    return f"{PREFIX}staging.{ledger_id}.{lane}{suffix}"


def receipts_queue(ledger_id: str, lane: Lane) -> str:
    """Return the queue in which receipts of committed attempts arrive."""
    return f"{PREFIX}receipts.{ledger_id}.{lane}"


def guard_queue(ledger_id: str, lane: Lane) -> str:
    """Return the exclusive queue whose existence says that the lane has an owner."""
    return f"{PREFIX}lane.{ledger_id}.{lane}"


def poison_queue(ledger_id: str) -> str:
    """Return the queue that keeps messages which are none of migrator's."""
    return f"{PREFIX}poison.{ledger_id}"


def receipt_value(ledger_id: str, lane: Lane) -> str:
    """Return the header value by which the router tells this lane's receipts."""
    return f"receipt.{ledger_id}.{lane}"


def retry_queue(queue: str, delay_s: int) -> str:
    """Return the queue in which a failed message of *queue* waits for *delay_s* seconds.

    A name that would be too long for the broker is cut, and told from others by a hash.
    """
    name = f"{PREFIX}retry.{queue}.{delay_s}"
    if len(name.encode()) <= _NAME_BYTES:
        return name
    digest = hashlib.sha256(queue.encode()).hexdigest()[:_DIGEST_CHARS]
    room = _NAME_BYTES - len(f"{PREFIX}retry..{digest}.{delay_s}".encode())
    kept = queue.encode()[:room].decode(errors="ignore")
    return f"{PREFIX}retry.{kept}.{digest}.{delay_s}"


# ── rights ────────────────────────────────────────────────────────────────────────────────────


class Looking(Enum):
    """What it takes to ask whether a queue or an exchange exists (a passive declare)."""

    FREE = auto()
    """Nothing: before 4.2.6."""
    CONFIGURE = auto()
    """``configure`` on its name: 4.2.6 and 4.3.0."""
    ANY_RIGHT = auto()
    """Any right on its name: 4.2.7, 4.3.1 and later."""


def looking(release: tuple[int, ...]) -> Looking:
    """Return what it takes on a broker of *release*."""
    if release < _LOOKS_WANT_RIGHTS:
        return Looking.FREE
    return Looking.CONFIGURE if release in _LOOKS_WANT_CONFIGURE else Looking.ANY_RIGHT


@dataclass(frozen=True, slots=True, kw_only=True)
class Grants:
    """The three patterns of a RabbitMQ permission."""

    configure: str
    write: str
    read: str


def least_grants(
    delays_prefix: str,
    *,
    destinations: Collection[str] | None = None,
    binds_destinations: bool = True,
    creates_delays: bool = False,
    moves_delays: bool = False,
    satellites: Collection[str] = (),
    decommissioned: Collection[str] = (),
    sends_when_due: bool = False,
    looks: Looking = Looking.FREE,
    looked_at: Collection[str] = (),
) -> Grants:
    """Return the patterns for migrating into the native delays, and for dispatching.

    Args:
        delays_prefix: How the names of all exchanges and queues of the delays begin.
        destinations: Queue names to be bound or sent to; None: any, so all may be written to.
        binds_destinations: False when all endpoints support native delays and bind themselves.
        creates_delays: Whether migrator shall declare, or delete, the delay levels as well.
        moves_delays: Whether it shall move what waits in one generation into the other, or into
            another broker; what it cannot read goes aside by the default exchange.
        satellites: Queues of timeout managers to be consumed; what fails leaves them by the
            default exchange.
        decommissioned: Queues of timeout managers to be unbound, also from the delays of either
            generation, and deleted, with their exchanges.
        sends_when_due: Whether timeouts are sent to their destinations without a delay.
        looks: What it takes there to ask whether something exists.
        looked_at: Queues of which that is asked, besides all of these and the destinations; and
            levels of both generations are looked through.
    """
    native = re.escape(delays_prefix)
    every = list(map(re.escape, _DELAYS))
    is_of_both = moves_delays or bool(decommissioned) or looks is not Looking.FREE
    levels = every if is_of_both else [native]
    shown = [] if looks is Looking.FREE else sorted({*looked_at, *(destinations or ())})
    is_for_all = looks is not Looking.FREE and destinations is None
    changed = sorted(decommissioned)
    configured = [_OURS, native] if creates_delays else [_OURS]
    if looks is Looking.CONFIGURE:
        configured = [_OURS, *levels]
        changed = sorted({*shown, *satellites, *decommissioned})
    configured += map(exactly, changed)
    configure = ".*" if looks is Looking.CONFIGURE and is_for_all else _anchored(configured)
    read = _anchored([_OURS, *levels, *map(exactly, sorted({*satellites, *decommissioned}))])
    dispatches = sends_when_due or bool(satellites)
    writes_to_destinations = binds_destinations or dispatches
    names = sorted(destinations or ()) if writes_to_destinations else []
    names = sorted({*names, *shown}) if looks is Looking.ANY_RIGHT else names
    names = sorted({*names, *decommissioned})
    names += [_DEFAULT_EXCHANGE] if dispatches or moves_delays else []
    write = _anchored([_OURS, *(every if moves_delays else [native]), *map(exactly, names)])
    is_shown_all = is_for_all and looks is Looking.ANY_RIGHT
    if is_shown_all or (writes_to_destinations and destinations is None):
        write = ".*"
    return Grants(configure=configure, write=write, read=read)


def grants_text(grants: Grants, *, user: str, vhost: str, looks: Looking = Looking.FREE) -> str:
    """Return what to run, and why each pattern is needed."""
    patterns = grants.configure, grants.write, grants.read
    return "\n".join(
        (
            f"# Least permissions for migrator's user {user!r} in virtual host {vhost!r}.",
            "# configure: its own exchanges and queues (staging, receipts, retries …)",
            "# write: publish to them and to the delays, and be bound: levels and destinations;",
            "#   a dispatcher sends to destinations, and what fails by the default exchange",
            "# read: consume its own queues, bind from the delivery exchange, recall from levels;",
            "#   a dispatcher consumes the satellites of its endpoints",
            f"# {_LOOKS_TEXT[looks]}",
            shlex.join(("rabbitmqctl", "set_permissions", "-p", vhost, user, *patterns)),
        )
    )


_LOOKS_TEXT: Final = {
    Looking.FREE: "RabbitMQ before 4.2.6: whether a queue exists, every user may ask",
    Looking.CONFIGURE: "RabbitMQ 4.2.6 and 4.3.0: whether a queue exists, only those may ask who "
    "may configure it; 4.2.7 and 4.3.1 want less",
    Looking.ANY_RIGHT: "any RabbitMQ but 4.2.6 and 4.3.0, which want more: --rabbitmq VERSION; "
    "write is also what shows whether a queue exists",
}


def exactly(name: str) -> str:
    """Return the part of a pattern that grants a permission for *name* alone."""
    return f"{re.escape(name)}$"


def _anchored(starts: Collection[str]) -> str:
    return f"^({'|'.join(starts)})"
