"""``migrator db resolve``: batches of which nobody can tell whether they were handed over.

Rules of this file: what is half done is not closed while its document store answers, whatever the
operator says; what is recorded is recorded with the evidence.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from migrator.cli.lazy import new_group
from migrator.cli.options import DryRun, Yes
from migrator.cli.output import say, write_json, write_table
from migrator.cli.session import Session, confirmed, session_of
from migrator.errors import (
    ConfigError,
    PreflightRefused,
    SourceElsewhere,
    SourceGone,
    StoreError,
)
from migrator.ledger.states import HALF_DONE, BatchState, RowState
from migrator.ledger.work import Batch, StoreEndpoint
from migrator.nservicebus.timeouts import BatchId
from migrator.text import counted, grouped

if TYPE_CHECKING:
    from sqlalchemy import Insert

    from migrator.app import App
    from migrator.recovery.unresolved import (
        GoingBack,
        HalfDoneOutcome,
        Resolution,
        ReturnOutcome,
    )
    from migrator.stores.documents.claims import DocumentClaims

verbs = new_group()
_OUTCOMES: Final = ("handed-over", "claimed", "quarantined", "written-off")


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
            "again; quarantined: rows on their way out of quarantine are in it again; "
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
    """Record what a person found out about a doubtful batch; without a number, list them.

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
    session = session_of(context)
    if batch is None:
        _list_unresolved(session)
        return
    if outcome not in _OUTCOMES:
        raise ConfigError(f"--as {outcome or ''!r} must be {', '.join(_OUTCOMES)}")
    with session.opened(with_ledger=True) as app:
        found = app.batches.find(BatchId(batch))
        going = app.operator_actions.going_back(BatchId(batch))
        closing = _Closing(app, is_lost=assume_store_lost, yes=yes, is_dry_run=dry_run)
        if found is not None and found.state in HALF_DONE:
            told = closing.batch(found, outcome)
        elif going:
            told = closing.rows(going, outcome)
        else:
            told = _resolved(app, batch, outcome, yes=yes and not dry_run)
    if session.wants_json:
        write_json("db-resolve", told)
    elif not dry_run:
        rows = f"{counted(int(str(told['rows'])), 'row')} of " if going else ""
        say(f"now {outcome}: {rows}batch {batch}")


def _list_unresolved(session: Session) -> None:
    from migrator.status.document import progress_document

    with session.opened(with_ledger=True) as app:
        progress = app.queries.progress()
        half_done = [each for each in app.queries.open_batches() if each.state in HALF_DONE]
        going_back = app.operator_actions.going_back()
    if session.wants_json:
        document = {
            "doubtful": progress_document(progress)["doubtful"],
            "half_done": [_half_done(each) for each in half_done],
            "going_back": [asdict(each) for each in going_back],
        }
        write_json("db-unresolved", document)
        return
    rows: list[tuple[object, ...]] = [
        (str(d.batch), "doubtful", d.endpoint, d.lane, d.mode, d.attempt, d.size, d.since)
        for d in progress.doubtful
    ]
    rows += [
        (str(b.id), b.state, b.endpoint, b.lane, b.mode, b.attempt, b.size, "") for b in half_done
    ]
    rows += [
        (str(g.batch), f"going back, {g.towards}", g.endpoint, "", "", "", g.rows, "")
        for g in going_back
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


def _resolved(app: App, batch: int, outcome: str, *, yes: bool) -> dict[str, object]:
    resolution = _resolution(outcome)
    confirmed(yes=yes, what=f"batch {batch} would be recorded as {outcome}")
    app.operator_actions.resolve(BatchId(batch), resolution)
    app.runs.record("batch_resolved", detail={"as": outcome}, batch=BatchId(batch))
    return {"batch": batch, "as": outcome}


def _resolution(outcome: str) -> Resolution:
    if outcome == "handed-over":
        return BatchState.HANDED_OVER
    if outcome == "claimed":
        return BatchState.CLAIMED
    raise ConfigError(
        f"only what is half done, of a store that is gone, can be {outcome}; a doubtful batch is "
        "handed-over or claimed"
    )


class _Closing:
    """Closes what is half done and whose document store is gone."""

    def __init__(self, app: App, *, is_lost: bool, yes: bool, is_dry_run: bool) -> None:
        self._app = app
        self._is_lost = is_lost
        self._yes = yes
        self._is_dry_run = is_dry_run

    def batch(self, batch: Batch, outcome: str) -> dict[str, object]:
        """Record *outcome* of a half-done batch; return what was, or would be, done.

        Raises:
            ConfigError: *outcome* is none of a half-done batch, or ``--yes`` is missing.
            PreflightRefused: The store answers, or may do so later. Nothing was changed.
            LedgerError: A process holds the lane. Nothing was changed.
        """
        towards = _half_done_outcome(outcome)
        evidence = self._evidence(
            lambda claims: claims.still_there(batch),
            finish="`migrator run --once` or `migrator rollback` finishes the batch",
        )
        told: dict[str, object] = {
            "batch": batch.id,
            "as": outcome,
            "state": batch.state,
            "source": batch.source,
            "rows": batch.size,
            "evidence": evidence,
        }
        rows = counted(batch.size, "row")
        say(f"batch {batch.id} is {batch.state}, {rows} of {batch.source}: {evidence}")
        if (event := self._agreed(told, f"batch {batch.id}")) is not None:
            self._app.operator_actions.close_half_done(
                batch.id, towards, evidence=evidence, event=event
            )
        return told

    def rows(self, under_way: Sequence[GoingBack], outcome: str) -> dict[str, object]:
        """Record *outcome* of rows of one settled batch; see ``batch``, which raises the same."""
        from migrator.recovery.unresolved import TOWARDS

        decided = _return_outcome(outcome, under_way)
        (going,) = [each for each in under_way if each.towards is TOWARDS[decided]]
        ids = self._app.operator_actions.ids_going_back(going)
        endpoint = StoreEndpoint(name=going.endpoint, source=going.source)
        evidence = self._evidence(
            lambda claims: claims.count_there(endpoint, ids),
            finish="`migrator rollback` finishes it",
        )
        told: dict[str, object] = {
            "batch": going.batch,
            "as": outcome,
            "state": f"going back, {going.towards}",
            "source": going.source,
            "rows": going.rows,
            "evidence": evidence,
        }
        rows = counted(going.rows, "row")
        say(f"{rows} of batch {going.batch} to go back to {going.source}: {evidence}")
        if (event := self._agreed(told, rows)) is not None:
            self._app.operator_actions.close_going_back(
                going, decided, evidence=evidence, event=event
            )
        return told

    def _agreed(self, told: Mapping[str, Any], what: str) -> Insert | None:
        """Demand that a person agrees; return what the audit trail gets, or None in a dry run."""
        if self._is_dry_run:
            return None
        confirmed(yes=self._yes, what=f"{what} would be recorded as {told['as']}")
        return self._app.runs.event("batch_resolved", detail=told, batch=told["batch"])

    def _evidence(self, count: Callable[[DocumentClaims], int], *, finish: str) -> str:
        """Return how it is known that the store is gone; *count* asks how many timeouts it has.

        Raises:
            PreflightRefused: It answers, or may do so later; says how to *finish* instead.
        """
        try:
            if (side := self._app.document_side) is None:
                raise SourceElsewhere(f"store.kind is {self._app.settings.store.kind} now")
            there = count(side.claims)
        except StoreError as exc:
            if isinstance(exc, SourceGone) and not isinstance(exc, SourceElsewhere):
                return str(exc)
            if self._is_lost:
                return f"{exc}; according to the operator, the store is gone"
            raise PreflightRefused(
                f"the store may still know what happened to it ({exc}); if it is gone for good, "
                "add --assume-store-lost. Nothing was changed"
            ) from exc
        raise PreflightRefused(
            f"the store answers, and has {grouped(there)} of its timeouts: {finish} from what the "
            "store knows. Nothing was changed"
        )


_GOING_BACK: Final = {
    RowState.RECALLED: "that were being recalled",
    RowState.RELEASED: "on their way out of quarantine",
}


def _return_outcome(outcome: str, going: Sequence[GoingBack]) -> ReturnOutcome:
    from migrator.recovery.unresolved import TOWARDS, ReturnOutcome

    allowed = [each for each in ReturnOutcome if TOWARDS[each] in {g.towards for g in going}]
    if outcome in allowed:
        return ReturnOutcome(outcome)
    what = " and ".join(_GOING_BACK[each.towards] for each in going)
    raise ConfigError(f"rows {what} can only be {' or '.join(allowed)}")


def _half_done_outcome(outcome: str) -> HalfDoneOutcome:
    if outcome == "claimed":
        return BatchState.CLAIMED
    if outcome == "written-off":
        return BatchState.RELEASED
    raise ConfigError("a half-done batch was never sent: it can only be claimed or written-off")
