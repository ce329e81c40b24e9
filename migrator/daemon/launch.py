"""From an assembled application to a running service."""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from datetime import timedelta

from migrator.config.models import OnCritical
from migrator.daemon.dispatchers import DispatcherThread, Outage
from migrator.daemon.lanes import LaneThread, OpenedLane
from migrator.daemon.leases import HeldLease, LeaseKeeper
from migrator.daemon.notify import ServiceManager
from migrator.daemon.owner import current_owner, is_surely_dead
from migrator.daemon.schedule import schedule
from migrator.daemon.service import Service
from migrator.daemon.supervision import Supervision
from migrator.daemon.worker import Stop, WorkerThread
from migrator.domain.timeouts import RunId
from migrator.engine.dispatcher.parts import DispatcherParts
from migrator.engine.dispatcher.session import DispatcherSession
from migrator.engine.handover.direct import DirectHandOver
from migrator.engine.lane import LaneParts, LaneSession
from migrator.errors import ExitCode
from migrator.ports import Link, SatelliteLink, StoreEndpoint, T
from migrator.wiring import App, DispatcherPlan, DispatcherWiring

_SWITCH_S = 0.001
"""A lane that talks to the broker must not wait 5 ms, Python's default, whenever the thread that
converts the next batch is busy; measured in benchmarks/handover.py."""
_GC_THRESHOLDS = (20_000, 20, 20)
"""Rows make no cycles; looking for some every 700 values is in vain."""
PATIENCE_S = 90.0
"""``--once`` gives up after failing for so long without progress; a daemon never does."""


def run(
    app: App,
    endpoints: Sequence[StoreEndpoint],
    *,
    once: bool,
    watch: Callable[[], None],
    describe: Callable[[], str],
) -> ExitCode:
    """Migrate *endpoints* until done (*once*) or told to stop by a signal; return the exit code.

    *watch* is called a few times a second, by the main thread; *describe* says in a line how far
    everything is, and may take its time.
    Preflight is the caller's business. Whatever happens here, the ledger has the truth, and
    calling this again goes on.
    """
    _tune_interpreter()
    runs = [(endpoint, app.runs.begin(endpoint, app.run_options)) for endpoint in endpoints]
    stop = Stop()
    keeper = LeaseKeeper(app.leases, owner=current_owner(), duration=app.plan.lease)
    service = Service(
        runs=app.runs,
        outstanding=app.books,
        keeper=keeper,
        stop=stop,
        once=once,
    )
    with ExitStack() as pools:
        workers: list[WorkerThread] = [
            *_lanes(app, runs, keeper, stop, pools, once=once),
            *_dispatchers(app, runs, keeper, stop, pools, once=once),
        ]
        supervision = Supervision(ServiceManager(), workers, stop)
        jobs = schedule(app, workers, supervision, describe=describe, ends=pools, once=once)
        return service.run(runs, workers, jobs=jobs, supervision=supervision, watch=watch)


Runs = Sequence[tuple[StoreEndpoint, RunId]]


def _lanes(
    app: App, runs: Runs, keeper: LeaseKeeper, stop: Stop, pools: ExitStack, *, once: bool
) -> Sequence[LaneThread]:
    """Return the threads that move rows into the native delays; none when no endpoint wants it."""
    moved = DispatcherWiring(app).moved([endpoint for endpoint, _ in runs])
    if not moved:
        return ()
    runs = [(endpoint, run) for endpoint, run in runs if endpoint in moved]
    return [
        LaneThread(
            f"lane-worker-{number}",
            leases=app.leases,
            keeper=keeper,
            open_lane=_LaneOpener(app, runs, pools, stop),
            is_surely_dead=is_surely_dead,
            stop=stop,
            once=once,
            patience_s=PATIENCE_S,
            sources=[endpoint.source for endpoint in moved],
        )
        for number in range(app.plan.lanes)
    ]


def _dispatchers(
    app: App, runs: Runs, keeper: LeaseKeeper, stop: Stop, pools: ExitStack, *, once: bool
) -> Sequence[DispatcherThread]:
    """Return one thread for each endpoint whose timeouts we send ourselves."""
    wiring, given = DispatcherWiring(app), app.settings.dispatch
    run_of = {endpoint.source: run for endpoint, run in runs}
    return [
        DispatcherThread(
            plan.endpoint.name,
            find_lane=lambda plan=plan: wiring.dispatching.lane(plan.endpoint),  # type: ignore[misc]  # mypy cannot type a lambda's default
            leases=app.leases,
            keeper=keeper,
            open_session=_DispatcherOpener(wiring, plan, run_of[plan.endpoint.source], pools, stop),
            is_surely_dead=is_surely_dead,
            outage=Outage(
                critical_after=given.critical_after,
                exits=given.on_critical is OnCritical.EXIT,
                patience=timedelta(seconds=PATIENCE_S),
            ),
            stop=stop,
            once=once,
            finishes_only=plan.finishes_only,
        )
        for plan in wiring.plans([endpoint for endpoint, _ in runs])
    ]


def _tune_interpreter() -> None:
    """Fit the interpreter to a few threads and many short-lived values (a tenth of the speed)."""
    sys.setswitchinterval(_SWITCH_S)
    gc.freeze()
    gc.set_threshold(*_GC_THRESHOLDS)


class _OneByOne:
    """``ports.Background`` by one thread, which does what it is given in order."""

    def __init__(self, pools: ExitStack, name: str) -> None:
        self._pool = pools.enter_context(ThreadPoolExecutor(1, thread_name_prefix=name))

    def start(self, work: Callable[[], T]) -> Future[T]:
        return self._pool.submit(work)


class _LaneOpener:
    """Opens sessions for one lane thread; what it keeps outlives each of them."""

    def __init__(
        self,
        app: App,
        runs: Runs,
        pools: ExitStack,
        stop: Stop,
    ) -> None:
        self._app = app
        self._stop = stop
        self._parts = LaneParts(
            batches=app.batches,
            clock=app.clock,
            claimer=app.new_claimer(runs),
            preparer=app.new_preparer(),
            direct=DirectHandOver(
                batches=app.batches,
                clock=app.clock,
                version=app.plan.delays,
                fault=app.fault,
                guard=stop.check,
            ),
            claiming=_OneByOne(pools, "claiming"),
            preparing=_OneByOne(pools, "preparing"),
            # a second's worth at most, so that a slow rate does not make a stop slow
            batch_rows=min(app.plan.batch_rows, app.plan.rate_limit_per_s or app.plan.batch_rows),
            rate_limit_per_s=app.plan.rate_limit_per_s,
        )

    def __call__(self, held: HeldLease) -> OpenedLane:
        def guard() -> None:
            held.beat()
            self._stop.check()
            held.check()

        link = self._app.open_link(held.lease, held.beat)
        self._parts.preparer.limit_frames(link.frame_max_bytes)
        session = LaneSession(
            self._parts,
            lease=held.lease,
            link=link,
            open_staged=lambda: self._app.open_staged(link, held.lease, guard),
            guard=guard,
        )
        return _Opened(session, link)


class _Opened:
    """A session and its link."""

    def __init__(self, session: LaneSession, link: Link) -> None:
        self.session = session
        self._link = link

    def doing(self) -> str:
        """Return what the session does, or why the broker makes it wait."""
        blocked = self._link.blocked_reason
        return f"throttled: {blocked}" if blocked else self.session.doing

    def close(self) -> None:
        """Close the link first: whatever the background still does, nothing more is sent."""
        self._link.close()
        self.session.close()


class _DispatcherOpener:
    """Opens sessions for one dispatcher; what it keeps outlives each of them."""

    def __init__(
        self,
        wiring: DispatcherWiring,
        plan: DispatcherPlan,
        run: RunId,
        pools: ExitStack,
        stop: Stop,
    ) -> None:
        self._wiring = wiring
        self._plan = plan
        self._stop = stop
        self._parts: DispatcherParts = wiring.parts(
            plan, run, storing=_OneByOne(pools, "storing"), claiming=_OneByOne(pools, "dispatching")
        )

    def __call__(self, held: HeldLease) -> _OpenedDispatcher:
        def guard() -> None:
            held.beat()
            self._stop.check()
            held.check()

        plan, there = self._plan, self._wiring.existing_queues(self._plan)
        link = self._wiring.open_link(self._plan, held.lease, guard)
        try:
            session = DispatcherSession(
                self._parts,
                lease=held.lease,
                link=link,
                control_queue=plan.control_queue if plan.control_queue in there else None,
                guard=guard,
                is_queue_missing=plan.timeouts_queue not in {None, *there},
            )
        except BaseException:
            link.close()
            raise
        return _OpenedDispatcher(session, link)


class _OpenedDispatcher:
    """A dispatcher's session and its link."""

    def __init__(self, session: DispatcherSession, link: SatelliteLink) -> None:
        self.session = session
        self._link = link

    def close(self, *, at_once: bool) -> None:
        """Close the link first: what the background still does, nobody acknowledges."""
        self._link.close(at_once=at_once)
        self.session.close()
