"""Do this machine and the database agree on the time?

Delays are computed from the database's clock; this machine's is only what people compare with.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from typing import Final

from migrator.ledger.work import Clock
from migrator.preflight.findings import Finding, Level

NAME: Final = "clock-skew"
TOLERATED: Final = timedelta(seconds=2)
REFUSED: Final = timedelta(minutes=1)


def check(clock: Clock, wall_clock: Callable[[], datetime]) -> Iterator[Finding]:
    """Warn when the two clocks are two seconds apart or more; refuse above a minute."""
    skew = clock.now() - wall_clock()
    seconds = skew.total_seconds()
    side = "ahead of" if seconds > 0 else "behind"
    text = f"the database is {abs(seconds):.1f} s {side} this machine"
    if abs(skew) < TOLERATED:
        yield Finding(check=NAME, level=Level.OK, subject="clocks", text=text)
    else:
        yield Finding(
            check=NAME,
            level=Level.REFUSED if abs(skew) > REFUSED else Level.WARNING,
            subject="clocks",
            text=f"{text}; due times follow the database",
            remedy="synchronise both with NTP: a wrong database clock makes messages early or late",
        )
