"""What the settings say to the count of rows: the plan of a run, and what checks ask of rows."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from typing import Final

from migrator.app.preflight import check_context
from migrator.app.servers import Servers, open_servers
from migrator.app.values import due_time_rules, limits_of, selection
from migrator.config import EndpointMode, Settings
from migrator.config.work import HandOverPace
from migrator.delays.releases import EXCHANGE_COST_S
from migrator.delays.routing import CAPACITY_MEASURED
from migrator.errors import LedgerError, MigratorError, PreflightRefused, StoreError, StoreLocked
from migrator.ledger.states import Mode
from migrator.ledger.work import StoreEndpoint
from migrator.preflight.checks_store import UNREADABLE, due_times_of, unreadable
from migrator.preflight.context import (
    MOVING,
    Finding,
    Level,
    by_check,
    refusals,
    refuse,
    verdict,
)
from migrator.preflight.registry import STORE_CHECKS, run_checks
from migrator.preview.count import scan
from migrator.preview.forecast import dues_per_s, forecast
from migrator.preview.report import Preview
from migrator.reports.plan import Plan
from migrator.stores.endpoints import (
    EndpointPreview,
    Selection,
    chosen_endpoints,
    present_endpoints,
)

CAUTIOUS_RATES: Final = {Mode.STAGED: 2_000.0, Mode.DIRECT: 4_000.0}
"""Messages per second and process: about half of what was measured on two cores."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RowCounts:
    """What would become of the rows of endpoints."""

    previews: Sequence[EndpointPreview]
    unreadable: Sequence[Finding]
    """Of each endpoint whose rows cannot be read now: a refusal that says why."""
    locked: StoreError | None = None
    """The last of the reasons that passes by itself; None: there is none."""


def count_rows(
    servers: Servers,
    endpoints: Sequence[StoreEndpoint],
    *,
    progress: Callable[[str, int], None],
    max_rows: int | None = None,
    is_exact: bool = True,
) -> RowCounts:
    """Return what would become of the rows of *endpoints*, or of their first *max_rows* or so.

    A table that cannot be read keeps no other from being counted. In mode dispatch all rows count
    as chosen: neither cutoff nor horizon keeps one back.
    *progress* is told the endpoint and how many rows more were read or counted. Without *is_exact*
    the database counts, where it can.
    """
    now = servers.ledger.clock.now()
    all_rows = Selection(cutoff=timedelta(0), horizon=None)
    moved = {e.name for e in endpoints if servers.settings.endpoint(e.name).mode in MOVING}
    previews, unread = list[EndpointPreview](), list[Finding]()
    locked: StoreError | None = None
    for endpoint in endpoints:
        try:
            previews.append(
                scan(
                    servers.backend.store,
                    endpoint,
                    selection=selection(servers.settings) if endpoint.name in moved else all_rows,
                    rules=limits_of(servers.settings, endpoint.name),
                    now=now,
                    progress=partial(progress, endpoint.name),
                    max_rows=max_rows,
                    is_exact=is_exact,
                )
            )
        except StoreError as exc:
            if not exc.is_of_source:
                raise
            unread.append(unreadable(endpoint, exc))
            locked = exc if isinstance(exc, StoreLocked) else locked
    return RowCounts(previews=previews, unreadable=unread, locked=locked)


def take_preview(
    servers: Servers,
    names: Sequence[str],
    *,
    progress: Callable[[str, int], None],
    rate: float | None = None,
    is_exact: bool = False,
) -> tuple[Preview, Sequence[Finding]]:
    """Return the preview of the endpoints called *names*, and which could not be read, and why.

    Left out are those whose due times are of another zone than they are read in: no count of when
    their rows are due would be true. *rate* is what the estimate assumes. With *is_exact* every row
    is converted, in place of a sample.

    Raises:
        PreflightRefused, UnknownEndpoint: None is left.
    """
    settings, store, clock = servers.settings, servers.backend.store, servers.ledger.clock
    given, endpoints = settings.handover, present_endpoints(store, names)
    if names and not endpoints:
        chosen_endpoints(store, names)
    seen = [*due_times_of(store, endpoints, clock, due_time_rules(settings))]
    endpoints = [each for each in endpoints if each.name not in refusals(seen)]
    if not endpoints:
        refuse(seen)
    unread = [finding for finding in seen if finding.check == UNREADABLE]
    taken_at = clock.now()
    read = count_rows(servers, endpoints, progress=progress, is_exact=is_exact)
    found = read.previews
    modes = {preview.endpoint: settings.endpoint(preview.endpoint).mode for preview in found}
    sources = {p.source for p in found if modes[p.endpoint] is not EndpointMode.DISPATCH}
    moved = [endpoint for endpoint in endpoints if endpoint.source in sources]
    exchange_cost_s = _exchange_cost_s(servers)
    preview = Preview(
        taken_at=taken_at,
        cutoff=selection(settings).cutoff,
        horizon=selection(settings).horizon,
        version=settings.broker.delays,
        rate_per_s=min(rate or CAUTIOUS_RATES[given.mode], given.rate_limit or float("inf")),
        endpoints=[p for p in found if modes[p.endpoint] is not EndpointMode.DISPATCH],
        dispatched=[p for p in found if modes[p.endpoint] is EndpointMode.DISPATCH],
        modes=modes,
        attended=[name for name in modes if settings.sends_near_due(name)],
        exchange_cost_s=exchange_cost_s,
        keeps_to_levels=given.pace is HandOverPace.LEVELS,
        bursts=forecast(store, moved, now=taken_at, rate_per_s=dues_per_s(exchange_cost_s)),
    )
    return preview, [*unread, *read.unreadable]


class Planning:
    """Tells what a run would do with the store, the ledger and the broker of the settings."""

    def __init__(self, servers: Servers) -> None:
        self._servers = servers

    @property
    def ledger(self) -> str | MigratorError:
        """The id of the ledger, or why there is none that can be used."""
        try:
            return self._servers.ledger.id
        except MigratorError as exc:
            return exc

    def plan(
        self,
        names: Sequence[str],
        *,
        progress: Callable[[str, int], None],
        rate: float | None = None,
        is_exact: bool = False,
        asks_broker: bool = True,
    ) -> Plan:
        """Return the preview of the endpoints called *names*, and what the checks of a start find.

        Raises:
            StoreError, LedgerError, PreflightRefused: The rows could not be counted, and no check
                says why.
        """
        servers = self._servers
        found: Preview | None = None
        problem: MigratorError | None = None
        unread: Sequence[Finding] = ()
        try:
            found, unread = take_preview(
                servers, names, progress=progress, rate=rate, is_exact=is_exact
            )
        except (StoreError, LedgerError, PreflightRefused) as exc:
            problem = exc
        previews = None if found is None else [*found.endpoints, *found.dispatched]
        only = None if asks_broker else STORE_CHECKS
        context = check_context(
            servers, names, previews, asks_broker=asks_broker, unreadable=unread
        )
        findings = by_check([*run_checks(context, only=only), *unread])
        if problem is not None and verdict(findings) is not Level.REFUSED:
            raise problem
        return Plan(
            preview=found,
            findings=findings,
            asks_broker=asks_broker,
            purge_after=servers.settings.ledger.purge_after,
        )


@contextmanager
def open_planning(settings: Settings) -> Iterator[Planning]:
    """Open what *settings* name; the ledger need not exist.

    Raises:
        ConfigError: The store is not named.
    """
    with open_servers(settings, must_exist=False) as servers:
        yield Planning(servers)


def _exchange_cost_s(servers: Servers) -> float:
    """Return what an exchange costs, as measured last; the broker is not asked which it is."""
    try:
        event = servers.ledger.queries.latest_event(CAPACITY_MEASURED)
    except MigratorError:  # no ledger, nothing measured
        return EXCHANGE_COST_S
    return EXCHANGE_COST_S if event is None else float(str(event.detail["exchange_cost_s"]))
