"""``migrator db resolve``: batches of which it is unknown whether they were handed over."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from migrator.cli.lazy import new_group
from migrator.cli.options import DryRun, Yes
from migrator.cli.output import say, write_document, write_table
from migrator.cli.session import Session, confirmed, session_of
from migrator.errors import ConfigError
from migrator.ledger.work import Batch
from migrator.nservicebus.timeouts import BatchId
from migrator.text import counted

if TYPE_CHECKING:
    from migrator.recovery.resolve import LostStore, Outcome, ResolutionPlan, Unresolved

verbs = new_group()


@verbs.command()
def resolve(
    context: typer.Context,
    batch: Annotated[
        int | None, typer.Argument(metavar="BATCH", help="The batch's number.", show_default=False)
    ] = None,
    outcome: Annotated[
        str | None,
        typer.Option(
            "--as",
            metavar="handed-over|claimed|quarantined|written-off",
            help="handed-over: all of it reached the delays; claimed: none did, hand it over "
            "again; quarantined: rows that were leaving quarantine are in it again; "
            "written-off: lost with its store, never sent.",
        ),
    ] = None,
    assume_store_lost: Annotated[
        bool,
        typer.Option(
            "--assume-store-lost",
            help="For half-done batches: the store does not answer, and never will again.",
        ),
    ] = False,
    dry_run: DryRun = False,
    yes: Yes = False,
) -> None:
    """Record what an operator found out about a doubtful batch; without a number, list them.

    The list has doubtful batches, oldest first, and batches that are half claimed or half put
    back. The latter are finished by the lane's owner or by the next `migrator rollback`; those
    that stay in the list have a store that does not answer, or is gone.

    If a batch is recorded as `claimed` but was handed over, its timeouts arrive twice (with the
    same message ids); if it is recorded as `handed-over` but was not, they never arrive.

    A batch that waits for a broker that is gone is not in the list; the log (`batch_elsewhere`)
    and `migrator status` name it. `claimed` gives it to the latest run of its endpoint. Refused
    while a process has its lane.

    It also closes a half-done batch (claiming, releasing) whose table, database or account is
    gone. `claimed` hands its timeouts over, and one that a timeout manager had sent arrives
    twice; `written-off` never sends them. Refused while the store answers: then it is asked.

    The same for rows of a settled batch that go back one by one: `quarantined` or `written-off`
    for those out of quarantine, `handed-over` for those of a recall, whose messages the broker
    still has.

    Examples:
      migrator db resolve
      migrator db resolve 42 --as handed-over --yes
      migrator db resolve 42 --as claimed --yes
      migrator db resolve 43 --as written-off --dry-run

    How to find out: look for app-id migrator/<ledger>/<batch>.<attempt>.… on the broker.
    """
    from migrator.app.resolve import open_resolver
    from migrator.recovery.documents import ResolvedBatch, ResolvedRows

    session = session_of(context)
    decided = None if batch is None else _outcome(outcome or "")
    given = session.settings()
    with open_resolver(given, is_store_lost=assume_store_lost) as resolver:
        if batch is None or decided is None:
            _tell_unresolved(session, resolver.waiting())
            return
        plan = resolver.plan(BatchId(batch), decided)
        lost, what = plan.lost, _what(plan)
        if lost is not None:
            say(f"{_state(lost)}: {lost.evidence}")
        is_shown = dry_run and lost is not None
        if not is_shown:
            confirmed(yes=yes and not dry_run, what=f"{what} would be recorded as {plan.outcome}")
            resolver.apply(plan)
    if session.wants_json:
        form: type[ResolvedBatch] = ResolvedBatch if lost is None else ResolvedRows
        write_document(form.model_validate(plan.document))
    elif not is_shown:
        say(f"now {plan.outcome}: {what}")


def _outcome(text: str) -> Outcome:
    from migrator.recovery.resolve import Outcome

    try:
        return Outcome(text)
    except ValueError:
        raise ConfigError(f"--as {text!r} must be {', '.join(Outcome)}") from None


def _tell_unresolved(session: Session, found: Unresolved) -> None:
    from migrator.recovery.documents import UnresolvedDocument

    if session.wants_json:
        document = {
            "doubtful": found.doubtful,
            "half_done": [_half_done(each) for each in found.half_done],
            "going_back": found.going_back,
        }
        write_document(UnresolvedDocument.model_validate(document))
        return
    rows: list[tuple[object, ...]] = [
        (str(d.batch), "doubtful", d.endpoint, d.lane, d.mode, d.attempt, d.size, d.since)
        for d in found.doubtful
    ]
    rows += [
        (str(b.id), b.state, b.endpoint, b.lane, b.mode, b.attempt, b.size, "")
        for b in found.half_done
    ]
    rows += [
        (str(g.batch), f"going back, {g.towards}", g.endpoint, "", "", "", g.rows, "")
        for g in found.going_back
    ]
    if not rows:
        say("no batch is doubtful or half done")
        return
    columns = ("batch", "state", "endpoint", "lane", "mode", "attempt", "rows", "since")
    write_table(columns, rows)


def _half_done(batch: Batch) -> dict[str, object]:
    return {
        "batch": batch.id,
        "state": batch.state,
        "endpoint": batch.endpoint,
        "source": batch.source,
        "lane": batch.lane,
        "rows": batch.size,
    }


def _what(plan: ResolutionPlan) -> str:
    if plan.lost is None or isinstance(plan.lost.what, Batch):
        return f"batch {plan.batch}"
    return f"{counted(plan.lost.rows, 'row')} of batch {plan.batch}"


def _state(lost: LostStore) -> str:
    rows, what = counted(lost.rows, "row"), lost.what
    if isinstance(what, Batch):
        return f"batch {what.id} is {what.state}, {rows} of {what.source}"
    return f"{rows} of batch {what.batch} to go back to {what.source}"
