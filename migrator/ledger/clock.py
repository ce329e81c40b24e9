"""The database's time, carried on by a monotonic clock between samples."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import datetime, timedelta
from threading import Lock
from typing import Final

from sqlalchemy import Engine, select

from migrator.database.engine import reading
from migrator.database.failures import translating
from migrator.database.types import database_now
from migrator.errors import StoreError

RESAMPLE_AFTER_S: Final = 30.0
_GOOD_ROUND_TRIP_S: Final = 0.25
_SAMPLES: Final = 3


class DatabaseClock:
    """Implements ``ports.Clock``; may be shared between threads.

    It never runs ahead of the database, because a clock that does would make messages early; it
    is behind by at most one round trip.
    """

    def __init__(self, engine: Engine, monotonic: Callable[[], float] = time.monotonic) -> None:
        """Read the time of the database of *engine*; nothing is asked yet."""
        self._engine = engine
        self._monotonic = monotonic
        self._lock = Lock()
        self._sample: tuple[datetime, float] | None = None

    def now(self) -> datetime:
        """Return the database's time, aware and in UTC.

        Raises:
            StoreUnavailable: It was never reached; later, an old sample is carried on instead.
        """
        with self._lock:
            sampled_at, mark = self._current_sample()
        return sampled_at + timedelta(seconds=self._monotonic() - mark)

    def monotonic_s(self) -> float:
        """Return seconds of a clock that never jumps."""
        return self._monotonic()

    def _current_sample(self) -> tuple[datetime, float]:
        if self._sample is None:
            self._sample = self._best_sample()
        elif self._monotonic() - self._sample[1] > RESAMPLE_AFTER_S:
            try:
                self._sample = self._best_sample()
            except StoreError:
                # what the caller does next meets the same outage and reports it; the monotonic
                # clock drifts by microseconds until then
                sampled_at, mark = self._sample
                now = self._monotonic()
                self._sample = (sampled_at + timedelta(seconds=now - mark), now)
        return self._sample

    def _best_sample(self) -> tuple[datetime, float]:
        best: tuple[float, datetime, float] | None = None
        doing = "reading the clock"
        with translating(StoreError, doing=doing), reading(self._engine) as connection:
            for _ in range(_SAMPLES):
                begun = self._monotonic()
                moment = connection.execute(select(database_now())).scalar_one()
                ended = self._monotonic()
                best = min(filter(None, (best, (ended - begun, moment, ended))))
                if best[0] < _GOOD_ROUND_TRIP_S:
                    break
        if best is None:
            raise StoreError("the database tells no time")
        return best[1], best[2]
