"""Deleting a generation of the native delays, when nothing is in it any more.

Rules of this file:

* from the highest level to the lowest, the exchange before its queue: the broker refuses what is
  published then, and nothing comes down from above;
* a classic queue is deleted at once, if empty and unused; a quorum queue knows no such condition,
  and only the management API reports, late, what expired in it. So all ways in are shut first, the
  counts are waited for, everything is checked again, and only then the queues go;
* a binding of another program to a level is never deleted: migrator could not make it again;
* whatever ends it before all is gone, an error and Ctrl-C too, everything is declared again, which
  brings back each exchange, queue and binding as it was; killed in between, deleting again goes on.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from migrator.decommission.broker import TopologyEditor
from migrator.delays.routing import (
    DelaysVersion,
    Infrastructure,
    QueueSpec,
    delivery_exchange,
    infrastructure,
    level_name,
)
from migrator.delays.topology import level_queues
from migrator.errors import PreflightRefused, TargetError
from migrator.ledger.work import FaultPoint
from migrator.nservicebus.timeouts import BITS
from migrator.rabbitmq.admin import AdminSession, admin_session
from migrator.rabbitmq.connection import ConnectionSettings
from migrator.rabbitmq.entities import (
    Binding,
    Entity,
    exchange_entity,
    queue_entity,
)
from migrator.rabbitmq.names import PREFIX, entry_exchange, router_exchange
from migrator.text import counted, listed

if TYPE_CHECKING:  # not every broker has the API, and its client is slow to import
    from migrator.rabbitmq.management import ManagementApi

_TOP_DOWN: Final = range(BITS - 1, -1, -1)
_NAMED: Final = 5
"""So many of a kind are named in a sentence; the rest is counted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DelaysFound:
    """What is there of a generation, and what still uses it."""

    version: DelaysVersion
    exchanges: Sequence[str]
    """Those that exist, as they would be declared."""
    queues: Sequence[str]
    waiting: Mapping[str, int] = field(default_factory=dict)
    """Messages by level queue: ready, unacknowledged and held; empty queues are left out."""
    consumed: Sequence[str] = ()
    """Level queues with consumers."""
    untold: Sequence[str] = ()
    """Level queues so new that the broker has no counts of them yet."""
    feeders: Sequence[str] = ()
    """Exchanges of migrator that lead into the levels."""
    staged: Mapping[str, int] = field(default_factory=dict)
    """Messages by staging queue; they would go into the levels."""
    bound: Sequence[Binding] = ()
    """What others bound to the delays, endpoints above all."""

    @property
    def is_absent(self) -> bool:
        """Whether nothing of it exists."""
        return not (self.exchanges or self.queues)

    @property
    def is_partly_gone(self) -> bool:
        """Whether some of it exists and some does not, as after a deletion that was killed."""
        whole = infrastructure(self.version)
        count = len(self.exchanges) + len(self.queues)
        return 0 < count < len(whole.exchanges) + len(whole.queues)

    def obstacles(self, *, even_if_bound: bool) -> Iterator[str]:
        """Yield why it must not be deleted; one sentence each, with what to do."""
        for queue, count in self.waiting.items():
            held = counted(count, "message")
            yield f"{queue} holds {held}; wait until they are due, or move them"
        if self.consumed:
            yield f"consumers are on {listed(self.consumed, _NAMED)}; stop them first"
        if self.untold:
            untold = listed(self.untold, _NAMED)
            yield f"the broker has no counts of {untold} yet; ask again in 10 seconds"
        if self.feeders:
            yield (
                f"exchanges of migrator lead into the levels: {listed(self.feeders, _NAMED)}; "
                "`migrator decommission` removes them"
            )
        for queue, count in self.staged.items():
            yield (
                f"{queue} holds {counted(count, 'message')} on their way; `migrator run --once` "
                "hands them over, `migrator rollback` puts them back"
            )
        delivery = delivery_exchange(self.version)
        # nothing of NServiceBus binds to a level, so only the owner could do it again
        if at_levels := [each for each in self.bound if each.source != delivery]:
            yield f"bound to levels by something else: {described(at_levels)}; unbind it first"
        names = sorted({each.target.name for each in self.bound if each.source == delivery})
        if names and not even_if_bound:
            yield (
                f"still bound to the delays: {listed(names, _NAMED)}; --even-if-bound deletes them "
                "all the same"
            )


@dataclass(frozen=True)
class DelaysRemoval:
    """Looks at one generation, and deletes it."""

    settings: ConnectionSettings
    management: ManagementApi
    version: DelaysVersion
    settle: Callable[[], None]
    """Waits until the management API's counts are true."""
    fault: FaultPoint
    """Called at each step."""

    @property
    def _delays(self) -> Infrastructure:
        return infrastructure(self.version)

    def look(self) -> DelaysFound:
        """Return what is there and who uses it; changes nothing.

        Raises:
            TargetError: The broker or its management API cannot be asked.
        """
        with admin_session(self.settings, purpose="look at delays") as admin:
            exchanges = [name for name in self._delays.exchanges if admin.find_exchange(name)]
            counted = {queue.name: admin.queue(queue.name) for queue in self._delays.queues}
        facts = {name: found for name, found in counted.items() if found is not None}
        told = {queue.name: queue for queue in level_queues(self.management, self.version)}
        waiting = {name: found.ready for name, found in facts.items()}
        for name, queue in told.items():
            waiting[name] = max(queue.messages, waiting.get(name, 0))
        bindings = self._bindings([*map(exchange_entity, exchanges), *map(queue_entity, facts)])
        feeders = self._feeders()
        return DelaysFound(
            version=self.version,
            exchanges=exchanges,
            queues=list(facts),
            waiting={name: count for name, count in waiting.items() if count},
            consumed=[name for name, found in facts.items() if found.consumers],
            untold=[name for name in facts if name not in told or not told[name].is_told],
            feeders=[name for name in feeders if any(each.source == name for each in bindings)],
            staged=self._staged(),
            bound=[each for each in bindings if each.source not in feeders],
        )

    def delete(self, *, even_if_bound: bool) -> None:
        """Delete what ``look`` found, when nothing prevents it.

        Raises:
            PreflightRefused: Something prevents it now, and all is as it was.
            TargetError: The broker did not do it; it says what is true now.
        """
        with self._restoring(self._delivered()):
            if self.version is DelaysVersion.V1:
                self._delete_classic()
            else:
                self._delete_quorum(even_if_bound=even_if_bound)
            self._delete_delivery(even_if_bound=even_if_bound)

    def _delete_classic(self) -> None:
        with self._session() as admin:
            for level in _TOP_DOWN:
                self._shut(admin, level)
                self._drop(admin, level)

    def _delete_quorum(self, *, even_if_bound: bool) -> None:
        with self._session() as admin:
            for level in _TOP_DOWN:
                self._shut(admin, level)
        self.settle()
        if against := list(self.look().obstacles(even_if_bound=even_if_bound)):
            raise _Prevented("; ".join(against))
        with self._session() as admin:
            for level in _TOP_DOWN:
                self._drop(admin, level)

    def _shut(self, admin: AdminSession, level: int) -> None:
        """Take away the way into a level."""
        name = level_name(self.version, level)
        self._demand_ours(exchange_entity(name))
        admin.delete_exchange(name, if_unused=False)
        self.fault("removal.shut")

    def _drop(self, admin: AdminSession, level: int) -> None:
        queue = queue_entity(level_name(self.version, level))
        self._demand_ours(queue)
        self.fault("removal.looked")
        if why := TopologyEditor(admin, self.management).delete(queue):
            raise _Prevented(f"{queue.name} was not deleted ({why})")
        self.fault("removal.dropped")

    def _delete_delivery(self, *, even_if_bound: bool) -> None:
        exchange = exchange_entity(delivery_exchange(self.version))
        with self._session() as admin:
            editor = TopologyEditor(admin, self.management)
            if why := editor.delete(exchange, if_unused=not even_if_bound):
                raise _Prevented(f"something was bound to {exchange.name} meanwhile ({why})")
        self.fault("removal.ended")

    def _demand_ours(self, entity: Entity) -> None:
        if found := self._bindings([entity]):
            raise _Prevented(f"bound meanwhile by something else: {described(found)}")

    # ── when it cannot be ended ─────────────────────────────────────────────────────────────

    @contextmanager
    def _restoring(self, delivered: Sequence[Binding]) -> Iterator[None]:
        """Make everything again, *delivered* too, unless all of it could be deleted."""
        try:
            yield
        except BaseException as exc:  # also Ctrl-C: half of the delays is worse than none
            self.fault("removal.restoring")
            if failed := self._declare_again(delivered):
                raise TargetError(
                    f"{str(exc) or type(exc).__name__}; and not everything could be declared "
                    f"again ({failed}); `migrator delays create` declares it"
                ) from exc
            restored = "everything was declared again and is as it was"
            if isinstance(exc, _Prevented):
                raise PreflightRefused(
                    f"{exc}; {restored}. Stop what caused it, then try again"
                ) from exc
            if isinstance(exc, TargetError):
                raise TargetError(f"{exc}; {restored}") from exc
            raise

    def _declare_again(self, delivered: Sequence[Binding]) -> TargetError | None:
        """Make whatever of it can be made; return the first error, None: all of it is there."""
        delays, failed = self._delays, None
        entities: list[str | QueueSpec] = [*delays.exchanges, *delays.queues]
        try:
            with self._session() as admin:
                for each in (*entities, *delays.bindings, *delivered):
                    try:
                        _make(admin, each)
                    except TargetError as exc:
                        failed = failed or exc
        except TargetError as exc:
            failed = failed or exc
        return failed

    def _session(self) -> AbstractContextManager[AdminSession]:
        return admin_session(self.settings, purpose="delete delays")

    # ── who is bound, and what is ours ──────────────────────────────────────────────────────

    def _bindings(self, entities: Sequence[Entity]) -> list[Binding]:
        """Return what has one of *entities* at either end and is no part of the delays."""
        found = [each for entity in entities for each in self.management.bindings_at(entity)]
        return others_bindings(self._delays, dict.fromkeys(found))

    def _delivered(self) -> Sequence[Binding]:
        """Return what leads from the delivery exchange to endpoints."""
        name = delivery_exchange(self.version)
        return [each for each in self._bindings([exchange_entity(name)]) if each.source == name]

    def _feeders(self) -> Sequence[str]:
        """Return our exchanges that lead into the levels, if they are there."""
        entries = (entry_exchange(self.version, level) for level in range(BITS))
        return (*entries, router_exchange(self.version))

    def _staged(self) -> dict[str, int]:
        """Return how many messages our staging queues of this generation hold; empty ones not."""
        is_v1 = self.version is DelaysVersion.V1
        return {
            queue.name: queue.messages
            for queue in self.management.queues("^" + re.escape(f"{PREFIX}staging."))
            if queue.messages and queue.name.endswith(f".{DelaysVersion.V1}") is is_v1
        }


def _make(admin: AdminSession, what: str | QueueSpec | Binding) -> None:
    """Make an exchange, a queue or a binding; what is there need not be ours to declare."""
    if isinstance(what, Binding):
        admin.bind(what)
    elif isinstance(what, QueueSpec):
        if admin.queue(what.name) is None:
            admin.declare_queue(what.name, what.arguments)
    elif not admin.find_exchange(what):
        admin.declare_exchange(what, "topic")


class _Prevented(Exception):
    """Something came that prevents it."""


def others_bindings(delays: Infrastructure, found: Iterable[Binding]) -> list[Binding]:
    """Return those of *found* that are no part of *delays*, which have no arguments."""
    own = {*delays.bindings}
    return [binding for binding in found if binding not in own]


def described(bindings: Iterable[Binding]) -> str:
    """Return from where to where *bindings* lead, without their keys."""
    return listed(sorted({f"{each.source} → {each.target.name}" for each in bindings}), _NAMED)
