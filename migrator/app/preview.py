"""What the settings say to the count of rows: the plan of a run, and what checks ask of rows."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import partial
from typing import Final

from migrator.app.preflight import check_context
from migrator.app.servers import Servers, open_servers
from migrator.app.values import due_time_rules, limits_of, selection
from migrator.config import EndpointMode, Settings
from migrator.config.work import HandOverPace
from migrator.delays.releases import EXCHANGE_COST_S
from migrator.delays.routing import CAPACITY_MEASURED, DelaysVersion
from migrator.documents import Count, Document
from migrator.errors import LedgerError, MigratorError, PreflightRefused, StoreError, StoreLocked
from migrator.ledger.states import Mode
from migrator.ledger.work import StoreEndpoint
from migrator.nservicebus.timeouts import EndpointName, QueueName
from migrator.preflight.checks_store import UNREADABLE, due_times_of, unreadable
from migrator.preflight.context import (
    MOVING,
    Finding,
    Level,
    by_check,
    destination_rows,
    refusals,
    refuse,
    verdict,
)
from migrator.preflight.registry import STORE_CHECKS, run_checks
from migrator.preview.count import scan
from migrator.preview.forecast import Burst, dues_per_s, forecast
from migrator.preview.report import DispatchedCounts, EndpointCounts, Preview
from migrator.status.remaining import kept_text
from migrator.stores.endpoints import (
    EndpointPreview,
    Selection,
    chosen_endpoints,
    present_endpoints,
)
from migrator.text import counted, size_words

CAUTIOUS_RATES: Final = {Mode.STAGED: 2_000.0, Mode.DIRECT: 4_000.0}
"""Messages per second and process: about half of what was measured on two cores."""
_WAITS: Final = ("destinations", Level.WARNING)
"""Check and level of a finding whose subject is a destination that cannot be reached."""
_UNTOLD: Final = ("destinations", Level.NOT_CHECKED, "destinations")
"""The same, where nobody could be asked; bindings alone may be unknown, too."""


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


class UncountedDocument(Document, title="migrator/preview/1"):
    """`migrator preview --json`, where the rows could not be counted."""

    verdict: Level
    asks_broker: bool
    waiting: Mapping[QueueName, Count] | None
    content_kept: str | None
    """What the ledger would keep for good; None: nothing."""
    findings: Sequence[Finding]


class PreviewDocument(UncountedDocument):
    """`migrator preview --json`."""

    taken_at: datetime
    delays: DelaysVersion
    cutoff_s: float
    horizon_s: float | None
    rate_per_s: float
    estimated_s: float
    late_at_full_pace_s: float
    endpoints: Sequence[EndpointCounts]
    modes: Mapping[EndpointName, EndpointMode]
    dispatched: Sequence[DispatchedCounts]
    dues_per_s: Count
    bursts: Sequence[Burst] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What a run would do, and what would go wrong."""

    preview: Preview | None
    """None: the rows could not be counted, and a finding says why."""
    findings: Sequence[Finding]
    asks_broker: bool
    """Whether checks that ask the broker are among them."""
    purge_after: timedelta | None

    @property
    def served(self) -> Collection[str]:
        """The endpoints that a run would serve, unless something refuses it as a whole."""
        counted = () if self.preview is None else self.preview.modes
        return counted.keys() - refusals(self.findings).keys() if counted else ()

    @property
    def waiting(self) -> Mapping[QueueName, int] | None:
        """Rows that would be parked until their destination can be reached, by that.

        None: nobody told which destinations can.
        """
        untold = ((f.check, f.level, f.subject) == _UNTOLD for f in self.findings)
        if not self.asks_broker or any(untold):
            return None
        warned = {f.subject for f in self.findings if (f.check, f.level) == _WAITS}
        found = self.preview
        rows = destination_rows([*found.endpoints, *found.dispatched] if found else ())
        return {name: count for name, count in sorted(rows.items()) if name in warned}

    @property
    def content_kept(self) -> str | None:
        """What the ledger would keep for good; None: nothing."""
        moved = () if self.preview is None else self.preview.endpoints
        if not (rows := sum(each.to_hand_over for each in moved)):
            return None
        size = size_words(sum(each.bytes for each in moved))
        return kept_text(self.purge_after, f"{counted(rows, 'message')} ({size})")

    @property
    def document(self) -> UncountedDocument:
        """The same for programs; a ``PreviewDocument`` where the rows could be counted."""
        checked = UncountedDocument(
            verdict=verdict(self.findings),
            asks_broker=self.asks_broker,
            waiting=self.waiting,
            content_kept=self.content_kept,
            findings=self.findings,
        )
        found = self.preview
        if found is None:
            return checked
        return PreviewDocument(
            **dict(checked),
            taken_at=found.taken_at,
            delays=found.version,
            cutoff_s=found.cutoff.total_seconds(),
            horizon_s=found.horizon.total_seconds() if found.horizon else None,
            rate_per_s=found.rate_per_s,
            estimated_s=found.estimated.total_seconds(),
            late_at_full_pace_s=found.late_at_full_pace.total_seconds(),
            endpoints=[EndpointCounts.model_validate(each) for each in found.endpoints],
            modes={name: EndpointMode(mode) for name, mode in found.modes.items()},
            dispatched=[DispatchedCounts.model_validate(each) for each in found.dispatched],
            dues_per_s=round(found.dues_per_s),
            bursts=found.bursts
            and [replace(each, late_s=round(each.late_s, 1)) for each in found.bursts],
        )


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
