"""What ``migrator rollback`` works with."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from migrator.app.handover import HandOverParts
from migrator.app.levels import lanes_with_queues, level_access
from migrator.app.servers import Servers, open_servers
from migrator.handover.lane_recovery import LaneRecovery
from migrator.handover.runs import HandOver
from migrator.ledger.held_destinations import SqlHeldDestinations
from migrator.ledger.parking import SqlParking
from migrator.ledger.run_terms import RunTerms
from migrator.ledger.states import BatchState
from migrator.ledger.work import Batch, StoreEndpoint
from migrator.nservicebus.timeouts import BatchId, Lane
from migrator.rabbitmq.names import staging_name
from migrator.rabbitmq.server import find_queues
from migrator.recall.recall import Recall
from migrator.recall.rollback import Rollback
from migrator.service.hooks import fire_rollback, hooked
from migrator.stores.endpoints import chosen_endpoints

if TYPE_CHECKING:
    from migrator.config import Settings


class RollbackParts:
    """The servers of which a rollback is made."""

    def __init__(self, servers: Servers) -> None:
        self._settings = servers.settings
        self._ledger = servers.ledger
        self._broker = servers.broker
        self._backend = servers.backend
        self._fault = servers.fault

    def find(self, names: Sequence[str]) -> Sequence[StoreEndpoint]:
        """Return the endpoints called *names*.

        Raises:
            UnknownEndpoint: The store has none of them.
        """
        return chosen_endpoints(self._backend.store, names)

    def rollback(self) -> Rollback:
        """Return what undoes a migration."""
        ledger, has_broker = self._ledger, self._settings.broker.url is not None
        return Rollback(
            settle=self._settle if has_broker else None,
            place=self._broker.named_place,
            claims=self._backend.claims,
            leases=ledger.leases,
            batches=ledger.batches,
            lease_duration=self._settings.handover.lease,
            queries=ledger.queries,
            runs=ledger.runs,
            engine=ledger.engine,
            tables=ledger.tables,
            clock=ledger.clock,
            new_recall=self._new_recall,
            held=SqlHeldDestinations(ledger.engine, ledger.tables),
            parking=SqlParking(ledger.engine, ledger.tables),
        )

    def notify(self, document: Mapping[str, object]) -> None:
        """Have the hooks run that want to know of a rollback."""
        with hooked(self._settings.hooks) as hooks:
            fire_rollback(hooks.fire, document)

    def _new_recall(self) -> Recall:
        """Return what brings handed-over timeouts back; raises what ``level_access`` does."""
        settings, ledger = self._settings, self._ledger
        return Recall(
            engine=ledger.engine,
            tables=ledger.tables,
            recalls=self._backend.recalls,
            access=level_access(settings, ledger, self._broker, purpose="migrator rollback"),
            version=self._broker.version,
            leases=ledger.leases,
            lease_duration=settings.handover.lease,
            queries=ledger.queries,
            runs=ledger.runs,
            clock=ledger.clock,
            ledger_id=ledger.id,
            fault=self._fault,
        )

    # ── what a dead owner left ──────────────────────────────────────────────────────────────

    def _settle(self, staged: Collection[Lane], published: Collection[Batch]) -> int:
        """Finish what was cut off; raises what ``LaneRecovery.recover`` does."""
        settings, ledger = self._settings, self._ledger
        parts = HandOverParts(settings, ledger, self._broker, self._fault)

        def publishing(batch: Batch) -> HandOver:
            now = parts.terms_of(batch.endpoint)
            return parts.new_hand_over(RunTerms.read(ledger.runs.options_of(batch.run), now))

        recovery = LaneRecovery(
            batches=ledger.batches,
            leases=ledger.leases,
            lease_duration=settings.handover.lease,
            clock=ledger.clock,
            receipt_deadline_s=settings.handover.receipt_deadline.total_seconds(),
            links=parts.links,
            staged_messages=self._staged_messages,
            staged_for_others=self._staged_for_others,
            publishing=publishing,
            fault=self._fault,
        )
        return recovery.recover(staged, published)

    def _staged_messages(self) -> Mapping[Lane, int]:
        version, ledger_id = self._broker.version, self._ledger.id
        known = lanes_with_queues(self._settings, self._ledger)
        lanes = {staging_name(version, ledger_id, lane): lane for lane in known}
        found = find_queues(self._broker.connection, lanes)
        return {lanes[name]: facts.ready for name, facts in found.items() if facts is not None}

    def _staged_for_others(self) -> Collection[BatchId]:
        place = self._broker.place
        found = self._ledger.queries.batches_of_others(place, BatchState.COMMITTING)
        return {each.batch for each in found}


@contextmanager
def open_rollback(settings: Settings) -> Iterator[RollbackParts]:
    """Open the servers that *settings* name.

    Raises:
        ConfigError: The store is not named.
        PreflightRefused: There is no ledger that can be used.
    """
    with open_servers(settings) as servers:
        yield RollbackParts(servers)
