"""What ``migrator run`` does; all that a daemon needs is imported with this file.

An upgrade may replace its files while it runs: what is imported later might not fit the rest.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, replace
from functools import partial
from operator import attrgetter
from typing import Final

from migrator.app.ledger import Ledger
from migrator.app.preflight import new_rechecks
from migrator.app.run import run_daemon
from migrator.app.servers import Servers, open_servers
from migrator.app.start import StartCheck
from migrator.cli.output import AMBER, progress, rows_read, write_json, write_table, write_text
from migrator.cli.session import Session, endpoint_names
from migrator.cli.status import lane_name, write_endpoints
from migrator.errors import ExitCode, MigratorError
from migrator.ledger.report import EndpointProgress, Progress
from migrator.ledger.work import StoreEndpoint
from migrator.preflight.context import Level
from migrator.preflight.start import StartChecks
from migrator.service.daemon import RunEnd
from migrator.service.hooks import fire_exit, hooked
from migrator.status.document import endpoint_documents
from migrator.status.finished import end_document
from migrator.status.remaining import kept_text, needs_attention
from migrator.text import counted, grouped

_log = logging.getLogger(__name__)

_LOOK_EVERY_S: Final = 2.0
_AT_END: Final = ("is_finished", "left", "overdue", "later", "locked", "sent_by", "text")
"""What ``migrator/run/1`` has of each endpoint besides its counts; null: not known."""


def work(
    session: Session, named: Sequence[str] | None, *, all_endpoints: bool, once: bool
) -> ExitCode:
    """Work until stopped or, with *once*, done; return how it ended.

    Raises:
        MigratorError: It did not begin, or could not go on.
    """
    given = session.settings()
    names = endpoint_names(given, named, all_endpoints=all_endpoints, is_demanded=True)
    with open_servers(given, must_exist=False) as servers, hooked(given.hooks) as hooks:
        checked = _preflight(servers, names)
        ledger, endpoints = servers.ledger, checked.endpoints
        with _watching(ledger, endpoints) as watch:
            end = run_daemon(
                servers,
                endpoints,
                once=once,
                watch=watch,
                describe=partial(_progress_line, ledger, endpoints),
                load=session.settings,
                fire=hooks.fire,
                checks=new_rechecks(servers, names),
                refused=checked.refused,
            )
        if once:
            _summarise(servers, endpoints, end, session)
        fire_exit(hooks.fire, end.code)
    return end.code


def _preflight(servers: Servers, names: Sequence[str]) -> StartChecks:
    """Refuse what would go wrong for all; say what may, and which endpoints have to wait.

    Raises:
        PreflightRefused: No endpoint can be served; nothing was changed.
    """
    servers.ledger.facts.verify()
    servers.broker.facts.server()
    with rows_read() as advance:
        checked = StartCheck(servers).check(names, progress=advance)
    checked.refuse()
    for finding in checked.findings:
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
    return checked


@contextmanager
def _watching(ledger: Ledger, endpoints: Sequence[StoreEndpoint]) -> Iterator[Callable[[], None]]:
    """Show progress on a terminal, and nothing elsewhere."""
    if not sys.stderr.isatty():
        yield _no_progress
        return
    last_s = float("-inf")
    with progress("running") as tell:

        def watch() -> None:
            nonlocal last_s
            if ledger.clock.monotonic_s() - last_s >= _LOOK_EVERY_S:
                last_s = ledger.clock.monotonic_s()
                tell(_progress_line(ledger, endpoints))

        yield watch


def _no_progress() -> None:
    pass


def _progress_line(ledger: Ledger, endpoints: Sequence[StoreEndpoint]) -> str:
    try:
        return progress_line(_progress(ledger, endpoints))
    except MigratorError:
        return "the ledger cannot be read now"


def _progress(ledger: Ledger, endpoints: Sequence[StoreEndpoint]) -> Progress:
    """Return what the ledger has of *endpoints*, also of one of which nothing was claimed yet.

    Others may be in the same ledger: their rows are not what this run moves.

    Raises:
        LedgerError: It cannot be read now.
    """
    found = ledger.queries.progress()
    known = {each.endpoint: each for each in found.endpoints}
    names = sorted({each.name for each in endpoints})
    return replace(
        found,
        endpoints=[known.get(name) or EndpointProgress(endpoint=name, rows={}) for name in names],
        held=[each for each in found.held if each.endpoint in names],
    )


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
    counts = [f"{grouped(done)} handed over", *([f"{grouped(sent)} dispatched"] if sent else [])]
    counts += [f"{grouped(flying)} in flight", f"{grouped(aside)} in quarantine"]
    counts += [f"{counted(len(found.held), 'destination')} parked"] if found.held else []
    return f"{', '.join(counts)}; {doing or 'idle'}"


def _summarise(
    servers: Servers, endpoints: Sequence[StoreEndpoint], end: RunEnd, session: Session
) -> None:
    ends = sorted(end.endpoints, key=attrgetter("endpoint"))
    found = [each.counts for each in ends]
    if not found:
        try:
            found = [*_progress(servers.ledger, endpoints).endpoints]
        except MigratorError:  # the exit code says what is wrong; the ledger can be read later
            return
    documents = endpoint_documents(found)
    has_finished = any(each.is_finished and each.counts.handed_over for each in ends)
    kept = kept_text(servers.settings.ledger.purge_after) if has_finished else None
    if session.wants_json:
        told = {str(e.endpoint): end_document(e) for e in ends}
        shown = [
            {**each, **{key: told.get(each["endpoint"], {}).get(key) for key in _AT_END}}
            for each in documents
        ]
        outcome = {"exit_code": int(end.code), "outcome": end.code.name.lower()}
        rows = [asdict(each) for each in end.held]
        left_out = [each.facts for each in end.left_out]
        found_all = {"endpoints": shown, "held": rows, "left_out": left_out}
        write_json("run", {**outcome, **found_all, "content_kept": kept})
        return
    write_endpoints(documents)
    for one in ends:
        style = AMBER if needs_attention(one.progress, one.remaining) else ""
        write_text(f"{one.endpoint}: {one.text}", style=style)
    if kept:
        write_text(kept)
    for reason in end.left_out:
        write_text(f"{reason.endpoint} was left: {reason.text}", style=AMBER)
    if end.held:
        columns = ("parked destination", "endpoint", "reason", "rows")
        rows_held = [(h.destination, h.endpoint, h.reason, h.rows) for h in end.held]
        write_table(columns, rows_held, style=AMBER)
