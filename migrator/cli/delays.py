"""``migrator delays``: the broker's native delay infrastructure."""

from __future__ import annotations

import typer

from migrator.broker.topology import create_delays
from migrator.cli.opening import opened
from migrator.cli.output import say, write_json, write_table
from migrator.cli.session import Delays, Json, given, session_of
from migrator.errors import ExitCode

verbs = typer.Typer(help="The native delay infrastructure: create, inspect.")


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
Exit codes: 0 complete and right; 3 missing or different."""
)
def inspect(context: typer.Context, delays: Delays = None, as_json: Json = False) -> None:
    """Compare what the broker has with what the delays must be. Changes nothing."""
    session = session_of(context, as_json=as_json)
    with opened(session.load(given("broker.delays", delays, "--delays"))) as app:
        found = app.broker_facts.delay_entities(app.plan.delays)
        version = str(app.plan.delays)
    rows = [(text, "missing", "") for text in found.missing]
    rows += [(name, "different", text) for name, text in sorted(found.different.items())]
    rows += [(version, "not_checked", gap.reason) for gap in found.not_checked]
    if session.wants_json:
        entities = [{"subject": s, "state": state, "text": text} for s, state, text in rows]
        write_json("delays-inspect", {"delays": version, "findings": entities})
    elif rows:
        write_table(("subject", "state", "text"), rows)
    else:
        say(f"delays {version} are complete")
    is_unfit = bool(found.missing or found.different)
    raise typer.Exit(ExitCode.PREFLIGHT_REFUSED if is_unfit else ExitCode.DONE)
