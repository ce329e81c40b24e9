"""The real program with RavenDB as its store, and with the strict server as 3.5.

Killed in the steps that only document stores have, and at random moments: nothing lost, nothing
doubled; and all of it comes back.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, replace
from random import Random
from typing import Any

import pytest

from tests.e2e.rig import Rig
from tests.e2e.rows import Row, row
from tests.e2e.test_crashes import kill_at_random_moments
from tests.support.raven_boundary import Boundary
from tests.support.ravendb import StrictRaven
from tests.support.ravendb_client import LegacyDatabase

KILLED = -9
BATCH = 20


@dataclass
class RavenRig(Rig):
    """A system whose timeouts are documents; the database is the ledger's alone."""

    raven: Boundary | None = None

    @property
    def server(self) -> Boundary:
        """The server."""
        assert self.raven is not None
        return self.raven

    def environment(self, **more: str) -> dict[str, str]:
        """Return the program's environment."""
        url, name = self.server.address
        ours = {
            "MIGRATOR_STORE__KIND": "ravendb",
            "MIGRATOR_STORE__URL": url,
            "MIGRATOR_STORE__RAVENDB__DATABASE": name,
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
        with self.server.at_once():
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


REAL = "for real"


@pytest.fixture
def raven(request: pytest.FixtureRequest) -> Iterator[Boundary]:
    """A server without documents."""
    if request.param == REAL:
        yield request.getfixturevalue("real_raven")
        return
    with StrictRaven(request.param) as raven:
        yield raven
    assert raven.violations == []


@pytest.fixture
def rig(raven: Boundary, database: str, vhost: Any) -> Iterator[RavenRig]:
    """A store, a ledger and a broker of this test's own."""
    rig = RavenRig(
        database_url=database,
        broker_url=vhost.amqp_url,
        management_url=vhost.node.management_url,
        settings={"MIGRATOR_HANDOVER__BATCH_SIZE": str(BATCH)},
        raven=raven,
    )
    yield rig
    rig.close()


def documents(count: int) -> list[Row]:
    """Return timeouts as documents are called."""
    return [as_document(row()) for _ in range(count)]


def as_document(row: Row) -> Row:
    """Return a timeout as a document is called."""
    return replace(row, id=f"TimeoutDatas/{row.id}")


CLAIMING = ("claim.recorded", "claim.taken", "claim.confirmed")
TWICE = ("direct.publishing", "direct.confirmed")
"""Steps at which some of a batch is with the broker, and the ledger does not say so."""


def steps() -> Iterator[Any]:
    """Yield each family, mode and step; those outside the short form run with --full only."""
    for family in ("3.5", REAL):
        for mode, names in (("staged", CLAIMING), ("direct", (*CLAIMING, *TWICE))):
            if (family, mode) == ("3.5", "direct"):
                continue  # how it hands over has nothing to do with the family
            for step in names:
                is_short = (family, mode, step) == (REAL, "staged", "claim.taken")
                yield pytest.param(family, mode, step, marks=[] if is_short else [pytest.mark.slow])


@pytest.mark.parametrize(("raven", "mode", "step"), list(steps()), indirect=["raven"])
def test_kill_at_a_step_of_a_claim(rig: RavenRig, mode: str, step: str) -> None:
    """Killed and started again: each timeout on the broker, none left in the store.

    And each once, but for the batch that mode ``direct`` was publishing.
    """
    rig.settings["MIGRATOR_HANDOVER__MODE"] = mode
    rig.prepare()
    rows = documents(3 * BATCH)
    rig.insert(rows)
    killed = rig.run("run", "--endpoint", "Sales", "--once", fault=f"{step}:2")
    assert killed.returncode == KILLED, killed.stderr[-4000:]
    rig.migrate()
    account = rig.account(rows, "Billing")
    print(f"{mode} {step}: {account}")
    assert (account.lost, account.foreign) == ((), ())
    assert len(account.duplicated) <= (BATCH if step in TWICE else 0)
    assert account.found == 3 * BATCH + len(account.duplicated)
    assert rig.stored_ids() == set()
    assert set(rig.batch_states()) == {"handed_over"}


@pytest.mark.slow
@pytest.mark.parametrize("raven", [REAL], indirect=True)
@pytest.mark.parametrize("step", ["release.recorded", "release.restored", "release.confirmed"])
def test_a_rollback_that_is_killed_is_finished_by_the_next(rig: RavenRig, step: str) -> None:
    """What a timeout manager sent of what was back already does not come back again."""
    rig.prepare()
    rows = documents(BATCH)
    rig.insert(rows)
    before = rig.server.documents
    rig.run("run", "--endpoint", "Sales", "--once", fault="claim.done")
    assert rig.stored_ids() == set()
    killed = rig.run("rollback", "--endpoint", "Sales", "--yes", fault=step)
    assert killed.returncode == KILLED, killed.stderr[-4000:]
    with LegacyDatabase(*rig.server.address, family=rig.server.family) as manager:
        sent = {each.id for each in rows[:3] if manager.try_remove(each.id)}
    assert len(sent) == (0 if step == "release.recorded" else 3)
    rig.must("rollback", "--endpoint", "Sales", "--yes")
    found = rig.server.documents.values()
    after = [each for each in found if each.id.startswith("TimeoutDatas/")]  # a receipt may be left
    print(f"{step}: {len(rows)} rolled back, {len(sent)} sent meanwhile, {len(after)} there")
    assert {each.id: each.content for each in after} == {
        each.id: each.content for each in before.values() if each.id not in sent
    }


@pytest.mark.slow
@pytest.mark.parametrize("raven", [REAL], indirect=True)
@pytest.mark.parametrize("mode", ["staged", "direct"])
@pytest.mark.parametrize("kills", [3, pytest.param(40, marks=[pytest.mark.timeout(1500)])])
def test_kill_at_random_moments(rig: RavenRig, mode: str, kills: int) -> None:
    """Each timeout is sent once, by us or by the timeout manager that goes on beside."""
    rig.settings["MIGRATOR_HANDOVER__BATCH_SIZE"] = "200"  # of the last run, which is not killed
    with LegacyDatabase(*rig.server.address, family=rig.server.family) as manager:

        def timeout_manager(dice: Random) -> Collection[str]:
            stored = sorted(rig.stored_ids())
            tried = dice.sample(stored, min(5, len(stored)))
            return [each for each in tried if manager.try_remove(each)]

        kill_at_random_moments(
            rig,
            mode,
            kills,
            new_row=lambda: as_document(row()),
            rows_per_kill=100,
            batches=(40, 25, 10),
            moments_s=(0.3, 3.2),
            beside=timeout_manager,
        )


@pytest.mark.parametrize(
    "raven", [REAL, pytest.param("3.5", marks=[pytest.mark.slow])], indirect=True
)
def test_what_is_asked_before_and_what_comes_back_after(rig: RavenRig) -> None:
    """Endpoints, preview and check; moved, and rolled back to what was there."""
    rig.prepare()
    rows = documents(BATCH + 1)
    rig.insert(rows)
    before = {each.id: rig.server.content(each.id) for each in rows}
    (listed,) = json.loads(rig.must("endpoints", "--json"))["endpoints"]
    url, name = rig.server.address
    source = f"{url.removeprefix('http://')}/{name}:Sales"
    assert (listed["endpoint"], listed["source"]) == ("Sales", source)
    (preview,) = json.loads(rig.must("preview", "--endpoint", "Sales", "--json"))["endpoints"]
    assert preview["stored"] == BATCH + 1
    rig.must("check", "--endpoint", "Sales", "--json")
    assert rig.stored_ids() == set(before)
    rig.migrate()
    assert rig.stored_ids() == set()
    rig.must("rollback", "--yes", "--json")
    assert {each.id: rig.server.content(each.id) for each in rows} == before
    assert rig.server.ids("migrator/") == []
