"""One thread per process: finish what dead owners left in their lanes, beside the lanes' own work.

An adopted lane may wait for minutes for a receipt, so no lane's thread does it: its own rows would
come late.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Final

from migrator.errors import HandOverDoubtful, Interrupted, LedgerAdopted, MigratorError
from migrator.ledger.lease_keeper import HeldLease, LeaseKeeper
from migrator.ledger.ports import Leases
from migrator.nservicebus.timeouts import Lane
from migrator.service.gate import Gate
from migrator.service.lanes import OpenLane, recover
from migrator.service.vacancies import Vacancies
from migrator.service.worker import Stop, WorkerThread

_log = logging.getLogger(__name__)

_LOOK_EVERY_S: Final = 2.0
_SLICE_S: Final = 0.2
_PAUSE_S: Final = 10.0
"""After a failure, the lane is left alone for so long."""


class Adopter(WorkerThread):
    """Looks for lanes of dead owners every few seconds, and finishes them one after the other."""

    def __init__(
        self,
        *,
        leases: Leases,
        keeper: LeaseKeeper,
        open_lane: OpenLane,
        is_surely_dead: Callable[[str], bool],
        stop: Stop,
        once: bool,
        patience_s: float,
        gate: Gate,
        lanes_have_ended: Callable[[], bool],
    ) -> None:
        """Prepare the thread; ``start`` lets it run.

        Args:
            leases: To find lanes and their dead owners.
            keeper: Holds the leases that are taken.
            open_lane: Opens link and session.
            is_surely_dead: Whether an owner's process is provably gone.
            stop: Shared by all threads.
            once: There is an end, and the lanes wait for what is to be adopted.
            patience_s: With *once*: give a lane up after failing for so long.
            gate: Nothing is adopted while it holds everything.
            lanes_have_ended: Whether no thread of a lane runs any more; then this one ends, too.
        """
        super().__init__("adopter", stop=stop, crash_action="lane_crashed", facts={})
        self._keeper = keeper
        self._open_lane = open_lane
        self._once = once
        self._patience_s = patience_s
        self._gate = gate
        self._lanes_have_ended = lanes_have_ended
        self._vacancies = Vacancies(
            leases,
            keeper,
            is_surely_dead=is_surely_dead,
            stop=stop,
            beat=self.beat,
            is_retired=lambda: False,
        )
        self._failing_since_s: dict[Lane, float] = {}
        self._not_before_s: dict[Lane, float] = {}
        self.is_at_work = False
        """It finishes a lane now."""

    @property
    def _is_over(self) -> bool:
        return self._stop.draining.is_set() or self._lanes_have_ended()

    def _run(self) -> None:
        while not self._is_over:
            try:
                if self._gate.hold_for(None) is None:
                    self._adopt_all()
            except Interrupted:
                return
            except LedgerAdopted:
                raise  # trying again changes nothing
            except MigratorError as exc:  # the ledger does not answer; the lanes say so
                self.trouble = str(exc)
            self._rest()

    def _rest(self) -> None:
        ends_s = time.monotonic() + _LOOK_EVERY_S
        while time.monotonic() < ends_s and not self._is_over:
            self.beat()
            self._stop.draining.wait(_SLICE_S)

    def _adopt_all(self) -> None:
        trouble = None
        for lane in self._vacancies.orphans():
            if self._stop.draining.is_set():
                return
            if time.monotonic() < self._not_before_s.get(lane, 0.0):
                trouble = self.trouble
            else:
                trouble = self._adopt(lane) or trouble
        self.trouble = trouble

    def _adopt(self, lane: Lane) -> str | None:
        """Finish *lane*; return why that is not possible now, else None."""
        self.beat()
        held = self._vacancies.adopt(lane)
        if held is None:
            return None
        self.is_at_work = True
        try:
            self._finish(held)
        except HandOverDoubtful as exc:
            self._give_up(lane, "an adopted lane is doubtful", "lane_doubtful", exc)
        except (Interrupted, LedgerAdopted):
            raise
        except MigratorError as exc:
            self._failed(lane, exc)
            return f"lane {lane} of a dead owner: {exc}"
        else:
            self._failing_since_s.pop(lane, None)
        finally:
            self.is_at_work = False
            if lane not in self._stop.doubtful:  # else kept, so that nobody stumbles over it next
                self._keeper.surrender(held)
        return None

    def _finish(self, held: HeldLease) -> None:
        held.beat = self.beat
        opened = self._open_lane(held)
        held.doing = opened.doing
        try:
            recover(held, opened.session, self._stop)
            while opened.session.turn(may_claim=False) and not self._stop.at_once.is_set():
                self.beat()
                held.check()
        finally:
            opened.close()

    def _failed(self, lane: Lane, exc: MigratorError) -> None:
        now_s = time.monotonic()
        self._not_before_s[lane] = now_s + _PAUSE_S
        since_s = self._failing_since_s.setdefault(lane, now_s)
        if self._once and now_s - since_s > self._patience_s:
            self._give_up(lane, "an adopted lane keeps failing", "lane_gave_up", exc)
            return
        _log.warning(
            "an adopted lane could not be finished now",
            extra={"action": "adoption_failed", "lane": lane, "error": str(exc)},
        )

    def _give_up(self, lane: Lane, text: str, action: str, exc: MigratorError) -> None:
        self._stop.doubtful.add(lane)
        self.failure = exc
        _log.error(text, extra={"action": action, "lane": lane, "error": str(exc)})
