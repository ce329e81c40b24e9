"""All checks by name, and how they are run.

A check is a generator that takes the context and yields findings; it changes nothing. A new one is
a function in the file of its subject, and a line here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Final

from migrator.errors import MigratorError, PreflightRefused, UnknownEndpoint
from migrator.preflight import checks_broker as broker
from migrator.preflight import checks_delays as delays
from migrator.preflight import checks_destinations as rows
from migrator.preflight import checks_store as store
from migrator.preflight.context import Context, DelaysContext, Finding, Level

if TYPE_CHECKING:
    from migrator.preflight.queries import KnownHandOvers

DELAY_CHECKS: Final[Mapping[str, Callable[[DelaysContext], Iterable[Finding]]]] = {
    "bound-names": delays.bound_names,
    "broker-alarms": broker.broker_alarms,
    "broker-reachable": broker.broker_reachable,
    "broker-version": broker.broker_version,
    "delay-entities": delays.delay_entities,
    "frozen-levels": delays.frozen_levels,
    "level-leaders": delays.level_leaders,
    "policies": broker.policies,
    "ways-out": delays.destination_bindings,
}
"""The checks of ``migrator delays show``, in this order. They need no store, and may take long."""

CHECKS: Final[Mapping[str, Callable[[Context], Iterable[Finding]]]] = {
    "broker-alarms": broker.broker_alarms,
    "broker-reachable": broker.broker_reachable,
    "broker-rights": broker.broker_rights,
    "broker-version": broker.broker_version,
    "capacity": broker.capacity,
    "clock-skew": store.clock_skew,
    "delay-entities": delays.delay_entities,
    "destinations": rows.destinations,
    "due-times": store.due_times,
    "encryption": broker.encryption,
    "endpoints": store.endpoints,
    "exchange-types": rows.exchange_types,
    "full-queues": rows.full_queues,
    "ledger": store.ledger,
    "legacy-table": store.legacy_table,
    "level-leaders": delays.level_leaders,
    "parked-destinations": rows.parked_destinations,
    "policies": broker.policies,
    "reply-queues": rows.reply_queues,
    "rights": store.rights,
    "row-contents": store.row_contents,
    "satellite-queues": broker.satellite_queues,
    "store-reachable": store.store_reachable,
    "stray-messages": broker.stray_messages,
    "stuck-levels": delays.stuck_levels,
    "suffix-collisions": rows.suffix_collisions,
    "unattended-rows": rows.unattended_rows,
    "vendor-run": store.vendor_run,
}
"""The checks of ``migrator preview``, and of ``migrator run`` before it starts, in this order."""
STORE_CHECKS: Final = (
    *("clock-skew", "due-times", "encryption", "endpoints", "ledger"),
    *("legacy-table", "rights", "store-reachable"),
)
"""Those that ask store and ledger alone."""

_RECHECKED: Final = ("clock-skew", "delay-entities", "level-leaders", "policies")


def run_checks(context: Context, *, only: Iterable[str] | None = None) -> Sequence[Finding]:
    """Return the findings of all checks, or of those in *only*, in the order of their names.

    A question that cannot be asked becomes a finding; only bugs raise.
    """
    names = sorted(CHECKS if only is None else only)
    return [f for name in names for f in _found(name, partial(CHECKS[name], context))]


def check_delays(context: DelaysContext) -> Sequence[Finding]:
    checks = DELAY_CHECKS.items()
    return [f for name, check in checks for f in _found(name, partial(check, context))]


@dataclass(frozen=True, slots=True)
class Rechecks:
    """Checks of the broker and the clocks whose result may change during a run."""

    _context: Context
    _known: KnownHandOvers

    def refusing(self) -> Sequence[Finding]:
        """Return what would refuse a start; an unreachable destination only parks its own rows."""
        return run_checks(self._context, only=_RECHECKED)

    def bindings(self) -> Sequence[Finding]:
        """Check bindings of destinations with handed-over timeouts; each is a subject."""
        if self._context.delays is None:
            return ()
        found = self._binding_findings()
        if any(each.level is Level.REFUSED for each in found):
            self._known.forget()  # what was recalled since needs no binding
            found = self._binding_findings()
        return found

    def _binding_findings(self) -> Sequence[Finding]:
        found = _found("ways-out", partial(delays.binding_findings, self._context, self._known))
        return [each for each in found if each.level is not Level.WARNING]


def _found(name: str, check: Callable[[], Iterable[Finding]]) -> Iterator[Finding]:
    try:
        for finding in check():
            yield replace(finding, check=name)
    except UnknownEndpoint as exc:  # refused by the check that count for them
        yield Finding(check=name, level=Level.NOT_CHECKED, subject=name, text=str(exc))
    except MigratorError as exc:
        level = Level.REFUSED if isinstance(exc, PreflightRefused) else Level.NOT_CHECKED
        yield Finding(check=name, level=level, subject=name, text=str(exc))
