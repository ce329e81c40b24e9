"""``migrator check``: may a migration begin, and if not, why not?"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import typer

from migrator.app import App
from migrator.cli.opening import check_context, endpoint_names, opened, surveyed
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
    selection_options,
    session_of,
)
from migrator.errors import ExitCode, LedgerError, PreflightRefused, StoreError
from migrator.preflight.findings import Finding, Level, verdict
from migrator.preflight.registry import UNREACHABLE, run_checks
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
