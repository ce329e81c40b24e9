"""Every worker of one process; lanes may join and leave while it runs."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack

from migrator.service.lanes import LaneThread
from migrator.service.worker import WorkerThread

NewLane = Callable[[str, ExitStack], LaneThread]
"""Makes a lane's thread of that name, not started; what it needs is closed by the stack."""


class Crew:
    """The workers: as many lanes as wanted, and a fixed number of others."""

    def __init__(
        self,
        others: Sequence[WorkerThread] = (),
        *,
        new_lane: NewLane | None = None,
        lanes: int = 0,
    ) -> None:
        """Prepare; nothing is started. Without *new_lane* there is nothing to hand over."""
        self._lock = threading.Lock()
        self._new_lane = new_lane
        self._others = list(others)
        self._lanes: list[tuple[LaneThread, ExitStack]] = []
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

    def _add(self, new_lane: NewLane) -> LaneThread:
        ends = ExitStack()
        lane = new_lane(f"lane-worker-{self._made}", ends)
        self._made += 1
        self._lanes.append((lane, ends))
        return lane

    def _staying(self) -> list[LaneThread]:
        return [lane for lane, _ in self._lanes if not lane.is_retired]

    def _forget_those_that_left(self) -> None:
        """Forget lanes that ended as told; those that ended otherwise are still spoken of."""
        for lane, ends in list(self._lanes):
            if lane.is_retired and self._is_started and lane.join(0) and lane.ended_well:
                ends.close()
                self._lanes.remove((lane, ends))
