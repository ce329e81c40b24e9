"""``migrator rollback`` brings timeouts back: all of them, or some of those that were handed over.

How any walk over the levels is asked for is here as well.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Final

import typer

from migrator.cli.lazy import new_group
from migrator.cli.options import (
    MARGIN,
    MAX_DEPTH,
    MAX_HOLD,
    MOMENTS,
    DryRun,
    DueFrom,
    DueUntil,
    Endpoints,
    Margin,
    MaxDepth,
    MaxHold,
    Run,
    Yes,
    settings,
)
from migrator.cli.output import progress
from migrator.cli.session import confirmed, duration, session_of
from migrator.errors import ConfigError, ExitCode
from migrator.nservicebus.timeouts import RunId
from migrator.recall.rules import RecallOutcome
from migrator.text import counted, grouped, rate_words

if TYPE_CHECKING:
    from migrator.delays.walk import WalkProgress, WalkTerms
    from migrator.recall.recall import RecallReport
    from migrator.recall.rollback import RollbackResult
    from migrator.recall.rules import Scope

verbs = new_group()


def terms_of(margin: str, max_hold: str, max_depth: int) -> WalkTerms:
    """Return the options as values.

    Raises:
        ConfigError: One is no duration, or nothing is to be held for any time.
    """
    from migrator.delays.walk import WalkTerms

    return WalkTerms(
        margin=duration("--margin", margin),
        hold=duration("--max-hold", max_hold, is_some=True),
        deepest=max_depth,
    )


@contextmanager
def watched() -> Iterator[Callable[[WalkProgress], None]]:
    """Show how far a walk is: a line at a terminal, else one every five seconds."""
    began_s = time.monotonic()
    with progress("recalling", every_s=5) as show:
        yield lambda found: show(
            f"level {found.level:02d}, {counted(found.seen, 'message')} seen, "
            f"{counted(found.restored, 'row')} restored, "
            + rate_words(found.seen / max(time.monotonic() - began_s, 0.001))
        )


@verbs.command()
@settings("delays")
def rollback(
    context: typer.Context,
    endpoint: Endpoints = None,
    run: Run = None,
    since: Annotated[
        datetime | None,
        typer.Option(
            metavar="TIME", formats=MOMENTS, help="Only what was claimed at this time or later."
        ),
    ] = None,
    only_handed_over: Annotated[
        bool,
        typer.Option("--only-handed-over", help="Only what is in the delay levels; see below."),
    ] = False,
    destination: Annotated[
        str | None,
        typer.Option(metavar="QUEUE", help="Only handed-over rows for this destination."),
    ] = None,
    due_from: DueFrom = None,
    due_until: DueUntil = None,
    keep_handed_over: Annotated[
        bool,
        typer.Option("--keep-handed-over", help="Leave what was handed over with the broker."),
    ] = False,
    margin: Margin = MARGIN,
    max_hold: MaxHold = MAX_HOLD,
    max_depth: MaxDepth = MAX_DEPTH,
    dry_run: DryRun = False,
    yes: Yes = False,
) -> None:
    """Undo a migration: put all rows back into their tables, byte for byte.

    First those that were not handed over, and rows in quarantine; then those that were, out of
    the delay levels, except what is due within --margin or has left. Other senders' messages stay
    there and keep their time. With --run or --since, rows in quarantine stay. Stop every
    `migrator run` first. After a crash, run the same command again.

    A batch that was being published directly when its process was killed is published once more
    first, because it is unknown how far it got; what is due of it goes to its destination.

    With --only-handed-over, which --destination, --due-from and --due-until imply: only the
    second part, so that claimed rows and those in quarantine stay where they are.

    Examples:
      migrator rollback --dry-run
      migrator rollback --endpoint Sales --yes
      migrator rollback --run 12 --keep-handed-over --yes
      migrator rollback --since 2026-12-24T08:30Z --yes
      migrator rollback --destination Billing --due-from 2026-12-24T00:00Z --yes

    Exit codes: 0 done; 3 another process still works, or a level is too deep; 4 store or broker
      unreachable; 5 done, but some are not back: it says which, and why.
    """
    from migrator.app.rollback import open_rollback
    from migrator.recall.documents import RollbackDocument
    from migrator.recall.rules import Scope

    session = session_of(context)
    terms = terms_of(margin, max_hold, max_depth)
    is_part = only_handed_over or any((destination, due_from, due_until))
    if is_part and keep_handed_over:
        raise ConfigError(
            "--keep-handed-over excludes the options that select handed-over rows; nothing would "
            "be left to do"
        )
    if not dry_run:
        which = "" if is_part else "claimed, quarantined and "
        confirmed(yes=yes, what=f"rollback puts {which}handed-over rows back into their tables")
    with open_rollback(session.settings()) as parts:
        scope = Scope(
            endpoints=parts.find(endpoint) if endpoint else None,
            run=None if run is None else RunId(run),
            since=_utc(since),
            only_handed_over=is_part,
            destination=destination,
            due_from=_utc(due_from),
            due_until=_utc(due_until),
        )
        kept = None if keep_handed_over else terms
        work = parts.rollback()
        plan = work.plan(scope, kept)
        report = work.foretell(plan) if dry_run else work.apply(plan, watched)
    document = RollbackDocument.model_validate(report.document)
    session.tell(document, *_lines(report, scope))
    if not dry_run:
        parts.notify(report.document)
    if report.stopped_by is not None:
        raise report.stopped_by
    is_done = dry_run or report.is_whole
    raise typer.Exit(ExitCode.DONE if is_done else ExitCode.QUARANTINED)


def _lines(report: RollbackResult, scope: Scope) -> Iterator[str]:
    if scope.only_handed_over:
        yield from _republished_lines(report)
        if report.recall is not None:
            yield from recalled_lines(report.recall)
        return
    released, verb = report.released, "would go back" if report.is_dry else "back in their tables"
    of_batches = counted(len(released.batches), "batch", "batches")
    yield f"not handed over: {counted(released.rows, 'row')} of {of_batches} {verb}"
    yield f"in quarantine: {counted(released.quarantined, 'row')} {verb}"
    yield from _kept_lines(report)
    yield from _republished_lines(report)
    for batches, text in (
        (
            [each for each in report.untouched if each not in released.dispatching],
            "batches {} may have reached the broker; to settle them, run the rollback with the "
            "`broker.url` and `broker.delays` with which they were handed over",
        ),
        (
            released.dispatching,
            "batches {} were being sent by a dispatcher, and only a dispatcher settles them: start "
            "`migrator run` with the endpoint's mode as it was",
        ),
        (
            released.stuck,
            "batches {} stay because their store is gone: decide about half-done ones with "
            "`migrator db resolve`; `migrator run` hands over the others",
        ),
        (
            report.doubtful,
            "batches {} are doubtful; decide about them first with `migrator db resolve`",
        ),
    ):
        if batches:
            yield text.format(", ".join(map(str, batches)))
    for lane, owner in released.busy:
        yield f"lane {lane} was left alone: {owner} works on it; stop that process first"
    if report.left_staged:
        yield (
            f"{counted(report.left_staged, 'copy', 'copies')} of rows left in migrator's staging "
            "queues; nothing sends them, and the lane's next owner removes them"
        )
    if report.recall is not None and report.recall.expected.was_handed_over:
        yield "handed over:"
        yield from recalled_lines(report.recall)


def _kept_lines(report: RollbackResult) -> Iterator[str]:
    if report.taken:
        yield (
            f"{counted(report.taken, 'timeout')} of these tables will not change: the ledger has "
            "a row with the same id, which stays in quarantine (id-taken), or with the broker"
        )
    for reason, rows in report.kept.items():
        yield (
            f"{counted(rows, 'row stays', 'rows stay')} in quarantine ({reason}): `migrator "
            f"quarantine list --reason {reason}` shows them, and what to do"
        )
    if (why := report.released.left_in_quarantine) is not None:
        yield (
            f"others stay in quarantine because their store is gone: {why}; "
            "`migrator db resolve` shows those that were going back"
        )


def _republished_lines(report: RollbackResult) -> Iterator[str]:
    if not report.republished:
        return
    batches = ", ".join(map(str, report.republished))
    yield (
        f"batches {batches} were being published when their process was killed: it is unknown "
        f"how far, so they {'would be' if report.is_dry else 'were'} published once more, and "
        "count as handed over"
    )
    if report.republished_due:
        ones = ("row of these was due, and", "rows of these were due, and")
        went = "would go" if report.is_dry else "went"
        yield f"{counted(report.republished_due, *ones)} {went} to the destination, maybe again"


def _utc(moment: datetime | None) -> datetime | None:
    """Return *moment* in UTC; a bare date or time is meant as UTC."""
    if moment is None:
        return None
    return moment.astimezone(UTC) if moment.tzinfo else moment.replace(tzinfo=UTC)


def recalled_lines(report: RecallReport) -> Iterator[str]:
    """Yield what a person is told about it."""
    expected, counts = report.expected, report.counts
    yield (
        f"according to the ledger: {grouped(expected.in_levels)} in the levels, "
        f"{grouped(expected.too_near)} due too soon to be touched, "
        f"{grouped(expected.left)} have left already"
    )
    if expected.possible_until is not None:
        yield f"all of them can be recalled until {expected.possible_until:%Y-%m-%d %H:%M:%S} UTC"
    if report.outcomes is None:
        return
    yield f"back in their tables: {counted(counts[RecallOutcome.RESTORED], 'row')}"
    for outcome, text in _REMARKS.items():
        if count := counts[outcome]:
            yield f"{counted(count, 'message')} {text}"
    for level in report.unfinished:
        yield (
            f"level {level:02d} was not read to its end: it holds too much for --max-hold, or "
            "something else consumes it; run this again"
        )
    if report.not_found:
        yield (
            f"not found: {counted(report.not_found, 'message')} that the ledger expects; run this "
            "again, and check `migrator delays show`"
        )


_REMARKS: Final = {
    RecallOutcome.LEFTOVER: "removed: copies of rows that were back already",
    RecallOutcome.TOO_NEAR: "left with the broker: due too soon",
    RecallOutcome.TAKEN: "left: their tables already have timeouts with these ids",
    RecallOutcome.REFUSED: "left: their tables do not take their rows back (the log says why)",
    RecallOutcome.UNSETTLED: "left: their batches are not settled (`migrator db resolve`)",
    RecallOutcome.STORE_GONE: "left: the store they came from is gone (the log says which)",
    RecallOutcome.DIFFERENT: "left: migrator's tag, but not its content",
}
