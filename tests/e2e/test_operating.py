"""What an operator does with it, day by day, on real servers."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from functools import partial

import psutil
import pytest

from dev.servers import wait_until
from migrator.nservicebus import headers as h
from migrator.nservicebus.wiretime import parse_wire_time
from tests.e2e.rig import Rig
from tests.e2e.rows import row

NewRig = Callable[..., Rig]


@pytest.mark.punctual
@pytest.mark.parametrize(("options", "code"), [((), 0), (("--once",), 143)])
def test_sigterm_finishes_the_batch_in_hand(rig: Rig, options: tuple[str], code: int) -> None:
    """Told to end in the middle, it leaves no batch open and takes no new one; the next goes on.

    A run that should have done all of it says by its exit code that it has not.
    """
    rig.is_fresh = not options
    rig.settings["MIGRATOR_HANDOVER__BATCH_SIZE"] = "100"
    rig.prepare()
    rows = [row() for _ in range(2000)]
    rig.insert(rows)
    process = rig.start(
        *("run", "--endpoint", "Sales", *options), MIGRATOR_HANDOVER__RATE_LIMIT="200"
    )
    wait_until(partial(rig.has_handed_over, 1), what="handing over")
    asked_s = time.monotonic()
    process.send_signal(signal.SIGTERM)
    done = rig.finish(process)
    assert done.returncode == code, done.stderr[-2000:]
    assert time.monotonic() - asked_s < 20
    assert set(rig.batch_states()) == {"handed_over"}
    assert rig.stored_ids()
    rig.migrate()
    account = rig.account(rows, "Billing")
    assert (account.found, account.lost, account.duplicated) == (2000, (), ())


@pytest.mark.punctual
def test_a_daemon_takes_up_new_rows_and_those_that_come_near(rig: Rig) -> None:
    """Rows stored later are seen, and rows beyond the horizon once they are near; all in time."""
    rig.prepare()
    process = rig.start("run", "--endpoint", "Sales", "--cutoff", "0s", "--horizon", "4s")
    wait_until(rig.has_lane, what="a lane")
    far = row(timedelta(seconds=9))  # taken five seconds from now
    later = [row(timedelta(seconds=3)) for _ in range(5)]
    rig.insert([far, *later])
    wait_until(lambda: rig.stored_ids() == {far.id}, what="new rows")
    late: dict[str, float] = {}

    def all_arrived() -> bool:
        for found in rig.drain("Billing"):
            due = parse_wire_time(found.properties.headers[h.DELIVER_AT])
            late[found.timeout_id] = (datetime.now(UTC) - due).total_seconds()
        return len(late) == 6

    wait_until(all_arrived, what="arriving")
    assert set(late) == {far.id, *(each.id for each in later)}
    assert min(late.values()) >= 0
    assert max(late.values()) < 5
    rig.stop(process)


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["staged", "direct"])
def test_large_bodies_do_not_need_large_memory(rig: Rig, mode: str) -> None:
    """Three hundred bodies of 1 MB each: the process stays below 200 MB."""
    rig.prepare()
    rows = [row(body=b"x" * 2**20) for _ in range(300)]
    rig.insert(rows)
    process = rig.start("run", "--endpoint", "Sales", "--once", "--mode", mode)
    seen, peak = psutil.Process(process.pid), 0
    while process.poll() is None:
        try:
            peak = max(peak, seen.memory_info().rss)
        except psutil.NoSuchProcess:
            break
        time.sleep(0.02)
    assert rig.finish(process).returncode == 0
    print(f"1 MB bodies, {mode}: peak RSS {peak / 2**20:.0f} MiB")
    assert peak <= 200 * 10**6
    assert rig.stored_ids() == set()
    account = rig.account(rows, "Billing")
    assert (account.found, account.lost, account.duplicated) == (300, (), ())
