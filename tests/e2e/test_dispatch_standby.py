"""Two programs for one endpoint: one dispatches, the other takes over."""

from __future__ import annotations

import json
import signal
import subprocess
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

import pytest

from dev.servers import wait_until
from tests.e2e.arrivals import Receiver, books
from tests.e2e.dispatching import prepare_dispatcher, start_dispatcher
from tests.e2e.old_endpoint import OldEndpoint
from tests.e2e.rig import Rig

pytestmark = pytest.mark.punctual

LEASE_S: Final = 16
"""The shortest that the settings allow is just above fifteen seconds."""


def start_standby(rig: Rig) -> subprocess.Popen[str]:
    """Start a second program and give it the time to find out that it is the second."""
    process = rig.start("run", "--endpoint", "Sales")
    time.sleep(3)
    assert process.poll() is None, rig.finish(process).stderr[-4000:]
    return process


def test_a_standby_takes_over_from_a_killed_leader(rig: Rig, tmp_path: Path) -> None:
    """Two at once: each message once. The leader killed: the other goes on within the lease."""
    endpoint = OldEndpoint(rig)
    endpoint.declare("Billing")
    prepare_dispatcher(rig, tmp_path, handover={"lease": f"{LEASE_S}s"})
    leader = start_dispatcher(rig)
    standby = start_standby(rig)
    with Receiver(rig.broker_url, "Billing", "error") as receiver:
        sent = [endpoint.deferred(1.5 + n / 100, to="Billing") for n in range(150)]
        sent += [endpoint.deferred(n / 100, to="Billing") for n in range(100)]
        endpoint.send(*sent)
        receiver.wait_for(*sent)
        lanes = json.loads(rig.must("status", "--json"))["lanes"]
        assert [lane["is_alive"] for lane in lanes] == [True]
        rig.kill(leader)
        killed_at = time.monotonic()
        after = [endpoint.deferred(0.2 + n / 100, to="Billing") for n in range(100)]
        endpoint.send(*after)
        receiver.wait_for(*after)
        print(f"taken over, and everything sent, {time.monotonic() - killed_at:.1f} s after it")
        rig.stop(standby)
    first, both = books(sent, receiver.arrivals), books([*sent, *after], receiver.arrivals)
    print(both)
    assert (both.lost, both.duplicated, both.foreign, both.early) == ((), (), (), ())
    assert first.median_s < 2
    assert first.worst_s < 5
    assert both.worst_s < LEASE_S + 30


@pytest.mark.slow
def test_a_leader_paused_past_its_lease_doubles_nothing(rig: Rig, tmp_path: Path) -> None:
    """Stopped, its endpoint taken over by the standby, woken up again: it sends nothing more.

    To the standby it is as dead as after a kill: what it had sent of the batches in flight is
    sent again when they are taken over, and nothing else ever is.
    """
    endpoint = OldEndpoint(rig)
    endpoint.declare("Billing")
    prepare_dispatcher(rig, tmp_path, handover={"lease": f"{LEASE_S}s"})
    leader = start_dispatcher(rig)
    standby = start_standby(rig)
    with Receiver(rig.broker_url, "Billing", "error") as receiver:
        sent = [endpoint.deferred(1 + n / 20, to="Billing") for n in range(600)]
        endpoint.send(*sent)
        wait_until(lambda: len(receiver.arrivals) > 40, what="a leader at work")
        paused_at = datetime.now(UTC)
        leader.send_signal(signal.SIGSTOP)
        time.sleep(LEASE_S + 4)
        before = len(receiver.arrivals)
        receiver.wait_for(*sent[: before // 2])
        woken_at = datetime.now(UTC)
        leader.send_signal(signal.SIGCONT)
        more = [endpoint.deferred(n / 20, to="Billing") for n in range(60)]
        endpoint.send(*more)
        receiver.wait_for(*sent, *more)
        time.sleep(1)
        assert leader.poll() is None  # a standby now
        rig.stop(standby)
        rig.stop(leader)
    account = books([*sent, *more], receiver.arrivals)
    print(f"leader paused for {LEASE_S + 4} s, {before} delivered by then: {account}")
    assert (account.lost, account.foreign, account.early) == ((), (), ())
    assert account.worst_s < LEASE_S + 30
    for key in account.duplicated:
        first, again = (each.at for each in receiver.arrivals if each.key == key)
        assert paused_at - timedelta(seconds=2) < first < paused_at + timedelta(seconds=0.2)
        assert again < woken_at
