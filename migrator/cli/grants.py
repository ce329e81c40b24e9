"""``migrator db grants``: what the administrators of database and broker have to grant."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Final

import typer

from migrator.cli.lazy import new_group
from migrator.cli.options import AllEndpoints, Endpoints, settings
from migrator.cli.session import Session, endpoint_names, session_of
from migrator.delays.routing import delays_prefix
from migrator.errors import ConfigError
from migrator.nservicebus.satellites import dispatcher_queue, timeouts_queue
from migrator.nservicebus.timeouts import QueueName
from migrator.rabbitmq.addresses import parse_addresses
from migrator.rabbitmq.names import Looking, grants_text, least_grants, looking

if TYPE_CHECKING:
    from migrator.config import Settings
    from migrator.ledger.rights import Purpose

verbs = new_group()
_NEWEST: Final = 999
"""Stands for the last of a series."""


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
            help="The user; with --broker, the default is that of broker.url.",
        ),
    ] = None,
    purpose: Annotated[
        list[str] | None,
        typer.Option(
            "--for",
            metavar="PURPOSE",
            help="Only what this needs: read, verify, hand-over, dispatch, rollback, operate or "
            "adopt; may be repeated. Default: what the modes of the endpoints need, and verify, "
            "rollback and operate.",
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
    rabbitmq: Annotated[
        str | None,
        typer.Option(
            metavar="VERSION",
            help="With --broker: for this version of RabbitMQ, as 3.10 or 4.3.0; default: for all "
            "but 4.2.6 and 4.3.0, which ask for more.",
        ),
    ] = None,
    create_delays: Annotated[
        bool,
        typer.Option(
            "--create-delays", help="With --broker: also what `migrator delays create` needs."
        ),
    ] = False,
) -> None:
    """Print the GRANTs a user needs in the database, and no more. Changes nothing.

    If the store is not a SQL database, the rights on the ledger.

    Each purpose includes read: status, preview, dry runs, lists and exports; preview then says
    that rows may not be claimed. Operate is quarantine, db resolve, db purge and delays probe;
    adopt is db adopt. What creates or drops tables needs their owner.

    With --broker: its permissions there. Endpoints in mode dispatch or forward need more: their
    satellites are consumed.

    Examples:
      migrator db grants --user migrator_daemon
      migrator db grants --user migrator_daemon --endpoint Sales > grants.sql
      migrator db grants --user migrator@10.0.0.7
      migrator db grants --user dashboard --for read
      migrator db grants --broker --user migrator
      migrator db grants --broker --rabbitmq 3.10
      migrator db grants --broker --vhost prod --destination Sales --destination Billing
    """
    from migrator.config import NearDue

    session = session_of(context)
    if not broker:
        if user is None or vhost or destination or create_delays or rabbitmq:
            raise ConfigError("which rights? give --user NAME for the database, or --broker")
        _grant_in_database(session, user, purpose, endpoint, all_endpoints=all_endpoints)
        return
    if purpose:
        raise ConfigError("--for is about the database: omit it with --broker")
    settings = session.load().settings
    looks = Looking.ANY_RIGHT if rabbitmq is None else looking(_release(rabbitmq))
    known_user, known_vhost = _from_url(settings)
    wanted = least_grants(
        delays_prefix(settings.broker.delays),
        destinations=destination,
        binds_destinations=not settings.broker.all_endpoints_support_delayed_delivery,
        creates_delays=create_delays,
        satellites=_satellite_queues(settings),
        sends_when_due=settings.handover.near_due is NearDue.DISPATCH,
        looks=looks,
        looked_at=_looked_at(settings),
    )
    name, host = user or known_user, vhost or known_vhost
    document = {"user": name, "vhost": host, **asdict(wanted)}
    session.write(
        "db-grants-broker", document, grants_text(wanted, user=name, vhost=host, looks=looks)
    )


def _grant_in_database(
    session: Session,
    user: str,
    purposes: Sequence[str] | None,
    endpoint: Sequence[str] | None,
    *,
    all_endpoints: bool,
) -> None:
    from migrator.ledger import rights
    from migrator.stores.endpoints import chosen_endpoints

    with session.opened() as app:
        names = endpoint_names(app, endpoint, all_endpoints=all_endpoints)
        claims_documents = app.settings.store.kind.has_own_ledger
        tables = []
        if not claims_documents:
            store = app.sql_side(wanted_for="granting").store
            found = chosen_endpoints(store, names)
            legacy = [store.legacy_table(each.source) for each in found]
            tables = [
                rights.GrantedTable(
                    schema=each.table.schema or "",
                    name=each.table.name,
                    lock_column=each.lock_column,
                )
                for each in legacy
            ]
        work = rights.Work(
            purposes=[*_purposes(purposes)] or _daemon_purposes(app.settings, names),
            purges=app.settings.ledger.purge_after is not None,
            claims_documents=claims_documents,
        )
        text = rights.grants(app.tables.names, user, tables, work)
    session.write("db-grants", {"user": user, "sql": text}, text.rstrip("\n"))


def _purposes(given: Sequence[str] | None) -> Iterator[Purpose]:
    from migrator.ledger.rights import Purpose

    for name in given or ():
        try:
            yield Purpose(name)
        except ValueError:
            known = ", ".join(Purpose)
            raise ConfigError(
                f"--for {name}: there is no such purpose; there are {known}"
            ) from None


def _daemon_purposes(settings: Settings, names: Sequence[str]) -> Sequence[Purpose]:
    """Return what a daemon for *names*, or for all endpoints, does, and who operates it."""
    from migrator.config import EndpointMode
    from migrator.ledger.rights import Purpose

    modes = {settings.endpoint(name).mode for name in names}
    modes |= set() if names else {each.mode for each in settings.endpoints}
    dispatches = bool(modes - {EndpointMode.MIGRATE})
    found = [Purpose.DISPATCH] if dispatches else []
    found += [Purpose.HAND_OVER] if not dispatches or EndpointMode.MIGRATE in modes else []
    return [*found, Purpose.VERIFY, Purpose.ROLLBACK, Purpose.OPERATE]


def _satellite_queues(settings: Settings) -> Sequence[str]:
    from migrator.app.preflight import satellites

    queues = [QueueName(each.queue) for each in satellites(settings, ())]
    return [name(queue) for queue in queues for name in (timeouts_queue, dispatcher_queue)]


def _looked_at(settings: Settings) -> Sequence[str]:
    """Return the queues of others that checks ask for: they are neither bound nor consumed."""
    from migrator.app.preflight import satellites
    from migrator.preflight.checks_store import STAGING_QUEUE

    errors = [each.error_queue for each in satellites(settings, ())]
    managers = [dispatcher_queue(QueueName(each.input_queue)) for each in settings.endpoints]
    return [STAGING_QUEUE, *errors, *managers]


def _release(version: str) -> tuple[int, ...]:
    """Return *version* as three numbers; without the third, the last there is."""
    if not (found := re.fullmatch(r"(\d+)\.(\d+)(?:\.(\d+))?", version)):
        raise ConfigError(
            f"--rabbitmq {version}: give a version of RabbitMQ, such as 3.10 or 4.3.6"
        )
    major, minor, patch = found.groups()
    return int(major), int(minor), _NEWEST if patch is None else int(patch)


def _from_url(settings: Settings) -> tuple[str, str]:
    if settings.broker.url is None:
        return "migrator", "/"
    address = parse_addresses(settings.broker.url.get_secret_value())[0]
    return address.user, address.vhost
