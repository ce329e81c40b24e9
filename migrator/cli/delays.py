"""``migrator delays``: the broker's native delay levels."""

from __future__ import annotations

import typer

from migrator.cli.ladder import ladder_table
from migrator.cli.lazy import LazyGroup, Verb
from migrator.cli.opening import opened
from migrator.cli.output import say, write_drawn, write_json
from migrator.cli.session import Delays, Json, given, session_of
from migrator.delays.depths import LevelDepths
from migrator.delays.topology import create_delays
from migrator.errors import ExitCode
from migrator.web.status import ladder_document


class Verbs(LazyGroup):
    """Those with a module of their own."""

    verbs = (
        Verb(
            "verify",
            "verification:verify",
            "Look at the broker's native delays, and say what is wrong and what mends it.",
        ),
        Verb(
            "canary",
            "canary:canary",
            "Send one probe through each level into a queue of its own, and tell how late each"
            " came.",
        ),
        Verb(
            "migrate",
            "relocation:migrate",
            "Move what waits in the delays v1 into the delays v2 of the same broker.",
            epilog="MIGRATE_EPILOG",
        ),
        Verb(
            "transfer",
            "relocation:transfer",
            "Move what waits in the delays of this broker into those of another one.",
            epilog="TRANSFER_EPILOG",
        ),
        Verb(
            "delete",
            "delays_delete:delete",
            "Delete every exchange and queue of a generation, once no message is in it.",
        ),
    )


verbs = typer.Typer(
    cls=Verbs, help="The native delay levels: make them, look into them, verify them, try them."
)


@verbs.command(
    epilog="""\b
Examples:
  migrator delays create
  migrator delays create --delays v1"""
)
def create(context: typer.Context, delays: Delays = None, as_json: Json = False) -> None:
    """Declare every exchange, queue and binding, exactly as the endpoints' installers do.

    Repeating is harmless. Nothing else in migrator ever makes them.
    """
    session = session_of(context, as_json=as_json)
    with opened(session.load(given("broker.delays", delays, "--delays"))) as app:
        create_delays(app.connection, app.plan.delays)
        version = str(app.plan.delays)
    if session.wants_json:
        write_json("delays-create", {"delays": version})
    else:
        say(f"delays {version} are complete")


@verbs.command(
    epilog="""\b
Examples:
  migrator delays inspect
  migrator delays inspect --delays v1 --json

\b
Exit codes: 0 shown; 3 levels are missing; 4 broker unreachable."""
)
def inspect(context: typer.Context, delays: Delays = None, as_json: Json = False) -> None:
    """Show what waits in each delay level. Takes no message out and changes nothing.

    Without the management API only what is ready is known, and never shown as nothing else.
    """
    session = session_of(context, as_json=as_json)
    with opened(session.load(given("broker.delays", delays, "--delays"))) as app:
        ladder = app.broker_facts.ladder(app.plan.delays)
    if session.wants_json:
        write_json("delays-inspect", ladder_document(ladder))
    elif not ladder.is_absent:
        write_drawn(ladder_table(ladder))
    if ladder.gap:
        say(f"not known: {ladder.gap}")
    if ladder.missing:
        say(_missing(ladder))
    raise typer.Exit(ExitCode.PREFLIGHT_REFUSED if ladder.missing else ExitCode.DONE)


def _missing(ladder: LevelDepths) -> str:
    remedy = f"migrator delays create --delays {ladder.version}"
    if ladder.is_absent:
        return f"delays {ladder.version} do not exist here: {remedy}"
    return f"{len(ladder.missing)} levels are missing: {remedy}"


# verbs in files of their own, each registered by one line
