"""What the settings say to checks."""

from __future__ import annotations

import time
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, cast

from migrator.app.connections import connections
from migrator.app.servers import Servers
from migrator.app.values import due_time_rules
from migrator.config import EndpointMode, NearDue, Settings
from migrator.delays.routing import DelaysVersion
from migrator.errors import ConfigError, MigratorError
from migrator.ledger.lease_keeper import is_surely_dead
from migrator.ledger.report import BatchElsewhere, HeldDestination
from migrator.ledger.states import HALF_DONE, OPEN
from migrator.nservicebus.satellites import timeouts_queue
from migrator.nservicebus.timeouts import BITS, Lane, QueueName
from migrator.preflight.context import Context, Finding, Satellites
from migrator.preflight.queries import KnownHandOvers
from migrator.preflight.registry import Rechecks
from migrator.rabbitmq.names import (
    entry_exchange,
    poison_queue,
    receipts_queue,
    retry_queue,
    router_exchange,
    staging_name,
)
from migrator.stores.endpoints import EndpointPreview

if TYPE_CHECKING:
    from migrator.delays.broker import BrokerFacts


def check_context(
    servers: Servers,
    names: Sequence[str],
    previews: Sequence[EndpointPreview] | None,
    *,
    asks_broker: bool = True,
    unreadable: Sequence[Finding] = (),
) -> Context:
    """Return what checks are to ask, by the settings of *servers*.

    *unreadable* says of endpoints why their rows could not be read. Without *asks_broker* there is
    none to ask, and none need be named; ``STORE_CHECKS`` do not.
    """
    given = servers.settings
    own_queues, parked = _own_queues(servers), _parked(servers)
    return Context(
        store=servers.backend.store,
        ledger=servers.ledger.facts,
        clock=servers.ledger.clock,
        wall_clock=lambda: datetime.now(UTC),
        broker=servers.broker.facts if asks_broker else cast("BrokerFacts", None),
        version=given.broker.delays,
        accepts_suffix_collisions=given.handover.accept_suffix_collisions,
        endpoint_names=names,
        previews=previews,
        chosen_mode=given.handover.mode,
        cutoff=given.handover.cutoff,
        may_bind=not given.broker.all_endpoints_support_delayed_delivery,
        own_queues=own_queues,
        poison_queue=poison_queue(servers.ledger.id) if own_queues else "",
        own_exchanges=_own_exchanges(servers.settings.broker.delays),
        modes={endpoint.name: str(endpoint.mode) for endpoint in given.endpoints},
        queues={endpoint.name: endpoint.input_queue for endpoint in given.endpoints},
        satellites=satellites(given, names),
        sends_near_due=given.handover.near_due is NearDue.DISPATCH,
        due_times=due_time_rules(servers.settings),
        unreadable=frozenset(each.endpoint or "" for each in unreadable),
        vhost=_vhost(servers),
        wait=time.sleep,
        held={QueueName(each.destination) for each in parked},
        parked=parked,
        connections=tuple(connections(given)),
        other_commits=_other_commits(servers),
    )


def new_rechecks(servers: Servers, names: Sequence[str]) -> Rechecks:
    """Return the checks of the broker that a daemon makes again while it runs."""
    known = KnownHandOvers(servers.ledger.hand_overs, servers.ledger.clock.now)
    return Rechecks(check_context(servers, names, None), known)


def satellites(given: Settings, names: Sequence[str]) -> Sequence[Satellites]:
    """Return the queues of those endpoints called *names* whose timeout manager we are to be.

    Without *names*, of all that the settings have.
    """
    return [
        Satellites(
            endpoint=endpoint.name,
            queue=endpoint.input_queue,
            error_queue=endpoint.error_queue or given.dispatch.error_queue,
            retry_queues=[
                retry_queue(
                    timeouts_queue(QueueName(endpoint.input_queue)), int(delay.total_seconds())
                )
                for delay in given.dispatch.retry_delays
            ],
        )
        for endpoint in given.endpoints
        if endpoint.mode is not EndpointMode.MIGRATE and (not names or endpoint.name in names)
    ]


def _vhost(servers: Servers) -> str:
    try:
        return servers.broker.connection.address.vhost
    except ConfigError:  # the checks that ask the broker report it
        return ""


def _parked(servers: Servers) -> Sequence[HeldDestination]:
    try:
        return servers.ledger.queries.held()
    except MigratorError:  # no ledger, nothing parked
        return ()


def _other_commits(servers: Servers) -> Sequence[BatchElsewhere]:
    try:
        commits = servers.ledger.queries.batches_of_others(
            servers.broker.named_place, *OPEN - HALF_DONE
        )
        if not commits:
            return ()
        at_work = {
            lane for lane, owner in servers.ledger.leases.holders() if not is_surely_dead(owner)
        }
    except MigratorError:  # no ledger, no batches; the check of the ledger says so
        return ()
    return [each for each in commits if each.lane not in at_work]


def _own_queues(servers: Servers) -> Sequence[str]:
    """Return our queues of the lanes this process may use, whether they exist or not."""
    try:
        servers.ledger.facts.verify()
    except MigratorError:  # no ledger, no queues of migrator; the checks of store and ledger say so
        return ()
    version, lanes = (
        servers.settings.broker.delays,
        [Lane(n) for n in range(servers.settings.handover.lanes)],
    )
    staging = [staging_name(version, servers.ledger.id, lane) for lane in lanes]
    return [*staging, *(receipts_queue(servers.ledger.id, lane) for lane in lanes)]


def _own_exchanges(version: DelaysVersion) -> Sequence[str]:
    """Return our exchanges that lead into the levels, whether they exist or not."""
    return [router_exchange(version), *(entry_exchange(version, n) for n in range(BITS))]
