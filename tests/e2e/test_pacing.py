"""The pace of the levels, by the real program on a broker whose cost of an exchange is given."""

from __future__ import annotations

import time
from collections.abc import Sequence
from datetime import timedelta
from functools import partial
from typing import Final

import pytest

from dev.servers import wait_until
from tests.e2e.arrivals import Receiver
from tests.e2e.rig import Rig
from tests.e2e.rows import Row, row

LEVEL_22_S: Final = 2**22 + 2**21 - 2**12 + 500
"""A delay that passes two exchanges when level 22 lets go, and one or two in each level below."""


def rows_for_level_22(count: int) -> Sequence[Row]:
    """Return rows that enter that level, and whose low bits differ."""
    return [row(timedelta(seconds=LEVEL_22_S + n * 2000 / count)) for n in range(count)]


def has_come(receiver: Receiver, messages: int) -> bool:
    """Return whether so many arrived."""
    return len(receiver.arrivals) >= messages


@pytest.mark.parametrize("mode", ["staged", pytest.param("direct", marks=[pytest.mark.slow])])
def test_overdue_rows_do_not_wait_while_a_level_is_full(rig: Rig, mode: str) -> None:
    """Eight lanes wait for one level, with batches ahead; what is due now goes out of turn."""
    rig.settings["MIGRATOR_HANDOVER__CUTOFF"] = "0s"
    rig.prepare()
    rig.keep_exchange_cost(0.02)  # 15 rows a second, five at a time
    rig.insert(rows_for_level_22(1000))
    late_s = []
    with Receiver(rig.broker_url, "Billing") as receiver:
        process = rig.start("run", "--endpoint", "Sales", "--lanes", "8", "--mode", mode)
        wait_until(partial(rig.has_handed_over, 8), what="levels that fill")
        for n in range(1, 4):
            time.sleep(1)
            due = row(timedelta(0))
            rig.insert([due])
            wait_until(partial(has_come, receiver, n), what="what is due")
            late_s.append((receiver.arrivals[-1].at - due.due_at).total_seconds())
    rig.kill(process)
    assert max(late_s) < 2.0, late_s
