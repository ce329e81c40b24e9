"""``migrator check``: may a migration begin? ``migrator delays verify``: are the delays sound?"""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import Annotated

import typer

from migrator.app import App
from migrator.app.preflight import check_context
from migrator.cli.opening import endpoint_names, opened, surveyed
from migrator.cli.output import say, write_json, write_table
from migrator.cli.session import (
    AllEndpoints,
    Cutoff,
    Delays,
    Endpoints,
    Horizon,
    Json,
    Map,
    Mode,
    NearDue,
    duration,
    given,
    selection_options,
    session_of,
)
from migrator.errors import ExitCode, LedgerError, PreflightRefused, StoreError
from migrator.preflight.context import DelaysContext, Watch
from migrator.preflight.findings import Finding, Level, verdict
from migrator.preflight.registry import UNREACHABLE, check_delays, run_checks
from migrator.stores.endpoints import EndpointPreview, chosen_endpoints

EPILOG = """\b
Examples:
  migrator check
  migrator check --endpoint Sales --mode direct
  migrator check --all-endpoints --cutoff 0s --json

\b
Exit codes: 0 nothing refused; 3 refused; 4 store or broker unreachable."""


def check(
    context: typer.Context,
    endpoint: Endpoints = None,
    all_endpoints: AllEndpoints = False,
    mode: Mode = None,
    cutoff: Cutoff = None,
    near_due: NearDue = None,
    horizon: Horizon = None,
    rename: Map = None,
    delays: Delays = None,
    as_json: Json = False,
) -> None:
    """Look at store, ledger and broker, and say what would go wrong. Changes nothing.

    What cannot be asked is listed as not_checked, which is not the same as fine.
    """
    session = session_of(context, as_json=as_json)
    loaded = session.load(
        *selection_options(
            mode=mode,
            cutoff=cutoff,
            near_due=near_due,
            horizon=horizon,
            delays=delays,
            rename=rename,
        ),
    )
    with opened(loaded) as app:
        names = endpoint_names(app, endpoint, all_endpoints=all_endpoints)
        findings = run_checks(check_context(app, names, _previews(app, names)))
    show(findings, name="check", as_json=session.wants_json)
    raise typer.Exit(exit_code(findings))


def _previews(app: App, names: Sequence[str]) -> Sequence[EndpointPreview] | None:
    try:
        return surveyed(app, chosen_endpoints(app.store, names))
    except (StoreError, LedgerError, PreflightRefused):  # the store's own check says what is wrong
        return None


def show(findings: Sequence[Finding], *, name: str, as_json: bool) -> None:
    """Write *findings* as a table and their verdict as talk, or both as the document *name*."""
    if as_json:
        write_json(name, {"verdict": verdict(findings), "findings": documents(findings)})
        return
    write_table(
        ("check", "level", "subject", "text", "remedy"),
        ((f.check, f.level, f.subject, f.text, f.remedy) for f in findings),
    )
    say(f"verdict: {verdict(findings)}")


def documents(findings: Iterable[Finding]) -> list[dict[str, str]]:
    """Return *findings* as plain values for JSON."""
    return [
        {
            "check": f.check,
            "level": str(f.level),
            "subject": f.subject,
            "text": f.text,
            "remedy": f.remedy,
        }
        for f in findings
    ]


def exit_code(findings: Iterable[Finding]) -> ExitCode:
    """Return what the process tells its caller about *findings*."""
    refused = {f.check for f in findings if f.level is Level.REFUSED}
    if refused & UNREACHABLE:
        return ExitCode.UNREACHABLE
    return ExitCode.PREFLIGHT_REFUSED if refused else ExitCode.DONE


# ── the native delays alone ────────────────────────────────────────────────────────────────────


DELAYS_EPILOG = """\b
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


def verify_delays(
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
