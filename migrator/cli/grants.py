"""``migrator db grants``: what the administrators of database and broker have to grant."""

from __future__ import annotations

import re
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Final

import typer

from migrator.cli.lazy import new_group
from migrator.cli.options import AllEndpoints, Endpoints, settings
from migrator.cli.session import endpoint_names, session_of
from migrator.errors import ConfigError
from migrator.rabbitmq.addresses import parse_addresses
from migrator.rabbitmq.names import Looking, grants_text, looking

if TYPE_CHECKING:
    from migrator.config import Settings

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
            "rollback and operate. With --broker: also what this verb needs: decommission, "
            "delays-migrate, delays-transfer or delays-delete.",
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
    that rows may not be claimed. Operate is quarantine, decommission, db resolve, db purge and
    delays probe; adopt is db adopt. What creates or drops tables needs their owner.

    With --broker: its permissions there, for run and all verbs that follow it. Endpoints in mode
    dispatch or forward need more: their satellites are consumed. Decommission deletes those of
    the endpoints named, or of all in the settings. On the broker that delays transfer leads to,
    what run needs is enough.

    Examples:
      migrator db grants --user migrator_daemon
      migrator db grants --user migrator_daemon --endpoint Sales > grants.sql
      migrator db grants --user migrator@10.0.0.7
      migrator db grants --user dashboard --for read
      migrator db grants --broker --user migrator
      migrator db grants --broker --rabbitmq 3.10
      migrator db grants --broker --vhost prod --destination Sales --destination Billing
      migrator db grants --broker --for decommission --endpoint Sales
    """
    from migrator.app.grants import BrokerGrantsDocument, broker_grants, database_grants
    from migrator.ledger.rights import GrantsDocument

    session = session_of(context)
    if not broker:
        if user is None or vhost or destination or create_delays or rabbitmq:
            raise ConfigError("which rights? give --user NAME for the database, or --broker")
        given = session.settings()
        names = endpoint_names(given, endpoint, all_endpoints=all_endpoints)
        text = database_grants(given, user, purpose or (), names)
        session.write(GrantsDocument(user=user, sql=text), text.rstrip("\n"))
        return
    settings = session.settings()
    looks = Looking.ANY_RIGHT if rabbitmq is None else looking(_release(rabbitmq))
    known_user, known_vhost = _from_url(settings)
    wanted = broker_grants(
        settings,
        purpose or (),
        endpoint or (),
        destinations=destination,
        creates_delays=create_delays,
        looks=looks,
    )
    name, host = user or known_user, vhost or known_vhost
    document = BrokerGrantsDocument(user=name, vhost=host, **asdict(wanted))
    session.write(document, grants_text(wanted, user=name, vhost=host, looks=looks))


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
