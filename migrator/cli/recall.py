"""``migrator recall``: bring some of the handed-over timeouts back from the broker."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated

import typer

from migrator.cli.opening import opened
from migrator.cli.output import write_json
from migrator.cli.recalled import (
    DEEPEST,
    HOLD,
    MARGIN,
    Deepest,
    Hold,
    Margin,
    WayBack,
    brought_back,
    foretold,
    say_way_back,
    terms_of,
)
from migrator.cli.session import Delays, Json, Yes, confirmed, given, session_of
from migrator.errors import ExitCode
from migrator.nservicebus.timeouts import RunId
from migrator.recall.rules import RecallScope
from migrator.service.occasions import hooked, tell_put_back

EPILOG = """\b
Examples:
  migrator recall --endpoint Sales --dry-run
  migrator recall --endpoint Sales --yes
  migrator recall --destination Billing --due-from 2026-12-24T00:00Z --yes

\b
Exit codes: 0 done; 3 somebody still works, or a level is too deep; 4 store or broker unreachable;
  5 done, but some stayed in the levels."""

Moment = Annotated[
    datetime | None,
    typer.Option(metavar="TIME", formats=["%Y-%m-%d", "%Y-%m-%dT%H:%M%z", "%Y-%m-%dT%H:%M:%S%z"]),
]


def recall(
    context: typer.Context,
    endpoint: Annotated[
        str | None, typer.Option(metavar="NAME", help="Only timeouts of this endpoint.")
    ] = None,
    run: Annotated[
        int | None, typer.Option(metavar="ID", help="Only what this run handed over.")
    ] = None,
    destination: Annotated[
        str | None, typer.Option(metavar="QUEUE", help="Only timeouts for this destination.")
    ] = None,
    due_from: Moment = None,
    due_until: Moment = None,
    margin: Margin = MARGIN,
    hold: Hold = HOLD,
    deepest: Deepest = DEEPEST,
    delays: Delays = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only count, by the ledger; the broker is not asked.")
    ] = False,
    yes: Yes = False,
    as_json: Json = False,
) -> None:
    """Take some handed-over timeouts out of the delay levels, back into their tables.

    `migrator rollback` brings back everything; this is for parts of it. Each row is restored byte
    for byte, so that the endpoint's own timeout manager can send it. Messages of others go back
    where they were, with their time unchanged. Nobody may claim meanwhile: stop every
    `migrator run` first. After a crash, the same command goes on.
    """
    session = session_of(context, as_json=as_json)
    loaded = session.load(given("broker.delays", delays, "--delays"))
    terms = terms_of(margin, hold, deepest)
    if not dry_run:
        confirmed(yes=yes, what="recall puts handed-over timeouts back into their tables")
    with opened(loaded) as app:
        app.ledger_facts.verify()
        scope = RecallScope(
            source=app.store.find(endpoint).source if endpoint else None,
            run=None if run is None else RunId(run),
            destination=destination,
            due_from=_utc(due_from),
            due_until=_utc(due_until),
        )
        way = WayBack(expected=foretold(app, scope, terms.margin), done=None)
        if not dry_run:
            way = brought_back(app, scope, terms, way.expected)
    if session.wants_json:
        write_json("recall", {"dry_run": dry_run, **way.document})
    else:
        say_way_back(way)
    if not dry_run:
        with hooked(loaded.settings.hooks) as hooks:
            tell_put_back(hooks.fire, "recall", {"dry_run": False, **way.document})
    raise typer.Exit(ExitCode.DONE if way.is_whole else ExitCode.QUARANTINED)


def _utc(moment: datetime | None) -> datetime | None:
    """Return *moment* in UTC; a bare date or time is meant as UTC."""
    if moment is None:
        return None
    return moment.astimezone(UTC) if moment.tzinfo else moment.replace(tzinfo=UTC)
