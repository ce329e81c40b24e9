"""From a due time to whole seconds of delay.

Source: reference ``native-delays.md`` section 3; docs/adr/0004-delay-rounding.md.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Final

from migrator.errors import TargetUnavailable

BITS: Final = 28
MAX_DELAY_S: Final = 2**BITS - 1
"""268 435 455 s, about 8.5 years: the longest delay 28 levels can hold."""
_SECOND: Final = timedelta(seconds=1)


LONGEST_DELAY: Final = timedelta(seconds=MAX_DELAY_S - 3600)
"""Rows due later wait in the store; an hour's margin for the time between claim and publish."""


class DelayTooLong(TargetUnavailable):
    """The delay needs more than 28 bits. Nothing was sent, and trying again is safe.

    Rows are claimed with a margin, so a clock was set back since: preparing the row again puts it
    into quarantine, or finds the clock as it was.
    """


def delay_s(due_at: datetime, *, now: datetime) -> int:
    """Return whole seconds from *now* until *due_at*, rounded up; 0 when already due.

    Rounding up is what keeps a message from being early; it makes it late by under a second.

    Args:
        due_at: Aware, UTC.
        now: Aware, UTC; read once per chunk, just before the chunk is published.

    Raises:
        DelayTooLong: Above ``MAX_DELAY_S``. Nothing was sent.
    """
    delay = seconds_up(due_at - now)
    if delay > MAX_DELAY_S:
        raise DelayTooLong(f"a delay of {delay} s needs more than {BITS} bits")
    return max(delay, 0)


def seconds_up(span: timedelta) -> int:
    """Return *span* in whole seconds, rounded up; exact, without floating point."""
    return -(-span // _SECOND)
