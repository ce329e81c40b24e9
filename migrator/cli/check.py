"""``migrator check``: may a migration begin? ``migrator delays verify``: are the delays sound?"""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Annotated

import typer

from migrator.app import App
from migrator.app.preflight import check_context
from migrator.app.preview import count_rows
from migrator.cli.lazy import new_group
from migrator.cli.output import rows_read, say, write_json, write_table
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
    endpoint_names,
    session_of,
)
from migrator.errors import ExitCode, LedgerError, PreflightRefused, StoreError
from migrator.preflight.context import DelaysContext, Finding, Level, verdict
from migrator.preflight.registry import UNREACHABLE, check_delays, run_checks
from migrator.stores.endpoints import EndpointPreview, chosen_endpoints

verbs = new_group()


@verbs.command()
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

    Examples:
      migrator check
      migrator check --endpoint Sales --mode direct
      migrator check --all-endpoints --cutoff 0s --json

    Exit codes: 0 nothing refused; 3 refused; 4 store or broker unreachable.
    """
    session = session_of(context)
    with session.opened() as app:
        names = endpoint_names(app, endpoint, all_endpoints=all_endpoints)
        findings = run_checks(check_context(app, names, _previews(app, names)))
    show(findings, name="check", as_json=session.wants_json)
    raise typer.Exit(exit_code(findings))


def _previews(app: App, names: Sequence[str]) -> Sequence[EndpointPreview] | None:
    try:
        with rows_read() as progress:
            return count_rows(app, chosen_endpoints(app.store, names), progress=progress)
    except (StoreError, LedgerError, PreflightRefused):  # the store's own check says what is wrong
        return None


def show(findings: Sequence[Finding], *, name: str, as_json: bool) -> None:
    """Write *findings* as a table and their verdict as talk, or both as the document *name*."""
    if as_json:
        found = [asdict(each) for each in findings]
        write_json(name, {"verdict": verdict(findings), "findings": found})
        return
    write_table(
        ("check", "level", "subject", "text", "remedy"),
        ((f.check, f.level, f.subject, f.text, f.remedy) for f in findings),
    )
    say(f"verdict: {verdict(findings)}")


def exit_code(findings: Iterable[Finding]) -> ExitCode:
    """Return what the process tells its caller about *findings*."""
    refused = {f.check for f in findings if f.level is Level.REFUSED}
    if refused & UNREACHABLE:
        return ExitCode.UNREACHABLE
    return ExitCode.PREFLIGHT_REFUSED if refused else ExitCode.DONE


# ── the native delays alone ────────────────────────────────────────────────────────────────────


WatchFor = Annotated[
    str,
    typer.Option(
        metavar="DURATION",
        help="How long to look at a level that holds messages, before it counts as frozen.",
    ),
]


@verbs.command("verify")
def verify_delays(
    context: typer.Context,
    delays: Delays = None,
    watch_for: WatchFor = "10s",
    as_json: Json = False,
) -> None:
    """Look at the broker's native delays, and say what is wrong and what mends it.

    Changes nothing, and takes no message out. Looks for a while only when messages are held.

    Examples:
      migrator delays verify
      migrator delays verify --watch-for 30s --json

    Exit codes: 0 nothing refused; 3 refused; 4 broker unreachable.
    """
    watch_s = duration("--watch-for", watch_for).total_seconds()
    session = session_of(context)
    with session.opened() as app:
        findings = check_delays(_context(app, watch_s))
    show(findings, name="delays-verify", as_json=session.wants_json)
    raise typer.Exit(exit_code(findings))


def _context(app: App, watch_s: float) -> DelaysContext:
    url = app.settings.store.url
    has_store = url is not None and bool(url.get_secret_value())
    return DelaysContext(
        broker=app.broker_facts,
        version=app.settings.broker.delays,
        accepts_suffix_collisions=app.settings.handover.accept_suffix_collisions,
        hand_overs=app.hand_overs if has_store else None,
        wall_clock=lambda: datetime.now(UTC),
        watch_s=watch_s,
        wait=time.sleep,
    )
