"""What ``migrator db grants`` asks the database for."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Final

from migrator.app.ledger import open_ledger
from migrator.app.preflight import satellites
from migrator.app.stores import demand_sql, open_backend
from migrator.config.work import EndpointMode, NearDue
from migrator.delays.routing import delays_prefix
from migrator.documents import Document
from migrator.errors import ConfigError
from migrator.ledger.rights import GrantedTable, Purpose, Work, grants
from migrator.nservicebus.satellites import dispatcher_queue, timeouts_queue
from migrator.nservicebus.timeouts import QueueName
from migrator.preflight.checks_store import STAGING_QUEUE
from migrator.rabbitmq.names import Grants, Looking, least_grants
from migrator.stores.endpoints import chosen_endpoints

if TYPE_CHECKING:
    from migrator.config import Settings


class BrokerGrantsDocument(Document, title="migrator/db-grants-broker/1"):
    """`migrator db grants --broker --json`."""

    user: str
    vhost: str
    configure: str
    write: str
    read: str


def database_grants(
    settings: Settings, user: str, purposes: Sequence[str], names: Sequence[str]
) -> str:
    """Return the SQL that grants *user* what *purposes* need of the endpoints called *names*.

    Without *purposes*, what a daemon and its operators need.

    Raises:
        ConfigError: There is no such purpose.
    """
    claims_documents = settings.store.kind.has_own_ledger
    wanted = [_purpose(name) for name in purposes] or _daemon_purposes(settings, names)
    with (
        open_ledger(settings, must_exist=False) as ledger,
        open_backend(settings, ledger) as backend,
    ):
        tables = []
        if not claims_documents:
            store = demand_sql(backend, settings, wanted_for="granting").store
            legacy = [store.legacy_table(e.source) for e in chosen_endpoints(store, names)]
            tables = [
                GrantedTable(
                    schema=each.table.schema or "",
                    name=each.table.name,
                    lock_column=each.lock_column,
                )
                for each in legacy
            ]
        work = Work(
            purposes=wanted,
            purges=settings.ledger.purge_after is not None,
            claims_documents=claims_documents,
        )
        return grants(ledger.tables.names, user, tables, work)


_ON_BROKER: Final = ("decommission", "delays-migrate", "delays-transfer", "delays-delete")


def broker_grants(
    settings: Settings,
    verbs: Sequence[str],
    names: Sequence[str],
    *,
    destinations: Collection[str] | None,
    creates_delays: bool,
    looks: Looking,
) -> Grants:
    """Return the permissions that a daemon needs on the broker; nothing is connected.

    Args:
        settings: Which delays, and which endpoints.
        verbs: What is to be allowed besides ``run``.
        names: Endpoints to be decommissioned; empty: all in the settings.
        destinations: The only ones that may be written to; None: any.
        creates_delays: Whether ``migrator delays create`` is to be allowed, too.
        looks: What this version of the broker demands of who looks at a queue.

    Raises:
        ConfigError: There is no such verb, or no endpoint to decommission.
    """
    for verb in verbs:
        if verb not in _ON_BROKER:
            raise ConfigError(f"--for {verb}: with --broker there are {', '.join(_ON_BROKER)}")
    deleted = names or [each.name for each in settings.endpoints]
    if "decommission" not in verbs:
        deleted = ()
    elif not deleted:
        raise ConfigError("--for decommission: no endpoint given; use --endpoint or [[endpoints]]")
    inputs = [QueueName(settings.endpoint(name).input_queue) for name in deleted]
    served = satellites(settings, ())
    queues = [QueueName(each.queue) for each in served]
    managers = [dispatcher_queue(QueueName(each.input_queue)) for each in settings.endpoints]
    return least_grants(
        delays_prefix(settings.broker.delays),
        destinations=destinations,
        binds_destinations=not settings.broker.all_endpoints_support_delayed_delivery,
        creates_delays=creates_delays or "delays-delete" in verbs,
        moves_delays=not {"delays-migrate", "delays-transfer"}.isdisjoint(verbs),
        satellites=[name(queue) for queue in queues for name in (timeouts_queue, dispatcher_queue)],
        decommissioned=[
            name(each) for each in inputs for name in (timeouts_queue, dispatcher_queue)
        ],
        sends_when_due=settings.handover.near_due is NearDue.DISPATCH,
        looks=looks,
        # of others, for which checks ask: they are neither bound nor consumed
        looked_at=[STAGING_QUEUE, *(each.error_queue for each in served), *managers],
    )


def _purpose(name: str) -> Purpose:
    try:
        return Purpose(name)
    except ValueError:
        known = ", ".join(Purpose)
        raise ConfigError(f"--for {name}: there is no such purpose; there are {known}") from None


def _daemon_purposes(settings: Settings, names: Sequence[str]) -> Sequence[Purpose]:
    """Return what a daemon for *names*, or for all endpoints, does, and who operates it."""
    modes = {settings.endpoint(name).mode for name in names}
    modes |= set() if names else {each.mode for each in settings.endpoints}
    dispatches = bool(modes - {EndpointMode.MIGRATE})
    found = [Purpose.DISPATCH] if dispatches else []
    found += [Purpose.HAND_OVER] if not dispatches or EndpointMode.MIGRATE in modes else []
    return [*found, Purpose.VERIFY, Purpose.ROLLBACK, Purpose.OPERATE]
