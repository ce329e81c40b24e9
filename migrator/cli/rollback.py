"""``migrator rollback``: undo a migration, of what was handed over and of what was not."""

from __future__ import annotations

from typing import Annotated

import typer

from migrator.app.commands import new_rollback
from migrator.cli.opening import opened
from migrator.cli.output import say, write_json
from migrator.cli.recall import say_recalled
from migrator.cli.recalled import DEEPEST, HOLD, MARGIN, Deepest, Hold, Margin, terms_of, watched
from migrator.cli.session import Delays, Json, Yes, confirmed, given, session_of
from migrator.errors import ExitCode
from migrator.nservicebus.timeouts import RunId
from migrator.recall.rollback import RollbackReport, RollbackScope
from migrator.service.hooks import fire_rollback, hooked

EPILOG = """\b
Examples:
  migrator rollback --dry-run
  migrator rollback --endpoint Sales --yes
  migrator rollback --run 12 --keep-handed-over --yes

\b
Exit codes: 0 done; 3 somebody still works, or a level is too deep; 4 store or broker unreachable;
  5 done, but some are not back: it says which, and why."""


def rollback(
    context: typer.Context,
    endpoint: Annotated[
        str | None, typer.Option(metavar="NAME", help="Only rows of this endpoint.")
    ] = None,
    run: Annotated[
        int | None, typer.Option(metavar="ID", help="Only what this run claimed; no quarantine.")
    ] = None,
    keep_handed_over: Annotated[
        bool,
        typer.Option("--keep-handed-over", help="Leave with the broker what it has already."),
    ] = False,
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
    """Undo a migration: put all rows back into their tables, byte for byte.

    First those that were not handed over, and rows in quarantine; then those that were, out of
    the delay levels, except what is due within --margin or has left. Messages of others stay
    there and keep their time. Stop every `migrator run` first. After a crash, the same command
    goes on. `migrator recall` brings back a part of what was handed over.
    """
    session = session_of(context, as_json=as_json)
    loaded = session.load(given("broker.delays", delays, "--delays"))
    terms = terms_of(margin, hold, deepest)
    if not dry_run:
        what = "rollback puts claimed, quarantined and handed-over rows back into their tables"
        confirmed(yes=yes, what=what)
    with opened(loaded) as app:
        app.ledger_facts.verify()
        scope = RollbackScope(
            endpoint=app.store.find(endpoint) if endpoint else None,
            run=None if run is None else RunId(run),
        )
        kept = None if keep_handed_over else terms
        work = new_rollback(app)
        report = work.foretell(scope, kept) if dry_run else work.run(scope, kept, watched)
    if session.wants_json:
        write_json("rollback", report.document)
    else:
        _show(report)
    if not dry_run:
        with hooked(loaded.settings.hooks) as hooks:
            fire_rollback(hooks.fire, "rollback", report.document)
    if report.stopped_by is not None:
        raise report.stopped_by
    is_done = dry_run or report.is_whole
    raise typer.Exit(ExitCode.DONE if is_done else ExitCode.QUARANTINED)


def _show(report: RollbackReport) -> None:
    released = report.released
    verb = "would go back" if report.is_dry else "are back in their tables"
    say(f"not handed over: {released.rows} rows of {len(released.batches)} batches {verb}")
    say(f"{released.quarantined} rows in quarantine {verb}")
    if released.left_in_quarantine is not None:
        say(
            f"others stay in quarantine, as their store is gone: {released.left_in_quarantine}; "
            "`migrator batch list` shows those that were on their way"
        )
    if released.untouched:
        listed = ", ".join(map(str, released.untouched))
        say(f"batches {listed} may have reached the broker; `migrator run --once` settles them")
    if released.dispatching:
        listed = ", ".join(map(str, released.dispatching))
        say(f"of these, {listed} want a dispatcher: leave the endpoint's mode as it was until then")
    if released.stuck:
        listed = ", ".join(map(str, released.stuck))
        say(
            f"batches {listed} stay, as their store is gone: those that are half-done want "
            "`migrator batch resolve`, and `migrator run` hands over the others"
        )
    if report.doubtful:
        listed = ", ".join(map(str, report.doubtful))
        say(f"batches {listed} are doubtful; `migrator batch resolve` decides about them first")
    for lane, owner in released.busy:
        say(f"lane {lane} was left alone: {owner} works on it; stop that first")
    if report.recall is not None and report.recall.expected.was_handed_over:
        say("handed over:")
        say_recalled(report.recall)
