"""One lane's link to the broker: a connection to publish, and one to consume and settle.

The link dies as a whole when either connection does; whoever works with it opens a new one.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Final

from migrator.broker.admin import AdminSession, admin_session
from migrator.broker.connection import ConnectionSettings
from migrator.broker.frames import encode_properties
from migrator.broker.names import entry_exchange
from migrator.broker.publisher import Parcel, Publisher, WindowLimits
from migrator.broker.staging import LaneQueues, RabbitStaging, declare_staging
from migrator.broker.wire import Pump, Wire
from migrator.domain.delays import BITS
from migrator.domain.marks import Pass, build_mark
from migrator.domain.routing import DelaysVersion, level_name
from migrator.domain.timeouts import Lane
from migrator.errors import AccessRefused
from migrator.ports import Outgoing, Settled, Staging

_log = logging.getLogger(__name__)

_MARGIN: Final = 50
"""Prefetch beyond a batch and its receipt: leftovers of abandoned passes come first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkSettings:
    """What every link of this process shares."""

    connection: ConnectionSettings
    version: DelaysVersion
    ledger_id: str
    limits: WindowLimits = field(default_factory=WindowLimits)
    use_entries: bool = True
    """Publish by our own entry exchanges, where the broker user may declare and bind them."""


def open_link(
    settings: LinkSettings,
    *,
    lane: Lane,
    owner: str,
    prefetch: int,
    beat: Callable[[], None] = lambda: None,
) -> RabbitLink:
    """Return a link for *lane*, ready to publish.

    Args:
        settings: Where and how.
        lane: Whose queues; the caller holds its lease.
        owner: Who we are, for the broker's list of connections.
        prefetch: Rows that may be held in staging; at least those of the largest open batch
            with its receipt.
        beat: Called while the broker is waited for, many times a second; never raises.

    Raises:
        AccessRefused: User, password, virtual host, or a permission that is needed.
        TargetUnavailable: Nobody answers.
        TargetError: The delay levels do not exist.
    """
    pump = Pump(beat)
    try:
        wire = Wire(pump, settings.connection, f"migrator {owner} lane {lane} publish")
        exchanges = _entries(settings) if settings.use_entries else None
        return RabbitLink(
            settings,
            lane=lane,
            owner=owner,
            prefetch=prefetch,
            wire=wire,
            exchanges=exchanges or _native_exchanges(settings.version),
        )
    except BaseException:
        pump.close()
        raise


class RabbitLink:
    """Implements ``ports.Link``; made by ``open_link``."""

    def __init__(
        self,
        settings: LinkSettings,
        *,
        lane: Lane,
        owner: str,
        prefetch: int,
        wire: Wire,
        exchanges: tuple[str, ...],
    ) -> None:
        """Publish over *wire*, a delay of one second or more to its level's exchange."""
        self._settings = settings
        self._queues = LaneQueues(ledger_id=settings.ledger_id, lane=lane, version=settings.version)
        self._owner = owner
        self._prefetch = prefetch
        self._wire = wire
        self._exchanges = exchanges
        self._publisher = Publisher(wire, settings.limits)
        self._staging: RabbitStaging | None = None

    @property
    def frame_max_bytes(self) -> int:
        """The negotiated frame size."""
        return self._wire.frame_max_bytes

    @property
    def blocked_reason(self) -> str | None:
        """Why the broker makes us wait (memory or disk alarm), or None."""
        return self._wire.blocked_reason

    def publish(self, batch_pass: Pass, messages: Iterable[Outgoing], settled: Settled) -> None:
        """Publish into the native delays; see ``ports.Link``."""
        self._publisher.publish(batch_pass, self._parcels(batch_pass, messages), settled)

    def staging(self) -> Staging:
        """Return the lane's staging queue, declared, bound and consumed from now on."""
        if self._staging is None:
            with admin_session(self._settings.connection, purpose="declare staging") as admin:
                declare_staging(admin, self._queues)
            name = f"migrator {self._owner} lane {self._queues.lane} consume"
            self._staging = RabbitStaging(
                wire=Wire(self._wire.pump, self._settings.connection, name),
                publisher=self._publisher,
                queues=self._queues,
                prefetch=self._prefetch,
            )
        return self._staging

    def idle(self, wait_s: float) -> None:
        """Serve the connections for up to *wait_s* seconds."""
        self._wire.pump.run(_never, wait_s)

    def serve(self) -> None:
        """Do what is due (heartbeats), without waiting; see ``ports.Link``."""
        self._wire.pump.serve()

    def close(self) -> None:
        """Close both connections; never raises, and takes two seconds at most."""
        self._wire.pump.close()

    def _parcels(self, batch_pass: Pass, messages: Iterable[Outgoing]) -> Iterator[Parcel]:
        ledger_id = self._settings.ledger_id
        for outgoing in messages:
            message, address = outgoing.message, outgoing.address
            app_id = build_mark(ledger_id, batch_pass, message.row_index)
            # a delay of 0 is routed through by level 00's exchange; its queue would add a second
            exchange = self._exchanges[address.level] if outgoing.delay_s else address.exchange
            yield Parcel(
                message.row_index,
                exchange,
                address.routing_key,
                encode_properties(message, app_id=app_id, headers=message.headers),
                message.body,
            )


def _never() -> bool:
    return False


# ── entries: fanout exchanges that spare the broker the topic matching of 29-word keys ──────────


def _native_exchanges(version: DelaysVersion) -> tuple[str, ...]:
    return tuple(level_name(version, level) for level in range(BITS))


def _entries(settings: LinkSettings) -> tuple[str, ...] | None:
    """Return the entry exchanges by level, declared and bound; None when we may not."""
    try:
        with admin_session(settings.connection, purpose="declare entries") as admin:
            return declare_entries(admin, settings.version)
    except AccessRefused as exc:
        _log.warning(
            "publishing through the native exchanges: entry exchanges may not be declared or bound",
            extra={"action": "entries_refused", "detail": str(exc)},
        )
        return None


def declare_entries(admin: AdminSession, version: DelaysVersion) -> tuple[str, ...]:
    """Declare a fanout exchange per level, bound to the native queue; return them by level.

    A message that enters here with its native key expires into the same chain as one that came
    through the native exchange (measured; design section 5.1).
    """
    names = tuple(entry_exchange(version, level) for level in range(BITS))
    for level, name in enumerate(names):
        admin.declare_exchange(name, "fanout")
        admin.bind_queue(name, level_name(version, level), "")
    return names
