"""Which lane to work on next: one that a dead owner left, or the first that is free."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Sequence
from typing import Final

from migrator.errors import Interrupted
from migrator.ledger.exclusive import evict_dead
from migrator.ledger.lease_keeper import HeldLease, LeaseKeeper
from migrator.ledger.leases import SqlLeases
from migrator.nservicebus.timeouts import RECALL_LANE, SCAN_LANE, Lane
from migrator.service.worker import Stop

_log = logging.getLogger(__name__)

_LOOK_AGAIN_S: Final = 2.0


class LaneAllocator:
    """The lanes that one thread may take; all of its waiting is interrupted by the stop."""

    def __init__(
        self,
        leases: SqlLeases,
        keeper: LeaseKeeper,
        *,
        is_surely_dead: Callable[[str], bool],
        stop: Stop,
        beat: Callable[[], None],
        is_ending: Callable[[], bool],
    ) -> None:
        """Look in *leases*, take by *keeper*.

        Args:
            leases: To find lanes and their dead owners.
            keeper: Holds the leases that are taken.
            is_surely_dead: Whether an owner's process is provably gone.
            stop: Shared by all threads.
            beat: A sign of life, called again and again while waiting.
            is_ending: Whether the thread is to end.
        """
        self._leases = leases
        self._keeper = keeper
        self._is_surely_dead = is_surely_dead
        self._stop = stop
        self._beat = beat
        self._is_ending = is_ending

    def take_any(self) -> HeldLease:
        """Take an orphaned lane, else the first that is free, waiting for the end of a recall.

        Raises:
            Interrupted: The thread is to end.
            LedgerAdopted: See ``Leases.acquire``.
        """
        return self._first_of(self.orphans()) or self._first_free()

    def take(self, lane: Lane) -> HeldLease | None:
        """Take *lane*; None: somebody has it."""
        return self._keeper.acquire(lane, doing=lambda: "working")

    def adopt(self, lane: Lane) -> HeldLease | None:
        """Take *lane* only to finish what is in it; None: somebody has it."""
        return self._keeper.acquire(lane, doing=lambda: "working", is_adopted=True)

    def orphans(self) -> Sequence[Lane]:
        """Return lanes with open batches and no living owner that we may finish, ascending."""
        evict_dead(self._leases, self._is_surely_dead)
        left = self.not_ours_to_finish
        return [lane for lane in self._leases.orphaned_lanes() if lane not in left]

    @property
    def not_ours_to_finish(self) -> set[Lane]:
        """Lanes in which only a person can go on."""
        return self._stop.doubtful | self._stop.stuck.keys()

    def of_others(self, sources: Collection[str]) -> set[Lane]:
        """Return lanes with open batches of *sources* that no lane's thread of ours works on.

        Their owner either finishes them or its lease ends and they are orphans; until then they
        are not done. One that is adopted is not, either: its link may be lost before it is.
        """
        busy = set(self._leases.lanes_with_work(sources))
        return busy - self._keeper.working_lanes() - self.not_ours_to_finish

    def _first_free(self) -> HeldLease:
        while True:
            self._beat()
            self._wait_for_recall()
            for number in range(SCAN_LANE):  # the first that is not for handing over
                lane = Lane(number)
                if self._keeper.is_busy_with(lane):
                    continue  # no need to ask the ledger
                held = self.take(lane)
                if held is not None:
                    return held
                if self._leases.owner_of(RECALL_LANE) is not None:
                    break
            else:
                self._pause("every lane is taken")

    def _first_of(self, lanes: Sequence[Lane]) -> HeldLease | None:
        for lane in lanes:
            held = self.take(lane)
            if held is not None:
                return held
        return None

    def _wait_for_recall(self) -> None:
        """Return once nobody recalls; until then no lane can be taken."""
        is_told = False
        while (owner := self._leases.owner_of(RECALL_LANE)) is not None:
            self._beat()
            if self._is_surely_dead(owner):
                self._leases.evict(RECALL_LANE, owner)
            elif not is_told:
                is_told = True
                _log.info(
                    "somebody recalls timeouts; nothing is claimed until that is over",
                    extra={"action": "waiting_for_recall", "owner": owner},
                )
            self._pause("waiting for a recall")

    def _pause(self, why: str) -> None:
        self._stop.draining.wait(_LOOK_AGAIN_S)
        if self._is_ending():
            raise Interrupted(f"asked to stop while {why}")
