"""``migrator rollback``: undo a migration, of what was handed over and of what was not."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import typer

from migrator.app import App
from migrator.cli.opening import opened
from migrator.cli.output import say, write_json
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
from migrator.errors import ExitCode, MigratorError
from migrator.ledger.lease_keeper import evict_dead
from migrator.ledger.owner import current_owner, is_surely_dead
from migrator.ledger.work import StoreEndpoint
from migrator.nservicebus.timeouts import BatchId, RunId
from migrator.recall.rollback import RELEASABLE, Rollback, RollbackScope, RolledBack, dispatching
from migrator.recall.rules import RecallScope
from migrator.recall.work import RecallTerms
from migrator.service.occasions import hooked, tell_put_back

EPILOG = """\b
Examples:
  migrator rollback --dry-run
  migrator rollback --endpoint Sales --yes
  migrator rollback --run 12 --keep-handed-over --yes

\b
Exit codes: 0 done; 3 somebody still works, or a level is too deep; 4 store or broker unreachable;
  5 done, but some are not back: it says which, and why."""


@dataclass(slots=True, kw_only=True)
class _Report:
    """What became of both halves."""

    is_dry: bool
    released: RolledBack
    doubtful: list[BatchId]
    is_open: bool = False
    """Whether batches that are meant are still claimed, by somebody or on their way."""
    way: WayBack | None = None
    """Of what was handed over; None: it was left with the broker."""
    stopped_by: MigratorError | None = None
    """What ended the second half before it was done."""

    @property
    def is_whole(self) -> bool:
        """Whether nothing that is meant is left to somebody else."""
        is_back = self.way is None or self.way.is_whole
        is_left = self.is_open or self.doubtful or self.released.left_in_quarantine
        return is_back and not is_left


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
        report = _foretold(app, scope, kept) if dry_run else _rolled_back(app, scope, kept)
    if session.wants_json:
        write_json("rollback", _document(report))
    else:
        _show(report)
    if not dry_run:
        with hooked(loaded.settings.hooks) as hooks:
            tell_put_back(hooks.fire, "rollback", _document(report))
    if report.stopped_by is not None:
        raise report.stopped_by
    is_done = dry_run or report.is_whole
    raise typer.Exit(ExitCode.DONE if is_done else ExitCode.QUARANTINED)


def _foretold(app: App, scope: RollbackScope, terms: RecallTerms | None) -> _Report:
    report = _Report(is_dry=True, released=_forecast(app, scope), doubtful=_doubtful(app, scope))
    if terms is not None:
        expected = foretold(app, _handed_over(scope), terms.margin)
        report.way = WayBack(expected=expected, done=None)
    return report


def _rolled_back(app: App, scope: RollbackScope, terms: RecallTerms | None) -> _Report:
    way = None
    if terms is not None:
        way = WayBack(expected=foretold(app, _handed_over(scope), terms.margin), done=None)
        if way.expected.may_find:
            _ = app.connection  # refuses a missing address before anything is changed
    released = _released(app, scope)
    detail = {"rows": released.rows, "quarantined": released.quarantined, "run": scope.run}
    app.runs.record("rolled_back", detail=detail, batch=None)
    report = _Report(
        is_dry=False,
        released=released,
        doubtful=_doubtful(app, scope),
        is_open=any(scope.covers(batch) for batch in app.books.open_batches()),
        way=way,
    )
    try:
        if terms is not None and way is not None and way.expected.may_find:
            report.way = brought_back(app, _handed_over(scope), terms, way.expected)
        if scope.run is None and report.is_whole and not released.busy:
            _forget_held(app, scope)
    except MigratorError as exc:
        report.stopped_by = exc
    return report


def _forget_held(app: App, scope: RollbackScope) -> None:
    """Have `status` list no destination any more for which nobody is to hand over rows."""
    from migrator.ledger.held_destinations import SqlHeldDestinations

    books = SqlHeldDestinations(app.engine, app.tables)
    for each in app.books.held():
        if scope.endpoint is None or each.source == scope.endpoint.source:
            endpoint = StoreEndpoint(name=each.endpoint, source=each.source)
            books.free(endpoint, [each.destination])


def _handed_over(scope: RollbackScope) -> RecallScope:
    source = None if scope.endpoint is None else scope.endpoint.source
    return RecallScope(source=source, run=scope.run)


def _released(app: App, scope: RollbackScope) -> RolledBack:
    evict_dead(app.leases, is_surely_dead)
    rollback = Rollback(
        claims=app.claims,
        leases=app.leases,
        batches=app.batches,
        owner=current_owner(),
        lease_duration=app.plan.lease,
    )
    return rollback.run(scope)


def _forecast(app: App, scope: RollbackScope) -> RolledBack:
    """Return what would be released now; takes no lane, so that nothing at all is written."""
    busy = [(lane, owner) for lane, owner in app.leases.holders() if not is_surely_dead(owner)]
    lanes = {lane for lane, _ in busy}
    batches = [b for b in app.books.open_batches() if b.lane not in lanes and scope.covers(b)]
    released = [batch for batch in batches if batch.state in RELEASABLE]
    untouched = [batch for batch in batches if batch.state not in RELEASABLE]
    return RolledBack(
        rows=sum(batch.size for batch in released),
        batches=[batch.id for batch in released],
        quarantined=0 if scope.run is not None else _in_quarantine(app, scope),
        untouched=[batch.id for batch in untouched],
        dispatching=dispatching(untouched),
        busy=busy,
    )


def _in_quarantine(app: App, scope: RollbackScope) -> int:
    if scope.endpoint is not None:
        return app.books.quarantined([scope.endpoint])
    return sum(endpoint.quarantined for endpoint in app.books.progress().endpoints)


def _doubtful(app: App, scope: RollbackScope) -> list[BatchId]:
    """Return the batches of which nobody can tell where their rows are."""
    found = (app.batches.find(each.batch) for each in app.books.progress().doubtful)
    return [batch.id for batch in found if batch is not None and scope.covers(batch)]


# ── what is said ────────────────────────────────────────────────────────────────────────────────


def _document(report: _Report) -> dict[str, object]:
    released = report.released
    return {
        "dry_run": report.is_dry,
        "rows": released.rows,
        "batches": list(released.batches),
        "quarantined": released.quarantined,
        "untouched": list(released.untouched),
        "stuck": list(released.stuck),
        "left_in_quarantine": released.left_in_quarantine,
        "doubtful": report.doubtful,
        "busy": [{"lane": lane, "owner": owner} for lane, owner in released.busy],
        "handed_over": None if report.way is None else report.way.document,
        "stopped_by": None if report.stopped_by is None else str(report.stopped_by),
    }


def _show(report: _Report) -> None:
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
    if report.way is not None and report.way.expected.was_handed_over:
        say("handed over:")
        say_way_back(report.way)
