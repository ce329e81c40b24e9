"""``migrator db grants``: what the administrators of database and broker have to grant."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from migrator.cli.lazy import new_group
from migrator.cli.options import AllEndpoints, Endpoints, settings
from migrator.cli.session import Session, endpoint_names, session_of
from migrator.delays.routing import delays_prefix
from migrator.errors import ConfigError
from migrator.nservicebus.satellites import dispatcher_queue, timeouts_queue
from migrator.nservicebus.timeouts import QueueName
from migrator.rabbitmq.addresses import parse_addresses
from migrator.rabbitmq.names import grants_text, least_grants

if TYPE_CHECKING:
    from migrator.config import Settings

verbs = new_group()


@verbs.command()
@settings("delays")
def grants(
    context: typer.Context,
    broker: Annotated[
        bool, typer.Option("--broker", help="Permissions on the broker. Connects nowhere.")
    ] = False,
    user: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="The daemon's user; with --broker, the default is that of broker.url.",
        ),
    ] = None,
    endpoint: Endpoints = None,
    all_endpoints: AllEndpoints = False,
    vhost: Annotated[
        str | None,
        typer.Option(
            metavar="NAME", help="With --broker: virtual host; default: that of broker.url."
        ),
    ] = None,
    destination: Annotated[
        list[str] | None,
        typer.Option(
            metavar="QUEUE",
            help="With --broker: allow writing to this destination only; may be repeated.",
        ),
    ] = None,
    create_delays: Annotated[
        bool,
        typer.Option(
            "--create-delays", help="With --broker: also what `migrator delays create` needs."
        ),
    ] = False,
) -> None:
    """Print the GRANTs the daemon needs in the database, and no more. Changes nothing.

    If the store is not a SQL database, the rights on the ledger.

    With --broker: its permissions there. Endpoints in mode dispatch or forward need more: their
    satellites are consumed.

    Examples:
      migrator db grants --user migrator_daemon
      migrator db grants --user migrator_daemon --endpoint Sales > grants.sql
      migrator db grants --user migrator@10.0.0.7
      migrator db grants --broker --user migrator
      migrator db grants --broker --vhost prod --destination Sales --destination Billing
    """
    from migrator.config import NearDue

    session = session_of(context)
    if not broker:
        if user is None or vhost or destination or create_delays:
            raise ConfigError("which rights? give --user NAME for the database, or --broker")
        _grant_in_database(session, user, endpoint, all_endpoints=all_endpoints)
        return
    settings = session.load().settings
    known_user, known_vhost = _from_url(settings)
    wanted = least_grants(
        delays_prefix(settings.broker.delays),
        destinations=destination,
        binds_destinations=not settings.broker.all_endpoints_support_delayed_delivery,
        creates_delays=create_delays,
        satellites=_satellite_queues(settings),
        sends_when_due=settings.handover.near_due is NearDue.DISPATCH,
    )
    name, host = user or known_user, vhost or known_vhost
    document = {"user": name, "vhost": host, **asdict(wanted)}
    session.write("db-grants-broker", document, grants_text(wanted, user=name, vhost=host))


def _grant_in_database(
    session: Session, user: str, endpoint: Sequence[str] | None, *, all_endpoints: bool
) -> None:
    from migrator.ledger import migrations
    from migrator.stores.endpoints import chosen_endpoints

    with session.opened() as app:
        names = endpoint_names(app, endpoint, all_endpoints=all_endpoints)
        tables = []
        if not app.settings.store.kind.has_own_ledger:
            store = app.sql_side(wanted_for="granting").store
            found = chosen_endpoints(store, names)
            legacy = [store.legacy_table(each.source) for each in found]
            tables = [
                migrations.GrantedTable(
                    schema=each.table.schema or "",
                    name=each.table.name,
                    lock_column=each.lock_column,
                )
                for each in legacy
            ]
        text = migrations.grants(app.tables.names, user, tables)
    session.write("db-grants", {"user": user, "sql": text}, text.rstrip("\n"))


def _satellite_queues(settings: Settings) -> Sequence[str]:
    from migrator.app.preflight import satellites

    queues = [QueueName(each.queue) for each in satellites(settings, ())]
    return [name(queue) for queue in queues for name in (timeouts_queue, dispatcher_queue)]


def _from_url(settings: Settings) -> tuple[str, str]:
    if settings.broker.url is None:
        return "migrator", "/"
    address = parse_addresses(settings.broker.url.get_secret_value())[0]
    return address.user, address.vhost
