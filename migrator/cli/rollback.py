"""``migrator rollback``: undo a migration, of what was handed over and of what was not."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated

import typer

from migrator.app.commands import new_rollback
from migrator.cli.lazy import new_group
from migrator.cli.recall import (
    DEEPEST,
    HOLD,
    MARGIN,
    Deepest,
    Hold,
    Margin,
    recalled_lines,
    terms_of,
    watched,
)
from migrator.cli.session import Delays, DryRun, Json, Run, Yes, confirmed, session_of
from migrator.errors import ExitCode
from migrator.nservicebus.timeouts import RunId
from migrator.recall.rollback import RollbackReport, RollbackScope
from migrator.service.hooks import fire_rollback, hooked

verbs = new_group()


@verbs.command()
def rollback(
    context: typer.Context,
    endpoint: Annotated[
        str | None, typer.Option(metavar="NAME", help="Only rows of this endpoint.")
    ] = None,
    run: Run = None,
    keep_handed_over: Annotated[
        bool,
        typer.Option("--keep-handed-over", help="Leave with the broker what it has already."),
    ] = False,
    margin: Margin = MARGIN,
    hold: Hold = HOLD,
    deepest: Deepest = DEEPEST,
    delays: Delays = None,
    dry_run: DryRun = False,
    yes: Yes = False,
    as_json: Json = False,
) -> None:
    """Undo a migration: put all rows back into their tables, byte for byte.

    First those that were not handed over, and rows in quarantine; then those that were, out of
    the delay levels, except what is due within --margin or has left. Messages of others stay
    there and keep their time. With --run, rows in quarantine stay. Stop every `migrator run`
    first. After a crash, the same command goes on. `migrator recall` brings back a part of what
    was handed over.

    Examples:
      migrator rollback --dry-run
      migrator rollback --endpoint Sales --yes
      migrator rollback --run 12 --keep-handed-over --yes

    Exit codes: 0 done; 3 somebody still works, or a level is too deep; 4 store or broker
      unreachable; 5 done, but some are not back: it says which, and why.
    """
    session = session_of(context)
    terms = terms_of(margin, hold, deepest)
    if not dry_run:
        what = "rollback puts claimed, quarantined and handed-over rows back into their tables"
        confirmed(yes=yes, what=what)
    with session.opened(with_ledger=True) as app:
        scope = RollbackScope(
            endpoint=app.store.find(endpoint) if endpoint else None,
            run=None if run is None else RunId(run),
        )
        kept = None if keep_handed_over else terms
        work = new_rollback(app)
        report = work.foretell(scope, kept) if dry_run else work.run(scope, kept, watched)
    session.tell("rollback", report.document, *_lines(report))
    if not dry_run:
        with hooked(app.settings.hooks) as hooks:
            fire_rollback(hooks.fire, "rollback", report.document)
    if report.stopped_by is not None:
        raise report.stopped_by
    is_done = dry_run or report.is_whole
    raise typer.Exit(ExitCode.DONE if is_done else ExitCode.QUARANTINED)


def _lines(report: RollbackReport) -> Iterator[str]:
    verb = "would go back" if report.is_dry else "are back in their tables"
    yield f"not handed over: {report.rows} rows of {len(report.batches)} batches {verb}"
    yield f"{report.quarantined} rows in quarantine {verb}"
    if report.left_in_quarantine is not None:
        yield (
            f"others stay in quarantine, as their store is gone: {report.left_in_quarantine}; "
            "`migrator batch list` shows those that were on their way"
        )
    for batches, text in (
        (
            report.untouched,
            "batches {} may have reached the broker; `migrator run --once` settles them",
        ),
        (
            report.dispatching,
            "of these, {} want a dispatcher: leave the endpoint's mode as it was until then",
        ),
        (
            report.stuck,
            "batches {} stay, as their store is gone: those that are half-done want "
            "`migrator batch resolve`, and `migrator run` hands over the others",
        ),
        (
            report.doubtful,
            "batches {} are doubtful; `migrator batch resolve` decides about them first",
        ),
    ):
        if batches:
            yield text.format(", ".join(map(str, batches)))
    for lane, owner in report.busy:
        yield f"lane {lane} was left alone: {owner} works on it; stop that first"
    if report.recall is not None and report.recall.expected.was_handed_over:
        yield "handed over:"
        yield from recalled_lines(report.recall)
