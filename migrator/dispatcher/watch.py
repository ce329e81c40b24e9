"""The database's time for a thread that must never wait for the database."""

from __future__ import annotations

from datetime import datetime, timedelta

from migrator.errors import ClockInDoubt
from migrator.ledger.work import Clock


class Watch:
    """Shows the time that somebody else read; never ahead of the database's."""

    def __init__(self, clock: Clock) -> None:
        """Read *clock* once, which may wait."""
        self._clock = clock
        self.read()

    def read(self) -> None:
        """Read the clock again, which may wait: for background threads.

        Raises:
            ClockInDoubt: It jumped; the earlier of the two times is shown from now on.
        """
        try:
            self._show(self._clock.now())
        except ClockInDoubt as exc:
            self._show(exc.earliest)
            raise

    def _show(self, now: datetime) -> None:
        self._read_at = (now, self._clock.monotonic_s())  # one assignment: seen whole or not at all

    def now(self) -> datetime:
        """Return the time; never waits."""
        now, mark_s = self._read_at
        return now + timedelta(seconds=self._clock.monotonic_s() - mark_s)
