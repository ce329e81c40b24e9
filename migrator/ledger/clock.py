"""The database's time, carried on by a monotonic clock between samples, and doubted when it jumps.

Rules of this file:

* The clock never runs ahead of the database, because messages would then be early. It is behind by
  at most one round trip.
* A caller that knows the time from other servers may doubt the first sample (``doubt_start``).
  Until the database agrees with them, or an operator confirms it, ``now`` raises ``ClockInDoubt``.
* A sample more than a second from the carried-on time is doubted in the same way.
* A smaller difference is followed: backwards at once, forwards little by little.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from operator import attrgetter
from threading import Lock
from typing import Final

from sqlalchemy import Engine, select

from migrator.database.engine import reading
from migrator.database.types import database_now
from migrator.errors import ClockInDoubt, StoreError

SKEW_TOLERATED: Final = timedelta(seconds=2)
"""Between the database's clock and another one."""
RESAMPLE_AFTER_S: Final = 5.0
_GOOD_ROUND_TRIP_S: Final = 0.25
_SAMPLES: Final = 3
_JUMP_S: Final = 1.0
_WHERE_IT_WAS: Final = "where it was"
_SLEW: Final = 0.02
"""Of the time since the last sample: a newer sample may be ahead of the old time by this share."""


@dataclass(frozen=True, slots=True)
class _Sample:
    moment: datetime
    mark_s: float
    round_trip_s: float
    """The database may have been ahead by as much already."""

    def at(self, now_s: float) -> datetime:
        return self.moment + timedelta(seconds=now_s - self.mark_s)


@dataclass(frozen=True, slots=True)
class Doubt:
    sample: _Sample
    off_s: float
    """How far it is ahead of the expected time; negative: behind."""
    believed_s: float
    """Monotonic time of the last sample that agreed."""
    believed: str = _WHERE_IT_WAS

    @property
    def text(self) -> str:
        side = "ahead of" if self.off_s > 0 else "behind"
        what = "jumped: it is" if self.believed == _WHERE_IT_WAS else "is"
        return f"the database's clock {what} {abs(self.off_s):.1f} s {side} {self.believed}"

    def reading(self, now_s: float) -> datetime:
        return self.sample.at(now_s)


class DatabaseClock:
    """Implements ``Clock``; may be shared between threads."""

    def __init__(self, engine: Engine, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._engine = engine
        self._monotonic = monotonic
        self._sampling = Lock()
        self._state: tuple[_Sample | None, Doubt | None] = (None, None)  # replaced as a whole
        self._asked_s = 0.0
        self._believed = _WHERE_IT_WAS

    def now(self) -> datetime:
        """Aware and in UTC; after the first sample, an old one is carried on through an outage.

        Raises:
            StoreUnavailable: It was never reached.
            ClockInDoubt: It jumped.
        """
        self.sample(older_than_s=RESAMPLE_AFTER_S)
        believed, doubt = self._state
        if believed is None:
            raise StoreError("the database returned no time")
        now_s = self._monotonic()
        now = believed.at(now_s)
        if doubt is not None:
            raise ClockInDoubt(
                f"{doubt.text}; claiming and hand-over paused until it is known which time is "
                "right",
                earliest=min(now, doubt.reading(now_s)),
            )
        return now

    def monotonic_s(self) -> float:
        return self._monotonic()

    @property
    def doubt(self) -> Doubt | None:
        return self._state[1]

    def trust(self, doubt: Doubt) -> bool:
        """Accept the doubted sample; return False when the doubt is another one by now."""
        with self._sampling:
            if self._state[1] != doubt:
                return False
            self._state, self._believed = (doubt.sample, None), _WHERE_IT_WAS
            return True

    def doubt_start(self, moment: datetime, believed: str) -> None:
        """Trust *moment*, which is now, instead of the first sample; *believed* names its source.

        Without effect once there is a doubt.
        """
        with self._sampling:
            sample, doubt = self._state
            if sample is None or doubt is not None:
                return
            now_s = self._monotonic()
            off_s = (sample.at(now_s) - moment).total_seconds()
            self._believed = believed
            instead = _Sample(moment, now_s, sample.round_trip_s)
            self._state = (instead, Doubt(sample, off_s, now_s, believed))

    def sample(self, *, older_than_s: float) -> None:
        """Read the database's time if the last sample is older and no other thread is reading it.

        Raises:
            StoreError: It was never reached.
        """
        if not self._sampling.acquire(blocking=self._state[0] is None):
            return
        try:
            believed, _ = self._state
            if believed is not None and self._monotonic() - self._asked_s <= older_than_s:
                return
            try:
                sample = self._best_sample()
            except StoreError:
                # what the caller does next meets the same outage and reports it; the monotonic
                # clock drifts by microseconds until then
                if believed is None:
                    raise
            else:
                self._take(sample)
            self._asked_s = self._monotonic()
        finally:
            self._sampling.release()

    def _take(self, sample: _Sample) -> None:
        believed, _ = self._state
        if believed is None:
            self._state = (sample, None)
            return
        after, doubt = _judged(believed, sample)
        if doubt is None:
            self._believed = _WHERE_IT_WAS
        else:
            doubt = replace(doubt, believed=self._believed)
        self._state = (after, doubt)

    def _best_sample(self) -> _Sample:
        samples = list[_Sample]()
        doing = "reading the clock"
        with reading(self._engine, StoreError, doing=doing) as connection:
            while len(samples) < _SAMPLES:
                begun = self._monotonic()
                moment = connection.execute(select(database_now())).scalar_one()
                ended = self._monotonic()
                samples.append(_Sample(moment, ended, ended - begun))
                if ended - begun < _GOOD_ROUND_TRIP_S:
                    break
        return min(samples, key=attrgetter("round_trip_s"))


def _judged(believed: _Sample, sample: _Sample) -> tuple[_Sample, Doubt | None]:
    elapsed_s = sample.mark_s - believed.mark_s
    carried = believed.at(sample.mark_s)
    ahead_s = (sample.moment - carried).total_seconds()
    if ahead_s - believed.round_trip_s > _JUMP_S or -ahead_s - sample.round_trip_s > _JUMP_S:
        return believed, Doubt(sample, ahead_s, believed.mark_s)
    if -sample.round_trip_s <= ahead_s <= 0 and sample.round_trip_s > _GOOD_ROUND_TRIP_S:
        return believed, None  # it says nothing against the old one, and may be late itself
    most_s = believed.round_trip_s + _SLEW * elapsed_s
    if ahead_s <= most_s:
        return sample, None
    moment = carried + timedelta(seconds=most_s)
    return _Sample(moment, sample.mark_s, sample.round_trip_s), None
