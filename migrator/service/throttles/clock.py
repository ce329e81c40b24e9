"""Whether the database's clock can be believed, and who is asked when it jumped.

Rules of this file: a witness is this machine's clock, unless it jumped as well, or else the
broker's. Only who agrees with what the database says now makes us believe it.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Final

from migrator.errors import TargetError
from migrator.ledger.clock import DatabaseClock, Doubt
from migrator.service.throttles.base import Verdict

_log = logging.getLogger(__name__)

LOOK_EVERY_S: Final = 2.0
_SAMPLE_AFTER_S: Final = 3.0
_AGREES_S: Final = 1.0
_ASK_BROKER_EVERY_S: Final = 10.0
_LIMIT: Final = (
    "until it is back, or this machine's or the broker's clock agrees with it; "
    "`migrator resume` believes it"
)

AskBroker = Callable[[Callable[[], datetime]], bool | None]
"""Whether the broker's time is that of what it is given; None: not known."""


class ClockJudge:
    """Looks at the database's clock, and at this machine's beside it."""

    def __init__(
        self,
        clock: DatabaseClock,
        ask_broker: AskBroker,
        wall_clock: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        """Judge *clock*; *ask_broker* is called in doubt only."""
        self._clock = clock
        self._ask_broker = ask_broker
        self._wall_clock = wall_clock
        self._offset_s: float | None = None
        self._wall_jumped_s = float("-inf")
        self._asked_s = float("-inf")

    def judge(self) -> Verdict | None:
        """Return why the clock is not believed; None: it is."""
        self._look_at_wall()
        self._clock.sample(older_than_s=_SAMPLE_AFTER_S)
        self._look_at_wall()  # both may have jumped between two looks
        doubt = self._clock.doubt
        if doubt is None:
            return None
        witness = self._witness(doubt)
        if witness is not None and _believe(self._clock, doubt, witness=witness):
            return None
        return Verdict(observed=doubt.text, limit=_LIMIT)

    def _look_at_wall(self) -> None:
        now_s = self._clock.monotonic_s()
        offset_s = self._wall_clock().timestamp() - now_s
        if self._offset_s is not None and abs(offset_s - self._offset_s) > _AGREES_S:
            self._wall_jumped_s = now_s
        self._offset_s = offset_s

    def _witness(self, doubt: Doubt) -> str | None:
        """Return who says the same as the database; None: nobody does."""
        reading = doubt.reading(self._clock.monotonic_s())
        off_s = abs((self._wall_clock() - reading).total_seconds())
        if self._wall_jumped_s < doubt.believed_s and off_s <= _AGREES_S:
            return "this machine"
        if time.monotonic() - self._asked_s < _ASK_BROKER_EVERY_S:
            return None
        self._asked_s = time.monotonic()
        try:
            agrees = self._ask_broker(lambda: doubt.reading(self._clock.monotonic_s()))
        except TargetError:
            return None
        return "the broker" if agrees else None


def believe_as_told(clock: DatabaseClock) -> str | None:
    """Believe what *clock* says now, because an operator says so; None: it is not in doubt."""
    doubt = clock.doubt
    if doubt is None or not _believe(clock, doubt, witness="an operator"):
        return None
    return f"{doubt.text}, and is believed from now on"


def _believe(clock: DatabaseClock, doubt: Doubt, *, witness: str) -> bool:
    """Believe what *clock* says now, because *witness* says the same; was it still the same?"""
    if not clock.trust(doubt):
        return False
    _log.warning(
        "the database's clock jumped, and is believed",
        extra={"action": "clock_believed", "jump_s": round(doubt.off_s, 1), "witness": witness},
    )
    return True
