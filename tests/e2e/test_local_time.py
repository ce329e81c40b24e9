"""The real program, and a store in which the vendor's stack wrote local time."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest

from dev.servers import wait_until
from tests.e2e.arrivals import Receiver
from tests.e2e.daemon import listen, listens, signals, status
from tests.e2e.dispatching import prepare_dispatcher
from tests.e2e.old_endpoint import OldEndpoint
from tests.e2e.rig import Rig
from tests.e2e.rows import row


@pytest.mark.parametrize(
    ("mode", "zone"),
    [
        ("migrate", "America/New_York"),
        pytest.param("dispatch", "Europe/Berlin", marks=pytest.mark.slow),
    ],
)
def test_rows_in_local_time_arrive_when_due_and_go_back_as_they_were(
    rig: Rig, tmp_path: Path, mode: str, zone: str
) -> None:
    """Overdue ones at once, near ones in time; what is stored meanwhile is local time, too."""
    rig.time_zone = zone
    rig.settings |= {"MIGRATOR_STORE__TIME_ZONE": zone, "MIGRATOR_HANDOVER__CUTOFF": "0s"}
    endpoint = OldEndpoint(rig)
    endpoint.declare("Billing")
    prepare_dispatcher(rig, tmp_path, mode=mode)
    far = [row(timedelta(hours=9)) for _ in range(3)]
    rig.insert(far)
    stored = rig.stored()
    near = [row(timedelta(seconds=n)) for n in (-90, 3, 4)]
    rig.insert(near)
    deferred = endpoint.deferred(7200, to="Billing")
    if mode == "dispatch":
        endpoint.send(deferred)
    process = rig.start("run", "--endpoint", "Sales")
    with Receiver(rig.broker_url, "Billing") as receiver:
        receiver.wait(lambda: len(receiver.arrivals) >= len(near))
        left = len(far) + 1 if mode == "dispatch" else 0
        wait_until(lambda: len(rig.stored_ids()) == left, what="what is to be stored")
        rig.stop(process)
    at = {each.headers["NServiceBus.RelatedToTimeoutId"]: each.at for each in receiver.arrivals}
    assert {*at} == {each.id for each in near}
    assert all(each.due_at <= at[each.id] for each in near)
    if mode == "migrate":
        rig.must("rollback", "--endpoint", "Sales", "--yes")
        assert rig.stored() == stored
        return
    (column,) = (each[4] for key, each in rig.stored().items() if key not in stored)
    assert deferred.due_at is not None
    assert column == deferred.due_at.astimezone(ZoneInfo(zone)).replace(tzinfo=None)


def test_local_time_that_comes_later_holds_the_endpoint(rig: Rig, tmp_path: Path) -> None:
    """The store was empty at the start; nothing is claimed, and the reason is told."""
    listen(rig, tmp_path)
    rig.settings |= {"MIGRATOR_HANDOVER__SWEEP_INTERVAL": "200ms"}
    rig.prepare()
    process = rig.start("run", "--endpoint", "Sales")
    wait_until(lambda: listens(rig), what="a daemon that listens")
    rig.time_zone = "America/New_York"
    rows = [row(timedelta(hours=n)) for n in range(3)]
    rig.insert(rows)
    wait_until(lambda: signals(rig) == ["time_zone"], what="a hold")
    (hold,) = status(rig)["holds"]
    assert "local time of America/New_York" in hold["observed"]
    assert "store.time_zone" in hold["limit"]
    rig.stop(process)
    assert rig.stored_ids() == {each.id for each in rows}
