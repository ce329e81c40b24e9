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
from migrator.app.preflight import check_context, new_rechecks, take_preview
from migrator.cli import preview as preview_verb
from migrator.cli.opening import named_endpoints, opened, progress_bar, surveyed
from migrator.cli.output import console, write_json, write_table, write_text
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
    given,
    selection_options,
    session_of,
)
from migrator.cli.status import lane_name, write_endpoints
from migrator.config import Loaded
from migrator.errors import ExitCode, MigratorError
from migrator.ledger.report import HeldRows, Progress
from migrator.preflight.findings import Level
from migrator.preflight.registry import refuse, run_checks
from migrator.service.hooks import Fire, fire_exit, hooked
from migrator.service.launch import run as launch
from migrator.stores.endpoints import chosen_endpoints
from migrator.web.status import endpoint_documents

_log = logging.getLogger(__name__)

EPILOG = """\b
Examples:
  migrator run --endpoint Sales
  migrator run --endpoint Sales --once --cutoff 0s
  migrator run --all-endpoints --mode direct --map Old.Sales=Sales
  migrator run --endpoint Sales --near-due dispatch
  migrator run --endpoint Sales --dry-run

\b
The mode of an endpoint is set in [[endpoints]]:
  migrate   move its stored timeouts into the native delays (the default)
  dispatch  be its timeout manager: store what comes to .Timeouts, send when due
  forward   migrate, and put what comes to .Timeouts straight into the native delays

\b
Exit codes: 0 done; 3 a check refused; 4 store or broker unreachable;
  5 done, but rows are in quarantine, or wait in the store for a destination that
  cannot be reached; 6 the outcome of a batch is doubtful."""

PREFLIGHT_ROWS: Final = 20_000
"""Rows looked at before starting: a restart must not wait for a survey of millions."""
_LOOK_EVERY_S: Final = 2.0


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
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only preview; writes nothing.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Move stored timeouts into the broker's native delays, until stopped or, with --once, done.

    For endpoints in mode dispatch or forward it is the timeout manager as well.

    Ctrl-C or SIGTERM finishes the batch in hand; a second one stops at once. Either is safe, and
    so is a kill: the next run goes on where this one was.
    """
    session = session_of(context, as_json=as_json)
    options = [
        given("handover.lanes", lanes, "--lanes"),
        *selection_options(
            mode=mode,
            cutoff=cutoff,
            near_due=near_due,
            horizon=horizon,
            delays=delays,
            rename=rename,
        ),
    ]

    def load() -> Loaded:
        return session.load(*options)

    with opened(load()) as app:
        chosen = partial(named_endpoints, app, endpoint, all_endpoints=all_endpoints)
        if dry_run:
            with progress_bar() as progress:
                found = take_preview(app, chosen(), progress=progress)
            write_text(preview_verb.rendered(found, "json" if session.wants_json else "table"))
            return
        with hooked(app.settings.hooks) as hooks:
            held: list[HeldRows] = []
            code = _migrate(app, chosen(), once=once, load=load, fire=hooks.fire, held=held.extend)
            if once:
                _summarise(app, code, held, session)
            fire_exit(hooks.fire, code)
    raise typer.Exit(code)


def _migrate(
    app: App,
    names: Sequence[str],
    *,
    once: bool,
    load: Callable[[], Loaded],
    fire: Fire,
    held: Callable[[Sequence[HeldRows]], None],
) -> ExitCode:
    endpoints = chosen_endpoints(app.store, names)
    app.ledger_facts.verify()
    app.broker_facts.server()
    _preflight(app, names)
    with _watching(app) as watch:
        return launch(
            app,
            endpoints,
            once=once,
            watch=watch,
            describe=lambda: _progress_line(app),
            load=lambda: load().settings,
            fire=fire,
            checks=new_rechecks(app, names),
            held=held,
        )


def _preflight(app: App, names: Sequence[str]) -> None:
    """Refuse what would go wrong; say what may.

    Raises:
        PreflightRefused: Nothing was changed.
    """
    previews = surveyed(app, chosen_endpoints(app.store, names), max_rows=PREFLIGHT_ROWS)
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
    with console(sys.stderr).status("starting") as line:

        def watch() -> None:
            nonlocal last_s
            if app.clock.monotonic_s() - last_s < _LOOK_EVERY_S:
                return
            last_s = app.clock.monotonic_s()
            line.update(_progress_line(app))

        yield watch


def _progress_line(app: App) -> str:
    try:
        progress = app.books.progress()
    except MigratorError:
        return "the ledger cannot be read now"
    return progress_line(progress)


def progress_line(progress: Progress) -> str:
    """Return *progress* in one line."""
    done = sum(endpoint.handed_over for endpoint in progress.endpoints)
    flying = sum(endpoint.in_flight for endpoint in progress.endpoints)
    aside = sum(endpoint.quarantined for endpoint in progress.endpoints)
    sent = sum(endpoint.dispatched for endpoint in progress.endpoints)
    doing = ", ".join(
        f"{lane_name(lane)}: {lane.doing}" for lane in progress.lanes if lane.is_alive
    )
    counts = [f"{done} handed over", *([f"{sent} dispatched"] if sent else [])]
    counts += [f"{flying} in flight", f"{aside} in quarantine"]
    counts += [f"{len(progress.held)} destinations held"] if progress.held else []
    return f"{', '.join(counts)}; {doing or 'idle'}"


def _summarise(app: App, code: ExitCode, held: Sequence[HeldRows], session: Session) -> None:
    try:
        progress = app.books.progress()
    except MigratorError:  # the exit code says what is wrong; the ledger can be read later
        return
    if session.wants_json:
        endpoints = endpoint_documents(progress.endpoints)
        document = {"exit_code": int(code), "outcome": code.name.lower(), "endpoints": endpoints}
        write_json("run", document | {"held": [asdict(each) for each in held]})
    else:
        write_endpoints(progress.endpoints)
        if held:
            columns = ("held destination", "endpoint", "reason", "rows in the store")
            write_table(columns, [(h.destination, h.endpoint, h.reason, str(h.rows)) for h in held])
