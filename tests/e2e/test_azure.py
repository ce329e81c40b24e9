"""The real program on Azure Storage (Azurite), with a ledger in PostgreSQL and a real broker."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import timedelta
from random import Random
from typing import Any

import pytest

from dev.servers import AzuriteServer
from tests.e2e.rig import Rig
from tests.e2e.rows import Row, row
from tests.e2e.test_crashes import kill_at_random_moments
from tests.support.azure import LegacyAccount, Stored

BATCH = 12
KILLED = -9

pytestmark = pytest.mark.timeout(300)  # the first one starts three servers, perhaps beside others


@dataclass
class AzureRig(Rig):
    """A rig whose store is an account of Azure Storage; its database holds the ledger."""

    legacy: LegacyAccount = None  # type: ignore[assignment]  # always given

    def create_store(self) -> None:
        """Do nothing: table and container are there."""

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
        return self.legacy.ids()


@pytest.fixture
def azure(database: str, vhost: Any, azurite_server: AzuriteServer) -> Iterator[AzureRig]:
    """An account, a ledger and a broker of this test's own."""
    legacy = LegacyAccount(azurite_server.url())
    rig = AzureRig(
        database_url=database,
        broker_url=vhost.amqp_url,
        management_url=vhost.node.management_url,
        legacy=legacy,
        settings={
            "MIGRATOR_STORE__KIND": "azure",
            "MIGRATOR_STORE__URL": azurite_server.url(),
            "MIGRATOR_STORE__AZURE__TABLE": legacy.table_name,
            "MIGRATOR_STORE__AZURE__CONTAINER": legacy.container_name,
            "MIGRATOR_LEDGER__URL": database,
            "MIGRATOR_HANDOVER__BATCH_SIZE": str(BATCH),
        },
    )
    yield rig
    rig.close()
    legacy.close()


CLAIMING = ("claim.recorded", "claim.taken", "claim.confirmed", "claim.done")
STEPS = {
    "staged": (*CLAIMING, "staged.nacked"),
    "direct": (*CLAIMING, "direct.begun", "direct.publishing", "direct.confirmed"),
}
TWICE = {"direct.publishing", "direct.confirmed"}
"""Steps at which some of a batch is with the broker, and the ledger does not say so."""
SHORT_FORM = {("staged", "claim.taken")}
"""The contract tests go through every step; here the real process dies at one."""


@pytest.mark.parametrize(
    ("mode", "name"),
    [
        pytest.param(mode, name, marks=[] if (mode, name) in SHORT_FORM else [pytest.mark.slow])
        for mode, names in STEPS.items()
        for name in names
    ],
)
def test_kill_at_step(azure: AzureRig, mode: str, name: str) -> None:
    """Killed at a step, while a timeout manager goes on beside: each is sent by one of the two.

    In mode ``direct`` the batch that was being published may come twice, as is promised.
    """
    azure.settings["MIGRATOR_HANDOVER__MODE"] = mode
    azure.prepare()
    rows = [row(timedelta(days=3, minutes=n)) for n in range(4 * BATCH)]
    azure.insert(rows)
    killed = azure.run("run", "--endpoint", "Sales", "--once", fault=f"{name}:2")
    assert killed.returncode == KILLED, killed.stderr
    assert "azure.core" not in killed.stderr  # its client would tell of every request
    # its own order is its own business: some of every batch
    sent = {each.id for each in rows[::5] if azure.legacy.try_remove(each.id)}
    assert sent
    azure.migrate(MIGRATOR_HANDOVER__BATCH_SIZE="7")
    left = [each for each in rows if each.id not in sent]
    account = azure.account(left, "Billing")
    print(f"{mode} {name}: {account}, and {len(sent)} sent by the timeout manager")
    assert (account.lost, account.foreign) == ((), ())
    assert len(account.duplicated) <= (BATCH if name in TWICE else 0)
    assert set(azure.batch_states()) == {"handed_over"}
    assert azure.legacy.contents() == {} or name == "claim.confirmed"


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["staged", "direct"])
@pytest.mark.parametrize("kills", [3, pytest.param(50, marks=[pytest.mark.timeout(1500)])])
def test_kill_at_random_moments(azure: AzureRig, mode: str, kills: int) -> None:
    """Each timeout is sent once, by us or by the timeout manager that goes on beside."""

    def timeout_manager(dice: Random) -> Collection[str]:
        stored = sorted(azure.stored_ids())
        tried = dice.sample(stored, min(5, len(stored)))
        return [each for each in tried if azure.legacy.try_remove(each)]

    kill_at_random_moments(
        azure,
        mode,
        kills,
        rows_per_kill=40,
        batches=(25, 40, 8),
        moments_s=(0.3, 3.2),
        beside=timeout_manager,
    )


@pytest.mark.slow
@pytest.mark.parametrize("name", ["release.recorded", "release.restored"])
def test_a_rollback_that_is_killed_is_finished_by_the_next(azure: AzureRig, name: str) -> None:
    """What a timeout manager sent of what was back already does not come back again."""
    azure.prepare()
    rows = [row() for _ in range(BATCH)]
    azure.insert(rows)
    before = azure.legacy.contents()
    azure.run("run", "--endpoint", "Sales", "--once", fault="claim.done")
    assert azure.stored_ids() == set()
    killed = azure.run("rollback", "--endpoint", "Sales", "--yes", fault=name)
    assert killed.returncode == KILLED, killed.stderr
    sent = {each.id for each in rows[:3] if azure.legacy.try_remove(each.id)}
    azure.must("rollback", "--endpoint", "Sales", "--yes")
    after = azure.legacy.contents()
    assert {key: after[key] for key in before if not _is_of(key, sent)} == after
    assert azure.stored_ids() == {each.id for each in rows} - sent


def _is_of(key: Any, ids: set[str]) -> bool:
    return bool(ids & ({*key} if isinstance(key, tuple) else {key}))


def test_there_and_back_by_the_commands(azure: AzureRig) -> None:
    """Seeded, listed, previewed, checked, handed over, verified, and recalled as it was."""
    azure.prepare("Billing")
    seeding = ("--count", "30", "--destinations", "Billing", "--due-from", "2h", "--bad", "1")
    azure.must("seed", "--endpoint", "Sales", *seeding)
    before = azure.legacy.contents()
    listed = json.loads(azure.must("endpoints", "--json"))
    assert [each["endpoint"] for each in listed["endpoints"]] == ["Sales"]
    preview = json.loads(azure.must("preview", "--all-endpoints", "--json", codes=(0, 3, 5)))
    assert azure.legacy.contents() == before
    (endpoint,) = preview["endpoints"]
    assert endpoint["stored"] == 30
    azure.must("check", "--endpoint", "Sales")
    azure.migrate()
    assert azure.stored_ids() == set()
    assert len(azure.quarantined()) == 1
    azure.must("verify", codes=(0, 5))
    azure.must("rollback", "--endpoint", "Sales", "--yes")
    assert azure.legacy.contents() == before
    assert azure.drain_levels() == []


@pytest.mark.slow
def test_what_only_sql_stores_can_do_is_refused_with_the_reason(azure: AzureRig) -> None:
    """By settings at once, by commands when they are given; secrets stay out of it."""
    azure.prepare()
    azure.insert([row()])
    refused = azure.run("run", "--endpoint", "Sales", MIGRATOR_HANDOVER__NEAR_DUE="dispatch")
    assert (refused.returncode, "need a SQL store" in refused.stderr) == (2, True)
    refused = azure.run("decommission", "--endpoint", "Sales", "--yes")
    assert refused.returncode == 3
    assert "decommissioning needs a SQL store; store.kind is azure" in refused.stderr
    shown = azure.must("config", "show")
    key = azure.settings["MIGRATOR_STORE__URL"].partition("AccountKey=")[2].partition(";")[0]
    assert key not in shown
    absent = azure.run("endpoints", MIGRATOR_STORE__AZURE__TABLE="Nowhere")
    assert absent.returncode == 4
    assert "there is no table Nowhere" in absent.stderr
    assert key not in absent.stderr
