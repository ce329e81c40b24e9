"""The real program on Azure Storage (Azurite) and RavenDB, with a ledger in PostgreSQL.

Killed at steps and at random moments, while a timeout manager goes on beside: nothing lost, nothing
doubled; and all of it comes back. The contract tests go through every step of every store.
"""

from __future__ import annotations

import base64
import json
from abc import abstractmethod
from collections.abc import Collection, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from datetime import timedelta
from random import Random
from typing import Any

import pytest

from migrator.ledger.rights import Purpose
from tests.conftest import Vhost
from tests.e2e.rig import Rig
from tests.e2e.rows import Row, row
from tests.e2e.test_crashes import kill_at_random_moments
from tests.e2e.test_rights import SALES, limited
from tests.support.azure import LegacyAccount, Stored
from tests.support.raven_boundary import Boundary
from tests.support.ravendb import StrictRaven

BATCH = 12
KILLED = -9

pytestmark = pytest.mark.timeout(300)  # the first one starts three servers, perhaps beside others


@dataclass
class DocumentRig(Rig):
    """A system whose timeouts are documents; the database is the ledger's alone."""

    legacy: Any = field(kw_only=True)
    """The store as an endpoint uses it."""

    def create_store(self) -> None:
        """Do nothing: it is there."""

    def new_row(self, **changes: Any) -> Row:
        """Return a timeout as this store calls them."""
        return row(**changes)

    def has_rows(self) -> bool:
        """Return whether any are left there."""
        return bool(self.stored_ids())

    def remove(self, id_: str) -> bool:
        """Remove a timeout as its manager does that is about to send it."""
        return bool(self.legacy.try_remove(id_))

    @abstractmethod
    def contents(self) -> dict[str, Any]:
        """Return all there is of each timeout, to the last digit."""


@dataclass
class AzureRig(DocumentRig):
    """A system whose store is an account of Azure Storage."""

    def insert(self, rows: Iterable[Row]) -> None:
        """Store *rows* as the persister would, several at a time."""
        with ThreadPoolExecutor(8) as pool:
            list(pool.map(self._store, rows))

    def _store(self, row: Row) -> None:
        stored = Stored(
            id=row.id,
            due_at=row.due_at,
            owner=self.endpoint,
            destination=row.destination,
            saga=str(row.saga_id),
            body=row.body,
            headers=row.headers,
            ticks=1,
        )
        self.legacy.add([stored])

    def stored_ids(self) -> set[str]:
        """Return the ids that are still in the table."""
        return set(self.legacy.ids())

    def contents(self) -> dict[str, Any]:
        """See ``DocumentRig``."""
        found: dict[str, Any] = {}
        for key, value in self.legacy.contents().items():
            partition, name = key if isinstance(key, tuple) else (key, "")
            if not name.startswith("migrator."):
                found.setdefault(name or partition, {})[key] = value
        return found


@dataclass
class RavenRig(DocumentRig):
    """A system whose store is a database of RavenDB."""

    def new_row(self, **changes: Any) -> Row:
        """See ``DocumentRig``."""
        found = row(**changes)
        return replace(found, id=f"TimeoutDatas/{found.id}")

    def insert(self, rows: Iterable[Row]) -> None:
        """Store *rows* as the persister would."""
        key = "Raven-Entity-Name" if self.legacy.family == "3.5" else "@collection"
        with self.legacy.at_once():
            for each in rows:
                content = {
                    "Destination": each.destination,
                    "SagaId": str(each.saga_id),
                    "State": base64.b64encode(each.body or b"").decode(),
                    "Time": each.due_at.strftime("%Y-%m-%dT%H:%M:%S.%f0Z"),
                    "OwningTimeoutManager": self.endpoint,
                    "Headers": json.loads(each.headers or "null"),
                }
                self.legacy.store(each.id, content, **{key: "TimeoutDatas"})

    def stored_ids(self) -> set[str]:
        """Return the ids of the timeouts that the server has."""
        return set(self.legacy.ids("TimeoutDatas/"))

    def contents(self) -> dict[str, Any]:
        """See ``DocumentRig``."""
        found = self.legacy.documents.values()
        return {d.id: d.content for d in found if d.id.startswith("TimeoutDatas/")}


def raven_settings(raven: Boundary, database: str) -> dict[str, str]:
    """Return where the program finds a database of RavenDB, and its ledger."""
    url, name = raven.address
    return {
        "MIGRATOR_STORE__KIND": "ravendb",
        "MIGRATOR_STORE__URL": url,
        "MIGRATOR_STORE__RAVENDB__DATABASE": name,
        "MIGRATOR_LEDGER__URL": database,
        "MIGRATOR_HANDOVER__BATCH_SIZE": str(BATCH),
    }


@pytest.fixture
def rig(request: pytest.FixtureRequest, database: str, vhost: Vhost) -> Iterator[DocumentRig]:
    """A store, a ledger and a broker of this test's own."""
    given: dict[str, Any] = {
        "database_url": database,
        "broker_url": vhost.amqp_url,
        "management_url": vhost.node.management_url,
    }
    with ExitStack() as stack:
        if request.param == "azure":
            url = request.getfixturevalue("azurite_server").url()
            account = LegacyAccount(url)
            stack.callback(account.close)
            settings = {
                "MIGRATOR_STORE__KIND": "azure",
                "MIGRATOR_STORE__URL": url,
                "MIGRATOR_STORE__AZURE__TABLE": account.table_name,
                "MIGRATOR_STORE__AZURE__CONTAINER": account.container_name,
                "MIGRATOR_LEDGER__URL": database,
                "MIGRATOR_HANDOVER__BATCH_SIZE": str(BATCH),
            }
            made: DocumentRig = AzureRig(**given, settings=settings, legacy=account)
        else:
            raven: Boundary = (
                request.getfixturevalue("real_raven")
                if request.param == "ravendb"
                else stack.enter_context(StrictRaven("3.5"))
            )
            made = RavenRig(**given, settings=raven_settings(raven, database), legacy=raven)
        yield made
        made.close()


def slow(*values: object) -> Any:
    """Return a case that only the long form runs."""
    return pytest.param(*values, marks=[pytest.mark.slow])


CLAIMING = ("claim.recorded", "claim.taken", "claim.confirmed", "claim.done")
TWICE = {"direct.publishing", "direct.confirmed"}
"""Steps at which some of a batch is with the broker, and the ledger does not say so."""


@pytest.mark.parametrize(
    ("rig", "mode", "step"),
    [
        slow("azure", "staged", "claim.taken"),
        ("ravendb", "staged", "claim.taken"),
        slow("ravendb-3.5", "staged", "claim.taken"),
        *(slow("azure", "staged", s) for s in (*CLAIMING, "staged.nacked") if s != "claim.taken"),
        *(slow("azure", "direct", s) for s in (*CLAIMING, "direct.begun", *sorted(TWICE))),
    ],
    indirect=["rig"],
)
def test_kill_at_step(rig: DocumentRig, mode: str, step: str) -> None:
    """Killed at a step, while a timeout manager goes on beside: each is sent by one of the two.

    In mode ``direct`` the batch that was being published may come twice, as is promised.
    """
    rig.settings["MIGRATOR_HANDOVER__MODE"] = mode
    rig.prepare()
    rows = [rig.new_row(due_in=timedelta(days=3, minutes=n)) for n in range(4 * BATCH)]
    rig.insert(rows)
    killed = rig.run("run", "--endpoint", "Sales", "--once", fault=f"{step}:2")
    assert killed.returncode == KILLED, killed.stderr
    assert "azure.core" not in killed.stderr  # its client would tell of every request
    # its own order is its own business: some of every batch
    sent = {each.id for each in rows[::5] if rig.remove(each.id)}
    assert sent
    rig.migrate(MIGRATOR_HANDOVER__BATCH_SIZE="7")
    left = [each for each in rows if each.id not in sent]
    account = rig.account(left, "Billing")
    print(f"{mode} {step}: {account}, and {len(sent)} sent by the timeout manager")
    assert (account.lost, account.foreign) == ((), ())
    assert len(account.duplicated) <= (BATCH if step in TWICE else 0)
    assert set(rig.batch_states()) == {"handed_over"}
    assert rig.contents() == {}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("rig", "which"),
    [
        ("azure", ["--endpoint", "Sales"]),
        slow("azure", ["--all-endpoints"]),
        slow("ravendb", ["--endpoint", "Sales"]),
        slow("ravendb", ["--all-endpoints"]),
    ],
    indirect=["rig"],
)
def test_killed_when_the_last_was_claimed(rig: DocumentRig, which: list[str]) -> None:
    """Nothing in the store names the endpoint any more; it is gone on with."""
    rig.prepare()
    rows = [rig.new_row() for _ in range(BATCH)]
    rig.insert(rows)
    killed = rig.run("run", *which, "--once", fault="claim.done:1")
    assert killed.returncode == KILLED, killed.stderr
    assert rig.contents() == {}
    rig.must("run", *which, "--once")
    account = rig.account(rows, "Billing")
    assert (account.lost, account.duplicated) == ((), ())


@pytest.mark.slow
@pytest.mark.parametrize("rig", ["azure", "ravendb"], indirect=True)
@pytest.mark.parametrize("mode", ["staged", "direct"])
@pytest.mark.parametrize("kills", [3, pytest.param(50, marks=[pytest.mark.timeout(1500)])])
def test_kill_at_random_moments(rig: DocumentRig, mode: str, kills: int) -> None:
    """Each timeout is sent once, by us or by the timeout manager that goes on beside."""

    def timeout_manager(dice: Random) -> Collection[str]:
        stored = sorted(rig.stored_ids())
        tried = dice.sample(stored, min(5, len(stored)))
        return [each for each in tried if rig.remove(each)]

    kill_at_random_moments(
        rig,
        mode,
        kills,
        new_row=rig.new_row,
        # the first kills find the emulator at its fastest, with few timeouts in it
        rows_per_kill=300 if isinstance(rig, RavenRig) else max(40, 400 // kills),
        batches=(25, 40, 8),
        moments_s=(0.3, 3.2),
        beside=timeout_manager,
    )


@pytest.mark.slow
@pytest.mark.parametrize("rig", ["azure"], indirect=True)
@pytest.mark.parametrize("step", ["release.recorded", "release.restored", "release.confirmed"])
def test_a_rollback_that_is_killed_is_finished_by_the_next(rig: DocumentRig, step: str) -> None:
    """What a timeout manager sent of what was back already does not come back again."""
    rig.prepare()
    rows = [rig.new_row() for _ in range(BATCH)]
    rig.insert(rows)
    before = rig.contents()
    rig.run("run", "--endpoint", "Sales", "--once", fault="claim.done")
    assert rig.stored_ids() == set()
    killed = rig.run("rollback", "--endpoint", "Sales", "--yes", fault=step)
    assert killed.returncode == KILLED, killed.stderr
    sent = {each.id for each in rows[:3] if rig.remove(each.id)}
    assert len(sent) == (0 if step == "release.recorded" else 3)
    rig.must("rollback", "--endpoint", "Sales", "--yes")
    assert rig.contents() == {key: found for key, found in before.items() if key not in sent}


@pytest.mark.slow
@pytest.mark.parametrize("rig", ["azure", "ravendb", "ravendb-3.5"], indirect=True)
def test_the_ledger_wants_no_more_rights_than_are_printed(rig: DocumentRig, vhost: Vhost) -> None:
    """Each verb as a user of its purpose; a claim that was interrupted is taken up, too."""
    once = ("run", *SALES, "--once")
    rig.prepare()
    too_long = {"NServiceBus.MessageId": "m" * 256}
    rows = [rig.new_row() for _ in range(3 * BATCH)] + [rig.new_row(headers=too_long)]
    rig.insert(rows)
    before = rig.contents()
    moving = [each for each in Purpose if each is not Purpose.DISPATCH]
    with limited(rig, vhost, *moving) as us:
        us.run(Purpose.READ, "preview", *SALES, codes=(0, 3))
        for step in ("claim.recorded", "claim.taken:2"):
            us.run(Purpose.HAND_OVER, *once, codes=(KILLED,), fault=step)
        us.run(Purpose.HAND_OVER, *once, codes=(5,))
        us.run(Purpose.READ, "status")
        us.run(Purpose.VERIFY, "verify", "--deep", codes=(0, 5))
        us.run(Purpose.OPERATE, "quarantine", "retry")
        us.run(Purpose.HAND_OVER, *once, codes=(5,))
        us.run(Purpose.ROLLBACK, "rollback", "--yes")
        assert rig.contents() == before


@pytest.mark.slow
@pytest.mark.parametrize("rig", ["azure"], indirect=True)
def test_a_rollback_takes_back_what_was_being_published(rig: DocumentRig) -> None:
    """It publishes the batch once more, from the ledger, and takes both copies away."""
    rig.prepare("Billing")
    rig.insert([rig.new_row(due_in=timedelta(hours=2)) for _ in range(BATCH)])
    before = rig.contents()
    killed = rig.run("run", "--endpoint", "Sales", "--mode", "direct", fault="direct.confirmed")
    assert killed.returncode == KILLED, killed.stderr
    rig.must("rollback", "--endpoint", "Sales", "--yes")
    assert rig.contents() == before
    assert rig.drain_levels() == []


@pytest.mark.parametrize("rig", ["azure", slow("ravendb"), slow("ravendb-3.5")], indirect=True)
def test_there_and_back_by_the_commands(rig: DocumentRig) -> None:
    """Listed, previewed, checked, handed over, verified, and recalled as it was."""
    rig.prepare("Billing")
    if isinstance(rig, AzureRig):
        seeding = ("--count", "30", "--destinations", "Billing", "--due-from", "2h", "--bad", "1")
        rig.must("seed", "--yes", "--endpoint", "Sales", *seeding)
    else:
        rig.insert([rig.new_row(due_in=timedelta(hours=2)) for _ in range(30)])
    before = rig.contents()
    listed = json.loads(rig.must("preview", "--all-endpoints", "--json"))
    assert [each["endpoint"] for each in listed["endpoints"]] == ["Sales"]
    preview = json.loads(rig.must("preview", "--all-endpoints", "--json", codes=(0, 3, 5)))
    assert [each["stored"] for each in preview["endpoints"]] == [30]
    rig.must("preview", "--endpoint", "Sales")
    assert rig.contents() == before
    rig.migrate()
    assert rig.stored_ids() == set()
    assert len(rig.quarantined()) == isinstance(rig, AzureRig)
    rig.must("verify", codes=(0, 5))
    rig.must("rollback", "--endpoint", "Sales", "--yes")
    assert rig.contents() == before
    assert rig.drain_levels() == []
