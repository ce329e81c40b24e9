"""``migrator db adopt --after-failover``: how the lost window is settled, and told about."""

from __future__ import annotations

from collections.abc import Sequence

from migrator.app import App
from migrator.app.commands import new_settlement
from migrator.cli.adoption import held_elsewhere, lanes_of
from migrator.cli.output import say, write_json
from migrator.cli.recalled import watched
from migrator.cli.session import Session, confirmed
from migrator.config.work import EndpointMode
from migrator.delays.walk import WalkTerms
from migrator.errors import ExitCode, PreflightRefused
from migrator.failover.store import Settlement
from migrator.ledger import version
from migrator.ledger.work import StoreEndpoint


def settle_lost_window(
    session: Session, app: App, terms: WalkTerms, *, yes: bool, is_dry_run: bool
) -> ExitCode:
    """Settle what the database lost, and let the ledger go on; return how that ended.

    Raises:
        PreflightRefused: Somebody works, or the broker could not be seen to its end.
    """
    version.check_head(app.engine, app.tables)
    app.accept_failover()
    why = app.adoption.why_failed_over()
    if why is None:
        _tell(session, None, is_done=False)
        return ExitCode.DONE
    app.sql_side(wanted_for="settling a failover")
    found = app.adoption.look()
    if busy := [*held_elsewhere(app, found)]:
        raise PreflightRefused("; ".join(busy) + ". Nothing was changed")
    if not is_dry_run:
        confirmed(yes=yes, what="rows whose messages are in the levels would be handed over")
    with watched() as progress:
        settled = new_settlement(app).run(
            _moved(app),
            lanes_of(app, found),
            terms,
            is_dry_run=is_dry_run,
            progress=progress,
        )
    _tell(session, settled, is_done=not is_dry_run)
    return ExitCode.DOUBTFUL if settled.doubtful else ExitCode.DONE


def _moved(app: App) -> Sequence[StoreEndpoint]:
    """Return the endpoints whose rows of the window may have left; a dispatcher sends its own."""
    given = {each.name: each.mode for each in app.settings.endpoints}
    return [
        each for each in app.store.endpoints() if given.get(each.name) is not EndpointMode.DISPATCH
    ]


def _tell(session: Session, settled: Settlement | None, *, is_done: bool) -> None:
    if session.wants_json:
        counts = {} if settled is None else settled.counts
        document = {"has_failed_over": settled is not None, **counts, "is_done": is_done}
        write_json("db-adopt-after-failover", document)
        return
    if settled is None:
        say("the database is on the server that it was on: nothing to do")
        return
    say(f"{settled.from_store} rows are in the store, and their messages wait in the levels")
    say(f"{settled.from_batches} rows of batches under way wait in the levels as well")
    say(f"{settled.not_sent} rows of batches under way have not been sent, and are to go yet")
    if settled.nowhere:
        say(f"{settled.nowhere} messages of ours come from rows that are not here any more")
    if settled.doubtful:
        named = "" if not is_done else f" (batches {', '.join(map(str, settled.doubtful_batches))})"
        say(
            f"{settled.doubtful} rows were due by now and are met nowhere: they may have been "
            f"delivered{named}; decide with `migrator batch resolve`"
        )
    say(
        "the ledger goes on here; the next `migrator run` finishes what is under way"
        if is_done
        else "nothing was changed"
    )
