"""``migrator delays delete``: take a generation of the native delays away for good."""

from __future__ import annotations

import time
from typing import Annotated

import typer

from migrator.app import App
from migrator.cli.lazy import new_group
from migrator.cli.output import say, write_json, write_table
from migrator.cli.session import Delays, DryRun, Json, Yes, confirmed, duration, session_of
from migrator.decommission.levels import DelaysFound, DelaysRemoval
from migrator.errors import ExitCode, PreflightRefused

verbs = new_group()


@verbs.command()
def delete(
    context: typer.Context,
    delays: Delays = None,
    even_if_bound: Annotated[
        bool, typer.Option("--even-if-bound", help="Also when endpoints are bound to the delays.")
    ] = False,
    settle: Annotated[
        str,
        typer.Option(metavar="DURATION", help="How long the broker's counts may lag behind."),
    ] = "12s",
    dry_run: DryRun = False,
    yes: Yes = False,
    as_json: Json = False,
) -> None:
    """Delete every exchange and queue of a generation, once no message is in it.

    Refused while a level holds anything, something of migrator leads into it, or an endpoint is
    bound to it. Should anything go wrong meanwhile, or a message come, everything is declared
    again. Needs the management API. After a crash, the same command goes on.

    Examples:
      migrator delays delete --delays v1 --dry-run
      migrator delays delete --delays v1 --yes
      migrator delays delete --delays v1 --even-if-bound --yes

    Exit codes: 0 deleted, or nothing prevents it; 3 refused, also meanwhile;
      4 broker unreachable.
    """
    session = session_of(context)
    settle_s = duration("--settle", settle).total_seconds()
    with session.opened() as app:
        version = app.settings.broker.delays
        if not dry_run:
            confirmed(yes=yes, what=f"delays {version} would be deleted, for every endpoint")
        removal = _removal(app, settle_s)
        found = removal.look()
        obstacles = list(found.obstacles(even_if_bound=even_if_bound))
        is_meant = not (dry_run or obstacles or found.is_absent)
        if is_meant:
            removal.delete(even_if_bound=even_if_bound)
    if session.wants_json:
        write_json("delays-delete", _document(found, obstacles, dry_run=dry_run, deleted=is_meant))
    else:
        _show(found, obstacles, deleted=is_meant)
    raise typer.Exit(ExitCode.PREFLIGHT_REFUSED if obstacles else ExitCode.DONE)


def _removal(app: App, settle_s: float) -> DelaysRemoval:
    if app.management is None:
        raise PreflightRefused(
            "only the management API tells whether anything is held in the levels; "
            "set broker.management_url. Nothing was changed"
        )
    return DelaysRemoval(
        app.connection,
        app.management,
        app.settings.broker.delays,
        settle=lambda: time.sleep(settle_s),
        fault=app.fault,
    )


def _document(
    found: DelaysFound, obstacles: list[str], *, dry_run: bool, deleted: bool
) -> dict[str, object]:
    return {
        "delays": str(found.version),
        "dry_run": dry_run,
        "deleted": deleted,
        "exchanges": len(found.exchanges),
        "queues": len(found.queues),
        "obstacles": obstacles,
        "bound": [
            {
                "source": b.source,
                "target": b.target.name,
                "key": b.key,
                "is_queue": b.target_is_queue,
            }
            for b in found.bound
        ],
    }


def _show(found: DelaysFound, obstacles: list[str], *, deleted: bool) -> None:
    what = (
        f"delays {found.version}, {len(found.exchanges)} exchanges and {len(found.queues)} queues"
    )
    if found.bound:
        bound = [(b.target.name, str(b.target.kind), b.key, b.source) for b in found.bound]
        write_table(("bound to the delays", "kind", "key", "from"), bound)
    if found.is_absent:
        say(f"delays {found.version} do not exist here")
    elif deleted:
        say(f"deleted: {what}")
    elif not obstacles:
        say(f"nothing prevents deleting {what}")
    else:
        for obstacle in obstacles:
            say(obstacle)
        say(f"not deleted: {what}")
        if found.is_partly_gone:
            say(
                f"some of it is missing: `migrator delays create --delays {found.version}` mends it"
            )
