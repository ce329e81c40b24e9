"""PostgreSQL fails over to an asynchronous standby: what was handed over in the lost window."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any
from urllib.parse import urlsplit

import pytest

from dev.postgres import PostgresServer, PostgresStandby
from dev.processes import wait_until
from migrator.errors import ExitCode
from migrator.ledger.rights import Purpose
from tests.conftest import Vhost
from tests.e2e.rig import Rig
from tests.e2e.rows import row
from tests.e2e.test_rights import limited
from tests.support.proxy import Proxy

ROWS = 300
SETTLE = ("db", "adopt", "--after-failover")
NewRig = Callable[..., Rig]


@dataclass
class Pair:
    """A primary, its asynchronous standby, and the address that leads to whichever is primary."""

    primary: PostgresServer
    standby: PostgresStandby
    proxy: Proxy
    url: str

    def fail_over(self) -> None:
        """Kill the primary, promote the standby as it is, and lead there."""
        self.primary.kill()
        self.standby.promote()
        self.proxy.lead_to(self.standby.port)
        self.proxy.cut()


@pytest.fixture
def pair() -> Iterator[Pair]:
    """Two servers of this test's own, in one database of the first."""
    with PostgresServer() as primary:
        name = primary.create_database()
        with (
            PostgresStandby(primary) as standby,
            Proxy("127.0.0.1", primary.port) as proxy,
        ):
            yield Pair(primary, standby, proxy, proxy.url(primary.url(name)))


@pytest.fixture
def failing(pair: Pair, vhost: Any, new_rig: NewRig) -> Rig:
    """A rig whose database can fail over."""
    rig = new_rig(vhost=vhost, database_url=pair.url)
    rig.settings["MIGRATOR_HANDOVER__BATCH_SIZE"] = "100"
    return rig


def test_what_was_handed_over_in_the_lost_window_is_settled(pair: Pair, failing: Rig) -> None:
    """The daemon stops and names its batches; once they are settled, nothing is sent twice.

    Also when settling is killed on the way: it changes nothing until its end.
    """
    failing.prepare()
    rows = [row() for _ in range(ROWS)]
    failing.insert(rows)
    pair.standby.fall_behind()
    daemon = failing.start("run", "--endpoint", "Sales")
    wait_until(lambda: failing.batch_states()["handed_over"] == 3, what="three batches")
    pair.fail_over()
    done = failing.finish(daemon)
    assert done.returncode == ExitCode.DOUBTFUL, done.stderr[-4000:]
    assert "3 batches are behind what this process committed" in done.stderr
    assert "(handed_over in attempt 1, now missing)" in done.stderr
    assert (failing.batch_states(), len(failing.stored_ids())) == ({}, ROWS)
    refused = failing.run("run", "--endpoint", "Sales", "--once")
    assert refused.returncode == ExitCode.PREFLIGHT_REFUSED, refused.stderr[-4000:]
    assert "db adopt --after-failover" in refused.stderr
    told = json.loads(failing.must(*SETTLE, "--dry-run", "--json"))
    assert told["handed_over_from_store"] == ROWS
    for step in ("failover.found", "failover.taken_away"):
        assert failing.run(*SETTLE, "--yes", fault=f"{step}:1").returncode == -9
        assert (failing.batch_states(), len(failing.stored_ids())) == ({}, ROWS)
    settled = json.loads(failing.must(*SETTLE, "--yes", "--json"))
    assert settled == {**told, "is_done": True}
    assert (failing.batch_states(), failing.stored_ids()) == ({"handed_over": 3}, set())
    more = [row() for _ in range(50)]
    failing.insert(more)
    failing.migrate()
    failing.must("verify", "--deep")
    found = failing.account([*rows, *more], "Billing")
    assert (found.lost, found.duplicated, found.found) == ((), (), ROWS + 50)


@pytest.mark.slow
def test_what_was_lost_is_settled_under_the_rights_that_are_printed(
    pair: Pair, failing: Rig, vhost: Vhost
) -> None:
    """The daemon notices the failover and refuses to go on, and adopting is denied nothing."""
    failing.prepare()
    failing.insert([row() for _ in range(ROWS)])
    with limited(failing, vhost, Purpose.HAND_OVER, Purpose.ADOPT) as us:
        pair.standby.fall_behind()
        as_daemon = us.environment(Purpose.HAND_OVER)
        daemon = failing.start("run", "--endpoint", "Sales", **as_daemon)
        wait_until(lambda: failing.batch_states()["handed_over"] == 3, what="three batches")
        pair.fail_over()
        done = failing.finish(daemon)
        assert done.returncode == ExitCode.DOUBTFUL, done.stderr[-4000:]
        us.run(Purpose.HAND_OVER, "run", "--endpoint", "Sales", "--once", codes=(3,))
        us.run(Purpose.ADOPT, *SETTLE, "--yes")
        assert (failing.batch_states(), failing.stored_ids()) == ({"handed_over": 3}, set())
        us.run(Purpose.HAND_OVER, "run", "--endpoint", "Sales", "--once")


@pytest.mark.slow
def test_a_daemon_goes_on_when_its_standby_had_everything(pair: Pair, failing: Rig) -> None:
    """A planned switchover: it goes on by itself, and may be started again."""
    failing.prepare()
    daemon = failing.start("run", "--endpoint", "Sales")
    before = [row() for _ in range(ROWS)]
    failing.insert(before)
    wait_until(lambda: failing.batch_states()["handed_over"] == 3, what="three batches")
    pair.standby.fall_behind()
    pair.fail_over()
    after = [row() for _ in range(100)]
    failing.insert(after)
    wait_until(partial(failing.has_handed_over, 4), what="one batch more")
    assert "database_failed_over" in failing.stop(daemon)
    failing.migrate()
    found = failing.account([*before, *after], "Billing")
    assert (found.lost, found.duplicated) == ((), ())


SHORT = (90,)
LONG = [n for n in range(10, 140, 8) if n not in SHORT]


@pytest.mark.parametrize(
    "answers",
    [*SHORT, *(pytest.param(n, marks=pytest.mark.slow) for n in LONG)],
)
def test_a_wire_that_is_cut_at_any_statement_doubles_nothing(
    database: str, vhost: Any, new_rig: NewRig, answers: int
) -> None:
    """The server has done what was asked, and the answer is lost: lost 0, doubled 0."""
    parts = urlsplit(database)
    with Proxy("127.0.0.1", int(parts.port or 0)) as proxy:
        rig = new_rig(vhost=vhost, database_url=database)
        rig.settings["MIGRATOR_HANDOVER__BATCH_SIZE"] = "50"
        rig.prepare()
        rows = [row() for _ in range(200)]
        rig.insert(rows)
        proxy.cut_before_answer(skipping=answers)
        cut = rig.run(
            *("run", "--endpoint", "Sales", "--once"),
            MIGRATOR_STORE__URL=proxy.url(database),
        )
        assert cut.returncode in (0, ExitCode.UNREACHABLE), cut.stderr[-4000:]
        assert proxy.cuts == 1
        rig.migrate()
    found = rig.account(rows, "Billing")
    assert (found.lost, found.duplicated, found.found) == ((), (), 200)
