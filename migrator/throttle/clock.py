"""Whether the database's clock can be believed: one more signal, and the check of the start.

Source: docs/throttling.md.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Final

from migrator.errors import TargetError
from migrator.ledger.clock import SKEW_TOLERATED, DatabaseClock, Doubt
from migrator.rabbitmq.connection import ConnectionSettings
from migrator.rabbitmq.server import is_our_clock
from migrator.throttle.reasons import Signal
from migrator.throttle.signals import Affected, Observation, PolledSignal

_log = logging.getLogger(__name__)

_SAMPLE_AFTER_S: Final = 3.0
_AGREES_S: Final = 1.0
_ASK_BROKER_EVERY_S: Final = 10.0
AT_START: Final = "this machine's, and the broker's has not confirmed it"


def _utc_now() -> datetime:
    return datetime.now(UTC)


class BrokerClock:
    """The broker's time, as a witness."""

    def __init__(self, connection: ConnectionSettings) -> None:
        self._connection = connection

    def agrees(self, now: Callable[[], datetime]) -> bool | None:
        """Return whether the broker's time is that of *now*; None: not known.

        Raises:
            TargetUnavailable, AccessRefused: The broker cannot be asked.
        """
        return is_our_clock(self._connection, now)


def check_first_time(
    clock: DatabaseClock, broker: BrokerClock, wall_clock: Callable[[], datetime] = _utc_now
) -> None:
    """Doubt the database's clock at a start, unless this machine's or the broker's agrees with it.

    A process that runs holds its own time against a jump; one that starts has none. Nothing may be
    early, so two clocks against the database's hold as well, and so does one, while the broker
    cannot be asked. The *broker* is asked only where this machine's clock disagrees.
    """
    if abs(clock.now() - wall_clock()) <= SKEW_TOLERATED:
        return
    try:
        agrees = broker.agrees(clock.now)
    except TargetError:
        agrees = None
    if not agrees:
        clock.doubt_start(wall_clock(), AT_START)


class ClockSignal(PolledSignal):
    """Whether the database's clock can be believed, and who is asked when it jumped.

    A witness is this machine's clock, unless it jumped as well, or else the broker's. Only one
    that agrees with what the database says now makes us believe it. The broker is asked in doubt
    only.
    """

    signal = Signal.CLOCK
    every_s = 2.0

    def __init__(
        self,
        clock: DatabaseClock,
        broker: BrokerClock,
        wall_clock: Callable[[], datetime] = _utc_now,
    ) -> None:
        self._clock = clock
        self._broker = broker
        self._wall_clock = wall_clock
        self._offset_s: float | None = None
        self._wall_jumped_s = float("-inf")
        self._asked_s = float("-inf")

    def poll(self) -> Mapping[Affected, Observation]:
        self._read_wall_clock()
        self._clock.sample(older_than_s=_SAMPLE_AFTER_S)
        self._read_wall_clock()  # both may have jumped between two polls
        doubt = self._clock.doubt
        if doubt is None:
            return {}
        witness = self._witness(doubt)
        if witness is not None and _believe(self._clock, doubt, witness=witness):
            return {}
        limit = (
            "until it is back, or this machine's or the broker's clock agrees with it; `migrator "
            "resume` trusts it as it is"
        )
        return {None: Observation(doubt.text, limit)}

    def _read_wall_clock(self) -> None:
        now_s = self._clock.monotonic_s()
        offset_s = self._wall_clock().timestamp() - now_s
        if self._offset_s is not None and abs(offset_s - self._offset_s) > _AGREES_S:
            self._wall_jumped_s = now_s
        self._offset_s = offset_s

    def _witness(self, doubt: Doubt) -> str | None:
        """Return the witness that agrees with the database; None: none does."""
        reading = doubt.reading(self._clock.monotonic_s())
        off_s = abs((self._wall_clock() - reading).total_seconds())
        if self._wall_jumped_s < doubt.believed_s and off_s <= _AGREES_S:
            return "this machine"
        if time.monotonic() - self._asked_s < _ASK_BROKER_EVERY_S:
            return None
        self._asked_s = time.monotonic()
        try:
            agrees = self._broker.agrees(lambda: doubt.reading(self._clock.monotonic_s()))
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
