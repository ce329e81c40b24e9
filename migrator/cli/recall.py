"""``migrator recall``: bring handed-over timeouts back from the broker."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Annotated, Final

import typer

from migrator.cli.opening import opened
from migrator.cli.output import console, say, write_json
from migrator.cli.session import Delays, Json, Yes, confirmed, given, session_of
from migrator.config.quantities import parse_duration
from migrator.daemon.leases import HeldLease, LeaseKeeper
from migrator.daemon.owner import current_owner, is_surely_dead
from migrator.domain.recall import RecallForecast, RecallOutcome, RecallScope
from migrator.domain.states import Mode
from migrator.domain.timeouts import RECALL_LANE, RunId
from migrator.engine.recall import Recall, Recalled
from migrator.errors import ConfigError, ExitCode, PreflightRefused
from migrator.ports.levels import ScanLimits
from migrator.wiring import App
from migrator.wiring.recall import RecallWiring

_SETTLE_S: Final = 2.0
"""How long dead-lettering is given when nobody tells whether it is done."""
_STAGED_PATIENCE_S: Final = 60.0


EPILOG: Final = """\b
Examples:
  migrator recall --endpoint Sales --dry-run
  migrator recall --endpoint Sales --yes
  migrator recall --destination Billing --due-from 2026-12-24T00:00Z --yes

\b
Exit codes: 0 done; 3 somebody still works, or a level is too deep; 4 store or broker unreachable;
  5 done, but some stayed in the levels."""

Moment = Annotated[
    datetime | None,
    typer.Option(metavar="TIME", formats=["%Y-%m-%d", "%Y-%m-%dT%H:%M%z", "%Y-%m-%dT%H:%M:%S%z"]),
]


def recall(
    context: typer.Context,
    endpoint: Annotated[
        str | None, typer.Option(metavar="NAME", help="Only timeouts of this endpoint.")
    ] = None,
    run: Annotated[
        int | None, typer.Option(metavar="ID", help="Only what this run handed over.")
    ] = None,
    destination: Annotated[
        str | None, typer.Option(metavar="QUEUE", help="Only timeouts for this destination.")
    ] = None,
    due_from: Moment = None,
    due_until: Moment = None,
    margin: Annotated[
        str, typer.Option(metavar="DURATION", help="Leave to the broker what is due within this.")
    ] = "1m",
    hold: Annotated[
        str, typer.Option(metavar="DURATION", help="Hold messages of others no longer than this.")
    ] = "20s",
    deepest: Annotated[
        int, typer.Option(metavar="N", help="Refuse when a level holds more messages.")
    ] = 200_000,
    delays: Delays = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only count, by the ledger; the broker is not asked.")
    ] = False,
    yes: Yes = False,
    as_json: Json = False,
) -> None:
    """Take handed-over timeouts out of the delay levels, back into the tables they came from.

    Each row is restored byte for byte, so that the endpoint's own timeout manager can send it.
    Messages of others go back where they were, with their time unchanged. Nobody may claim
    meanwhile: stop every `migrator run` first. After a crash, the same command goes on.
    """
    session = session_of(context, as_json=as_json)
    loaded = session.load(given("broker.delays", delays, "--delays"))
    margin_span, hold_span = _span("--margin", margin), _span("--hold", hold)
    if not dry_run:
        confirmed(yes=yes, what="recall puts handed-over timeouts back into their tables")
    with opened(loaded) as app:
        app.ledger_facts.verify()
        scope = RecallScope(
            source=app.store.find(endpoint).source if endpoint else None,
            run=None if run is None else RunId(run),
            destination=destination,
            due_from=_utc(due_from),
            due_until=_utc(due_until),
        )
        expected = forecast(app, scope, margin=margin_span)
        done = None
        if not dry_run:
            done = recalled(app, scope, margin=margin_span, hold=hold_span, deepest=deepest)
            app.runs.record("recalled", detail=_outcomes(done), batch=None)
    _show(expected, done, as_json=session.wants_json)
    if done is not None and not done.is_whole:
        raise typer.Exit(ExitCode.QUARANTINED)


def _show(expected: RecallForecast, done: Recalled | None, *, as_json: bool) -> None:
    if as_json:
        document: dict[str, object] = {
            "dry_run": done is None,
            "expected": {
                "in_levels": expected.in_levels,
                "too_near": expected.too_near,
                "left": expected.left,
                "possible_until": expected.possible_until,
            },
        }
        if done is not None:
            document["found"] = _outcomes(done)
            document["unfinished_levels"] = list(done.unfinished)
        write_json("recall", document)
        return
    say(
        f"by the ledger, {expected.in_levels} are in the levels, {expected.too_near} are due too "
        f"soon to be touched, {expected.left} have left already"
    )
    if expected.possible_until is not None:
        say(f"all of them can come back until {expected.possible_until:%Y-%m-%d %H:%M:%S} UTC")
    if done is None:
        return
    say(f"{done.restored} rows are back in their tables")
    for outcome, text in _REMARKS.items():
        if count := done.outcomes.get(outcome, 0):
            say(f"{count} messages {text}")
    for level in done.unfinished:
        say(f"level {level:02d} holds more than could be looked at; run it again with more --hold")


_REMARKS: Final = {
    RecallOutcome.LEFTOVER: "were leftovers of an earlier recall, and are gone now",
    RecallOutcome.TOO_NEAR: "are due too soon and were left to the broker",
    RecallOutcome.TAKEN: "were left: their tables have their ids again",
    RecallOutcome.DIFFERENT: "bear our ids but not our content, and were left",
}


def _outcomes(done: Recalled) -> dict[str, int]:
    return {str(outcome): done.outcomes.get(outcome, 0) for outcome in RecallOutcome}


def _span(option: str, text: str) -> timedelta:
    try:
        return parse_duration(text)
    except ValueError as exc:
        raise ConfigError(f"{option} {text!r} {exc}") from exc


def _utc(moment: datetime | None) -> datetime | None:
    """Return *moment* in UTC; a bare date or time is meant as UTC."""
    if moment is None:
        return None
    return moment.astimezone(UTC) if moment.tzinfo else moment.replace(tzinfo=UTC)


def forecast(app: App, scope: RecallScope, *, margin: timedelta) -> RecallForecast:
    """Return what the ledger expects a recall to find; the broker is not asked."""
    now = app.clock.now()
    return RecallWiring(app).recalls.forecast(scope, now=now, not_before=now + margin)


def recalled(
    app: App, scope: RecallScope, *, margin: timedelta, hold: timedelta, deepest: int
) -> Recalled:
    """Bring back what *scope* means, while nobody claims.

    Args:
        app: The application.
        scope: Which timeouts.
        margin: What is due within this is left to the broker.
        hold: How long messages of others may be held at a time; they are late by it at most.
        deepest: Refuse when a level holds more messages than this.

    Raises:
        PreflightRefused: Somebody works on lanes, batches are open, or a level is too deep.
            Nothing was changed.
    """
    wiring = RecallWiring(app)
    with _alone(app) as held:
        _demand_settled(app)
        _wait_until_routed(wiring)
        with wiring.open_levels() as levels, _progress() as progress:
            deep = {level: n for level, n in levels.ready().items() if n > deepest}
            if deep:
                listed = ", ".join(f"level {level}: {n}" for level, n in deep.items())
                raise PreflightRefused(
                    f"too many messages would have to be held ({listed}); --deepest allows more"
                )
            recall = Recall(
                levels=levels,
                recalls=wiring.recalls,
                clock=app.clock,
                limits=ScanLimits(hold_s=hold.total_seconds()),
                margin=margin,
                fault=app.fault,
                guard=held.check,
                progress=progress,
            )
            return recall.run(scope, held.lease)


@contextmanager
def _alone(app: App) -> Iterator[HeldLease]:
    """Hold the recall's lease; nobody takes a lane of hand-over meanwhile.

    Raises:
        PreflightRefused: Another recall runs, or somebody holds a lane.
    """
    keeper = LeaseKeeper(app.leases, owner=current_owner(), duration=app.plan.lease)
    for lane, owner in app.leases.holders():
        if is_surely_dead(owner):
            app.leases.evict(lane, owner)
    held = keeper.acquire(RECALL_LANE, doing=lambda: "recalling")
    if held is None:
        raise PreflightRefused("another recall is under way; wait until it has ended")
    keeper.start()
    try:
        busy = [f"lane {lane} ({who})" for lane, who in app.leases.holders() if lane < RECALL_LANE]
        if busy:
            raise PreflightRefused(
                f"somebody works on {', '.join(busy)}; stop every `migrator run` first"
            )
        yield held
    finally:
        keeper.stop()
        keeper.surrender(held)


def _demand_settled(app: App) -> None:
    still_open = [b.id for b in app.books.open_batches() if b.mode is not Mode.DISPATCH]
    if still_open:
        raise PreflightRefused(
            f"batches {', '.join(map(str, still_open))} may be on their way to the broker; "
            "`migrator run --once` settles them, then recall again"
        )


def _wait_until_routed(wiring: RecallWiring) -> None:
    """Return once the staging queues are empty: a receipt may be ahead of its messages."""
    until_s = time.monotonic() + _STAGED_PATIENCE_S
    while (staged := wiring.still_staged()) != 0:
        if staged is None:
            time.sleep(_SETTLE_S)
            return
        if time.monotonic() > until_s:
            raise PreflightRefused(
                f"{staged} messages are still in migrator's staging queues; "
                "`migrator delays verify` tells why"
            )
        time.sleep(_SETTLE_S / 4)


@contextmanager
def _progress() -> Iterator[Callable[[int, int], None]]:
    if not sys.stderr.isatty():
        yield lambda _level, _seen: None
        return
    with console(sys.stderr).status("recalling") as line:
        yield lambda level, seen: line.update(f"recalling: level {level:02d}, {seen} messages seen")
