"""How a worker that holds a lease gets its session and its link; what they keep outlives both."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import ExitStack
from functools import partial
from typing import Generic

from migrator.app import App
from migrator.handover.direct import DirectHandOver
from migrator.handover.holding import Holding
from migrator.handover.lane import HandedOver, LaneParts, LaneSession
from migrator.handover.ports import Link
from migrator.ledger.lease_keeper import HeldLease
from migrator.ledger.work import StoreEndpoint, T
from migrator.nservicebus.timeouts import EndpointName, RunId
from migrator.service.due_times import DueTimeGuard
from migrator.service.gate import Gate
from migrator.service.knobs import Knobs
from migrator.service.lanes import OpenedLane
from migrator.service.worker import Stop
from migrator.telemetry.ports import Tracer

Runs = Sequence[tuple[StoreEndpoint, RunId]]


class OneByOne:
    """``ports.Background`` by one thread, which does what it is given in order."""

    def __init__(self, pools: ExitStack, name: str) -> None:
        """Make a thread that *pools* end."""
        self._pool = pools.enter_context(ThreadPoolExecutor(1, thread_name_prefix=name))

    def start(self, work: Callable[[], T]) -> _Work[T]:
        """Begin *work* behind what was begun before."""
        return _Work(self._pool.submit(work))


class _Work(Generic[T]):
    """``ports.Pending`` by a future."""

    def __init__(self, future: Future[T]) -> None:
        self._future = future

    def done(self) -> bool:
        return self._future.done()

    def wait(self, timeout_s: float) -> bool:
        return bool(wait([self._future], timeout_s).done)

    def result(self) -> T:
        return self._future.result()


class LaneOpener:
    """Opens sessions for one lane thread; what it keeps outlives each of them."""

    def __init__(
        self,
        app: App,
        runs: Runs,
        *,
        pools: ExitStack,
        stop: Stop,
        gate: Gate,
        holding: Holding,
        knobs: Knobs,
        settled: HandedOver,
        tracer: Tracer,
        due_times: DueTimeGuard,
    ) -> None:
        """Hand over rows of the endpoints in *runs*, as *gate*, *holding* and *knobs* have it."""
        self._app = app
        self._stop = stop
        self._gate = gate
        self._names = [endpoint.name for endpoint, _ in runs]
        self._parts = LaneParts(
            batches=app.batches,
            clock=app.clock,
            claimer=app.new_claimer(
                runs,
                selection=knobs.selection,
                is_held=due_times.holds,
                holding=holding,
            ),
            preparer=app.new_preparer(holding),
            direct=DirectHandOver(
                batches=app.batches,
                holding=holding,
                clock=app.clock,
                fault=app.fault,
            ),
            claiming=OneByOne(pools, "claiming"),
            preparing=OneByOne(pools, "preparing"),
            pace=knobs.pace,
            settled=settled,
            tracer=tracer,
        )

    def __call__(self, held: HeldLease) -> OpenedLane:
        """Connect for the lane of *held*."""

        def guard() -> None:
            held.beat()
            self._stop.check()
            held.check()

        link = self._app.open_link(held.lease, guard)
        self._parts.preparer.limit_frames(link.frame_max_bytes)
        session = LaneSession(
            self._parts,
            lease=held.lease,
            link=link,
            open_staged=partial(self._app.open_staged, link, held.lease),
            guard=guard,
            may_claim=lambda: not (self._stop.draining.is_set() or self._gate.hold_for(None)),
        )
        node = self._app.node_of(held.lease.lane)
        return _Opened(session, link, self._gate, self._names, node)


class _Opened:
    """A session and its link."""

    def __init__(
        self,
        session: LaneSession,
        link: Link,
        gate: Gate,
        names: Sequence[EndpointName],
        node: str | None,
    ) -> None:
        self.session = session
        self._link = link
        self._gate = gate
        self._names = names
        self._at = f" (at {node})" if node else ""

    @property
    def blocked_reason(self) -> str | None:
        """Why the broker makes us wait, or None."""
        return self._link.blocked_reason

    def doing(self) -> str:
        """Return what the session does, or why it waits, and at which of several nodes."""
        if blocked := self._link.blocked_reason:
            return f"throttled: {blocked}{self._at}"
        doing = self.session.doing
        hold = self._gate.reason(self._names) if doing == "idle" else None
        return (f"held: {hold.text}" if hold else doing) + self._at

    def close(self) -> None:
        """Close the link first: whatever the background still does, nothing more is sent."""
        self._link.close()
        self.session.close()
