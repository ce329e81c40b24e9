"""What ``migrator run`` works with: read from top to bottom, it is what a daemon is made of."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from importlib import import_module
from typing import Final

import structlog  # noqa: F401 - a daemon imports nothing after its start

from migrator.app.dispatchers import new_dispatchers
from migrator.app.handover import HandOverParts
from migrator.app.remaining import new_remaining_reader
from migrator.app.servers import Servers
from migrator.app.start import StartCheck
from migrator.app.status import new_ledger_reader
from migrator.app.throttle import ConfiguredPolls
from migrator.app.values import due_time_rules
from migrator.config import Settings
from migrator.config.sources import AUTO
from migrator.config.work import EndpointMode
from migrator.delays.releases import RECEIVING
from migrator.errors import MigratorError
from migrator.handover.claiming import ClaimableCache, Claimer
from migrator.handover.holding import Holding
from migrator.handover.lane import LaneSetup
from migrator.handover.pacing import ExchangeCost, Pacer
from migrator.handover.runs import OtherRuns
from migrator.ledger.lease_keeper import LeaseKeeper, current_owner
from migrator.ledger.purge import SettledRows
from migrator.ledger.work import Batch, StoreEndpoint
from migrator.preflight.registry import Rechecks
from migrator.quarantine.rows import SqlQuarantine
from migrator.rabbitmq.names import poison_queue
from migrator.service.audit_log import AuditLog
from migrator.service.control import Control, ServedEndpoint
from migrator.service.daemon import (
    Daemon,
    FinishReport,
    RunEnd,
    Runs,
    poll_ledger,
    tune_interpreter,
)
from migrator.service.hooks import Fire, HookEvents
from migrator.service.lanes import Adopter, LaneThread
from migrator.service.parked_log import PoisonTask
from migrator.service.pauses import end_for_critical_load, log_pauses
from migrator.service.runtime_settings import RuntimeSettings
from migrator.service.schedule import Job
from migrator.service.sources import FailingSourcesTask, Refusals, RefusedEndpoints
from migrator.service.status import DaemonStatus
from migrator.service.systemd import ServiceManager, Supervision
from migrator.service.tasks import (
    CapacityTask,
    DelaysHere,
    KeptCapacity,
    ParkedTask,
    ProbeTask,
    PurgeTask,
    Recheck,
    ShareTask,
)
from migrator.service.worker import Stop, Worker, WorkerContext, WorkerPool, one_by_one
from migrator.status.finished import CHECK_EVERY, FinishWatch
from migrator.status.poller import POLL_DETAILS_EVERY, POLL_EVERY, StatusPoller
from migrator.stores.due_times import DueTimeReader
from migrator.throttle.guard import ClaimGuard, QuarantineLimit
from migrator.throttle.polling import TICK
from migrator.throttle.reasons import PauseReason, Throttle
from migrator.web.listener import own_socket
from migrator.web.metrics import Instruments
from migrator.web.server import WebPlan

for _name in (  # else they are imported when they are asked for
    "migrator.config.loading",
    "migrator.rabbitmq.management",
    "tomllib",
):
    import_module(_name)  # a daemon's files may be replaced by an upgrade under it

_STATUS_EVERY: Final = timedelta(seconds=10)


def run_daemon(
    servers: Servers,
    endpoints: Sequence[StoreEndpoint],
    *,
    once: bool,
    watch: Callable[[], None],
    describe: Callable[[], str],
    load: Callable[[], Settings],
    fire: Fire,
    checks: Rechecks,
    refused: Refusals,
) -> RunEnd:
    """Migrate *endpoints* until done (*once*) or told to stop by a signal; return how it ended.

    Preflight is the caller's business. Whatever happens here, the ledger has the truth, and
    calling this again goes on.

    Args:
        servers: Opened, and with a ledger.
        endpoints: Whose timeouts are handed over or dispatched.
        once: End when nothing is left to do now.
        watch: Called a few times a second, by the main thread.
        describe: Says in a line how far everything is, and may take its time.
        load: Reads the settings anew when a signal asks for it.
        fire: Runs hooks.
        checks: Made again at intervals.
        refused: Those of *endpoints* that wait until the checks of the start refuse them no more.

    Raises:
        ConfigError: It cannot listen where ``[web]`` says. Nothing was begun.
    """
    tune_interpreter()
    settings, ledger = servers.settings, servers.ledger
    parts = HandOverParts(settings, ledger, servers.broker, servers.fault)
    with ExitStack() as ends:
        options = _run_options(settings)
        runs = [
            (each, ledger.runs.begin(each, options | parts.terms_of(each.name).options()))
            for each in endpoints
        ]
        try:
            daemon = _new_daemon(
                servers,
                parts,
                runs,
                ends,
                once=once,
                describe=describe,
                fire=fire,
                checks=checks,
                refused=refused,
            )
            daemon.prepare(ends)
        except MigratorError:
            for _, each in runs:
                ledger.runs.end(each, "failed")
            raise
        return daemon.work(watch=watch, load=load)


def _run_options(settings: Settings) -> dict[str, object]:
    """Return what a run records about itself besides its terms; no secrets."""
    given = settings.handover
    return {
        "mode": str(given.mode),
        "cutoff_s": int(given.cutoff.total_seconds()),
        "horizon_s": int(given.horizon.total_seconds()) if given.horizon else "",
        "batch_size": given.batch_size,
        "lanes": given.lanes,
        "time_zone": settings.store.time_zone,
    }


def _new_daemon(
    servers: Servers,
    parts: HandOverParts,
    runs: Runs,
    ends: ExitStack,
    *,
    once: bool,
    describe: Callable[[], str],
    fire: Fire,
    checks: Rechecks,
    refused: Refusals,
) -> Daemon:
    settings, ledger, broker = servers.settings, servers.ledger, servers.broker
    store, claims = servers.backend.store, servers.backend.claims
    endpoints = [endpoint for endpoint, _ in runs]
    modes = {each.name: settings.endpoint(each.name).mode for each in endpoints}
    moved = [each for each in endpoints if modes[each.name] is not EndpointMode.DISPATCH]
    owner, stop = current_owner(), Stop()
    keeper = LeaseKeeper(ledger.leases, owner=owner, duration=settings.handover.lease)
    runtime = RuntimeSettings(settings.handover)
    instruments = Instruments()

    # whatever changes is logged, noted in the ledger, and may have a hook run
    audit_log = AuditLog(ledger.runs)
    hook_events = HookEvents(fire, [endpoint.name for endpoint in endpoints])
    throttle = Throttle()

    # what lanes share
    cost = ExchangeCost()
    pacer = Pacer(cost=cost, receiving=RECEIVING[broker.version], is_on=runtime.keeps_to_levels)
    holding = parts.new_holding(settings.handover.destination_map)
    claimable = ClaimableCache(
        claims, ledger.clock, rest_s=settings.handover.sweep_interval.total_seconds()
    )
    due_times = DueTimeReader(store, ledger.clock, due_time_rules(settings))
    limit = QuarantineLimit(
        settings.handover.max_quarantined,
        [each.name for each in moved if modes[each.name] is EndpointMode.MIGRATE],
    )
    guard = ClaimGuard(
        throttle,
        stop.draining,
        moved,
        due_times=due_times,
        quarantine_limit=limit,
        clock=ledger.clock,
    )

    # the workers
    context = WorkerContext(leases=ledger.leases, keeper=keeper, stop=stop, once=once)
    lanes = LaneParts(
        servers=servers,
        parts=parts,
        runs=[(endpoint, run) for endpoint, run in runs if endpoint in moved],
        all_runs=runs,
        context=context,
        guard=guard,
        runtime=runtime,
        pacer=pacer,
        holding=holding,
        claimable=claimable,
        limit=limit,
        instruments=instruments,
    )
    others: list[Worker] = [
        *new_dispatchers(
            servers,
            parts,
            due_times,
            runs,
            context,
            ends=ends,
            instruments=instruments,
            failing=claimable.failing,
        )
    ]
    adopter = lanes.new_adopter() if moved else None
    workers = WorkerPool(
        [*others, *([adopter] if adopter else [])],
        new_lane=lanes.new_lane if moved else None,
        lanes=settings.handover.lanes,
    )
    if adopter is not None:
        adopter.serve(workers)
    polls = ConfiguredPolls(
        throttle,
        partial(end_for_critical_load, stop, audit_log),
        servers=servers,
        destinations=parts.destinations,
        endpoints=moved,
        heard_alarm=workers.blocked_reason,
        owner=owner,
    )

    # what an operator sees, and says
    supervision = Supervision(ServiceManager(), workers, stop)
    reader = new_remaining_reader(settings, ledger, broker, servers.backend)
    finish = FinishWatch(reader, moved, selection=runtime.selection, queries=ledger.queries)
    report = FinishReport(finish, hook_events, settings.ledger.purge_after)
    poller = StatusPoller(
        ledger.queries,
        broker.facts,
        broker.version,
        reader,
        finish,
        endpoints,
        selection=runtime.selection,
    )
    served = [
        ServedEndpoint(name=each.name, mode=str(modes[each.name]), moves=each in moved)
        for each in endpoints
    ]
    control = Control(
        served={each.name: each for each in served},
        throttle=throttle,
        runtime=runtime,
        workers=workers,
        stop=stop,
        audit_log=audit_log,
        clock=ledger.clock,
        queries=ledger.queries,
        claims=claims,
        quarantine=SqlQuarantine(ledger.engine, ledger.tables),
        mode=settings.handover.mode,
    )

    def wake_lanes(_reason: PauseReason, _began: bool) -> None:
        workers.wake()
        keeper.renew_soon()

    throttle.listen(log_pauses(audit_log), control.note_reason, wake_lanes, hook_events.throttled)

    # what happens at intervals; a slow answer is no miss: the status tells how old it is
    polling = [
        Job("look", POLL_EVERY, partial(poll_ledger, poller, hook_events), may_lag=True),
        Job("scan", POLL_DETAILS_EVERY, poller.poll_details, may_lag=True),
    ]
    failing = FailingSourcesTask(store, claimable.failing, throttle)
    waiting = RefusedEndpoints(
        StartCheck(servers), endpoints, refused, failing=claimable.failing, throttle=throttle
    )
    delays = DelaysHere(
        connection=broker.connection, version=broker.version, find_bindings=broker.find_bindings
    )
    capacity = CapacityTask(
        delays,
        KeptCapacity(ledger.queries, delays),
        audit_log,
        cost,
        measures=settings.probe.capacity and not once,
    )
    jobs = [
        *polling,
        Job("throttle", TICK, polls.tick),
        ParkedTask(holding, workers).job,
        PoisonTask(broker.facts, poison_queue(ledger.id)).job,
        ShareTask(ledger.leases, pacer, workers, owner).job,
        waiting.job,
    ]
    if moved:
        jobs += [failing.job, capacity.job]
    if moved and not once:
        jobs.append(Job("finished", CHECK_EVERY, report.check, may_lag=True))
    if supervision.wants_status:
        jobs.append(Job("status", _STATUS_EVERY, partial(_report, supervision, describe)))
    if not once:
        jobs += _seldom(servers, delays, pacer, audit_log)
    if (every := settings.broker.recheck_interval) is not None:
        recheck = Recheck(
            throttle=throttle,
            audit_log=audit_log,
            every=every,
            checks=checks,
            bind=parts.unreachable_now,
            may_pause=bool(moved),
        )
        jobs += recheck.jobs
    return Daemon(
        settings=settings,
        runs=runs,
        moved=moved,
        once=once,
        ledger_runs=ledger.runs,
        queries=ledger.queries,
        hand_overs=ledger.hand_overs,
        clock=ledger.clock,
        broker=broker.connection,
        stop=stop,
        keeper=keeper,
        runtime=runtime,
        audit_log=audit_log,
        hook_events=hook_events,
        throttle=throttle,
        polls=polls,
        holding=holding,
        failing_sources=claimable.failing,
        failing=failing,
        refused=waiting,
        workers=workers,
        supervision=supervision,
        finish=finish,
        finish_report=report,
        poller=poller,
        capacity=capacity,
        jobs=jobs,
        control=control,
        status=DaemonStatus(
            owner=owner,
            ledger_place=ledger.place,
            queries=ledger.queries,
            reader=new_ledger_reader(settings, ledger),
            control=control,
            supervision=supervision,
            poller=poller,
            polling=polling,
            finish=finish,
            jobs=jobs,
            title=settings.web.title,
            system=_system(servers),
        ),
        web=_web_plan(settings),
        instruments=instruments,
    )


def _seldom(
    servers: Servers, delays: DelaysHere, pacer: Pacer, audit_log: AuditLog
) -> Iterator[Job]:
    """Yield what only a daemon does, and only if the settings want it."""
    given, ledger = servers.settings, servers.ledger
    if given.probe.every is not None:
        probes = ProbeTask(
            delays,
            given.probe.probed_levels,
            audit_log,
            pacer,
            every=given.probe.every,
            warn_after=given.probe.warn_after,
        )
        yield probes.job
    if given.ledger.purge_after is not None:
        purge = PurgeTask(
            ledger.facts,
            SettledRows(ledger.engine, ledger.tables),
            ledger.clock,
            audit_log,
            after=given.ledger.purge_after,
            every=given.ledger.purge_every,
        )
        yield purge.job


def _report(supervision: Supervision, describe: Callable[[], str]) -> None:
    supervision.status(describe())


@dataclass(frozen=True, slots=True, kw_only=True)
class LaneParts:
    """What the threads of lanes are made of."""

    servers: Servers
    parts: HandOverParts
    runs: Runs
    """Of the endpoints whose rows are handed over."""
    all_runs: Runs
    context: WorkerContext
    guard: ClaimGuard
    runtime: RuntimeSettings
    pacer: Pacer
    holding: Holding
    claimable: ClaimableCache
    limit: QuarantineLimit
    instruments: Instruments

    def new_lane(self, name: str) -> LaneThread:
        """Return a thread that works on one lane."""
        return LaneThread(name, self.context, self.guard, self.parts.links, self.new_setup)

    def new_adopter(self) -> Adopter:
        """Return what adopts lanes of dead owners."""
        return Adopter(self.context, self.guard, self.parts.links, self.new_setup)

    def new_setup(self, ends: ExitStack) -> LaneSetup:
        """Return what one thread of a lane hands over with; *ends* ends its pools."""
        servers, parts, given = self.servers, self.parts, self.servers.settings.handover
        ledger = servers.ledger
        claimer = Claimer(
            claims=servers.backend.claims,
            clock=ledger.clock,
            selection=self.runtime.selection,
            endpoints=self.runs,
            mode=given.mode,
            max_bytes=given.batch_bytes,
            claimable=self.claimable,
            pacer=self.pacer,
            guard=self.guard,
            holding=self.holding,
            fault=servers.fault,
        )
        others = OtherRuns(
            own=frozenset(run for _, run in self.all_runs),
            place=servers.broker.place,
            runs=ledger.runs,
            terms_now=parts.terms_of,
            new=parts.new_hand_over,
        )
        return LaneSetup(
            batches=ledger.batches,
            clock=ledger.clock,
            claimer=claimer,
            preparer=parts.new_preparer(self.holding),
            direct=parts.new_direct(self.holding),
            claiming=one_by_one(ends, "claiming"),
            preparing=one_by_one(ends, "preparing"),
            pace=self.runtime.pace,
            pacer=self.pacer,
            quarantine_limit=self.limit,
            receipt_deadline_s=given.receipt_deadline.total_seconds(),
            others=others,
            fault=servers.fault,
            handed_over=self._count,
            paced=self.instruments.paced,
        )

    def _count(self, batch: Batch, rows: int, seconds: float) -> None:
        self.instruments.batch_settled(str(batch.endpoint), str(batch.mode), rows, seconds)


def _system(servers: Servers) -> Mapping[str, str]:
    """Return which system it is, for people; no secrets."""
    database, broker = servers.ledger.engine.url, servers.broker.connection.address
    place = f" at {database.host}" if database.host else ""
    return {
        "database": f"{database.database or database.get_backend_name()}{place}",
        "broker": f"{broker.host_port}, virtual host {broker.vhost}",
        "ledger": servers.ledger.id,
    }


def _web_plan(settings: Settings) -> WebPlan:
    given = settings.web
    return WebPlan(
        socket=own_socket(os.environ) if given.socket == AUTO else given.socket,
        needs_socket=given.socket != AUTO,
        listen=given.address,
        token=None if given.token is None else given.token.get_secret_value(),
        open_to_local=given.open_to_local,
    )
