"""``migrator run``: move or dispatch timeouts, once or for as long as it runs."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from functools import partial
from typing import Annotated, Final

import typer

from migrator.app import App
from migrator.app.preflight import check_context, new_rechecks
from migrator.app.preview import count_rows
from migrator.cli.lazy import new_group
from migrator.cli.output import progress, rows_read, write_json, write_table
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
    Session,
    endpoint_names,
    session_of,
)
from migrator.cli.status import lane_name, write_endpoints
from migrator.errors import ExitCode, MigratorError
from migrator.ledger.report import HeldRows, Progress
from migrator.ledger.work import StoreEndpoint
from migrator.preflight.context import Level, refuse
from migrator.preflight.registry import run_checks
from migrator.service.hooks import fire_exit, hooked
from migrator.service.launch import run as launch
from migrator.stores.endpoints import chosen_endpoints
from migrator.web.status import endpoint_documents

verbs = new_group()

_log = logging.getLogger(__name__)

PREFLIGHT_ROWS: Final = 20_000
"""Rows looked at before starting: a restart must not wait for a survey of millions."""
_LOOK_EVERY_S: Final = 2.0


@verbs.command()
def run(
    context: typer.Context,
    endpoint: Endpoints = None,
    all_endpoints: AllEndpoints = False,
    once: Annotated[
        bool, typer.Option("--once", help="Stop when nothing is left to do now.")
    ] = False,
    mode: Mode = None,
    cutoff: Cutoff = None,
    near_due: NearDue = None,
    horizon: Horizon = None,
    rename: Map = None,
    delays: Delays = None,
    lanes: Annotated[
        int | None,
        typer.Option(metavar="N", help="Batches side by side.  [env: MIGRATOR_HANDOVER__LANES]"),
    ] = None,
    as_json: Json = False,
) -> None:
    """Move stored timeouts into the broker's native delays, until stopped or, with --once, done.

    For endpoints in mode dispatch or forward it is the timeout manager as well.

    Ctrl-C or SIGTERM finishes the batch in hand; a second one stops at once. Either is safe, and
    so is a kill: the next run goes on where this one was.

    Examples:
      migrator run --endpoint Sales
      migrator run --endpoint Sales --once --cutoff 0s
      migrator run --all-endpoints --mode direct --map Old.Sales=Sales
      migrator run --endpoint Sales --near-due dispatch

    The mode of an endpoint is set in [[endpoints]]:
      migrate   move its stored timeouts into the native delays (the default)
      dispatch  be its timeout manager: store what comes to .Timeouts, send when due
      forward   migrate, and put what comes to .Timeouts straight into the native delays

    Exit codes: 0 done; 3 a check refused; 4 store or broker unreachable;
      5 done, but rows are in quarantine, or wait in the store for a destination that
      cannot be reached; 6 the outcome of a batch is doubtful.
    """
    session = session_of(context)
    with session.opened() as app:
        chosen = partial(
            endpoint_names, app, endpoint, all_endpoints=all_endpoints, is_demanded=True
        )
        with hooked(app.settings.hooks) as hooks:
            held: list[HeldRows] = []
            names = chosen()
            endpoints = chosen_endpoints(app.store, names)
            _preflight(app, names, endpoints)
            with _watching(app) as watch:
                code = launch(
                    app,
                    endpoints,
                    once=once,
                    watch=watch,
                    describe=lambda: _progress_line(app),
                    load=lambda: session.load().settings,
                    fire=hooks.fire,
                    checks=new_rechecks(app, names),
                    held=held.extend,
                )
            if once:
                _summarise(app, code, held, session)
            fire_exit(hooks.fire, code)
    raise typer.Exit(code)


def _preflight(app: App, names: Sequence[str], endpoints: Sequence[StoreEndpoint]) -> None:
    """Refuse what would go wrong; say what may.

    Raises:
        PreflightRefused: Nothing was changed.
    """
    app.ledger_facts.verify()
    app.broker_facts.server()
    with rows_read() as advance:
        previews = count_rows(
            app, endpoints, progress=advance, max_rows=PREFLIGHT_ROWS, is_exact=False
        )
    findings = run_checks(check_context(app, names, previews))
    refuse(findings)
    for finding in findings:
        level = logging.WARNING if finding.level is Level.WARNING else logging.INFO
        if finding.level is not Level.OK:
            _log.log(
                level,
                "preflight",
                extra={
                    "action": "preflight_finding",
                    "check": finding.check,
                    "finding": str(finding.level),
                    "subject": finding.subject,
                    "text": finding.text,
                },
            )


@contextmanager
def _watching(app: App) -> Iterator[Callable[[], None]]:
    """Show progress on a terminal, and nothing elsewhere."""
    if not sys.stderr.isatty():
        yield lambda: None
        return
    last_s = float("-inf")
    with progress("running") as tell:

        def watch() -> None:
            nonlocal last_s
            if app.clock.monotonic_s() - last_s >= _LOOK_EVERY_S:
                last_s = app.clock.monotonic_s()
                tell(_progress_line(app))

        yield watch


def _progress_line(app: App) -> str:
    try:
        return progress_line(app.books.progress())
    except MigratorError:
        return "the ledger cannot be read now"


def progress_line(found: Progress) -> str:
    """Return what was *found* in one line."""
    done = sum(endpoint.handed_over for endpoint in found.endpoints)
    flying = sum(endpoint.in_flight for endpoint in found.endpoints)
    aside = sum(endpoint.quarantined for endpoint in found.endpoints)
    sent = sum(endpoint.dispatched for endpoint in found.endpoints)
    doing = ", ".join(
        f"{lane_name(lane.lane, lane.serves)}: {lane.doing}"
        for lane in found.lanes
        if lane.is_alive
    )
    counts = [f"{done} handed over", *([f"{sent} dispatched"] if sent else [])]
    counts += [f"{flying} in flight", f"{aside} in quarantine"]
    counts += [f"{len(found.held)} destinations held"] if found.held else []
    return f"{', '.join(counts)}; {doing or 'idle'}"


def _summarise(app: App, code: ExitCode, held: Sequence[HeldRows], session: Session) -> None:
    try:
        found = app.books.progress().endpoints
    except MigratorError:  # the exit code says what is wrong; the ledger can be read later
        return
    if session.wants_json:
        outcome = {"exit_code": int(code), "outcome": code.name.lower()}
        rows = [asdict(each) for each in held]
        write_json("run", {**outcome, "endpoints": endpoint_documents(found), "held": rows})
    else:
        write_endpoints(endpoint_documents(found))
        if held:
            columns = ("held destination", "endpoint", "reason", "rows in the store")
            write_table(columns, [(h.destination, h.endpoint, h.reason, str(h.rows)) for h in held])
