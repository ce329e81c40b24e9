"""``migrator delays canary``: do messages really come through the levels, and when?"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import typer

from migrator.cli.opening import opened
from migrator.cli.output import say, write_json, write_table
from migrator.cli.session import Delays, Json, duration, given, session_of
from migrator.delays.probe import fly
from migrator.delays.probe_results import Flight, probe_delay_s, probe_document
from migrator.delays.routing import parse_levels
from migrator.errors import ConfigError, ExitCode

EPILOG = """\b
Examples:
  migrator delays canary
  migrator delays canary --levels 0,5 --patience 1m --json

\b
Exit codes: 0 all came back in time; 3 one is lost or was early, or nothing was sent because
the delays are not right; 4 broker unreachable."""

Levels = Annotated[
    str,
    typer.Option(metavar="N,N…", help="Which levels; the probe of level n waits for 2ⁿ seconds."),
]
Patience = Annotated[
    str,
    typer.Option(metavar="DURATION", help="How long to wait; what is not back by then is lost."),
]


def canary(
    context: typer.Context,
    levels: Levels = "0,1,2,3",
    patience: Patience = "30s",
    delays: Delays = None,
    as_json: Json = False,
) -> None:
    """Send one probe through each level into a queue of its own, and tell how late each came.

    The queue is removed; when a probe is lost it stays for a day, in case the probe still comes.
    """
    patience_s = duration("--patience", patience).total_seconds()
    chosen = _chosen(levels, patience, patience_s)
    session = session_of(context, as_json=as_json)
    with opened(session.load(given("broker.delays", delays, "--delays"))) as app:
        flight = fly(
            app.connection,
            app.plan.delays,
            chosen,
            patience_s=patience_s,
            find_bindings=app.management.bindings_from if app.management else None,
        )
    _show(flight, as_json=session.wants_json)
    raise typer.Exit(ExitCode.DONE if flight.is_fine else ExitCode.PREFLIGHT_REFUSED)


def _chosen(levels: str, patience: str, patience_s: float) -> Sequence[int]:
    try:
        chosen = parse_levels(levels)
    except ValueError as exc:
        raise ConfigError(f"--levels {levels!r} {exc}") from exc
    too_long = [level for level in chosen if probe_delay_s(level) >= patience_s]
    if too_long:
        level = too_long[0]
        raise ConfigError(
            f"a probe of level {level} is away for {probe_delay_s(level)} s, which needs more "
            f"than --patience {patience}; nothing was sent"
        )
    return chosen


def _show(flight: Flight, *, as_json: bool) -> None:
    if as_json:
        write_json("delays-canary", _document(flight))
        return
    write_table(
        ("level", "delay", "late by", "arrival"),
        (
            (
                f"{probe.level:02d}",
                f"{probe.delay_s} s",
                "" if probe.late_s is None else f"{probe.late_s * 1000:.0f} ms",
                probe.arrival.replace("_", " "),
            )
            for probe in flight.probes
        ),
    )
    if flight.left_queue:
        say(f"queue {flight.left_queue} waits for lost probes, and removes itself after a day")


def _document(flight: Flight) -> dict[str, object]:
    return {
        "delays": str(flight.version),
        "is_fine": flight.is_fine,
        "left_queue": flight.left_queue or None,
        "probes": [probe_document(probe) for probe in flight.probes],
    }
