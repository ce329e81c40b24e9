"""What the settings say to checks and to the preview of rows."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Final

from migrator.app.app import App
from migrator.config import EndpointMode, NearDue, Settings
from migrator.config.work import HandOverPace
from migrator.delays.releases import EXCHANGE_COST_S
from migrator.delays.routing import CAPACITY_MEASURED, DelaysVersion
from migrator.errors import ConfigError, MigratorError
from migrator.ledger.lease_keeper import is_surely_dead
from migrator.ledger.report import OpenCommit
from migrator.ledger.states import Mode
from migrator.ledger.work import StoreEndpoint
from migrator.nservicebus.conversion import destination_of
from migrator.nservicebus.satellites import timeouts_queue
from migrator.nservicebus.timeouts import BITS, Lane, QueueName
from migrator.preflight.checks_store import due_times_of
from migrator.preflight.context import MOVING, Context, Satellites
from migrator.preflight.queries import KnownHandOvers
from migrator.preflight.registry import Rechecks, refuse
from migrator.preview.count import survey
from migrator.preview.forecast import dues_per_s, forecast
from migrator.preview.report import Preview
from migrator.rabbitmq.names import (
    entry_exchange,
    receipts_queue,
    retry_queue,
    router_exchange,
    staging_name,
)
from migrator.stores.endpoints import EndpointPreview, Selection, chosen_endpoints

CAUTIOUS_RATES: Final = {Mode.STAGED: 2_000.0, Mode.DIRECT: 4_000.0}
"""Messages per second and process: about half of what was measured on two cores."""


def count_rows(
    app: App,
    endpoints: Sequence[StoreEndpoint],
    *,
    progress: Callable[[str, int], None],
    max_rows: int | None = None,
    is_exact: bool = True,
) -> Sequence[EndpointPreview]:
    """Return what would become of the rows of *endpoints*, or of their first *max_rows* or so.

    In mode dispatch all rows count as chosen: neither cutoff nor horizon keeps one back.
    *progress* is told the endpoint and how many rows more were read or counted. Without *is_exact*
    the database counts, where it can.
    """
    now = app.clock.now()
    all_rows = Selection(cutoff=timedelta(0), horizon=None)
    moved = {e.name for e in endpoints if app.settings.endpoint(e.name).mode in MOVING}
    return [
        survey(
            app.store,
            endpoint,
            selection=app.selection if endpoint.name in moved else all_rows,
            rules=app.rules_of(endpoint.name),
            now=now,
            progress=partial(progress, endpoint.name),
            max_rows=max_rows,
            is_exact=is_exact,
        )
        for endpoint in endpoints
    ]


def take_preview(
    app: App,
    names: Sequence[str],
    *,
    progress: Callable[[str, int], None],
    rate: float | None = None,
    is_exact: bool = False,
) -> Preview:
    """Return the preview of the endpoints called *names*; *rate* is what the estimate assumes.

    With *is_exact* every row is converted, in place of a sample.

    Raises:
        PreflightRefused: Due times are of another zone than they are read in: no count of when
            rows are due would be true.
    """
    given, endpoints = app.settings.handover, chosen_endpoints(app.store, names)
    refuse(due_times_of(app.store, endpoints, app.clock, app.due_times))
    taken_at = app.clock.now()
    found = count_rows(app, endpoints, progress=progress, is_exact=is_exact)
    modes = {preview.endpoint: app.settings.endpoint(preview.endpoint).mode for preview in found}
    sources = {p.source for p in found if modes[p.endpoint] is not EndpointMode.DISPATCH}
    moved = [endpoint for endpoint in endpoints if endpoint.source in sources]
    exchange_cost_s = _exchange_cost_s(app)
    return Preview(
        taken_at=taken_at,
        cutoff=app.selection.cutoff,
        horizon=app.selection.horizon,
        version=app.settings.broker.delays,
        rate_per_s=min(rate or CAUTIOUS_RATES[given.mode], given.rate_limit or float("inf")),
        endpoints=[p for p in found if modes[p.endpoint] is not EndpointMode.DISPATCH],
        dispatched=[p for p in found if modes[p.endpoint] is EndpointMode.DISPATCH],
        modes=modes,
        attended=[name for name in modes if sends_near_due(app, name)],
        exchange_cost_s=exchange_cost_s,
        keeps_to_levels=given.pace is HandOverPace.LEVELS,
        bursts=forecast(app.store, moved, now=taken_at, rate_per_s=dues_per_s(exchange_cost_s)),
    )


def _exchange_cost_s(app: App) -> float:
    """Return what an exchange costs, as measured last; the broker is not asked which it is."""
    try:
        event = app.books.latest_event(CAPACITY_MEASURED)
    except MigratorError:  # no ledger, nothing measured
        return EXCHANGE_COST_S
    return EXCHANGE_COST_S if event is None else float(str(event.detail["exchange_cost_s"]))


def sends_near_due(app: App, endpoint: str) -> bool:
    """Return whether rows of *endpoint* that are due before the cutoff are sent by migrator."""
    is_wished = app.settings.handover.near_due is NearDue.DISPATCH
    return is_wished or app.settings.endpoint(endpoint).mode is not EndpointMode.MIGRATE


def check_context(
    app: App, names: Sequence[str], previews: Sequence[EndpointPreview] | None
) -> Context:
    """Return what checks are to ask, by the settings of *app*."""
    given = app.settings
    return Context(
        store=app.store,
        ledger=app.ledger_facts,
        clock=app.clock,
        wall_clock=lambda: datetime.now(UTC),
        broker=app.broker_facts,
        version=given.broker.delays,
        accepts_suffix_collisions=given.handover.accept_suffix_collisions,
        endpoint_names=names,
        previews=previews,
        chosen_mode=given.handover.mode,
        cutoff=given.handover.cutoff,
        may_bind=not given.broker.all_endpoints_support_delayed_delivery,
        own_queues=_own_queues(app),
        own_exchanges=_own_exchanges(app.settings.broker.delays),
        modes={endpoint.name: str(endpoint.mode) for endpoint in given.endpoints},
        queues={endpoint.name: endpoint.input_queue for endpoint in given.endpoints},
        satellites=satellites(given, names),
        sends_near_due=given.handover.near_due is NearDue.DISPATCH,
        due_times=app.due_times,
        vhost=_vhost(app),
        held=_held(app),
        other_commits=_other_commits(app),
    )


def new_rechecks(app: App, names: Sequence[str]) -> Rechecks:
    """Return the checks of the broker that a daemon makes again while it runs."""
    known = KnownHandOvers(app.hand_overs, app.clock.now)
    return Rechecks(check_context(app, names, None), known, app.destinations.known)


def satellites(given: Settings, names: Sequence[str]) -> Sequence[Satellites]:
    """Return the queues of those endpoints called *names* whose timeout manager we are to be.

    Without *names*, of all that the settings have.
    """
    return [
        Satellites(
            endpoint=endpoint.name,
            queue=endpoint.input_queue,
            error_queue=endpoint.error_queue or given.dispatch.error_queue,
            retry_queues=[
                retry_queue(
                    timeouts_queue(QueueName(endpoint.input_queue)), int(delay.total_seconds())
                )
                for delay in given.dispatch.retry_delays
            ],
        )
        for endpoint in given.endpoints
        if endpoint.mode is not EndpointMode.MIGRATE and (not names or endpoint.name in names)
    ]


def _vhost(app: App) -> str:
    try:
        return app.connection.address.vhost
    except ConfigError:  # whoever asks the broker is told so
        return ""


def _held(app: App) -> Collection[QueueName]:
    try:
        columns = [each.destination for each in app.books.held()]
    except MigratorError:  # no ledger, nothing held
        return ()
    return {destination_of(column, {}, app.rules.destination_map) for column in columns}


def _other_commits(app: App) -> Sequence[OpenCommit]:
    try:
        commits = app.books.commits_of_others(str(app.settings.broker.delays))
        if not commits:
            return ()
        at_work = {lane for lane, owner in app.leases.holders() if not is_surely_dead(owner)}
    except MigratorError:  # no ledger, no batches; the check of the ledger says so
        return ()
    return [each for each in commits if each.lane not in at_work]


def _own_queues(app: App) -> Sequence[str]:
    """Return our queues of the lanes this process may use, whether they exist or not."""
    try:
        app.ledger_facts.verify()
    except MigratorError:  # no ledger, no queues of ours; the checks of store and ledger say so
        return ()
    version, lanes = (
        app.settings.broker.delays,
        [Lane(n) for n in range(app.settings.handover.lanes)],
    )
    staging = [staging_name(version, app.ledger_id, lane) for lane in lanes]
    return [*staging, *(receipts_queue(app.ledger_id, lane) for lane in lanes)]


def _own_exchanges(version: DelaysVersion) -> Sequence[str]:
    """Return our exchanges that lead into the levels, whether they exist or not."""
    return [router_exchange(version), *(entry_exchange(version, n) for n in range(BITS))]
