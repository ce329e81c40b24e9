"""The native delay infrastructure: declare it, or look at it without touching anything.

Declared exactly as the vendor's installers do (reference ``native-delays.md`` section 2), so that
whoever comes second finds it equivalent. Looking goes passively first; only what exists is then
declared again, which changes nothing and makes the broker compare type and arguments.
``unknown`` is never a synonym of fine: it says that nobody could look, and why.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from enum import StrEnum
from itertools import cycle
from typing import TYPE_CHECKING, Final

from migrator.delays.depths import LevelDepth, LevelDepths, build_level_depths
from migrator.delays.routing import (
    DelaysVersion,
    Infrastructure,
    QueueSpec,
    infrastructure,
    level_name,
)
from migrator.errors import AccessRefused, EntityMismatch, TargetError
from migrator.nservicebus.timeouts import BITS
from migrator.rabbitmq.admin import AdminSession, admin_session
from migrator.rabbitmq.connection import ConnectionSettings
from migrator.rabbitmq.entities import Binding, Entity, Kind, QueueFacts, QueueState, lowest_limit
from migrator.rabbitmq.names import entry_exchange
from migrator.rabbitmq.server import find_queues

if TYPE_CHECKING:  # not every broker has the API, and its client is slow to import
    from migrator.rabbitmq.management import ManagementApi

_log = logging.getLogger(__name__)

_NO_API: Final = "only the management API tells; set broker.management_url"
_YOUNG: Final = "some levels are so new that the broker has no counts yet"
_LIMITED_SINCE: Final = (4,)
_DEFAULT_LIMIT: Final = 20
FindBindings = Callable[[str], Iterable[Binding]]
"""Returns the bindings that start at an exchange; only the management API knows them."""


class Presence(StrEnum):
    """Whether an entity is there as it should be."""

    PRESENT = "present"
    ABSENT = "absent"
    WRONG = "wrong"
    """It exists with another type or other arguments than the vendor declares."""
    UNKNOWN = "unknown"
    """It exists, but could not be compared (a permission is missing)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EntityFinding:
    """One exchange or queue of the delays."""

    kind: Kind
    name: str
    presence: Presence
    detail: str = ""
    """The broker's own words where it is wrong or unknown."""
    ready: int | None = None
    """Messages waiting in it; None for exchanges, and where nobody could look."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BindingFindings:
    """Which of the expected bindings exist."""

    missing: tuple[Binding, ...] = ()
    not_checked: str = ""
    """Why nobody looked; empty when somebody did."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DelaysInspection:
    """All entities of one generation, in the order in which they would be declared."""

    version: DelaysVersion
    entities: tuple[EntityFinding, ...]
    bindings: BindingFindings

    def having(self, presence: Presence) -> tuple[EntityFinding, ...]:
        """Return the entities in that condition."""
        return tuple(entity for entity in self.entities if entity.presence is presence)

    @property
    def is_absent(self) -> bool:
        """Whether nothing of this generation exists."""
        return all(entity.presence is Presence.ABSENT for entity in self.entities)

    @property
    def is_usable(self) -> bool:
        """Whether nothing speaks against it: all there, nothing wrong, no binding missing."""
        unfit = {Presence.ABSENT, Presence.WRONG}
        return not self.bindings.missing and all(e.presence not in unfit for e in self.entities)


def create_delays(settings: ConnectionSettings, version: DelaysVersion) -> None:
    """Declare every exchange, queue and binding; nothing changes where all is there.

    Levels are declared over the nodes in turn: a quorum queue is led by the node it was declared
    over. An argument or a policy is not needed for that, and the argument would have every endpoint
    refused that declares them without it.

    Raises:
        EntityMismatch: One exists with other arguments; what came before it is declared.
        AccessRefused: A permission is missing; says for what.
        TargetUnavailable: The broker cannot be reached.
    """
    with ExitStack() as stack:
        first, *others = (
            stack.enter_context(
                admin_session(settings.beginning_with(number), purpose="create delays")
            )
            for number in range(len(settings.nodes))
        )
        declare_delays(first, infrastructure(version), others=others)


def declare_delays(
    admin: AdminSession, delays: Infrastructure, *, others: Sequence[AdminSession] = ()
) -> None:
    """Declare *delays* over an open session; the queues over *others* as well, in turn."""
    for name in delays.exchanges:
        admin.declare_exchange(name, "topic")
    for session, queue in zip(cycle((admin, *others)), delays.queues, strict=False):
        session.declare_queue(queue.name, queue.arguments)
    for binding in delays.bindings:
        admin.bind(binding)


def inspect_delays(
    settings: ConnectionSettings,
    version: DelaysVersion,
    *,
    find_bindings: FindBindings | None = None,
) -> DelaysInspection:
    """Return what exists of a generation and whether it is as it should be; creates nothing.

    Args:
        settings: Where to look.
        version: Which generation.
        find_bindings: None when there is no management API: then bindings are not checked.

    Raises:
        TargetUnavailable, AccessRefused: The broker cannot be asked.
    """
    delays = infrastructure(version)
    with admin_session(settings, purpose="inspect delays") as admin:
        exchanges = [_inspect_exchange(admin, name) for name in delays.exchanges]
        queues = [_inspect_queue(admin, queue) for queue in delays.queues]
    existing = {entity.name for entity in exchanges if entity.presence is not Presence.ABSENT}
    return DelaysInspection(
        version=version,
        entities=(*exchanges, *queues),
        bindings=_inspect_bindings(delays, existing, find_bindings),
    )


def _inspect_exchange(admin: AdminSession, name: str) -> EntityFinding:
    if not admin.has_exchange(name):
        return EntityFinding(kind=Kind.EXCHANGE, name=name, presence=Presence.ABSENT)
    presence, detail = _compare(lambda: admin.declare_exchange(name, "topic"))
    return EntityFinding(kind=Kind.EXCHANGE, name=name, presence=presence, detail=detail)


def _inspect_queue(admin: AdminSession, queue: QueueSpec) -> EntityFinding:
    facts = admin.queue(queue.name)
    if facts is None:
        return EntityFinding(kind=Kind.QUEUE, name=queue.name, presence=Presence.ABSENT)
    presence, detail = _compare(lambda: admin.declare_queue(queue.name, queue.arguments))
    return EntityFinding(
        kind=Kind.QUEUE, name=queue.name, presence=presence, detail=detail, ready=facts.ready
    )


def _compare(declare: Callable[[], object]) -> tuple[Presence, str]:
    """Declare what exists once more: the broker compares, and changes nothing."""
    try:
        declare()
    except EntityMismatch as exc:
        return Presence.WRONG, str(exc)
    except AccessRefused as exc:
        return Presence.UNKNOWN, str(exc)
    return Presence.PRESENT, ""


def _inspect_bindings(
    delays: Infrastructure, existing: set[str], find_bindings: FindBindings | None
) -> BindingFindings:
    if find_bindings is None:
        return BindingFindings(not_checked="bindings are only told by the management API")
    sources = {binding.source for binding in delays.bindings} & existing
    found = {_identity(b) for source in sorted(sources) for b in find_bindings(source)}
    return BindingFindings(missing=tuple(b for b in delays.bindings if _identity(b) not in found))


def _identity(binding: Binding) -> tuple[str, Entity, str]:
    return binding.source, binding.target, binding.key


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


def entry_exchanges(
    settings: ConnectionSettings, version: DelaysVersion, *, use_entries: bool
) -> tuple[str, ...]:
    """Return the exchange by which each level is entered: ours where we want and may, or native."""
    if use_entries:
        try:
            with admin_session(settings, purpose="declare entries") as admin:
                return declare_entries(admin, version)
        except AccessRefused as exc:
            _log.warning(
                "publishing through the native exchanges: entry exchanges may not be declared or "
                "bound",
                extra={"action": "entries_refused", "detail": str(exc)},
            )
    return tuple(level_name(version, level) for level in range(BITS))


# ── what waits in the levels ──────────────────────────────────────────────────────────────────


def read_level_depths(
    settings: ConnectionSettings, management: ManagementApi | None, version: DelaysVersion
) -> LevelDepths:
    """Return every level with what is known of it; without the API that is only what is ready.

    The API's counts lag by some seconds.

    Raises:
        TargetUnavailable, AccessRefused: The broker cannot be asked.
    """
    names = {level_name(version, level): level for level in range(BITS)}
    if management is None:
        return build_level_depths(version, _plain(settings, names), gap=_NO_API)
    try:
        told = level_queues(management, version)
    except TargetError as exc:
        return build_level_depths(version, _plain(settings, names), gap=str(exc))
    steps = {names[queue.name]: _told(names[queue.name], queue) for queue in told if queue.is_told}
    young = {queue.name: names[queue.name] for queue in told if not queue.is_told}
    if young:
        steps |= {step.level: step for step in _plain(settings, young)}
    return build_level_depths(version, steps.values(), gap=_YOUNG if young else "")


def level_queues(management: ManagementApi, version: DelaysVersion) -> Sequence[QueueState]:
    """Return the level queues that exist, as the management API tells them.

    Raises:
        TargetError: It does not answer, or refuses.
    """
    names = {level_name(version, level) for level in range(BITS)}
    pattern = "^" + re.escape(level_name(version, 0)[:-2]) + "[0-9]{2}$"
    return [queue for queue in management.queues(pattern) if queue.name in names]


def _told(level: int, queue: QueueState) -> LevelDepth:
    return LevelDepth(
        level=level,
        ready=queue.ready,
        unacknowledged=queue.unacked,
        held=queue.held_back,
        consumers=queue.consumers,
    )


def _plain(settings: ConnectionSettings, names: dict[str, int]) -> Iterable[LevelDepth]:
    found = find_queues(settings, names)
    return [_counted(level, found[name]) for name, level in names.items()]


def _counted(level: int, queue: QueueFacts | None) -> LevelDepth:
    if queue is None:
        return LevelDepth(level=level, exists=False)
    return LevelDepth(level=level, ready=queue.ready, consumers=queue.consumers)


def delivery_limit(
    settings: ConnectionSettings, management: ManagementApi | None, version: DelaysVersion
) -> int | None:
    """Return how often a message may come back into a level queue; None: as often as it likes.

    Only quorum queues count. Without the management API a limit set by a policy is not seen, and
    the broker's own is assumed: 20 from RabbitMQ 4 on, none before.

    Raises:
        TargetUnavailable, AccessRefused: The broker cannot be asked.
    """
    if version is DelaysVersion.V1:
        return None
    with admin_session(settings, purpose="look") as admin:
        said = admin.server_properties.get("version", b"")
    text = said.decode(errors="replace") if isinstance(said, bytes) else str(said)
    major = text.partition(".")[0]
    is_limited = major.isdigit() and (int(major),) >= _LIMITED_SINCE
    default = _DEFAULT_LIMIT if is_limited else None
    prefix = level_name(version, 0).removesuffix("00").replace(".", r"\.")
    queues = [] if management is None else list(management.queues(f"^{prefix}"))
    return lowest_limit(queues, default=default)
