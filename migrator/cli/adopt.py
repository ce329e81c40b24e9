"""``migrator db adopt``: continue with a ledger that was copied or moved, or that failed over."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from migrator.cli.lazy import new_group
from migrator.cli.options import MARGIN, MAX_DEPTH, MAX_HOLD, DryRun, Margin, MaxDepth, MaxHold, Yes
from migrator.cli.output import say
from migrator.cli.rollback import terms_of, watched
from migrator.cli.session import Session, confirmed, session_of
from migrator.errors import ConfigError, ExitCode, PreflightRefused
from migrator.text import counted

if TYPE_CHECKING:
    from migrator.app.recovery import RecoveryParts
    from migrator.delays.walk import WalkTerms
    from migrator.recovery.adoption import LedgerLocation, MovePlan, SqlAdoption
    from migrator.recovery.failover import FailoverRecovery
    from migrator.recovery.lost_window import RecoveredWindow

verbs = new_group()


@verbs.command()
def adopt(
    context: typer.Context,
    moved: Annotated[
        bool,
        typer.Option(
            "--moved",
            help="Not a copy: the complete database was moved here, and the former one is gone.",
        ),
    ] = False,
    after_failover: Annotated[
        bool,
        typer.Option(
            "--after-failover",
            help="A replica took over: settle what it lacks from what is in the delay levels.",
        ),
    ] = False,
    margin: Margin = MARGIN,
    max_hold: MaxHold = MAX_HOLD,
    max_depth: MaxDepth = MAX_DEPTH,
    dry_run: DryRun = False,
    yes: Yes = False,
) -> None:
    """Take over the ledger of a database that was copied or moved, or that failed over.

    A copy gets a new id, so that it never touches the queues of the original. Batches that were
    being handed over become doubtful: only the original knows whether they reached the broker.
    Refused while a process works on it here; leases that were copied expire by themselves.

    With --moved it keeps its id, and the next run finishes what is under way. Refused while a
    process works on it, here or, as far as the broker shows, at the former place. Only for a
    complete database: one without the last transactions (a replica that was behind) is a copy.

    With --after-failover it keeps its id as well. All levels are read: a row that is in the
    store again while its message waits there is recorded as handed over. Rows that were due by
    then and are found nowhere may have been delivered: they become doubtful, for `migrator db
    resolve`. --margin, --max-hold and --max-depth are as in `migrator rollback`. PostgreSQL only.

    Each needs the rights of `db upgrade`: the daemon's user may only read the ledger's id.

    Examples:
      migrator db adopt --yes
      migrator db adopt --moved --dry-run
      migrator db adopt --moved --yes
      migrator db adopt --after-failover --dry-run
      migrator db adopt --after-failover --yes
    """
    from migrator.app.recovery import open_recovery

    session = session_of(context)
    if moved and after_failover:
        raise ConfigError("--moved and --after-failover exclude each other")
    terms = terms_of(margin, max_hold, max_depth)
    with open_recovery(session.settings()) as parts:
        if after_failover:
            found = _recovered(parts.failover(), terms, yes=yes, is_dry_run=dry_run)
            _tell_recovered(session, found, is_done=found is not None and not dry_run)
            is_doubtful = found is not None and found.doubtful
            raise typer.Exit(ExitCode.DOUBTFUL if is_doubtful else ExitCode.DONE)
        if moved:
            _keep_ledger(session, parts, yes=yes, is_dry_run=dry_run)
        else:
            _adopt_ledger(session, parts.adoption(), yes=yes and not dry_run)


_NOT_SEEN = (
    "a daemon in mode direct on the former database does not show on the broker: make sure that it "
    "cannot be started there again"
)


def _adopt_ledger(session: Session, adoption: SqlAdoption, *, yes: bool) -> None:
    from migrator.recovery.documents import CopiedLedger

    found = adoption.locate()
    if not found.is_moved:
        say(
            f"ledger {found.ledger_id} is where it was created, in {found.present}, as far as the "
            "database shows: give it a new id only if this is a copy after all"
        )
    what = "the ledger would get a new id, and batches under way would become doubtful"
    confirmed(yes=yes, what=what)
    adopted = adoption.adopt()
    session.tell(CopiedLedger(ledger=adopted), f"this ledger is {adopted} now")


def _keep_ledger(session: Session, parts: RecoveryParts, *, yes: bool, is_dry_run: bool) -> None:
    adoption = parts.adoption()
    found = adoption.locate()
    if not found.is_moved:
        _tell(session, found, is_done=False)
        return
    plan = parts.move_plan(found)
    if is_dry_run:
        _tell(session, found, plan, is_done=False)
    if plan.refusals:
        raise PreflightRefused("; ".join(plan.refusals) + ". Nothing was changed")
    if is_dry_run:
        return
    if not yes:
        say("\n".join(_advice(plan)))
    confirmed(
        yes=yes,
        what=f"ledger {found.ledger_id} of {found.created_in} would continue in {found.present}, "
        "and no process may ever work on the former database again",
    )
    _tell(session, adoption.keep(), plan, is_done=True)


def _tell(
    session: Session, found: LedgerLocation, plan: MovePlan | None = None, *, is_done: bool
) -> None:
    from migrator.recovery.documents import MovedLedger

    document = {
        "ledger": found.ledger_id,
        "created_in": found.created_in,
        "present": found.present,
        "is_moved": found.is_moved,
        "batches": dict(found.batches),
        "refusals": [] if plan is None else list(plan.refusals),
        "remarks": [] if plan is None else list(plan.advisories),
        "is_done": is_done,
    }
    session.tell(MovedLedger.model_validate(document), *_lines(found, plan, is_done=is_done))


def _lines(found: LedgerLocation, plan: MovePlan | None, *, is_done: bool) -> Iterator[str]:
    if not found.is_moved:
        yield f"ledger {found.ledger_id} is where it was created, in {found.present}: nothing to do"
        return
    yield (
        f"ledger {found.ledger_id} was created in {found.created_in}, and is now in {found.present}"
    )
    under_way = ", ".join(f"{count} {state}" for state, count in sorted(found.batches.items()))
    yield f"batches under way: {under_way or 'none'}"
    yield from _advice(plan)
    if is_done:
        yield "it continues here under its id; the next `migrator run` finishes what is under way"
    yield f"not checked: {_NOT_SEEN}"


def _advice(plan: MovePlan | None) -> Sequence[str]:
    return [] if plan is None else [f"check this first: {each}" for each in plan.advisories]


# ── after a failover ──────────────────────────────────────────────────────────────────────────────


def _recovered(
    recovery: FailoverRecovery | None, terms: WalkTerms, *, yes: bool, is_dry_run: bool
) -> RecoveredWindow | None:
    if recovery is None:
        return None
    recovery.demand_no_owner()
    if not is_dry_run:
        confirmed(
            yes=yes, what="rows whose messages are in the levels would be recorded as handed over"
        )
    with watched() as progress:
        return recovery.run(terms, is_dry_run=is_dry_run, progress=progress)


def _tell_recovered(session: Session, found: RecoveredWindow | None, *, is_done: bool) -> None:
    from migrator.recovery.documents import FailedOver, SameServer

    counts = {} if found is None else found.counts
    document = {"has_failed_over": found is not None, **counts, "is_done": is_done}
    form = SameServer if found is None else FailedOver
    session.tell(form.model_validate(document), *_recovered_lines(found, is_done=is_done))


def _recovered_lines(found: RecoveredWindow | None, *, is_done: bool) -> Iterator[str]:
    if found is None:
        yield "the database is still on the same server: nothing to do"
        return
    met, under_way = found.handed_over_from_store, found.handed_over_from_batches
    stored = counted(
        met,
        "row is in the store while its message waits",
        "rows are in the store while their messages wait",
    )
    yield f"{stored} in the levels"
    wait = ("row of a batch under way waits", "rows of batches under way wait")
    yield f"{counted(under_way, *wait)} in the levels as well"
    have = ("row of a batch under way has", "rows of batches under way have")
    yield f"{counted(found.not_sent, *have)} not been sent yet"
    if found.nowhere:
        yield counted(
            found.nowhere,
            "message of this ledger comes from a row that no longer exists here",
            "messages of this ledger come from rows that no longer exist here",
        )
    if found.doubtful:
        named = "" if not is_done else f" (batches {', '.join(map(str, found.doubtful_batches))})"
        yield (
            f"{counted(found.doubtful, 'row')} due by now and found nowhere, maybe delivered"
            f"{named}; decide with `migrator db resolve`"
        )
    if is_done:
        yield "the ledger continues here; the next `migrator run` finishes what is under way"
    else:
        yield "nothing was changed"
