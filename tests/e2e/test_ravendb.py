"""The real program with RavenDB's HTTP boundary as its store; no RavenDB is run here.

``tests/support/ravendb`` answers as the reference says. Killed in the steps that only document
stores have: nothing lost, nothing doubled; and all of it comes back.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import pytest

from tests.e2e.rig import Rig, Row, row
from tests.support.ravendb import DATABASE, StrictRaven

KILLED = -9
BATCH = 20


@dataclass
class RavenRig(Rig):
    """A system whose timeouts are documents; the database is the ledger's alone."""

    raven: StrictRaven | None = None

    @property
    def server(self) -> StrictRaven:
        """The server."""
        assert self.raven is not None
        return self.raven

    def environment(self, **more: str) -> dict[str, str]:
        """Return the program's environment."""
        ours = {
            "MIGRATOR_STORE__KIND": "ravendb",
            "MIGRATOR_STORE__URL": self.server.url,
            "MIGRATOR_STORE__RAVENDB__DATABASE": DATABASE,
            "MIGRATOR_LEDGER__URL": self.database_url,
        }
        environment = super().environment(**ours, **more)
        del environment["MIGRATOR_STORE__SCHEMA"]
        return environment

    def create_store(self) -> None:
        """Do nothing: the database is there."""

    def insert(self, rows: Iterable[Row]) -> None:
        """Store *rows* as the persister would."""
        key = "Raven-Entity-Name" if self.server.family == "3.5" else "@collection"
        for each in rows:
            content = {
                "Destination": each.destination,
                "SagaId": str(each.saga_id),
                "State": base64.b64encode(each.body or b"").decode(),
                "Time": each.due_at.strftime("%Y-%m-%dT%H:%M:%S.%f0Z"),
                "OwningTimeoutManager": self.endpoint,
                "Headers": json.loads(each.headers or "null"),
            }
            self.server.store(each.id, content, **{key: "TimeoutDatas"})

    def stored_ids(self) -> set[str]:
        """Return the ids of the timeouts that the server has."""
        return set(self.server.ids("TimeoutDatas/"))


@pytest.fixture
def rig(request: pytest.FixtureRequest, database: str, vhost: Any) -> Iterator[RavenRig]:
    """A store, a ledger and a broker of this test's own."""
    with StrictRaven(request.param) as raven:
        rig = RavenRig(
            database_url=database,
            broker_url=vhost.amqp_url,
            management_url=vhost.node.management_url,
            settings={"MIGRATOR_HANDOVER__BATCH_SIZE": str(BATCH)},
            raven=raven,
        )
        yield rig
        rig.close()
    assert raven.violations == []


def documents(count: int) -> list[Row]:
    """Return timeouts as documents are called."""
    return [replace(each, id=f"TimeoutDatas/{each.id}") for each in (row() for _ in range(count))]


def steps() -> Iterator[Any]:
    """Yield each family and step; those outside the short form run with --full only."""
    for family in ("3.5", "4"):
        for step in ("claim.recorded", "claim.taken", "claim.confirmed"):
            is_short = (family, step) == ("4", "claim.taken")
            yield pytest.param(family, step, marks=[] if is_short else [pytest.mark.slow])


@pytest.mark.parametrize(("rig", "step"), list(steps()), indirect=["rig"])
def test_kill_at_a_step_of_a_claim(rig: RavenRig, step: str) -> None:
    """Killed and started again: each timeout once on the broker, none left in the store."""
    rig.prepare()
    rows = documents(3 * BATCH)
    rig.insert(rows)
    killed = rig.run("run", "--endpoint", "Sales", "--once", fault=f"{step}:2")
    assert killed.returncode == KILLED, killed.stderr[-4000:]
    rig.migrate()
    account = rig.account(rows, "Billing")
    print(f"{step}: {account}")
    assert (account.lost, account.duplicated, account.foreign) == ((), (), ())
    assert account.found == 3 * BATCH
    assert rig.stored_ids() == set()
    assert set(rig.batch_states()) == {"handed_over"}


@pytest.mark.parametrize("rig", ["3.5", "4"], indirect=True)
@pytest.mark.slow
def test_what_is_asked_before_and_what_comes_back_after(rig: RavenRig) -> None:
    """Endpoints, preview and check; moved, and rolled back to what was there."""
    rig.prepare()
    rows = documents(BATCH + 1)
    rig.insert(rows)
    before = {each.id: rig.server.content(each.id) for each in rows}
    (listed,) = json.loads(rig.must("endpoints", "--json"))["endpoints"]
    host = rig.server.url.removeprefix("http://")
    assert (listed["endpoint"], listed["source"]) == ("Sales", f"{host}/{DATABASE}:Sales")
    (preview,) = json.loads(rig.must("preview", "--endpoint", "Sales", "--json"))["endpoints"]
    assert preview["stored"] == BATCH + 1
    rig.must("check", "--endpoint", "Sales", "--json")
    assert rig.stored_ids() == set(before)
    rig.migrate()
    assert rig.stored_ids() == set()
    rig.must("rollback", "--yes", "--json")
    assert {each.id: rig.server.content(each.id) for each in rows} == before
    assert rig.server.ids("migrator/") == []
