"""The program under a service manager that starts it again, and how its work goes on."""

from __future__ import annotations

import signal
import sys
import time
from contextlib import suppress
from typing import Any, Final

import psycopg

from tests.e2e.rig import Rig

_RESTART_S: Final = 2.0
_PATIENCE_S: Final = 300.0


class Supervised:
    """A daemon that is started again whenever it ends, by systemd or by a person."""

    def __init__(self, rig: Rig, mode: str, *, rate: int) -> None:
        """Start it, handing over *rate* timeouts a second at most."""
        self._rig = rig
        self._options = ("run", "--endpoint", rig.endpoint, "--mode", mode, "--cutoff", "0s")
        self._knobs = {
            "MIGRATOR_HANDOVER__RATE_LIMIT": str(rate),
            "MIGRATOR_HANDOVER__BATCH_SIZE": "250",
        }
        self._before = self._handed_over()
        self.endings: list[int] = []
        self.standstill_s = 0.0
        self._last_s = time.monotonic()
        self._last = 0
        self._killed: set[int] = set()
        self._process = self._start()

    def _start(self) -> Any:
        return self._rig.start(*self._options, **self._knobs)

    def kill(self) -> None:
        """``kill -9``, once; it is started again."""
        self._killed.add(self._process.pid)
        self._process.send_signal(signal.SIGKILL)

    def wait_for(self, count: int) -> bool:
        """Wait until *count* rows are handed over; return whether they were."""
        deadline_s = time.monotonic() + _PATIENCE_S
        while (now := self._handed_over() - self._before) < count:
            self._look(now)
            if time.monotonic() > deadline_s or self.endings.count(6) > 2:
                return False
            time.sleep(0.2)
        self._look(now)
        return True

    def _look(self, handed_over: int) -> None:
        now_s = time.monotonic()
        self.standstill_s = max(self.standstill_s, now_s - self._last_s)
        if handed_over > self._last:
            self._last, self._last_s = handed_over, now_s
        if self._process.poll() is not None:
            if self._process.pid not in self._killed:
                self.endings.append(self._process.returncode)
                said = self._rig.finish(self._process).stderr
                print(f"ended {self._process.returncode}: {said[-1500:]}", file=sys.stderr)
            time.sleep(_RESTART_S)
            self._process = self._start()

    def _handed_over(self) -> int:
        with self._rig.sql() as connection, suppress(psycopg.errors.UndefinedTable):
            found = connection.execute(
                "SELECT count(*) FROM migrator.timeout t JOIN migrator.batch b ON b.id = batch_id "
                "WHERE b.state = 'handed_over' OR t.state = 'quarantined'"
            ).fetchone()
            return int(found[0]) if found else 0
        return 0

    def left(self) -> str:
        """Return what is not done, for a person."""
        states = ", ".join(f"{n} {state}" for state, n in sorted(self._rig.batch_states().items()))
        return f"{len(self._rig.stored_ids())} in the store; batches: {states}"

    def end(self) -> None:
        """Ask the program to end as systemd would."""
        self._process.send_signal(signal.SIGTERM)
        code = self._rig.finish(self._process).returncode
        if code and self._process.pid not in self._killed:
            self.endings.append(code)
