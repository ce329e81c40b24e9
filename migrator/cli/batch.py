"""``migrator batch``: batches of which nobody can tell whether they were handed over."""

from __future__ import annotations

from typing import Annotated

import typer

from migrator.cli.opening import opened
from migrator.cli.output import say, write_json, write_table
from migrator.cli.session import Json, Yes, confirmed, session_of
from migrator.cli.status import status_document
from migrator.domain.states import BatchState
from migrator.domain.timeouts import BatchId
from migrator.errors import ConfigError, ExitCode
from migrator.ledger.upkeep import Resolution

verbs = typer.Typer(help="Batches whose outcome is doubtful: list, resolve.")


@verbs.command(
    "list",
    epilog="""\b
Examples:
  migrator batch list
  migrator batch list --json

\b
Exit codes: 0 there is none; 6 there are doubtful batches.""",
)
def list_batches(context: typer.Context, as_json: Json = False) -> None:
    """List doubtful batches, oldest first."""
    session = session_of(context, as_json=as_json)
    with opened(session.load()) as app:
        app.ledger_facts.verify()
        progress = app.books.progress()
    if session.wants_json:
        write_json("batches", {"doubtful": status_document(progress)["doubtful"]})
    else:
        write_table(
            ("batch", "endpoint", "lane", "mode", "attempt", "rows", "since"),
            (
                (str(d.batch), d.endpoint, d.lane, d.mode, d.attempt, d.size, d.since)
                for d in progress.doubtful
            ),
        )
    raise typer.Exit(ExitCode.DOUBTFUL if progress.doubtful else ExitCode.DONE)


@verbs.command(
    epilog="""\b
Examples:
  migrator batch resolve 42 --as handed-over --yes
  migrator batch resolve 42 --as claimed --yes

\b
How to find out: look for app-id migrator/<ledger>/<batch>.<attempt>.… on the broker."""
)
def resolve(
    context: typer.Context,
    batch: Annotated[int, typer.Argument(metavar="BATCH", help="The batch's number.")],
    outcome: Annotated[
        str,
        typer.Option(
            "--as",
            metavar="handed-over|claimed",
            help="handed-over: all of it reached the delays; claimed: none did, do it again.",
        ),
    ],
    yes: Yes = False,
    as_json: Json = False,
) -> None:
    """Record what a person found out about a doubtful batch.

    If it is said to be `claimed` and was handed over, its timeouts come twice (with the same
    message ids); if it is said to be `handed-over` and was not, they never come.
    """
    session = session_of(context, as_json=as_json)
    loaded = session.load()
    resolution = _resolution(outcome)
    confirmed(yes=yes, what=f"batch {batch} would be recorded as {outcome}")
    with opened(loaded) as app:
        app.ledger_facts.verify()
        app.upkeep.resolve(BatchId(batch), resolution)
        app.runs.record("batch_resolved", detail={"as": outcome}, batch=BatchId(batch))
    if session.wants_json:
        write_json("batch-resolve", {"batch": batch, "as": outcome})
    else:
        say(f"batch {batch} is {outcome} now")


def _resolution(outcome: str) -> Resolution:
    if outcome == "handed-over":
        return BatchState.HANDED_OVER
    if outcome == "claimed":
        return BatchState.CLAIMED
    raise ConfigError(f"--as {outcome!r} must be handed-over or claimed")
