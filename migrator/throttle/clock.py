"""Whether the database's clock can be believed; Signal.CLOCK where it cannot.

Source: docs/throttling.md.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from migrator.errors import TargetError
from migrator.ledger.clock import SKEW_TOLERATED, DatabaseClock, Doubt
from migrator.throttle.signals import Verdict, Whom

_log = logging.getLogger(__name__)

CLOCK_EVERY_S: Final = 2.0
_SAMPLE_AFTER_S: Final = 3.0
_AGREES_S: Final = 1.0
_ASK_BROKER_EVERY_S: Final = 10.0
AT_START: Final = "this machine's, and the broker's has not confirmed it"


def check_first_time(
    clock: DatabaseClock,
    ask_broker: Callable[[Callable[[], datetime]], bool | None],
    wall_clock: Callable[[], datetime] = lambda: datetime.now(UTC),
) -> None:
    """Doubt the database's clock at a start, unless this machine's or the broker's agrees with it.

    A process that runs holds its own time against a jump; one that starts has none. Nothing may be
    early, so two clocks against the database's hold as well, and so does one, while the broker
    cannot be asked. *ask_broker* is called only where this machine's clock disagrees.
    """
    if abs(clock.now() - wall_clock()) <= SKEW_TOLERATED:
        return
    try:
        agrees = ask_broker(clock.now)
    except TargetError:
        agrees = None
    if not agrees:
        clock.doubt_start(wall_clock(), AT_START)


@dataclass(eq=False)
class ClockCheck:
    """Whether the database's clock can be believed, and who is asked when it jumped.

    A witness is this machine's clock, unless it jumped as well, or else the broker's. Only one
    that agrees with what the database says now makes us believe it.
    """

    clock: DatabaseClock
    ask_broker: Callable[[Callable[[], datetime]], bool | None]
    """Called in doubt only; returns whether the broker's time is that of what it is given; None:
    not known."""
    wall_clock: Callable[[], datetime] = lambda: datetime.now(UTC)

    def __post_init__(self) -> None:
        self._offset_s: float | None = None
        self._wall_jumped_s = float("-inf")
        self._asked_s = float("-inf")

    def __call__(self) -> Mapping[Whom, Verdict]:
        """Return why the clock is not believed; empty: it is."""
        self._look_at_wall()
        self.clock.sample(older_than_s=_SAMPLE_AFTER_S)
        self._look_at_wall()  # both may have jumped between two looks
        doubt = self.clock.doubt
        if doubt is None:
            return {}
        witness = self._witness(doubt)
        if witness is not None and _believe(self.clock, doubt, witness=witness):
            return {}
        limit = (
            "until it is back, or this machine's or the broker's clock agrees with it; `migrator "
            "resume` trusts it as it is"
        )
        return {None: Verdict(doubt.text, limit)}

    def _look_at_wall(self) -> None:
        now_s = self.clock.monotonic_s()
        offset_s = self.wall_clock().timestamp() - now_s
        if self._offset_s is not None and abs(offset_s - self._offset_s) > _AGREES_S:
            self._wall_jumped_s = now_s
        self._offset_s = offset_s

    def _witness(self, doubt: Doubt) -> str | None:
        """Return who says the same as the database; None: nobody does."""
        reading = doubt.reading(self.clock.monotonic_s())
        off_s = abs((self.wall_clock() - reading).total_seconds())
        if self._wall_jumped_s < doubt.believed_s and off_s <= _AGREES_S:
            return "this machine"
        if time.monotonic() - self._asked_s < _ASK_BROKER_EVERY_S:
            return None
        self._asked_s = time.monotonic()
        try:
            agrees = self.ask_broker(lambda: doubt.reading(self.clock.monotonic_s()))
        except TargetError:
            return None
        return "the broker" if agrees else None


def believe_as_told(clock: DatabaseClock) -> str | None:
    """Believe what *clock* says now, because an operator says so; None: it is not in doubt."""
    doubt = clock.doubt
    if doubt is None or not _believe(clock, doubt, witness="an operator"):
        return None
    return f"{doubt.text}, and is trusted from now on"


def _believe(clock: DatabaseClock, doubt: Doubt, *, witness: str) -> bool:
    """Believe what *clock* says now, because *witness* says the same; was it still the same?"""
    if not clock.trust(doubt):
        return False
    _log.warning(
        "the database's clock jumped, and its new time is trusted",
        extra={"action": "clock_believed", "jump_s": round(doubt.off_s, 1), "witness": witness},
    )
    return True
