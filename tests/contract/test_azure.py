"""What only Azure Storage has: entities of three kinds, partitions, blobs; on Azurite."""

from __future__ import annotations

import base64
import hmac
import re
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import urlencode

import pytest
from azure.data.tables import UpdateMode
from sqlalchemy import Engine

from dev.servers import AzuriteServer
from migrator.errors import StoreError, StoreUnavailable, UnknownEndpoint
from migrator.ledger.work import Lease, StoreEndpoint
from migrator.nservicebus.timeouts import BatchId, TimeoutId
from migrator.stores.azure.account import Account, AccountSettings
from migrator.stores.azure.changes import Changes
from migrator.stores.azure.partitions import parse_scope
from migrator.stores.azure.store import AzureStore
from migrator.stores.documents.ports import DocumentStore, DueRange, Mark, claim_mark
from migrator.stores.requests import Claim
from tests.contract.any_site import hours
from tests.contract.azure_site import AzureSite
from tests.contract.document_site import Stopped
from tests.support.azure import LegacyAccount, Stored, due

pytestmark = pytest.mark.documents("azurite")

_documents: type[DocumentStore] = AzureStore
NAMES = ("Name", "Key")


def take(site: AzureSite, lease: Lease, **changes: Any) -> Claim:
    """Claim what is due within ten days from now, and expect to get something."""
    until = {"due_until": datetime.now(UTC) + timedelta(days=10)}
    return site.claim(site.endpoint, lease, **until | changes)


def test_leftovers_and_what_the_vendor_moved_are_never_claimed(site: AzureSite) -> None:
    """Nor do they stand in the way of what is due later, or own anything; both are told."""
    rows = due(1, count=8)
    site.legacy.add([*rows, *(moved := due(3, start=8, owner="Moved"))])
    assert site.store.unfinished_vendor_runs() == []
    for row in rows[:4]:
        site.legacy.table.delete_entity(row.id, "")
    for row in (rows[4], moved[0]):
        site.legacy.hide(row, "run")
    assert "hidden" in site.store.unfinished_vendor_runs()[0]
    assert [each.name for each in site.store.endpoints()] == ["Sales.Orders"]
    with pytest.raises(UnknownEndpoint, match=r"Sales\.Orders"):
        site.store.find("Sale.Orders")
    lease = site.lease()
    claim = take(site, lease, max_rows=2)
    assert site.ids(claim) == [rows[5].id, rows[6].id]
    listed = {each.id for page in site.documents.list(site.endpoint) for each in page}
    assert listed == {rows[7].id}


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


def test_the_ledger_may_be_in_any_database(engine: Engine, azure_account: LegacyAccount) -> None:
    """What a claim writes into it, and reads again to put it back, is the same everywhere."""
    site = AzureSite(engine=engine, legacy=azure_account)
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
        lambda: store.soonest(endpoint, DueRange(None, now), 1),
        lambda: store.probe(endpoint),
    )
    for ask in asked:
        with pytest.raises(StoreError, match="there is no table Nowhere") as caught:
            ask()
        assert "AccountKey" not in str(caught.value)
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


def test_a_body_that_cannot_be_held_or_read_stays_where_it_is(site: AzureSite) -> None:
    """Too large, or archived: the timeout is set aside with the reason, and goes back as it was."""
    rows = [*due(1, body=b"x" * 9), *due(1, count=2, start=1)]
    site.legacy.add(rows)
    before = site.legacy.contents()
    archived = site.legacy.container.get_blob_client(rows[1].id)
    archived.set_standard_blob_tier("Archive")
    documents: Any = site.documents
    scope = parse_scope("yyyyMMddHH")
    site.claims._documents = AzureStore(documents._account, scope, largest_body=8)
    lease = site.lease()
    claim = take(site, lease)
    assert site.ids(claim) == [rows[2].id]
    large, frozen = (row.reason_detail for row in site.ledger_rows()[:2])
    assert "9 bytes" in large
    assert "BlobArchived" in frozen
    assert site.claims.release(claim.batch, lease) == 3
    archived.set_standard_blob_tier("Hot")
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


def test_a_shared_access_signature_will_do(site: AzureSite) -> None:
    """Instead of the account's key. Of one timeout: Azurite cannot do batches of blobs with it."""
    rows = due(1, saga="5f6e0c1a-0000-4000-8000-00000000c2d1")
    site.legacy.add(rows)
    before = site.legacy.contents()
    account, key = (re.findall(f"Account{each}=([^;]+)", site.legacy.url)[0] for each in NAMES)
    until = f"{datetime.now(UTC) + timedelta(hours=1):%Y-%m-%dT%H:%M:%SZ}"
    told = [account, "rwdlacu", "bt", "sco", "", until, "", "", "2019-02-02", ""]
    signed = hmac.digest(base64.b64decode(key), "\n".join(told).encode(), "sha256")
    query = {"sv": told[8], "ss": "bt", "srt": "sco", "sp": told[1], "se": until}
    signature = urlencode(query | {"sig": base64.b64encode(signed).decode()})
    url = re.sub(r"AccountKey=[^;]+", f"SharedAccessSignature={signature}", site.legacy.url)
    documents: Any = site.documents
    settings = replace(documents._account.settings, connection_string=url)
    with closing(AzureStore(Account(settings), parse_scope("yyyyMMddHH"))) as documents:
        site.claims._documents = documents
        lease = site.lease()
        claim = take(site, lease)
        assert (site.ids(claim), site.legacy.contents()) == ([row.id for row in rows], {})
        assert site.claims.release(claim.batch, lease) == 1
    assert site.legacy.contents() == before


def test_bodies_may_be_kept_until_the_container_is_deleted(
    engine: Engine, azure_account: LegacyAccount
) -> None:
    """All else of what is claimed goes; what goes back finds its body there, and can go again."""
    rows = due(1, count=3, saga="5f6e0c1a-0000-4000-8000-00000000c2d1")
    azure_account.add(rows)
    before = azure_account.contents()
    with closing(AzureSite(engine=engine, legacy=azure_account, keeps_bodies=True)) as site:
        claim = take(site, lease := site.lease())
        assert set(azure_account.contents()) == {row.id for row in rows}
        assert site.claims.release(claim.batch, lease) == 3
        assert azure_account.contents() == before
        assert site.ids(take(site, lease)) == [row.id for row in rows]


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
    listed = [each for page in site.store.scan(site.endpoint) for each in page]
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


def test_a_scan_tells_how_large_bodies_are(site: AzureSite) -> None:
    """The container is listed, whatever else is in there; of a body that is gone nobody knows."""
    site.legacy.add([*due(1, count=4, body=b"12345"), *due(1, start=4, body=None)])
    site.legacy.container.upload_blob("of-somebody-else", b"x" * 99)
    rows = [each for page in site.store.scan(site.endpoint) for each in page]
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

    monkeypatch.setattr(Changes, "_clear", die)
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
    found = site.documents.soonest(site.endpoint, DueRange(None, until), 9)
    documents: Any = site.documents
    listed = documents._soonest.recent.entry("Sales.Orders", row.id).read
    listed["Timestamp"] = "2020-01-01T00:00:00Z"  # it was stored long ago
    entity = site.legacy.table.get_entity(row.partition, row.id)
    site.legacy.table.upsert_entity(entity)
    (document,) = site.documents.read(site.endpoint, [TimeoutId(each.id) for each in found])
    site.documents.take(site.endpoint, claim_mark("lg1", BatchId(7)), [document])
    assert [key for key in site.legacy.contents() if key[1:] != ("migrator.lg1.7.c",)] == []


def test_what_leads_elsewhere_stops_no_claim(site: AzureSite) -> None:
    """Names that no blob has, or that are a way to another container; sagas that are no key."""
    odd: list[dict[str, str]] = [
        {"StateAddress": "../other/body"},
        {"StateAddress": "a/./b"},
        {"StateAddress": "a" * 20_000},
        {"SagaId": "a/b"},
        {"SagaId": "a" * 20_000},
    ]
    rows, table = due(1, count=len(odd)), site.legacy.table
    site.legacy.add(rows)
    for row, more in zip(rows, odd, strict=True):
        for partition, name in ((row.id, ""), (row.partition, row.id)):
            table.upsert_entity({**table.get_entity(partition, name), **more})
    before = site.legacy.contents()
    lease = site.lease()
    claim = take(site, lease)
    assert site.ids(claim) == [rows[3].id, rows[4].id]
    assert {row.reason for row in site.ledger_rows()[:3]} == {"body-missing"}
    assert set(site.legacy.contents()) == {row.id for row in rows[:3]}
    assert site.claims.release(claim.batch, lease) == len(rows)
    assert site.legacy.contents() == before


def test_a_restoration_that_arrives_at_the_last_moment_is_known(
    site: AzureSite, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An id is taken, so it is given up; then the id is free, and the first request is done."""
    (row,), theirs, mark = due(1), due(2), Mark("lg1.7.b")
    site.legacy.add([row])
    documents = [*site.documents.read(site.endpoint, [TimeoutId(row.id)])]
    main = site.legacy.table.get_entity(row.id, "")
    assert site.legacy.try_remove(row.id)
    site.legacy.add(theirs)
    remove = Changes._remove

    def overtaken(*args: Any) -> None:
        monkeypatch.undo()
        assert site.legacy.try_remove(row.id)
        closed = {"PartitionKey": row.id, "RowKey": f"migrator.{mark}", "Step": "closed"}
        site.legacy.table.submit_transaction(
            [("create", main), ("update", closed, {"mode": UpdateMode.REPLACE})]
        )
        remove(*args)

    monkeypatch.setattr(Changes, "_remove", overtaken)
    back = site.documents.put_back(site.endpoint, mark, documents, is_meant=lambda: True)
    assert (back, site.legacy.ids()) == ({row.id}, {row.id})
