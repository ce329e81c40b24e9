"""``migrator recall``: bring some of the handed-over timeouts back from the broker."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated, Final

import typer

from migrator.app.commands import new_recall
from migrator.cli.opening import opened
from migrator.cli.output import say, write_json
from migrator.cli.recalled import DEEPEST, HOLD, MARGIN, Deepest, Hold, Margin, terms_of, watched
from migrator.cli.session import Delays, Json, Yes, confirmed, given, session_of
from migrator.errors import ExitCode
from migrator.nservicebus.timeouts import RunId
from migrator.recall.recall import RecallReport, forecast
from migrator.recall.rules import RecallOutcome, RecallScope
from migrator.service.hooks import fire_rollback, hooked

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
        expected = forecast(app.side.recalls, app.clock, scope, terms.margin)
        report = RecallReport(expected=expected, done=None)
        if not dry_run:
            with watched() as progress:
                report = new_recall(app).bring_back(scope, terms, expected, progress)
    if session.wants_json:
        write_json("recall", {"dry_run": dry_run, **report.document})
    else:
        say_recalled(report)
    if not dry_run:
        with hooked(loaded.settings.hooks) as hooks:
            fire_rollback(hooks.fire, "recall", {"dry_run": False, **report.document})
    raise typer.Exit(ExitCode.DONE if report.is_whole else ExitCode.QUARANTINED)


def _utc(moment: datetime | None) -> datetime | None:
    """Return *moment* in UTC; a bare date or time is meant as UTC."""
    if moment is None:
        return None
    return moment.astimezone(UTC) if moment.tzinfo else moment.replace(tzinfo=UTC)


def say_recalled(report: RecallReport) -> None:
    """Tell a person about it."""
    expected, done = report.expected, report.done
    say(
        f"by the ledger, {expected.in_levels} are in the levels, {expected.too_near} are due too "
        f"soon to be touched, {expected.left} have left already"
    )
    if expected.possible_until is not None:
        say(f"all of them can come back until {expected.possible_until:%Y-%m-%d %H:%M:%S} UTC")
    if done is None:
        return
    say(f"{done.restored} rows are back in their tables")
    for outcome, text in _REMARKS.items():
        if count := done.outcomes.get(outcome, 0):
            say(f"{count} messages {text}")
    for level in done.unfinished:
        say(
            f"level {level:02d} was not seen to its end: it holds too much for --hold, or somebody "
            "else consumes it; run it again"
        )
    if report.not_found:
        say(
            f"{report.not_found} that the ledger expects were met nowhere; run it again, and see "
            "what `migrator delays verify` says"
        )


_REMARKS: Final = {
    RecallOutcome.LEFTOVER: "were leftovers of an earlier recall, and are gone now",
    RecallOutcome.TOO_NEAR: "are due too soon and were left to the broker",
    RecallOutcome.TAKEN: "were left: their tables have their ids again",
    RecallOutcome.UNSETTLED: "were left: their batches are not settled (`migrator batch list`)",
    RecallOutcome.STORE_GONE: "were left: the store they came from is gone (the log says which)",
    RecallOutcome.DIFFERENT: "bear our mark but not our content, and were left",
}
