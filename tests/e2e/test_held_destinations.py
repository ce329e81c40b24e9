"""Destinations that cannot be reached: their rows wait in the store, and go on by themselves."""

from __future__ import annotations

import json
from datetime import timedelta

from dev.processes import wait_until
from tests.e2e.rig import Rig
from tests.e2e.rows import row


def held(rig: Rig) -> dict[str, str]:
    """Return what `status` tells of destinations that cannot be reached: why, by name."""
    found = json.loads(rig.must("status", "--json"))["held"]
    return {each["destination"]: each["reason"] for each in found}


def test_a_missing_queue_empties_nothing_into_quarantine(rig: Rig) -> None:
    """The others go on; once the queue is made, its rows do, too, under the running daemon."""
    rig.prepare("Billing")
    rows = [row(timedelta(days=1, seconds=n), destination="Shipping@APP01") for n in range(300)]
    others = [row(timedelta(days=1, seconds=n)) for n in range(0, 200, 2)]
    rig.insert([*rows, *others])
    daemon = rig.start("run", "--endpoint", "Sales")
    waiting = {each.id for each in rows}
    wait_until(lambda: rig.stored_ids() == waiting, what="only what is held is in the store")
    wait_until(lambda: held(rig) == {"Shipping@APP01": "destination-unknown"}, what="status")
    assert rig.quarantined() == {}
    rig.create_receivers("Shipping")
    wait_until(lambda: not rig.stored_ids(), what="the rows that were held are taken")
    wait_until(lambda: held(rig) == {}, what="status")
    said = rig.stop(daemon)
    assert '"destination_held"' in said
    assert '"destination_reached"' in said
    assert rig.quarantined() == {}
    account = rig.account([*rows, *others], "Billing", "Shipping")
    assert (account.found, account.lost, account.duplicated) == (400, (), ())
