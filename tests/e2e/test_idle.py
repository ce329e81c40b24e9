"""A daemon that has nothing to do: what it costs the database, and how soon it notices a row."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from dev.servers import wait_until
from tests.e2e.rig import Rig
from tests.e2e.rows import row

ENDPOINTS = 6
LANES = 2


def written(rig: Rig, *, leases: bool) -> int:
    """Return how many rows were written so far, of leases or of all else; undone ones count."""
    ((rows,),) = rig.query(
        "SELECT coalesce(sum(n_tup_ins + n_tup_upd + n_tup_del), 0)::int"
        " FROM pg_stat_user_tables WHERE (relname = 'lease') = %s",
        leases,
    )
    return int(rows)


@pytest.mark.punctual
def test_an_idle_daemon_only_renews_its_leases(rig: Rig) -> None:
    """It looks at all endpoints without writing; and a row that is due goes out within 2 s."""
    rig.settings |= {"MIGRATOR_HANDOVER__CUTOFF": "0s", "MIGRATOR_HANDOVER__LEASE": "16s"}
    rig.prepare()
    others = [replace(rig, endpoint=f"Other{number}") for number in range(ENDPOINTS - 1)]
    for other in others:
        other.create_store()
    rig.start("run", "--all-endpoints", "--lanes", str(LANES))

    idle = "SELECT count(*) FROM migrator.lease WHERE doing = 'idle'"

    def renews() -> None:
        renewed = written(rig, leases=True)
        wait_until(lambda: written(rig, leases=True) >= renewed + LANES, what="renewals")

    wait_until(lambda: rig.query(idle) == [(LANES,)], what="a daemon that rests")
    renews()  # the server counts late what was written before
    before = written(rig, leases=False)
    renews()
    assert written(rig, leases=False) == before

    late = row(due_in=timedelta(0))
    others[-1].insert([late])
    wait_until(lambda: rig.batch_states()["handed_over"] == 1, what="the row handed over")
    ((done,),) = rig.query("SELECT handed_over_at FROM migrator.batch")
    assert done - late.due_at < timedelta(seconds=2)
