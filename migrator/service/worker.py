"""What lanes and dispatchers have in common: threads that run until told to stop, or crash."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field

from migrator.errors import Interrupted, LedgerAdopted, LedgerBehind, MigratorError
from migrator.ledger.lease_keeper import HeldLease
from migrator.nservicebus.timeouts import Lane

_log = logging.getLogger(__name__)


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
    reason: MigratorError | None = None
    """Why everything is to end although nobody asked; None: somebody did."""

    def check(self) -> None:
        """Return unless everything is to stop at once.

        Raises:
            Interrupted: It is.
        """
        if self.at_once.is_set():
            raise Interrupted("asked twice to stop")


def one_by_one(pools: ExitStack, name: str) -> Executor:
    """Return a thread that does what it is given in order, until *pools* end."""
    return pools.enter_context(ThreadPoolExecutor(1, thread_name_prefix=name))


class WorkerThread:
    """One thread of the service; whatever it does not foresee asks all others to stop.

    So does a ledger that was adopted, as its id names the queues of them all, or that went back.
    """

    def __init__(
        self, name: str, *, stop: Stop, crash_action: str, facts: Mapping[str, str]
    ) -> None:
        """Prepare a thread called *name*; a crash is logged as *crash_action*, with *facts*."""
        self.name = name
        self.failure: MigratorError | None = None
        """Why the thread ended early; None when it ended well."""
        self.crash: BaseException | None = None
        self.trouble: str | None = None
        """What keeps it from its work at present; it is tried again."""
        self.wake = threading.Event()
        """Set by the schedule: look for work now."""
        self.is_resting = False
        """Its last turn found nothing to do, whether or not something has to wait."""
        self._stop = stop
        self._retired = threading.Event()
        self._beat_s = 0.0
        self._crash_facts = {"action": crash_action, **facts}
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

    def check(self, held: HeldLease) -> None:
        """Give a sign of life, and return unless the work in a lane is to stop at once.

        Raises:
            Interrupted: The process is to end between two steps.
            LeaseLost: The lane is no longer ours.
        """
        self.beat()
        self._stop.check()
        held.check()

    @property
    def silent_s(self) -> float:
        """Since when the loop did not go on, in seconds; 0 before it starts and after its end."""
        return time.monotonic() - self._beat_s if self._thread.is_alive() else 0.0

    @property
    def ended_well(self) -> bool:
        """Whether there is nothing to be said about its end."""
        return self.failure is None and self.crash is None

    @property
    def blocked_reason(self) -> str | None:
        """Why the broker makes it wait (memory or disk alarm), or None; asked by other threads."""
        return None

    def join(self, timeout_s: float) -> bool:
        """Wait for the thread's end; return whether it ended."""
        self._thread.join(timeout_s)
        return not self._thread.is_alive()

    def _run(self) -> None:
        """Work until there is nothing left, or until told to stop."""
        raise NotImplementedError

    def _main(self) -> None:
        try:
            self._run()
        except LedgerBehind as exc:
            self._stop.at_once.set()
            self._end_all(
                "the database lacks what was committed; the process ends", "ledger_behind", exc
            )
        except LedgerAdopted as exc:
            self._end_all(
                "the ledger was adopted meanwhile; the process ends", "ledger_adopted", exc
            )
        except BaseException as exc:
            self.crash = exc
            _log.critical("a bug ended a thread", extra=self._crash_facts, exc_info=True)
            self._stop.draining.set()

    def _end_all(self, text: str, action: str, exc: MigratorError) -> None:
        self.failure = exc
        _log.error(text, extra={"action": action, "error": str(exc)})
        self._stop.draining.set()


NewWorker = Callable[[str, ExitStack], WorkerThread]
"""Makes a lane's thread of that name, not started; what it needs is closed by the stack."""


class WorkerPool:
    """The workers: as many lanes as wanted, and a fixed number of others."""

    def __init__(
        self,
        others: Sequence[WorkerThread] = (),
        *,
        new_lane: NewWorker | None = None,
        lanes: int = 0,
    ) -> None:
        """Prepare; nothing is started. Without *new_lane* there is nothing to hand over."""
        self._lock = threading.Lock()
        self._new_lane = new_lane
        self._others = list(others)
        self._lanes: list[tuple[WorkerThread, ExitStack]] = []
        self._made = 0
        self._is_started = False
        self._is_over = False
        if new_lane is not None:
            for _ in range(lanes):
                self._add(new_lane)

    def __iter__(self) -> Iterator[WorkerThread]:
        """Go through the workers of this moment."""
        with self._lock:
            return iter([*(lane for lane, _ in self._lanes), *self._others])

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

    def lanes_have_ended(self) -> bool:
        """Return whether no lane's thread runs any more; false before they are started."""
        with self._lock:
            return self._is_started and all(lane.join(0) for lane, _ in self._lanes)

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
            self._forget_those_that_left()
            staying = self._staying()
            for lane in staying[wanted:]:
                lane.retire()
            for _ in range(wanted - len(staying)):
                lane = self._add(self._new_lane)
                if self._is_started:
                    lane.start()
            return True

    def wake(self) -> None:
        """Have idle workers look for work."""
        for worker in self:
            worker.wake.set()

    def has_ended(self, wait_s: float) -> bool:
        """Wait for *wait_s*; return whether all have ended. Then nobody joins any more."""
        workers = list(self)
        share_s = wait_s / max(len(workers), 1)
        if not all([worker.join(share_s) for worker in workers]):
            return False
        with self._lock:
            self._is_over = all(lane.join(0) for lane, _ in self._lanes)
            return self._is_over

    def close(self) -> None:
        """Close what lanes needed; they have ended, or nobody waits for them."""
        with self._lock:
            self._is_over = True
            for _, ends in self._lanes:
                ends.close()

    def _add(self, new_lane: NewWorker) -> WorkerThread:
        ends = ExitStack()
        lane = new_lane(f"lane-worker-{self._made}", ends)
        self._made += 1
        self._lanes.append((lane, ends))
        return lane

    def _staying(self) -> list[WorkerThread]:
        return [lane for lane, _ in self._lanes if not lane.is_retired]

    def _forget_those_that_left(self) -> None:
        """Forget lanes that ended as told; those that ended otherwise are still spoken of."""
        for lane, ends in list(self._lanes):
            if lane.is_retired and self._is_started and lane.join(0) and lane.ended_well:
                ends.close()
                self._lanes.remove((lane, ends))
