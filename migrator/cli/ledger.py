"""``migrator ledger``: what is kept of settled rows."""

from __future__ import annotations

from typing import Annotated

import typer

from migrator.cli.opening import opened
from migrator.cli.output import say, write_json
from migrator.cli.session import Json, Yes, confirmed, duration, session_of
from migrator.nservicebus.timeouts import RunId

verbs = typer.Typer(help="What is kept of settled rows: purge.", no_args_is_help=True)


@verbs.callback()
def _group() -> None:
    """What is kept of settled rows: purge."""


@verbs.command(
    epilog="""\b
Examples:
  migrator ledger purge --older-than 90d --yes
  migrator ledger purge --run 12 --yes"""
)
def purge(
    context: typer.Context,
    older_than: Annotated[
        str,
        typer.Option(metavar="DURATION", help="Only rows settled, and due, longer ago than this."),
    ] = "30d",
    run: Annotated[
        int | None, typer.Option(metavar="ID", help="Only rows that this run claimed.")
    ] = None,
    yes: Yes = False,
    as_json: Json = False,
) -> None:
    """Delete bodies and headers of rows that were handed over or given back long ago.

    The counts stay; rows in quarantine stay, and rows that are not due yet.
    """
    session = session_of(context, as_json=as_json)
    loaded = session.load()
    age = duration("--older-than", older_than)
    confirmed(
        yes=yes, what=f"rows settled and due more than {older_than} ago would be deleted for good"
    )
    with opened(loaded) as app:
        app.ledger_facts.verify()
        before = app.clock.now() - age
        count = app.upkeep.purge(before=before, run=None if run is None else RunId(run))
        detail = {"before": before.isoformat(), "run": run, "rows": count}
        app.runs.record("ledger_purged", detail=detail, batch=None)
    if session.wants_json:
        write_json("ledger-purge", {"before": before, "rows": count})
    else:
        say(f"{count} rows deleted")
