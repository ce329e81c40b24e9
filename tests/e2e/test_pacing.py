"""The pace of the levels, by the real program on a broker whose cost of an exchange is given."""

from __future__ import annotations

import time
from collections.abc import Sequence
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Final

import pytest

from dev.servers import wait_until
from migrator.delays.routing import DelaysVersion
from tests.e2e.arrivals import Receiver
from tests.e2e.daemon import listen
from tests.e2e.rig import Rig
from tests.e2e.rows import Row, row

LEVEL_22_S: Final = 2**22 + 2**19 - 2**12 + 500
"""A delay that passes four exchanges when level 22 lets go, so that none below is narrower."""


def rows_for_level_22(count: int) -> Sequence[Row]:
    """Return rows that enter that level, and whose low bits differ."""
    return [row(timedelta(seconds=LEVEL_22_S + n * 2000 / count)) for n in range(count)]


def has_come(receiver: Receiver, messages: int) -> bool:
    """Return whether so many arrived."""
    return len(receiver.arrivals) >= messages


def rate_per_s(rig: Rig) -> float:
    """Return how many rows a second went to the broker, from the first claim on."""
    ((rows, seconds),) = rig.query(
        "SELECT sum(size)::float8,"
        " extract(epoch FROM max(handed_over_at) - min(claimed_at))::float8 FROM migrator.batch"
        " WHERE state = 'handed_over'"
    )
    return float(rows / seconds)


@pytest.mark.slow
@pytest.mark.punctual
@pytest.mark.parametrize(("delays", "lets_go"), [(DelaysVersion.V1, 200), (DelaysVersion.V2, 250)])
def test_a_level_is_filled_at_half_of_what_it_lets_go_of(
    rig: Rig, tmp_path: Path, delays: DelaysVersion, lets_go: int
) -> None:
    """At 1 ms for an exchange, one more in v1; with full pace it is as fast as it goes."""
    rig.delays = delays
    listen(rig, tmp_path)
    rig.prepare()
    rig.keep_exchange_cost(0.001)
    rig.insert(rows_for_level_22(2400))
    process = rig.start("run", "--endpoint", "Sales", "--once")
    paced = f"paced: level 22 releases {lets_go}/s"
    wait_until(lambda: paced in rig.doing(), what="a word of the pace")
    assert "paced: level 22" in rig.must("status")  # while it still is: it takes ten seconds
    assert rig.finish(process).returncode == 0
    paced_per_s = rate_per_s(rig)
    rig.query("UPDATE migrator.batch SET state = 'released' RETURNING 1")
    rig.insert(rows_for_level_22(900))
    rig.migrate(MIGRATOR_HANDOVER__PACE="full")
    full_per_s = rate_per_s(rig)
    assert 0.4 * lets_go < paced_per_s < 0.7 * lets_go, (paced_per_s, full_per_s)
    assert full_per_s > lets_go, (paced_per_s, full_per_s)


@pytest.mark.parametrize("mode", ["staged", pytest.param("direct", marks=[pytest.mark.slow])])
def test_overdue_rows_do_not_wait_while_a_level_is_full(rig: Rig, mode: str) -> None:
    """Eight lanes wait for one level, with batches ahead; what is due now goes out of turn."""
    rig.settings["MIGRATOR_HANDOVER__CUTOFF"] = "0s"
    rig.prepare()
    rig.keep_exchange_cost(0.01)  # 15 rows a second, two or so at a time
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
