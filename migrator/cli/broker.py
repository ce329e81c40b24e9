"""``migrator broker``: what the broker's administrator has to grant."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Annotated

import typer

from migrator.app.preflight import satellites
from migrator.cli.lazy import new_group
from migrator.cli.session import Delays, Json, session_of
from migrator.config import NearDue, Settings
from migrator.delays.routing import delays_prefix
from migrator.nservicebus.satellites import dispatcher_queue, timeouts_queue
from migrator.nservicebus.timeouts import QueueName
from migrator.rabbitmq.addresses import parse_addresses
from migrator.rabbitmq.names import grants_text, least_grants

verbs = new_group("The broker: grants.")


@verbs.command()
def grants(
    context: typer.Context,
    user: Annotated[
        str | None, typer.Option(metavar="NAME", help="Broker user; else that of broker.url.")
    ] = None,
    vhost: Annotated[
        str | None, typer.Option(metavar="NAME", help="Virtual host; else that of broker.url.")
    ] = None,
    destination: Annotated[
        list[str] | None,
        typer.Option(metavar="QUEUE", help="Only these may be written to; may be repeated."),
    ] = None,
    create_delays: Annotated[
        bool, typer.Option("--create-delays", help="Also for `migrator delays create`.")
    ] = False,
    delays: Delays = None,
    as_json: Json = False,
) -> None:
    """Print the permissions the daemon needs, and no more. Connects nowhere.

    Endpoints in mode dispatch or forward need more: their satellites are consumed.

    Examples:
      migrator broker grants --user migrator
      migrator broker grants --user migrator --vhost prod --destination Sales --destination Billing
    """
    session = session_of(context)
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
    session.write("broker-grants", document, grants_text(wanted, user=name, vhost=host))


def _satellite_queues(settings: Settings) -> Sequence[str]:
    queues = [QueueName(each.queue) for each in satellites(settings, ())]
    return [name(queue) for queue in queues for name in (timeouts_queue, dispatcher_queue)]


def _from_url(settings: Settings) -> tuple[str, str]:
    if settings.broker.url is None:
        return "migrator", "/"
    address = parse_addresses(settings.broker.url.get_secret_value())[0]
    return address.user, address.vhost
