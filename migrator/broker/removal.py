"""Deleting a generation of the native delays, when nothing is in it any more.

Rules of this file:

* from the highest level to the lowest, the exchange before its queue: whoever publishes then is
  told so by the broker, and nothing comes down from above;
* a classic queue is deleted at once, if empty; a quorum queue knows no such condition, and what
  it holds expired is told by the management API alone, late. So all ways in are shut first, the
  counts are waited for, and only then the queues go;
* whenever a message came all the same, everything is declared again, which brings back each
  exchange, queue and binding as it was; killed in between, deleting again goes on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from migrator.broker.admin import AdminSession, admin_session
from migrator.broker.connection import ConnectionSettings
from migrator.broker.levels import level_queues
from migrator.broker.management import ManagementApi
from migrator.broker.names import PREFIX, entry_exchange, router_exchange
from migrator.broker.topology import declare_delays
from migrator.domain.delays import BITS
from migrator.domain.levels import QueueState
from migrator.domain.removal import DelaysFound, others_bindings
from migrator.domain.routing import (
    DelaysVersion,
    delivery_exchange,
    infrastructure,
    level_name,
)
from migrator.errors import PreflightRefused, TargetError
from migrator.ports import FaultPoint

_TOP_DOWN = range(BITS - 1, -1, -1)


class DelaysRemoval:
    """Looks at one generation, and deletes it."""

    def __init__(
        self,
        settings: ConnectionSettings,
        management: ManagementApi,
        version: DelaysVersion,
        *,
        settle: Callable[[], None],
        fault: FaultPoint,
    ) -> None:
        """Work on the broker of *settings*; *settle* waits until its counts are true."""
        self._settings = settings
        self._management = management
        self._version = version
        self._delays = infrastructure(version)
        self._settle = settle
        self._fault = fault

    def look(self) -> DelaysFound:
        """Return what is there and who uses it; changes nothing.

        Raises:
            TargetError: The broker or its management API cannot be asked.
        """
        with admin_session(self._settings, purpose="look at delays") as admin:
            exchanges = [name for name in self._delays.exchanges if admin.has_exchange(name)]
            counted = {queue.name: admin.queue(queue.name) for queue in self._delays.queues}
        facts = {name: found for name, found in counted.items() if found is not None}
        told = {queue.name: queue for queue in level_queues(self._management, self._version)}
        waiting = {name: found.ready for name, found in facts.items()}
        for name, queue in told.items():
            waiting[name] = max(_count(queue), waiting.get(name, 0))
        bindings = [b for name in exchanges for b in self._management.bindings_from(name)]
        return DelaysFound(
            version=self._version,
            exchanges=exchanges,
            queues=list(facts),
            waiting={name: count for name, count in waiting.items() if count},
            consumed=[name for name, found in facts.items() if found.consumers],
            untold=[name for name in facts if name not in told or not told[name].is_told],
            feeders=self._feeders(),
            staged=self._staged(),
            bound=others_bindings(self._delays, bindings),
        )

    def delete(self, *, even_if_bound: bool) -> None:
        """Delete what ``look`` found and nothing spoke against.

        Raises:
            PreflightRefused: A message came meanwhile, and all is as it was; or something was
                bound meanwhile, and the delivery exchange alone is left.
            TargetError: It says what is true now; deleting again goes on.
        """
        with self._restoring():
            if self._version is DelaysVersion.V1:
                self._delete_classic()
            else:
                self._delete_quorum()
        self._delete_delivery(even_if_bound=even_if_bound)

    def _delete_classic(self) -> None:
        with self._session() as admin:
            for level in _TOP_DOWN:
                self._shut(admin, level)
                self._drop(admin, level)

    def _delete_quorum(self) -> None:
        with self._session() as admin:
            for level in _TOP_DOWN:
                self._shut(admin, level)
        self._settle()
        for name, count in self.look().waiting.items():
            raise _MessageCame(name, count)
        with self._session() as admin:
            for level in _TOP_DOWN:
                self._drop(admin, level)

    def _shut(self, admin: AdminSession, level: int) -> None:
        """Take away the way into a level, then look that nothing is in it."""
        name = level_name(self._version, level)
        admin.delete_exchange(name, if_unused=False)
        self._fault("removal.shut")
        self._demand_empty(admin, name)

    def _drop(self, admin: AdminSession, level: int) -> None:
        name = level_name(self._version, level)
        self._demand_empty(admin, name)
        admin.delete_queue(name, if_empty=self._version is DelaysVersion.V1)
        self._fault("removal.dropped")

    def _demand_empty(self, admin: AdminSession, name: str) -> None:
        found = admin.queue(name)
        if found is not None and found.ready:
            raise _MessageCame(name, found.ready)

    def _delete_delivery(self, *, even_if_bound: bool) -> None:
        name = delivery_exchange(self._version)
        try:
            with self._session() as admin:
                admin.delete_exchange(name, if_unused=not even_if_bound)
        except TargetError as exc:
            if not (bound := self._management.bindings_from(name)):
                raise
            listed = ", ".join(sorted({binding.target for binding in bound}))
            raise PreflightRefused(
                f"all levels are gone, but {name} was left: {listed} was bound to it meanwhile; "
                "--even-if-bound deletes it"
            ) from exc

    # ── when a message came ─────────────────────────────────────────────────────────────────

    @contextmanager
    def _restoring(self) -> Iterator[None]:
        """Declare everything again when a message came."""
        try:
            yield
        except _MessageCame as exc:
            try:
                with self._session() as admin:
                    declare_delays(admin, self._delays)
            except TargetError as failed:
                raise TargetError(
                    f"{exc.count} messages came into {exc.queue} meanwhile, and not everything "
                    f"could be declared again ({failed}); `migrator delays create` does it"
                ) from failed
            raise PreflightRefused(
                f"{exc.count} messages came into {exc.queue} meanwhile; everything was declared "
                "again and is as it was. End what publishes there, then try again"
            ) from exc

    @contextmanager
    def _session(self) -> Iterator[AdminSession]:
        with admin_session(self._settings, purpose="delete delays") as admin:
            yield admin

    # ── what is ours ────────────────────────────────────────────────────────────────────────

    def _feeders(self) -> Sequence[str]:
        """Return those of our exchanges that lead somewhere: into the levels, all of them."""
        entries = (entry_exchange(self._version, level) for level in range(BITS))
        own = (*entries, router_exchange(self._version))
        return [name for name in own if self._management.bindings_from(name)]

    def _staged(self) -> dict[str, int]:
        """Return how many messages our staging queues of this generation hold; empty ones not."""
        is_v1 = self._version is DelaysVersion.V1
        found = {}
        for queue in self._management.queues(rf"^{PREFIX}staging\.".replace(".", r"\.", 1)):
            count = _count(queue)
            if count and queue.name.endswith(f".{DelaysVersion.V1}") is is_v1:
                found[queue.name] = count
        return found


def _count(queue: QueueState) -> int:
    """Return all messages of a queue, whether or not the broker counts held ones in its total."""
    return max(queue.total, queue.ready + queue.unacked + queue.held_back)


class _MessageCame(Exception):
    """A queue is not empty any more."""

    def __init__(self, queue: str, count: int) -> None:
        super().__init__(f"{count} messages came into {queue}")
        self.queue = queue
        self.count = count
