"""Relocations assembled: connections, destinations of the target, and what must be right first."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Final

from migrator.app.app import App
from migrator.delays.destinations import DestinationRules, Destinations
from migrator.delays.routing import DelaysVersion
from migrator.delays.scan import utc_now
from migrator.delays.topology import Presence, delivery_limit, inspect_delays
from migrator.errors import ConfigError, PreflightRefused
from migrator.rabbitmq.addresses import parse_addresses
from migrator.rabbitmq.clocks import is_our_clock
from migrator.rabbitmq.connection import ConnectionSettings, LastUsed
from migrator.rabbitmq.entities import Kind
from migrator.rabbitmq.names import PREFIX
from migrator.rabbitmq.publisher import WindowLimits
from migrator.transfer.broker import (
    RabbitRelocation,
    RelocationSettings,
    Side,
    is_same_place,
    open_relocation,
)
from migrator.transfer.judging import Judge
from migrator.transfer.moving import Relocation, RelocationPlan
from migrator.transfer.outcome import Outcome

_UNFIT: Final = {Presence.ABSENT, Presence.WRONG}


@dataclass(frozen=True, slots=True, kw_only=True)
class RelocationRequest:
    """What an operator asked for."""

    verb: str
    """Names the poison queue."""
    source: DelaysVersion
    target: DelaysVersion
    target_url: str | None = None
    """None: the same broker."""
    believe_headers: bool = True
    is_dry: bool = False

    @property
    def poison_queue(self) -> str:
        """Where unreadable messages go, on the source."""
        return f"{PREFIX}poison.{self.verb}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadyRelocation:
    """A relocation that may begin."""

    relocation: Relocation
    waiting: int
    """Messages in the source's levels, as far as a count tells."""
    has_our_clock: bool
    """Whether the source's clock is ours; if not, fewer due times can be told exactly."""


@contextmanager
def relocating(
    app: App,
    request: RelocationRequest,
    *,
    on_progress: Callable[[Outcome], None] = lambda _outcome: None,
) -> Iterator[ReadyRelocation]:
    """Open what *request* needs, and close it at the end.

    Raises:
        ConfigError: Source and target are the same.
        PreflightRefused: Levels are missing; nothing was changed.
        TargetUnavailable, AccessRefused: A broker cannot be used.
    """
    source = Side(connection=app.connection, version=request.source)
    target = Side(connection=_target(app, request), version=request.target)
    _check_places(source, target, request)
    _check_delays(source, role="source", whole=False)
    _check_delays(target, role="target", whole=True)
    link = open_relocation(_settings(app, request, source, target))
    try:
        waiting = sum(link.levels.ready().values())
        judge = Judge(
            version=request.source,
            believe_headers=request.believe_headers,
            has_our_clock=bool(is_our_clock(source.connection, utc_now)),
            header_max_bytes=link.largest_header_bytes,
            body_max_bytes=app.settings.broker.max_message_bytes,
        )
        relocation = _relocation(app, request, link, target, judge, on_progress)
        yield ReadyRelocation(
            relocation=relocation, waiting=waiting, has_our_clock=judge.has_our_clock
        )
    finally:
        link.close()


def _target(app: App, request: RelocationRequest) -> ConnectionSettings:
    if request.target_url is None:
        return app.connection
    nodes = parse_addresses(request.target_url)
    return replace(app.connection, nodes=nodes, last_used=LastUsed())


def _check_places(source: Side, target: Side, request: RelocationRequest) -> None:
    """Refuse to move messages to where they come from: they would be met again for ever."""
    if request.target_url is None or source.version is not target.version:
        return
    if is_same_place(source.connection, target.connection):
        raise ConfigError(
            "source and target are the same virtual host of the same broker, and the same "
            "generation of delays; name another target"
        )


def _check_delays(side: Side, *, role: str, whole: bool) -> None:
    """Refuse where levels are missing: of the source, only the queues are needed."""
    found = inspect_delays(side.connection, side.version).entities
    if whole:
        unfit = [entity for entity in found if entity.presence in _UNFIT]
    else:
        queues = [entity for entity in found if entity.kind is Kind.QUEUE]
        unfit = [queue for queue in queues if queue.presence is Presence.ABSENT]
    if unfit:
        listed = ", ".join(entity.name for entity in unfit[:3])
        raise PreflightRefused(
            f"{side.connection.address}: {len(unfit)} entities of the {role}'s delays "
            f"{side.version} are missing or different ({listed} ...); nothing was changed. "
            f"`migrator delays create --delays {side.version}` makes what is missing"
        )


def _settings(
    app: App, request: RelocationRequest, source: Side, target: Side
) -> RelocationSettings:
    given = app.settings
    return RelocationSettings(
        source=source,
        target=target,
        limits=WindowLimits(
            messages=given.handover.window,
            body_bytes=given.handover.window_bytes,
            confirm_deadline_s=given.broker.confirm_deadline.total_seconds(),
        ),
        delivery_limit=delivery_limit(source.connection, app.management, source.version),
        use_entries=given.handover.use_entries and not request.is_dry,
    )


def _relocation(
    app: App,
    request: RelocationRequest,
    link: RabbitRelocation,
    target: Side,
    judge: Judge,
    on_progress: Callable[[Outcome], None],
) -> Relocation:
    given = app.settings.broker
    may_bind = not (request.is_dry or given.all_endpoints_support_delayed_delivery)
    knows_bindings = request.target_url is None and not request.is_dry
    find = app.management.bindings_from if app.management and knows_bindings else None
    return Relocation(
        levels=link.levels,
        relocator=link,
        destinations=Destinations(
            target.connection,
            DestinationRules(version=target.version, topology=given.topology, bind=may_bind),
            find_bindings=find,
        ),
        judge=judge,
        plan=RelocationPlan(
            target=request.target, poison_queue=request.poison_queue, is_dry=request.is_dry
        ),
        now=utc_now,
        on_progress=on_progress,
    )
