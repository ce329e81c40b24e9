"""``migrator delays verify``: would what waits in the delays come out, and when it should?"""

from __future__ import annotations

import time
from datetime import UTC, datetime
from typing import Annotated

import typer

from migrator.app import App
from migrator.cli.check import exit_code, show
from migrator.cli.opening import opened
from migrator.cli.session import Delays, Json, duration, given, session_of
from migrator.preflight.context import DelaysContext, Watch
from migrator.preflight.registry import check_delays

EPILOG = """\b
Examples:
  migrator delays verify
  migrator delays verify --watch-for 30s --json

\b
Exit codes: 0 nothing refused; 3 refused; 4 broker unreachable."""

WatchFor = Annotated[
    str,
    typer.Option(
        metavar="DURATION",
        help="How long to look at a level that holds messages, before it counts as frozen.",
    ),
]


def verify(
    context: typer.Context,
    delays: Delays = None,
    watch_for: WatchFor = "10s",
    as_json: Json = False,
) -> None:
    """Look at the broker's native delays, and say what is wrong and what mends it.

    Changes nothing, and takes no message out. Looks for a while only when messages are held.
    """
    watch = Watch(span_s=duration("--watch-for", watch_for).total_seconds(), wait=time.sleep)
    session = session_of(context, as_json=as_json)
    with opened(session.load(given("broker.delays", delays, "--delays"))) as app:
        findings = check_delays(_context(app, watch))
    show(findings, name="delays-verify", as_json=session.wants_json)
    raise typer.Exit(exit_code(findings))


def _context(app: App, watch: Watch) -> DelaysContext:
    url = app.settings.store.url
    has_store = url is not None and bool(url.get_secret_value())
    return DelaysContext(
        broker=app.broker_facts,
        version=app.plan.delays,
        accepts_suffix_collisions=app.settings.handover.accept_suffix_collisions,
        hand_overs=app.hand_overs if has_store else None,
        wall_clock=lambda: datetime.now(UTC),
        watch=watch,
    )
