"""What ``migrator db adopt`` works with."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from migrator.app.levels import level_access
from migrator.app.preflight import satellites
from migrator.app.servers import Servers, open_servers
from migrator.app.stores import demand_sql
from migrator.config.work import EndpointMode
from migrator.ledger.version import check_head
from migrator.nservicebus.satellites import timeouts_queue
from migrator.nservicebus.timeouts import Lane, QueueName
from migrator.recovery.adoption import (
    LedgerLocation,
    MovedContents,
    MovePlan,
    SqlAdoption,
    owners_on_broker,
    plan_move,
)
from migrator.recovery.failover import FailoverRecovery

if TYPE_CHECKING:
    from migrator.config import Settings


class RecoveryParts:
    """A ledger with its store and a broker, of which a recovery is made."""

    def __init__(self, servers: Servers) -> None:
        self._settings = servers.settings
        self._ledger = servers.ledger
        self._broker = servers.broker
        self._backend = servers.backend
        self._fault = servers.fault

    def adoption(self) -> SqlAdoption:
        """Return what decides about a ledger that is not where it was created.

        Raises:
            LedgerMissing: It is at a schema version this release does not support.
        """
        ledger = self._ledger
        check_head(ledger.engine, ledger.tables)
        return SqlAdoption(ledger.engine, ledger.tables, ledger.runs)

    def move_plan(self, location: LedgerLocation) -> MovePlan:
        """Return whether a moved ledger can continue at its *location*."""
        owners = owners_on_broker(
            self._broker.facts, location.ledger_id, self._lanes(location), self._timeouts_queues()
        )
        return plan_move(location, self._contents(), owners)

    def failover(self) -> FailoverRecovery | None:
        """Return what recovers from a failover of the ledger's database; None: there was none.

        Raises:
            LedgerMissing, LedgerCloned: The ledger cannot be used.
            PreflightRefused: The store is no SQL database.
            ConfigError: No broker is named.
        """
        given, ledger = self._settings, self._ledger
        adoption = self.adoption()
        ledger.accept_failover()
        if adoption.failover_reason() is None:
            return None
        sql = demand_sql(self._backend, given, wanted_for="settling a failover")
        location = adoption.locate()
        dispatched = {e.name for e in given.endpoints if e.mode is EndpointMode.DISPATCH}
        return FailoverRecovery(
            window=sql.lost_window,
            location=location,
            broker=self._broker.facts,
            access=level_access(given, ledger, self._broker, purpose="migrator rollback"),
            version=self._broker.version,
            mode=given.handover.mode,
            cutoff=given.handover.cutoff,
            # a dispatcher sends the rows of its endpoints itself
            endpoints=[each for each in sql.store.endpoints() if each.name not in dispatched],
            lanes=self._lanes(location),
            timeouts_queues=self._timeouts_queues(),
            leases=ledger.leases,
            lease_duration=given.handover.lease,
            clock=ledger.clock,
            ledger_id=ledger.id,
            fault=self._fault,
        )

    def _contents(self) -> MovedContents:
        audit = self._backend.audit
        incomplete, gaps = audit.gaps((), at_most=1)
        first_incomplete = gaps[0].batch if gaps else None
        if self._settings.store.kind.has_own_ledger:  # a document store stays where it is
            return MovedContents(incomplete_batches=incomplete, first_incomplete=first_incomplete)
        missing = [each for each in audit.balances() if each.in_store is None]
        in_both, first = audit.in_both_places((), at_most=1)
        return MovedContents(
            incomplete_batches=incomplete,
            first_incomplete=first_incomplete,
            missing_tables=[(each.source, each.endpoint) for each in missing],
            in_both_places=in_both,
            first_in_both=first[0].timeout_id if first else None,
        )

    def _lanes(self, location: LedgerLocation) -> Sequence[Lane]:
        """Return the lanes that a process may own: the ledger's, and those of the settings."""
        return sorted({*location.lanes, *map(Lane, range(self._settings.handover.lanes))})

    def _timeouts_queues(self) -> Sequence[str]:
        return [timeouts_queue(QueueName(each.queue)) for each in satellites(self._settings, ())]


@contextmanager
def open_recovery(settings: Settings) -> Iterator[RecoveryParts]:
    """Open the servers that *settings* name.

    Raises:
        ConfigError: The store is not named.
    """
    with open_servers(settings, must_exist=False) as servers:
        yield RecoveryParts(servers)
