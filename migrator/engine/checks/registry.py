"""All checks by name, and how they are run."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Final

from migrator.domain.findings import Finding, Level
from migrator.engine.checks import (
    broker_alarms,
    broker_reachable,
    broker_rights,
    broker_version,
    capacity,
    clock_skew,
    delay_entities,
    destinations,
    endpoints,
    ledger,
    policies,
    rights,
    store_reachable,
    stuck_levels,
    suffix_collisions,
    unattended_rows,
    vendor_run,
)
from migrator.engine.checks.context import Context
from migrator.engine.preview import chosen_endpoints
from migrator.errors import MigratorError, PreflightRefused, UnknownEndpoint

Check = Callable[[Context], Iterable[Finding]]

CHECKS: Final[Mapping[str, Check]] = {
    broker_alarms.NAME: lambda c: broker_alarms.check(c.broker),
    broker_reachable.NAME: lambda c: broker_reachable.check(c.broker),
    broker_rights.NAME: lambda c: broker_rights.check(
        c.broker, mode=c.choices.mode, own_queues=c.choices.own_queues
    ),
    broker_version.NAME: lambda c: broker_version.check(
        c.broker, version=c.choices.version, mode=c.choices.mode
    ),
    capacity.NAME: lambda c: capacity.check(c.broker, c.previews),
    clock_skew.NAME: lambda c: clock_skew.check(c.clock, c.wall_clock),
    delay_entities.NAME: lambda c: delay_entities.check(c.broker, version=c.choices.version),
    destinations.NAME: lambda c: destinations.check(
        c.broker, c.previews, version=c.choices.version, may_bind=c.choices.may_bind
    ),
    endpoints.NAME: lambda c: endpoints.check(c.store, c.endpoint_names),
    ledger.NAME: lambda c: ledger.check(c.ledger),
    policies.NAME: lambda c: policies.check(
        c.broker, version=c.choices.version, own_queues=c.choices.own_queues
    ),
    rights.NAME: lambda c: rights.check(c.store, chosen_endpoints(c.store, c.endpoint_names)),
    store_reachable.NAME: lambda c: store_reachable.check(c.store),
    stuck_levels.NAME: lambda c: stuck_levels.check(c.broker, version=c.choices.version),
    suffix_collisions.NAME: lambda c: suffix_collisions.check(
        c.broker,
        c.previews,
        version=c.choices.version,
        is_accepted=c.choices.accepts_suffix_collisions,
    ),
    unattended_rows.NAME: lambda c: unattended_rows.check(
        c.broker, c.previews, cutoff=c.choices.cutoff
    ),
    vendor_run.NAME: lambda c: vendor_run.check(c.store, c.broker),
}
"""Every check, by its public name, in the order in which they run."""

UNREACHABLE: Final = frozenset({broker_reachable.NAME, store_reachable.NAME})
"""Checks whose refusal means: nobody answers there."""


def run_checks(context: Context, *, only: Iterable[str] | None = None) -> Sequence[Finding]:
    """Return what all checks, or those named in *only*, found; in the order of their names.

    Whatever a check cannot ask becomes a finding; only bugs raise.
    """
    names = set(CHECKS if only is None else only)
    found: list[Finding] = []
    for name in sorted(names):
        found += _findings(name, CHECKS[name], context)
    return found


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


def _findings(name: str, check: Check, context: Context) -> Iterator[Finding]:
    try:
        yield from check(context)
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
