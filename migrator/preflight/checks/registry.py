"""All checks by name, and how they are run."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Final

from migrator.delays.routing import DelaysVersion
from migrator.errors import MigratorError, PreflightRefused, UnknownEndpoint
from migrator.ledger.states import Mode
from migrator.nservicebus.timeouts import QueueName
from migrator.preflight.checks import (
    broker_alarms,
    broker_reachable,
    broker_rights,
    broker_version,
    capacity,
    clock_skew,
    delay_entities,
    destinations,
    due_times,
    endpoints,
    ledger,
    legacy_table,
    policies,
    reply_queues,
    rights,
    satellite_queues,
    store_reachable,
    stuck_levels,
    suffix_collisions,
    unattended_rows,
    vendor_run,
    ways_out,
)
from migrator.preflight.checks.context import DISPATCH, MIGRATE, MOVING, Context
from migrator.preflight.findings import Finding, Level
from migrator.preflight.known_hand_overs import KnownHandOvers
from migrator.stores.endpoints import chosen_endpoints

Check = Callable[[Context], Iterable[Finding]]

CHECKS: Final[Mapping[str, Check]] = {
    broker_alarms.NAME: lambda c: broker_alarms.check(c.broker),
    broker_reachable.NAME: lambda c: broker_reachable.check(c.broker),
    broker_rights.NAME: lambda c: broker_rights.check(
        c.broker,
        mode=_mode(c),
        own_queues=c.choices.own_queues,
        retry_queues=c.choices.retry_queues,
        version=c.choices.version,
        bound=_bound_by_us(c),
    ),
    broker_version.NAME: lambda c: broker_version.check(
        c.broker,
        version=_version(c),
        mode=_mode(c),
        has_retries=bool(c.choices.retry_queues),
    ),
    capacity.NAME: lambda c: capacity.check(c.broker, c.previews_of(*MOVING)),
    clock_skew.NAME: lambda c: clock_skew.check(c.clock, c.wall_clock),
    delay_entities.NAME: lambda c: _if_delayed(
        c,
        delay_entities.NAME,
        lambda: delay_entities.check(c.broker, version=c.choices.version),
    ),
    destinations.NAME: lambda c: destinations.check(
        c.broker,
        c.previews_of(*MOVING),
        version=c.choices.version,
        may_bind=c.choices.may_bind,
        dispatched=c.previews_of(DISPATCH),
        vhost=c.choices.vhost,
        held=c.choices.held,
    ),
    due_times.NAME: lambda c: due_times.check(
        c.store, chosen_endpoints(c.store, c.endpoint_names), c.clock, c.choices.due_times
    ),
    endpoints.NAME: lambda c: endpoints.check(c.store, c.endpoint_names),
    ledger.NAME: lambda c: ledger.check(
        c.ledger, version=_version(c), other_commits=c.choices.other_commits
    ),
    legacy_table.NAME: lambda c: legacy_table.check(c.store, c.previews_of(*MOVING)),
    policies.NAME: lambda c: policies.check(
        c.broker,
        version=_version(c),
        own_queues=[*(c.choices.own_queues if c.needs_delays else ()), *c.choices.retry_queues],
        # a lane's staging exchange has the name of its queue
        own_exchanges=[*c.choices.own_exchanges, *c.choices.own_queues] if c.needs_delays else (),
    ),
    reply_queues.NAME: lambda c: reply_queues.check(c.broker, c.previews),
    rights.NAME: lambda c: rights.check(c.store, chosen_endpoints(c.store, c.endpoint_names)),
    satellite_queues.NAME: lambda c: satellite_queues.check(
        c.broker, c.choices.satellites, near_due_queues=_near_due_queues(c)
    ),
    store_reachable.NAME: lambda c: store_reachable.check(c.store),
    stuck_levels.NAME: lambda c: _if_delayed(
        c, stuck_levels.NAME, lambda: stuck_levels.check(c.broker, version=c.choices.version)
    ),
    suffix_collisions.NAME: lambda c: _if_delayed(
        c,
        suffix_collisions.NAME,
        lambda: suffix_collisions.check(
            c.broker,
            c.previews_of(*MOVING),
            version=c.choices.version,
            is_accepted=c.choices.accepts_suffix_collisions,
        ),
    ),
    unattended_rows.NAME: lambda c: unattended_rows.check(
        c.broker,
        c.previews_of(MIGRATE),
        cutoff=c.choices.cutoff,
        sends_near_due=c.choices.sends_near_due,
        queues=c.choices.queues,
    ),
    vendor_run.NAME: lambda c: vendor_run.check(c.store, c.broker),
}
"""Every check, by its public name, in the order in which they run."""

UNREACHABLE: Final = frozenset({broker_reachable.NAME, store_reachable.NAME})
"""Checks whose refusal means: nobody answers there."""


def recheck(context: Context, *, destinations: Collection[QueueName]) -> Sequence[Finding]:
    """Return what checks of broker and clocks find that can turn out otherwise while we run.

    The tables are not read again: *destinations* stand for those of their rows.
    """
    choices = context.choices

    def collisions() -> Iterable[Finding]:
        return suffix_collisions.among(
            context.broker,
            frozenset(destinations),
            version=choices.version,
            is_accepted=choices.accepts_suffix_collisions,
        )

    found = run_checks(context, only=(clock_skew.NAME, delay_entities.NAME, policies.NAME))
    if not context.needs_delays:
        return found
    return [*found, *guarded(suffix_collisions.NAME, collisions)]


def find_ways(context: Context, known: KnownHandOvers) -> Sequence[Finding]:
    """Return whether the destinations of what was handed over can be reached; others not."""
    if not context.needs_delays:
        return ()
    found = _ways(context, known)
    if any(each.level is Level.REFUSED for each in found):
        known.forget()  # what was called back since needs no way
        found = _ways(context, known)
    return found


def _ways(context: Context, known: KnownHandOvers) -> Sequence[Finding]:
    check = partial(
        ways_out.check,
        context.broker,
        known,
        version=context.choices.version,
        now=context.wall_clock(),
    )
    return [each for each in guarded(ways_out.NAME, check) if each.level is not Level.WARNING]


def run_checks(context: Context, *, only: Iterable[str] | None = None) -> Sequence[Finding]:
    """Return what all checks, or those named in *only*, found; in the order of their names.

    Whatever a check cannot ask becomes a finding; only bugs raise.
    """
    names = set(CHECKS if only is None else only)
    found: list[Finding] = []
    for name in sorted(names):
        found += guarded(name, partial(CHECKS[name], context))
    return found


def guarded(name: str, check: Callable[[], Iterable[Finding]]) -> Iterator[Finding]:
    """Yield what *check* finds; whatever it cannot ask becomes a finding under *name*."""
    try:
        yield from check()
    except UnknownEndpoint as exc:  # refused by the check that looks for them
        yield Finding(check=name, level=Level.NOT_CHECKED, subject=name, text=str(exc))
    except MigratorError as exc:
        is_refused = isinstance(exc, PreflightRefused)
        yield Finding(
            check=name,
            level=Level.REFUSED if is_refused else Level.NOT_CHECKED,
            subject=name,
            text=str(exc),
        )


def refuse(findings: Iterable[Finding]) -> None:
    """Stop here when any of *findings* is a refusal.

    Raises:
        PreflightRefused: Names each refusal with its remedy. Nothing was changed.
    """
    refused = [
        f"{f.subject}: {f.text}" + (f"; {f.remedy}" if f.remedy else "")
        for f in findings
        if f.level is Level.REFUSED
    ]
    if refused:
        raise PreflightRefused("preflight refused: " + "\n  ".join(refused))


def _version(context: Context) -> DelaysVersion | None:
    """Return the generation that messages are to enter; None: none enters any."""
    return context.choices.version if context.needs_delays else None


def _mode(context: Context) -> Mode | None:
    """Return how batches are handed over; None: no row is to be moved."""
    return context.choices.mode if context.needs_delays else None


def _bound_by_us(context: Context) -> Collection[QueueName]:
    """Return the destinations that a run binds to the delays, as far as rows were looked at."""
    previews = context.previews_of(*MOVING)
    return destinations.destination_rows(previews or ()) if context.choices.may_bind else ()


def _if_delayed(
    context: Context, name: str, check: Callable[[], Iterable[Finding]]
) -> Iterable[Finding]:
    if context.needs_delays:
        return check()
    text = "not needed: every chosen endpoint is in mode dispatch"
    return [Finding(check=name, level=Level.OK, subject="native delays", text=text)]


def _near_due_queues(context: Context) -> Sequence[str]:
    if not context.choices.sends_near_due:
        return ()
    names = context.names
    return [
        context.choices.queues.get(name, name)
        for name in names
        if context.choices.mode_of(name) == MIGRATE
    ]
