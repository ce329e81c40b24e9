"""The native delay infrastructure: declare it, or look at it without touching anything.

Declared exactly as the vendor's installers do (reference ``native-delays.md`` section 2), so that
whoever comes second finds it equivalent. Looking goes passively first; only what exists is then
declared again, which changes nothing and makes the broker compare type and arguments.
*Not checked* is never a synonym of fine: it says that nobody could look, and why.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from itertools import cycle
from typing import TYPE_CHECKING, Final

from migrator.delays.depths import LevelDepth, LevelDepths, build_level_depths
from migrator.delays.routing import DelaysVersion, Infrastructure, infrastructure, level_name
from migrator.errors import AccessRefused, EntityMismatch, NotChecked, TargetError
from migrator.nservicebus.timeouts import BITS
from migrator.rabbitmq.admin import AdminSession, admin_session
from migrator.rabbitmq.connection import ConnectionSettings
from migrator.rabbitmq.entities import (
    Binding,
    Entity,
    QueueMembers,
    QueueState,
    exchange_entity,
    lowest_limit,
    queue_entity,
)
from migrator.rabbitmq.names import entry_exchange
from migrator.rabbitmq.server import find_queues, server_facts

if TYPE_CHECKING:  # not every broker has the API, and its client is slow to import
    from migrator.rabbitmq.management import ManagementApi

_log = logging.getLogger(__name__)

_NO_API: Final = "only the management API shows this; set broker.management_url"
_YOUNG: Final = "some levels are so new that the broker has no counts yet"
_LIMITED_SINCE: Final = (4,)
_DEFAULT_LIMIT: Final = 20
FindBindings = Callable[[str], Iterable[Binding]]
"""Returns the bindings that start at an exchange; only the management API knows them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DelayEntities:
    """How far the native delays of one generation are there."""

    missing: Sequence[str]
    """Exchanges, queues and bindings that do not exist, each as a short text: ``queue name``."""
    different: Mapping[str, str]
    """Entities with another type or other arguments than the vendor declares: name to what
    differs, in the broker's words."""
    not_checked: Sequence[str]
    """What could not be looked at, and why: entities that may not be declared, or bindings."""

    @property
    def is_usable(self) -> bool:
        """Whether nothing speaks against it: all there, nothing wrong, no binding missing."""
        return not (self.missing or self.different)


def create_delays(settings: ConnectionSettings, version: DelaysVersion) -> int:
    """Declare every exchange, queue and binding; return how many exchanges and queues were missing.

    Levels are declared over the nodes in turn: a quorum queue is led by the node it was declared
    over. An argument or a policy is not needed for that, and the argument would have every endpoint
    refused that declares them without it.

    Raises:
        EntityMismatch: One exists with other arguments; what came before it is declared.
        AccessRefused: A permission is missing; says for what.
        TargetUnavailable: The broker cannot be reached.
    """
    with ExitStack() as stack:
        sessions = [
            stack.enter_context(
                admin_session(settings.beginning_with(number), purpose="create delays")
            )
            for number in range(len(settings.nodes))
        ]
        delays = infrastructure(version)
        made = sum(not sessions[0].find_exchange(name) for name in delays.exchanges)
        made += sum(sessions[0].queue(each.name) is None for each in delays.queues)
        for name in delays.exchanges:
            sessions[0].declare_exchange(name, "topic")
        for session, queue in zip(cycle(sessions), delays.queues, strict=False):
            session.declare_queue(queue.name, queue.arguments)
        for binding in delays.bindings:
            sessions[0].bind(binding)
        return made


def inspect_delays(
    settings: ConnectionSettings, version: DelaysVersion, *, find_bindings: FindBindings | None
) -> DelayEntities:
    """Return what exists of a generation and whether it is as it should be; creates nothing.

    Args:
        settings: Where to look.
        version: Which generation.
        find_bindings: None when there is no management API, or raises ``NotChecked`` where it
            does not answer: then bindings are not checked.

    Raises:
        TargetUnavailable, AccessRefused: The broker cannot be asked.
    """
    delays = infrastructure(version)
    missing, different, not_checked = list[str](), dict[str, str](), list[str]()

    def compare(entity: Entity, declare: Callable[[], object], *, exists: bool) -> None:
        """Declare what exists once more: the broker compares, and changes nothing."""
        if not exists:
            missing.append(f"{entity.kind} {entity.name}")
            return
        try:
            declare()
        except EntityMismatch as exc:
            different[entity.name] = str(exc)
        except AccessRefused as exc:
            not_checked.append(f"{entity.name}: {exc}")

    with admin_session(settings, purpose="inspect delays") as admin:
        for name in delays.exchanges:
            declare = partial(admin.declare_exchange, name, "topic")
            compare(exchange_entity(name), declare, exists=admin.find_exchange(name))
        for queue in delays.queues:
            again = partial(admin.declare_queue, queue.name, queue.arguments)
            compare(queue_entity(queue.name), again, exists=admin.queue(queue.name) is not None)
    if find_bindings is None:
        not_checked.append("only the management API shows bindings")
    else:
        try:
            missing += _missing_bindings(delays, find_bindings)
        except NotChecked as exc:
            not_checked.append(str(exc))
    return DelayEntities(missing=missing, different=different, not_checked=not_checked)


def _missing_bindings(delays: Infrastructure, find_bindings: FindBindings) -> Iterator[str]:
    sources = {binding.source for binding in delays.bindings}
    found = {(b.source, b.target, b.key) for source in sources for b in find_bindings(source)}
    for binding in delays.bindings:
        if (binding.source, binding.target, binding.key) not in found:
            yield f"binding {binding.source} to {binding.target.name} ({binding.key})"


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
    gap, told = _NO_API, list[QueueState]()
    if management is not None:
        try:
            gap, told = "", [*level_queues(management, version)]
        except TargetError as exc:
            gap = str(exc)
    steps = [
        LevelDepth(
            level=names[queue.name],
            ready=queue.ready,
            unacknowledged=queue.unacked,
            held=queue.held_back,
            consumers=queue.consumers,
        )
        for queue in told
        if queue.is_told
    ]
    plain = names if gap else {queue.name for queue in told if not queue.is_told}
    found = find_queues(settings, plain) if plain else {}
    steps += [
        LevelDepth(level=names[name], ready=queue.ready, consumers=queue.consumers)
        for name, queue in found.items()
        if queue is not None
    ]
    return build_level_depths(version, steps, gap=gap or (_YOUNG if plain else ""))


def level_queues(management: ManagementApi, version: DelaysVersion) -> Sequence[QueueState]:
    """Return the level queues that exist, as the management API tells them.

    Raises:
        TargetError: It does not answer, or refuses.
    """
    names = {level_name(version, level) for level in range(BITS)}
    return [queue for queue in management.queues(_pattern(version)) if queue.name in names]


def _pattern(version: DelaysVersion) -> str:
    return "^" + re.escape(level_name(version, 0)[:-2]) + "[0-9]{2}$"


def level_members(management: ManagementApi, version: DelaysVersion) -> Sequence[QueueMembers]:
    """Return where the level queues are kept that exist and are quorum queues, lowest first.

    Raises:
        TargetError: It does not answer, or refuses.
    """
    names = {level_name(version, level) for level in range(BITS)}
    found = [each for each in management.members(_pattern(version)) if each.queue in names]
    return sorted(found, key=lambda each: each.queue)


def held_levels(management: ManagementApi, version: DelaysVersion) -> Mapping[int, int] | None:
    """Return how many messages each level holds back, no zeros; None: it is too new to tell.

    Raises:
        TargetError: The API does not answer, or refuses.
    """
    levels = {level_name(version, level): level for level in range(BITS)}
    queues = level_queues(management, version)
    if not all(queue.is_told for queue in queues):
        return None
    return {levels[queue.name]: queue.held_back for queue in queues if queue.held_back}


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
    is_limited = server_facts(settings).release[:1] >= _LIMITED_SINCE
    queues = () if management is None else level_queues(management, version)
    return lowest_limit(queues, default=_DEFAULT_LIMIT if is_limited else None)
