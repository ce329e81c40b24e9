"""``migrator run``: move or dispatch timeouts, once or for as long as it runs."""

from __future__ import annotations

from typing import Annotated

import typer

from migrator.cli.lazy import new_group
from migrator.cli.options import HAND_OVER, AllEndpoints, Endpoints, settings
from migrator.cli.session import session_of

verbs = new_group()


@verbs.command()
@settings(*HAND_OVER, "lanes")
def run(
    context: typer.Context,
    endpoint: Endpoints = None,
    all_endpoints: AllEndpoints = False,
    once: Annotated[
        bool, typer.Option("--once", help="Stop once nothing is left to do now.")
    ] = False,
) -> None:
    """Move stored timeouts into the broker's native delays, until stopped or, with --once, done.

    For endpoints in mode dispatch or forward it is the timeout manager as well.

    Ctrl-C or SIGTERM finishes the batch in hand; a second one stops at once. Either is safe, and
    so is a kill: the next run continues where this one stopped.

    Examples:
      migrator run --endpoint Sales
      migrator run --endpoint Sales --once --cutoff 0s
      migrator run --all-endpoints --mode direct --map Old.Sales=Sales
      migrator run --endpoint Sales --near-due dispatch

    The mode of an endpoint is set in [[endpoints]]:
      migrate   move its stored timeouts into the native delays (the default)
      dispatch  be its timeout manager: store what arrives in .Timeouts, send when due
      forward   migrate, and put what arrives in .Timeouts straight into the native delays

    An endpoint that a check refuses waits, and joins once none does; the others are served.

    Exit codes: 0 done; 3 a check refused all; 4 store or broker unreachable;
      5 done, but rows are in quarantine, or are parked in the ledger for a destination that
      cannot be reached, or others have had them locked for ten seconds; 6 the outcome of a
      batch is doubtful; 7 with --once: done, but for endpoints that a check refuses, or
      whose table fails.
    """
    from migrator.cli.running import work

    raise typer.Exit(work(session_of(context), endpoint, all_endpoints=all_endpoints, once=once))
