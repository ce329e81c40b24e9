"""What only Azure Storage has: entities of three kinds, partitions, blobs; on Azurite."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from azure.data.tables import TableServiceClient

from dev.servers import AzuriteServer
from migrator.database.engine import open_engine
from migrator.errors import StoreError, StoreUnavailable, UnknownEndpoint
from migrator.ledger.work import Lease, StoreEndpoint
from migrator.nservicebus.timeouts import BatchId, TimeoutId
from migrator.stores.azure.account import Account, AccountSettings
from migrator.stores.azure.changes import Clearing
from migrator.stores.azure.partitions import parse_scope
from migrator.stores.azure.reading import TimeoutReader
from migrator.stores.azure.store import AzureStore
from migrator.stores.documents.ports import DocumentStore, claim_mark
from migrator.stores.ports import Claim
from tests.contract.any_site import hours
from tests.contract.azure_site import REQUESTS, AzureSite
from tests.contract.document_site import Stopped
from tests.support.azure import LegacyAccount, Stored, due

pytestmark = pytest.mark.documents("azurite")

_documents: type[DocumentStore] = AzureStore


def take(site: AzureSite, lease: Lease, **changes: Any) -> Claim:
    """Claim what is due within ten days from now, and expect to get something."""
    until = {"due_until": datetime.now(UTC) + timedelta(days=10)}
    return site.claim(site.endpoint, lease, **until | changes)


def test_endpoints_are_found_by_who_owns_timeouts(site: AzureSite) -> None:
    """What the vendor's tool has hidden owns nothing; a mistyped name is told what there is."""
    moved = due(3, start=7, owner="Moved")
    site.legacy.add([*due(1), *due(2, start=1, owner="Sales_Other"), *moved])
    site.legacy.hide(moved[0], "run")
    assert [each.name for each in site.store.endpoints()] == ["Sales.Orders", "Sales_Other"]
    with pytest.raises(UnknownEndpoint, match=r"Sales\.Orders, Sales_Other"):
        site.store.find("Sale.Orders")


def test_a_range_is_kept_to(site: AzureSite) -> None:
    """Bounds are those of the request, also within one partition."""
    base = datetime.now(UTC).replace(minute=10, second=0, microsecond=0) + timedelta(days=1)
    rows = [
        replace(row, due_at=base + timedelta(minutes=n)) for n, row in enumerate(due(1, count=6))
    ]
    site.legacy.add(rows)
    claim = take(site, site.lease(), due_after=rows[1].due_at, due_until=rows[3].due_at)
    assert site.ids(claim) == [rows[2].id, rows[3].id]


def test_what_is_claimed_goes_back_to_the_last_digit(site: AzureSite) -> None:
    """Odd ids, sagas, 100 ns, unknown properties, unicode, no headers at all, an empty body."""
    rows = [
        Stored(id="plain", due_at=due(1)[0].due_at),
        Stored(
            id="ordered (1) ünïcode's",
            due_at=due(2)[0].due_at,
            saga="5f6e0c1a-0000-4000-8000-00000000c2d1",
            ticks=7,
            body="schön ☃".encode(),
            headers='{"NServiceBus.MessageId":"\\u0027☃"}',
            more={"Odd": 1.5, "Big": (2**40, "Edm.Int64"), "Flag": True, "Raw": b"\x00\xff"},
        ),
        Stored(id="bare", due_at=due(3)[0].due_at, headers=None, destination=None, body=b""),
    ]
    site.legacy.add(rows)
    before = site.legacy.contents()
    lease = site.lease()
    claim = take(site, lease)
    assert site.legacy.contents() == {}
    assert site.claims.release(claim.batch, lease) == 3
    assert site.legacy.contents() == before
    assert site.states() == {"released": 3}
    assert site.ids(take(site, lease)) == [row.id for row in rows]


def test_leftovers_and_what_the_vendor_moved_are_never_claimed(site: AzureSite) -> None:
    """Nor do they stand in the way of what is due later."""
    rows = due(1, count=8)
    site.legacy.add(rows)
    for row in rows[:4]:
        site.legacy.table.delete_entity(row.id, "")
    site.legacy.hide(rows[4], "run")
    lease = site.lease()
    claim = take(site, lease, max_rows=2)
    assert site.ids(claim) == [rows[5].id, rows[6].id]
    listed = {each.id for page in site.documents.list(site.endpoint) for each in page}
    assert listed == {rows[7].id}


def test_an_open_run_of_the_vendors_tool_is_told(site: AzureSite) -> None:
    """So are hidden timeouts that no completed run explains; a completed one is history."""
    assert site.store.unfinished_vendor_runs() == []
    rows = due(1, count=2)
    site.legacy.add(rows)
    site.legacy.hide(rows[0], "tmp1")
    assert "hidden" in site.store.unfinished_vendor_runs()[0]
    state: dict[str, Any] = {
        "PartitionKey": "2E81644B-3DD2-42FD-8D81-23B757AEE714",
        "RowKey": "run-1",
        "EndpointName": "Sales.Orders",
        "UniqueHiddenEndpointName": "__hidden__tmp1__Sales.Orders",
        "Status": 1,
    }
    with TableServiceClient.from_connection_string(site.legacy.url) as service:
        table = service.create_table("timeoutsmigrationtoolstate")
        try:
            table.create_entity(state)
            assert "'Sales.Orders' is open" in site.store.unfinished_vendor_runs()[0]
            table.upsert_entity({**state, "Status": 2})
            assert site.store.unfinished_vendor_runs() == []
        finally:
            service.delete_table("timeoutsmigrationtoolstate")


def test_the_ledger_may_be_in_any_database(database_url: str, azure_account: LegacyAccount) -> None:
    """What a claim writes into it, and reads again to put it back, is the same everywhere."""
    site = AzureSite(engine=open_engine(database_url), legacy=azure_account)
    rows = hours(2)
    claim = site.claim(site.create(rows), lease := site.lease())
    assert site.claims.release(claim.batch, lease) == 2
    assert (site.legacy_rows(), site.remains()) == (rows, [])
    site.close()


def test_a_missing_table_is_no_empty_store(azurite_server: AzuriteServer) -> None:
    """Nothing may be concluded from what is not found in there."""
    settings = AccountSettings(
        connection_string=azurite_server.url(), table="Nowhere", container="nowhere", requests=2
    )
    store = AzureStore(Account(settings), parse_scope("yyyyMMddHH"))
    endpoint = StoreEndpoint(name="Sales", source=store.source_of("Sales"))  # type: ignore[arg-type]
    now = datetime.now(UTC)
    asked: Sequence[Callable[[], object]] = (
        store.endpoints,
        lambda: list(store.list(endpoint)),
        lambda: [*store.read(endpoint, [TimeoutId("x")])],
        lambda: store.soonest(endpoint, due_after=None, due_until=now, at_most=1),
        lambda: store.probe(endpoint),
    )
    for ask in asked:
        with pytest.raises(StoreError, match="there is no table Nowhere"):
            ask()
    store.close()


def test_timeouts_under_another_scope_are_refused_and_not_overlooked(site: AzureSite) -> None:
    """Nobody would find them; a leftover of such a scope harms nobody."""
    row = due(1)[0]
    site.legacy.add([replace(row, id="left"), row])
    for each in ("left", row.id):
        entity = site.legacy.table.get_entity(row.partition, each)
        site.legacy.table.create_entity({**entity, "PartitionKey": row.due_at.strftime("%Y-%m-%d")})
        site.legacy.table.delete_entity(row.partition, each)
    site.legacy.table.delete_entity("left", "")
    asked: Sequence[Callable[[], object]] = (
        site.documents.endpoints,
        lambda: list(site.documents.list(site.endpoint)),
        lambda: site.documents.probe(site.endpoint),
    )
    for ask in asked:
        with pytest.raises(StoreError, match=r"store\.azure\.partition_key_scope"):
            ask()
    site.legacy.table.delete_entity(row.id, "")
    for ask in asked:
        ask()


def test_the_soonest_of_a_partition_with_many_are_found(site: AzureSite) -> None:
    """Their ids are in another order than their due times, over many pages."""
    base = datetime.now(UTC).replace(minute=10, second=0, microsecond=0) + timedelta(days=1)
    rows = [
        replace(row, due_at=base - timedelta(seconds=n)) for n, row in enumerate(due(1, count=20))
    ]
    site.legacy.add(rows)
    found = site.documents.soonest(site.endpoint, due_after=None, due_until=base, at_most=2)
    assert [each.id for each in found] == [rows[19].id, rows[18].id]


def test_a_body_too_large_to_be_held_stays_where_it_is(site: AzureSite) -> None:
    """The timeout is set aside with its size, and goes back as it was."""
    rows = [*due(1, body=b"x" * 9), *due(1, start=1)]
    site.legacy.add(rows)
    before = site.legacy.contents()
    documents: Any = site.documents
    site.claims._documents = AzureStore(
        documents._account, parse_scope("yyyyMMddHH"), largest_body=8
    )
    lease = site.lease()
    claim = take(site, lease)
    assert site.ids(claim) == [rows[1].id]
    assert "9 bytes" in site.ledger_rows()[0].reason_detail
    assert site.legacy.contents() == {rows[0].id: before[rows[0].id]}
    assert site.claims.release(claim.batch, lease) == 2
    assert site.legacy.contents() == before


def test_a_key_that_is_none_is_no_passing_failure(site: AzureSite) -> None:
    """Trying again would not help."""
    url = re.sub(r"AccountKey=[^;]+", "AccountKey=x", site.legacy.url)
    settings = AccountSettings(connection_string=url, table="T", container="c", requests=1)
    store = AzureStore(Account(settings), parse_scope("yyyyMMddHH"))
    with pytest.raises(StoreError, match="account key") as caught:
        store.endpoints()
    assert not isinstance(caught.value, StoreUnavailable)
    store.close()


def test_large_bodies_are_read_a_few_at_a_time(
    site: AzureSite, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No listing tells how large they are: what a claim may take bounds what is held."""
    rows = due(1, count=40, body=b"x" * 1000)
    site.legacy.add(rows)
    begun, read = list[TimeoutId](), TimeoutReader.read

    def counted(self: TimeoutReader, owner: str, timeout: TimeoutId, *entry: Any) -> Any:
        begun.append(timeout)
        return read(self, owner, timeout, *entry)

    monkeypatch.setattr(TimeoutReader, "read", counted)
    claim = take(site, site.lease(), max_bytes=10_000)
    assert claim.batch.body_bytes <= 10_000
    assert claim.batch.size <= len(begun) <= claim.batch.size + 1 + 2 * REQUESTS


def test_a_blob_that_may_not_be_removed_stops_no_claim(site: AzureSite) -> None:
    """Its main entry is gone, so nobody else would ever send the timeout; it can go back, too."""
    rows = due(1, count=2)
    site.legacy.add(rows)
    before = site.legacy.contents()
    blob = site.legacy.container.get_blob_client(rows[0].id)
    held = blob.acquire_lease()
    lease = site.lease()
    claim = take(site, lease)
    assert claim.batch.size == 2
    assert set(site.legacy.contents()) == {rows[0].id}
    assert site.claims.release(claim.batch, lease) == 2
    held.release()
    assert site.legacy.contents() == before


def test_an_archived_blob_stops_no_claim(site: AzureSite) -> None:
    """Its timeout is set aside, and is whole again once it is back and the blob is thawed."""
    rows = due(1, count=2)
    site.legacy.add(rows)
    before = site.legacy.contents()
    blob = site.legacy.container.get_blob_client(rows[0].id)
    blob.set_standard_blob_tier("Archive")
    lease = site.lease()
    claim = take(site, lease)
    assert site.ids(claim) == [rows[1].id]
    assert "BlobArchived" in site.ledger_rows()[0].reason_detail
    assert site.claims.release(claim.batch, lease) == 2
    blob.set_standard_blob_tier("Hot")
    assert site.legacy.contents() == before


def test_what_nobody_can_claim_is_listed_with_the_reason(site: AzureSite) -> None:
    """A due time that is none, in a main entry or in a time entry; the other one is claimed."""
    rows = due(1, count=4, saga="5f6e0c1a-0000-4000-8000-00000000c2d1")
    site.legacy.add(rows)
    table = site.legacy.table
    odd = {"Time": "soon"}
    for partition, name in (
        (rows[0].id, ""),
        (rows[1].partition, rows[1].id),
        (str(rows[2].saga), rows[2].id),  # only its saga entry: nobody looks at the time in there
    ):
        table.upsert_entity({**table.get_entity(partition, name), **odd})
    table.upsert_entity({**table.get_entity(rows[3].id, ""), "OwningTimeoutManager": "Other"})
    table.upsert_entity(
        {**table.get_entity(rows[3].partition, rows[3].id), "OwningTimeoutManager": "Other", **odd}
    )
    listed = [each for page in site.store.survey(site.endpoint) for each in page]
    assert sorted((each.id, each.why_unclaimable) for each in listed) == [
        (rows[0].id, "its due time cannot be read"),
        (rows[1].id, "its due time cannot be read"),
        (rows[2].id, None),
    ]
    assert [each.name for each in site.store.endpoints()] == ["Other", "Sales.Orders"]
    lease = site.lease()
    claim = take(site, lease)
    assert site.ids(claim) == [rows[2].id]
    assert (
        site.claims.claim(site.request(site.endpoint, lease, due_until=due(99)[0].due_at)) is None
    )


def test_a_survey_tells_how_large_bodies_are(site: AzureSite) -> None:
    """The container is listed, whatever else is in there; of a body that is gone nobody knows."""
    site.legacy.add([*due(1, count=4, body=b"12345"), *due(1, start=4, body=None)])
    site.legacy.container.upload_blob("of-somebody-else", b"x" * 99)
    rows = [each for page in site.store.survey(site.endpoint) for each in page]
    found = [each.body_bytes for each in sorted(rows, key=lambda row: row.id)]
    assert found == [5, 5, 5, 5, None]


def test_killed_between_main_entries_and_all_else(
    site: AzureSite, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next process knows by the evidence which are ours, and removes the rest of them."""
    rows = due(1, count=3, saga="5f6e0c1a-0000-4000-8000-00000000c2d1")
    site.legacy.add(rows)
    lease = site.lease(owner="me")

    def die(*_: object) -> None:
        raise Stopped

    monkeypatch.setattr(Clearing, "clear", die)
    with pytest.raises(Stopped):
        take(site, lease)
    monkeypatch.undo()
    assert site.legacy.ids() == set()
    assert {row.partition for row in rows} <= {key[0] for key in site.legacy.contents()}
    with closing(site.second()) as other:
        (batch,) = other.batches.open_batches(lease)
        claimed = other.claims.resume(batch, lease)
    assert claimed is not None
    assert claimed.size == 3
    assert site.legacy.contents() == {}


def test_what_was_restored_since_it_was_listed_is_read_anew(site: AzureSite) -> None:
    """Its time entry has another version now, and would stay when it is claimed again."""
    row = due(1)[0]
    site.legacy.add([row])
    until = datetime.now(UTC) + timedelta(days=2)
    found = site.documents.soonest(site.endpoint, due_after=None, due_until=until, at_most=9)
    documents: Any = site.documents
    listed = documents._soonest.entity("Sales.Orders", row.id)
    listed.metadata["timestamp"] -= timedelta(days=3)  # it was stored long ago
    entity = site.legacy.table.get_entity(row.partition, row.id)
    site.legacy.table.upsert_entity(entity)
    (document,) = site.documents.read(site.endpoint, [each.id for each in found])
    site.documents.take(site.endpoint, claim_mark("lg1", BatchId(7)), [document])
    assert [key for key in site.legacy.contents() if key[1:] != ("migrator.lg1.7.c",)] == []
