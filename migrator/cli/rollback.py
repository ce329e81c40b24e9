"""``migrator rollback``: put back what was claimed and not handed over."""

from __future__ import annotations

from typing import Annotated, Final

import typer

from migrator.cli.opening import opened
from migrator.cli.output import say, write_json
from migrator.cli.session import Json, Yes, confirmed, session_of
from migrator.daemon.owner import current_owner, is_surely_dead
from migrator.domain.states import BatchState
from migrator.domain.timeouts import RunId
from migrator.engine.rollback import Rollback, RollbackScope, RolledBack, dispatching
from migrator.wiring import App

EPILOG = """\b
Examples:
  migrator rollback --dry-run
  migrator rollback --endpoint Sales --yes
  migrator rollback --run 12 --yes"""

_RELEASED: Final = frozenset({BatchState.CLAIMED, BatchState.STAGING, BatchState.STAGED})
"""States of batches of which nothing can have left migrator's own queues."""


def rollback(
    context: typer.Context,
    endpoint: Annotated[
        str | None, typer.Option(metavar="NAME", help="Only rows of this endpoint.")
    ] = None,
    run: Annotated[
        int | None, typer.Option(metavar="ID", help="Only what this run claimed; no quarantine.")
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would happen.")] = False,
    yes: Yes = False,
    as_json: Json = False,
) -> None:
    """Put rows that were not handed over back into their tables, byte for byte.

    Rows in quarantine go back, too. What was handed over already stays with the broker;
    `migrator recall` brings that back. Stop every `migrator run` first.
    """
    session = session_of(context, as_json=as_json)
    loaded = session.load()
    if not dry_run:
        what = "rollback puts claimed and quarantined rows back into the timeouts tables"
        confirmed(yes=yes, what=what)
    with opened(loaded) as app:
        app.ledger_facts.verify()
        scope = RollbackScope(
            endpoint=app.store.find(endpoint) if endpoint else None,
            run=None if run is None else RunId(run),
        )
        done = _forecast(app, scope) if dry_run else _rolled_back(app, scope)
        if not dry_run:
            detail = {"rows": done.rows, "quarantined": done.quarantined, "run": run}
            app.runs.record("rolled_back", detail=detail, batch=None)
    _show(done, is_dry=dry_run, as_json=session.wants_json)


def _rolled_back(app: App, scope: RollbackScope) -> RolledBack:
    for lane, owner in app.leases.holders():
        if is_surely_dead(owner):
            app.leases.evict(lane, owner)
    rollback = Rollback(
        claims=app.claims,
        leases=app.leases,
        batches=app.batches,
        owner=current_owner(),
        lease_duration=app.plan.lease,
    )
    return rollback.run(scope, is_dry=False)


def _forecast(app: App, scope: RollbackScope) -> RolledBack:
    """Return what a rollback would do now; takes no lane, so that nothing at all is written."""
    busy = [(lane, owner) for lane, owner in app.leases.holders() if not is_surely_dead(owner)]
    lanes = {lane for lane, _ in busy}
    batches = [b for b in app.books.open_batches() if b.lane not in lanes and scope.covers(b)]
    released = [batch for batch in batches if batch.state in _RELEASED]
    untouched = [batch for batch in batches if batch.state not in _RELEASED]
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


def _show(done: RolledBack, *, is_dry: bool, as_json: bool) -> None:
    if as_json:
        document = {
            "dry_run": is_dry,
            "rows": done.rows,
            "batches": list(done.batches),
            "quarantined": done.quarantined,
            "untouched": list(done.untouched),
            "busy": [{"lane": lane, "owner": owner} for lane, owner in done.busy],
        }
        write_json("rollback", document)
        return
    verb = "would go back" if is_dry else "are back in their tables"
    say(f"{done.rows} rows of {len(done.batches)} batches {verb}")
    say(f"{done.quarantined} rows in quarantine {verb}")
    if done.untouched:
        listed = ", ".join(map(str, done.untouched))
        say(f"batches {listed} may have reached the broker; `migrator run --once` settles them")
    if done.dispatching:
        listed = ", ".join(map(str, done.dispatching))
        say(f"of these, {listed} want a dispatcher: leave the endpoint's mode as it was until then")
    for lane, owner in done.busy:
        say(f"lane {lane} was left alone: {owner} works on it; stop that first")
