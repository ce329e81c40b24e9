"""What lanes and dispatchers have in common: threads that run until told to stop, or crash.

A ``Worker`` is such a thread, and ``run_leased`` is how one works that needs a lease; the
``WorkerPool`` has all of them. Whether to stop is asked of ``Stop``.
"""

from __future__ import annotations

import logging
import math
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from typing import ClassVar, Final, Protocol

from migrator.errors import Interrupted, LeaseLost, LedgerAdopted, LedgerBehind, MigratorError
from migrator.ledger.lease_keeper import LeaseKeeper, OwnedLease, is_surely_dead
from migrator.ledger.leases import SqlLeases
from migrator.ledger.work import Backoff
from migrator.nservicebus.timeouts import BatchId, EndpointName, Lane

_log = logging.getLogger(__name__)

_FIRST_BACKOFF_S: Final = 0.5
_ANSWER_S: Final = 5.0
"""Asked to stop, it waits so long for an answer of the broker; what has none is in the ledger."""
_DRAIN_S: Final = 25.0
"""Asked to stop, it goes on for no longer, whatever is answered; systemd waits for 60 s."""


@dataclass(slots=True)
class Stop:
    """How the whole process is asked to end."""

    draining: threading.Event = field(default_factory=threading.Event)
    """Finish what is claimed, claim nothing new."""
    at_once: threading.Event = field(default_factory=threading.Event)
    """Stop between two steps; recovery does the rest."""
    doubtful: set[Lane] = field(default_factory=set)
    """Lanes in which nobody can tell what is where, or that cannot be finished; they stay ours,
    and untouched, until the process ends."""
    stuck: dict[Lane, MigratorError] = field(default_factory=dict)
    """Lanes with a half-done batch that waits for a person, and why; the rest of them goes on, but
    those of dead owners are not looked into again."""
    elsewhere: dict[BatchId, MigratorError] = field(default_factory=dict)
    """Batches of our endpoints that go to another broker, and what can be done about each."""
    left_locked: Mapping[EndpointName, int] = field(default_factory=dict)
    """Rows that others have locked, by endpoint, as a run to the end saw them last."""
    reason: MigratorError | None = None
    """Why everything is to end although nobody asked; None: somebody did."""
    lock: threading.Lock = field(default_factory=threading.Lock)
    """Held to give the *reason*, of which only the first counts."""
    drains_since_s: float = math.inf
    """When a worker first saw that it is to end; monotonic."""

    def check(self, *, silent_s: float = 0.0) -> None:
        """Return unless everything is to stop at once: when told so, or when draining takes long.

        *silent_s*: for how long the broker has answered nothing.

        Raises:
            Interrupted: It is.
        """
        if self.at_once.is_set():
            raise Interrupted("asked twice to stop")
        if not self.draining.is_set():
            return
        self.drains_since_s = min(self.drains_since_s, time.monotonic())
        drains_s = time.monotonic() - self.drains_since_s
        if drains_s > _DRAIN_S:
            raise Interrupted(f"asked to stop {_DRAIN_S:g} s ago")
        if min(drains_s, silent_s) > _ANSWER_S:
            raise Interrupted(f"asked to stop, and no answer of the broker for {_ANSWER_S:g} s")


def one_by_one(pools: ExitStack, name: str) -> Executor:
    """Return a thread that does what it is given in order, until *pools* end."""
    return pools.enter_context(ThreadPoolExecutor(1, thread_name_prefix=name))


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerContext:
    """What the workers of one process share."""

    leases: SqlLeases
    keeper: LeaseKeeper
    stop: Stop
    once: bool
    """End when there is nothing to do."""
    patience_s: float = 90.0
    """With *once*: give up after failing for so long without progress; a daemon never does."""
    is_surely_dead: Callable[[str], bool] = is_surely_dead
    """Whether an owner's process is provably gone."""


class BrokerLink(Protocol):
    """How a link's wait for the broker looks from outside."""

    @property
    def blocked_reason(self) -> str | None:
        """Why the broker makes us wait (memory or disk alarm), or None."""

    @property
    def silent_s(self) -> float:
        """For how many seconds the broker has answered nothing."""


class Worker:
    """One thread. Whatever it does not foresee asks all others to stop.

    So does a ledger that was adopted, as its id names the queues of them all, or that went back.
    """

    crash_action: ClassVar[str]
    """The log action of a bug that ends the thread."""
    log_facts: Mapping[str, str] = {}
    """What the log says of it besides."""
    longest_backoff_s: ClassVar[float]

    def __init__(self, name: str, context: WorkerContext) -> None:
        self.name = name
        self.ends = ExitStack()
        """Closes what the thread needs, in the thread, at its end."""
        self.failure: MigratorError | None = None
        """Why the thread ended early; None when it ended well."""
        self.crash: BaseException | None = None
        self.trouble: str | None = None
        """What keeps it from its work at present; it is tried again."""
        self.wake = threading.Event()
        """Set when somebody acted: look for work now."""
        self.is_resting = False
        """Its last turn found nothing to do, whether or not something has to wait."""
        self.link: BrokerLink | None = None
        """What it works over at present."""
        self._context = context
        self._leases = context.leases
        self._keeper = context.keeper
        self._stop = context.stop
        self._once = context.once
        self.backoff = Backoff(first_s=_FIRST_BACKOFF_S, most_s=self.longest_backoff_s)
        """How long to wait before the next link; whoever got somewhere ends it."""
        self._retired = threading.Event()
        self._beat_s = 0.0
        self._thread = threading.Thread(target=self._main, name=name, daemon=True)

    def start(self) -> None:
        """Let the thread run."""
        self.beat()
        self._thread.start()

    def retire(self) -> None:
        """Have this thread alone finish what it has claimed, and end."""
        self._retired.set()
        self.wake.set()

    @property
    def is_retired(self) -> bool:
        """Whether it is told to end while others go on."""
        return self._retired.is_set()

    @property
    def is_ending(self) -> bool:
        """Whether to finish what is claimed, and end."""
        return self._stop.draining.is_set() or self._retired.is_set()

    def beat(self) -> None:
        """Note that the thread's loop goes on; waiting for work is going on, too."""
        self._beat_s = time.monotonic()

    def check(self, held: OwnedLease) -> None:
        """Give a sign of life, and return unless the work in a lane is to stop at once.

        Raises:
            Interrupted: The process is to end between two steps.
            LeaseLost: The lane is no longer ours.
        """
        self.beat()
        link = self.link
        self._stop.check(silent_s=0.0 if link is None else link.silent_s)
        held.check()

    def pause(self, seconds: float) -> None:
        """Wait, but not beyond the moment when the process is to end."""
        self.beat()
        self._stop.draining.wait(seconds)

    def give_back(self, held: OwnedLease | None) -> None:
        """Give the lane back; a doubtful one is kept, or another process would work in it."""
        if held is not None and held.lease.lane not in self._stop.doubtful:
            self._keeper.release(held)

    @property
    def silent_s(self) -> float:
        """Since when the loop did not go on, in seconds; 0 before it starts and after its end."""
        return time.monotonic() - self._beat_s if self._thread.is_alive() else 0.0

    @property
    def has_left(self) -> bool:
        """Whether it ended as told, and there is nothing to be said about it."""
        return self.is_retired and self.join(0) and not (self.failure or self.crash)

    @property
    def blocked_reason(self) -> str | None:
        """Why the broker makes it wait (memory or disk alarm), or None; asked by other threads."""
        link = self.link
        return None if link is None else link.blocked_reason

    def join(self, timeout_s: float) -> bool:
        """Wait for the thread's end; return whether it ended."""
        self._thread.join(timeout_s)
        return not self._thread.is_alive()

    def _main(self) -> None:
        try:
            with self.ends:
                self._run()
        except Interrupted as exc:
            _log.info(
                "work was interrupted; what has no answer is in the ledger, and the next start "
                "goes on with it",
                extra={"action": "work_interrupted", "worker": self.name, "error": str(exc)},
            )
        except LedgerBehind as exc:
            self._stop.at_once.set()
            self._end_all(
                "the database lacks what this process committed; the process ends",
                "ledger_behind",
                exc,
            )
        except LedgerAdopted as exc:
            self._end_all(
                "the ledger was adopted meanwhile; the process ends", "ledger_adopted", exc
            )
        except BaseException as exc:
            self.crash = exc
            facts = {"action": self.crash_action, **self.log_facts}
            _log.critical("a bug ended a thread", extra=facts, exc_info=True)
            self._stop.draining.set()

    def _end_all(self, text: str, action: str, exc: MigratorError) -> None:
        self.failure = exc
        _log.error(text, extra={"action": action, "error": str(exc)})
        self._stop.draining.set()

    def _run(self) -> None:
        """Do the work of the thread, to its end."""
        raise NotImplementedError


def run_leased(
    worker: Worker,
    acquire: Callable[[], OwnedLease | None],
    session: Callable[[OwnedLease], None],
    *,
    tolerates: Callable[[MigratorError], bool],
    log_lost: Callable[[LeaseLost], None],
) -> None:
    """Take a lease and work, over one link after the other, until all is done or *worker* ends.

    The lease is kept while a link is down: whoever took it over would do again what this process
    knows to be done.

    Args:
        worker: Whose thread this is.
        acquire: Waits for a lease; None when there is nothing to do.
        session: Opens a link, and works over it until all is done or the worker ends.
        tolerates: Logs what broke; False to give up.
        log_lost: Logs that another process has the lease; the next one is waited for.
    """
    held: OwnedLease | None = None
    try:
        while not worker.is_ending:
            worker.beat()
            try:
                held = held or acquire()
                if held is None:
                    return
                held.check()
                session(held)
            except (Interrupted, LedgerAdopted):
                raise  # trying again changes nothing
            except LeaseLost as exc:
                worker.give_back(held)
                held = None
                log_lost(exc)
                worker.pause(_FIRST_BACKOFF_S)
            except MigratorError as exc:
                if held is not None:
                    held.doing = partial(str, f"degraded: {exc}")
                if not tolerates(exc):
                    return
                worker.pause(worker.backoff.failed())
            else:
                return
    finally:
        worker.give_back(held)


class WorkerPool:
    """The workers: as many lanes as wanted, and a fixed number of others."""

    def __init__(
        self,
        others: Sequence[Worker] = (),
        *,
        new_lane: Callable[[str], Worker] | None = None,
        lanes: int = 0,
    ) -> None:
        self._lock = threading.Lock()
        self._new_lane = new_lane
        self._others = list(others)
        self._lanes: list[Worker] = []
        self._made = 0
        self._is_started = False
        self._is_over = False
        self.set_lanes(lanes)

    def __iter__(self) -> Iterator[Worker]:
        """Go through the workers of this moment."""
        with self._lock:
            return iter([*self._lanes, *self._others])

    @property
    def moves(self) -> bool:
        """Whether any endpoint's rows are handed over here."""
        return self._new_lane is not None

    @property
    def lanes(self) -> int:
        """How many lanes there are, without those that are about to leave."""
        with self._lock:
            return len(self._staying())

    @property
    def is_resting(self) -> bool:
        """Whether there are lanes, and none of them has anything to do now."""
        with self._lock:
            staying = self._staying()
            return bool(staying) and all(lane.is_resting for lane in staying)

    def blocked_reason(self) -> str | None:
        """Return the alarm of the broker that the connection of any of them heard of, or None."""
        return next(filter(None, (worker.blocked_reason for worker in self)), None)

    def lanes_have_ended(self) -> bool:
        """Return whether no lane's thread runs any more; false before they are started."""
        with self._lock:
            return self._is_started and all(lane.join(0) for lane in self._lanes)

    def start(self) -> None:
        """Start all of them."""
        for worker in self:
            worker.start()
        self._is_started = True

    def set_lanes(self, wanted: int) -> bool:
        """Have so many lanes: the latest leave first; False: it is over, or nothing is moved."""
        with self._lock:
            if self._is_over or self._new_lane is None:
                return False
            # those that ended otherwise than as told are still spoken of
            if self._is_started:
                self._lanes = [lane for lane in self._lanes if not lane.has_left]
            staying = self._staying()
            for lane in staying[wanted:]:
                lane.retire()
            for _ in range(wanted - len(staying)):
                lane = self._new_lane(f"lane-worker-{self._made}")
                self._made += 1
                self._lanes.append(lane)
                if self._is_started:
                    lane.start()
            return True

    def wake(self) -> None:
        """Have idle workers look for work."""
        for worker in self:
            worker.wake.set()

    def await_end(self, wait_s: float) -> bool:
        """Wait for *wait_s*; return whether all have ended. Then nobody joins any more."""
        workers = list(self)
        at_work = next((worker for worker in workers if not worker.join(0)), None)
        if at_work is not None:
            at_work.join(wait_s)
        if not all(worker.join(0) for worker in workers):
            return False
        with self._lock:
            self._is_over = all(lane.join(0) for lane in self._lanes)
            return self._is_over

    def _staying(self) -> list[Worker]:
        return [lane for lane in self._lanes if not lane.is_retired]
