"""Claims in two steps from Azure Storage, on Azurite; ledgers of every kind where it matters."""

from __future__ import annotations

import contextlib
import re
import shutil
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from azure.data.tables import TableServiceClient
from sqlalchemy import update

from dev.servers import AzuriteServer
from migrator.database.engine import open_engine
from migrator.domain.marks import RowMark
from migrator.domain.partitions import parse_scope
from migrator.domain.recall import RecallOutcome, RecallScope
from migrator.domain.report import QuarantineFilter
from migrator.domain.states import BatchState, Event, Mode, RowState
from migrator.domain.timeouts import BatchId, TimeoutId
from migrator.errors import LeaseLost, LedgerError, StoreError, StoreUnavailable, UnknownEndpoint
from migrator.ledger.identity import adopt
from migrator.ports import Batch, Claim, Claims, Lease, Store, StoreEndpoint
from migrator.ports.documents import DocumentStore
from migrator.ports.recall import Recalls, Sighting
from migrator.ports.verification import Verifications
from migrator.stores.azure.account import Account, AccountSettings
from migrator.stores.azure.store import AzureStore
from migrator.stores.documents.books import DocumentBooks
from migrator.stores.documents.claims import DocumentClaims
from migrator.stores.documents.measuring import DocumentCounting, DocumentPulse
from migrator.stores.documents.recalls import DocumentRecalls
from migrator.stores.documents.store import DocumentStoreView
from migrator.stores.documents.verification import DocumentVerifications
from tests.contract.site import LONG, Site
from tests.support.azure import LegacyAccount, Stored, due

_documents: type[DocumentStore] = AzureStore
_claims: type[Claims] = DocumentClaims
_store: type[Store] = DocumentStoreView
_recalls: type[Recalls] = DocumentRecalls
_verifications: type[Verifications] = DocumentVerifications

PAGE = 3
"""Entities in a page of a listing: every test reads several."""


class Stopped(BaseException):
    """The process ended at a step."""


class AzureSite(Site):
    """A ledger, and beside it an account with timeouts, as one process sees them."""

    def __init__(self, ledger_url: str, legacy: LegacyAccount) -> None:
        super().__init__(engine=open_engine(ledger_url))
        self.legacy = legacy
        self.stop_at = ""
        account = Account(
            AccountSettings(
                connection_string=legacy.url,
                table=legacy.table_name,
                container=legacy.container_name,
                requests=4,
            )
        )
        self.documents = AzureStore(account, parse_scope("yyyyMMddHH"), page=PAGE)
        self.document_books = DocumentBooks(self.engine, self.tables)
        self.claims = DocumentClaims(  # type: ignore[assignment]  # the site's other parts only know the port
            self.document_books,
            self.documents,
            ledger_id=lambda: self.ledger_id,
            fault=self.fault,
        )
        self.view = DocumentStoreView(self.engine, self.tables, self.document_books, self.documents)

    def close(self) -> None:
        """Close what was opened."""
        self.documents.close()
        self.engine.dispose()

    def fault(self, step: str) -> None:
        """End here, if this is where it shall end."""
        if step == self.stop_at:
            raise Stopped(step)

    @property
    def orders(self) -> StoreEndpoint:
        """The endpoint whose timeouts there are."""
        return self.view.find("Sales.Orders")

    def take(self, lease: Lease, **changes: Any) -> Claim | None:
        """Claim everything due within ten days."""
        until = {"due_until": datetime.now(UTC) + timedelta(days=10)}
        return self.claims.claim(self.request(self.orders_or_named, lease, **until | changes))

    @property
    def orders_or_named(self) -> StoreEndpoint:
        """The endpoint, also when it has no timeout."""
        name = "Sales.Orders"
        return StoreEndpoint(name=name, source=self.documents.source_of(name))  # type: ignore[arg-type]

    def must_take(self, lease: Lease, **changes: Any) -> Claim:
        """Claim, and expect to get something."""
        claim = self.take(lease, **changes)
        assert claim is not None
        return claim

    def hand_over(self, claim: Claim, lease: Lease) -> Batch:
        """Record that all of a batch is with the broker."""
        batch = self.batches.advance(claim.batch, Event.BEGIN_PUBLISHING, lease)
        return self.batches.advance(batch, Event.ALL_SETTLED, lease)

    def recalls(self) -> DocumentRecalls:
        """Return what restores handed-over timeouts."""
        claims: Any = self.claims
        return DocumentRecalls(
            self.engine, self.tables, self.document_books, claims, fault=self.fault
        )


@pytest.fixture
def legacy(azurite_server: AzuriteServer) -> Iterator[LegacyAccount]:
    """An account of this test's own."""
    account = LegacyAccount(azurite_server.url())
    yield account
    account.close()


@pytest.fixture
def build(legacy: LegacyAccount) -> Iterator[Callable[[str], AzureSite]]:
    """Opens the account beside a ledger, as often as a test wants."""
    with ExitStack() as stack:

        def open_site(url: str) -> AzureSite:
            site = AzureSite(url, legacy)
            stack.callback(site.close)
            return site

        yield open_site


@pytest.fixture
def ledger_url(sqlite_template: Path, tmp_path: Path) -> str:
    """A ledger in a file."""
    shutil.copy(sqlite_template, tmp_path / "ledger.db")
    return f"sqlite:///{tmp_path}/ledger.db"


@pytest.fixture
def site(build: Callable[[str], AzureSite], ledger_url: str) -> AzureSite:
    """A site as most are."""
    return build(ledger_url)


@pytest.fixture
def again(build: Callable[[str], AzureSite], ledger_url: str) -> Callable[[], AzureSite]:
    """Opens the same once more, as a process does that starts after a crash."""
    return lambda: build(ledger_url)


def test_endpoints_are_found_by_who_owns_timeouts(site: AzureSite) -> None:
    """What the vendor's tool has hidden owns nothing; a mistyped name is told what there is."""
    moved = due(3, start=7, owner="Moved")
    site.legacy.add([*due(1), *due(2, start=1, owner="Sales_Other"), *moved])
    site.legacy.hide(moved[0], "run")
    assert [each.name for each in site.view.endpoints()] == ["Sales.Orders", "Sales_Other"]
    with pytest.raises(UnknownEndpoint, match=r"Sales\.Orders, Sales_Other"):
        site.view.find("Sale.Orders")


def test_the_soonest_due_are_claimed_first_and_others_left(site: AzureSite) -> None:
    """Over more rows than a page; the table keeps what was not asked for, and nothing else."""
    rows = due(1, count=8)
    others = due(1, count=2, start=20, owner="Other")
    site.legacy.add([*reversed(rows), *others])
    lease = site.lease()
    first = site.must_take(lease, max_rows=5)
    assert site.ids(first) == [row.id for row in rows[:5]]
    assert first.batch.state is BatchState.CLAIMED
    second = site.must_take(lease, cursor=first.cursor)
    assert site.ids(second) == [row.id for row in rows[5:]]
    assert site.take(lease) is None
    assert site.legacy.ids() == {row.id for row in others}
    left = site.legacy.contents()
    assert {key[1] for key in left if isinstance(key, tuple)} == {"", *(o.id for o in others)}


def test_a_range_is_kept_to(site: AzureSite) -> None:
    """Bounds are those of the request, also within one partition."""
    base = datetime.now(UTC).replace(minute=10, second=0, microsecond=0) + timedelta(days=1)
    rows = [
        replace(row, due_at=base + timedelta(minutes=n)) for n, row in enumerate(due(1, count=6))
    ]
    site.legacy.add(rows)
    claim = site.must_take(site.lease(), due_after=rows[1].due_at, due_until=rows[3].due_at)
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
    claim = site.must_take(lease)
    assert site.legacy.contents() == {}
    assert site.claims.release(claim.batch, lease) == 3
    assert site.legacy.contents() == before
    assert site.states() == {"released": 3}
    assert site.ids(site.must_take(lease)) == [row.id for row in rows]


def test_it_is_never_due_earlier_than_stored(site: AzureSite) -> None:
    """Python's microseconds are too coarse for the store's 100 ns: they are rounded up."""
    row = due(1, ticks=1)[0]
    site.legacy.add([row])
    claim = site.must_take(site.lease())
    assert site.batches.rows(claim.batch)[0].due_at == row.due_at + timedelta(microseconds=1)


def test_what_a_timeout_manager_took_meanwhile_is_not_ours(site: AzureSite) -> None:
    """It removed one, and cleared a saga, after we had read them."""
    saga = "5f6e0c1a-0000-4000-8000-00000000c2d1"
    rows = [*due(1, count=3), *due(1, start=3, saga=saga)]
    site.legacy.add(rows)
    read = site.documents.read(site.orders, [TimeoutId(row.id) for row in rows])
    assert len(read) == 4
    lease = site.lease()
    request = site.request(site.orders, lease)
    batch = site.document_books.record_claim(request, read)
    assert batch is not None
    assert site.legacy.try_remove(rows[0].id)
    assert site.legacy.remove_by_saga(saga) == [rows[3].id]
    resumed = site.claims.resume(batch, lease)
    assert resumed is not None
    assert (resumed.size, resumed.state) == (2, BatchState.CLAIMED)
    assert [row.store_id for row in site.ledger_rows()] == [rows[1].id, rows[2].id]
    assert site.legacy.contents() == {}


def test_a_claim_of_which_all_is_gone_leaves_no_batch(site: AzureSite) -> None:
    """The timeout manager was faster with every one."""
    rows = due(1, count=2)
    site.legacy.add(rows)
    read = site.documents.read(site.orders, [TimeoutId(row.id) for row in rows])
    lease = site.lease()
    batch = site.document_books.record_claim(site.request(site.orders, lease), read)
    assert batch is not None
    for row in rows:
        assert site.legacy.try_remove(row.id)
    assert site.claims.resume(batch, lease) is None
    assert site.batches.find(batch.id) is None
    assert site.ledger_rows() == []


def test_a_claimed_timeout_is_gone_for_its_timeout_manager(site: AzureSite) -> None:
    """It peeks, removes and clears sagas in vain."""
    saga = "5f6e0c1a-0000-4000-8000-00000000c2d1"
    row = due(1, saga=saga)[0]
    site.legacy.add([row])
    site.must_take(site.lease())
    assert not site.legacy.peek(row.id)
    assert not site.legacy.try_remove(row.id)
    assert site.legacy.remove_by_saga(saga) == []


@pytest.mark.parametrize("step", ["claim.recorded", "claim.taken", "claim.confirmed"])
def test_a_claim_that_ends_anywhere_is_finished(
    site: AzureSite, again: Callable[[], AzureSite], step: str
) -> None:
    """Nothing is lost and nothing is in both places, whoever goes on."""
    rows = due(1, count=4)
    site.legacy.add(rows)
    site.stop_at = step
    with pytest.raises(Stopped):
        site.take(site.lease())
    other = again()
    lease = other.lease(owner="me")
    (batch,) = other.batches.open_batches(lease)
    if batch.state is BatchState.CLAIMING:
        resumed = other.claims.resume(batch, lease)
        assert resumed is not None
        assert resumed.size == 4
    assert other.states() == {"claimed": 4}
    assert other.legacy.ids() == set()
    evidence = {key for key in other.legacy.contents() if isinstance(key, tuple)}
    assert len(evidence) == (4 if step == "claim.confirmed" else 0)
    (batch,) = other.batches.open_batches(lease)
    assert other.claims.release(batch, lease) == 4
    assert other.legacy.ids() == {row.id for row in rows}


@pytest.mark.parametrize("step", ["release.recorded", "release.restored", "release.confirmed"])
def test_a_release_that_ends_anywhere_restores_once(
    site: AzureSite, again: Callable[[], AzureSite], step: str
) -> None:
    """Also when a timeout manager sends one of them before somebody goes on."""
    rows = due(1, count=3)
    site.legacy.add(rows)
    lease = site.lease()
    claim = site.must_take(lease)
    site.stop_at = step
    with pytest.raises(Stopped):
        site.claims.release(claim.batch, lease)
    sent = {row.id for row in rows[:1] if site.legacy.try_remove(row.id)}
    other = again()
    lease = other.lease(owner="me")
    for batch in other.batches.open_batches(lease):
        assert batch.state is BatchState.RELEASING
        assert other.claims.resume(batch, lease) is None
    assert other.states() == {"released": 3}
    assert other.legacy.ids() == {row.id for row in rows} - sent
    assert (sent == set()) == (step == "release.recorded")


@pytest.mark.parametrize("step", ["", "recall.recorded", "recall.put_back", "recall.confirmed"])
def test_a_handed_over_timeout_comes_back_once(
    site: AzureSite, again: Callable[[], AzureSite], step: str
) -> None:
    """To the last digit, although the recall ended half-way and is made again."""
    rows = due(1, count=2, ticks=3)
    site.legacy.add(rows)
    before = site.legacy.contents()
    lease = site.lease()
    site.hand_over(site.must_take(lease), lease)
    found = [_sighting(row) for row in site.ledger_rows()]
    recall = site.lease(lane=999)
    near = datetime.now(UTC)
    site.stop_at = step
    if step:
        with pytest.raises(Stopped):
            site.recalls().restore(found, RecallScope(), recall, not_before=near)
    other = again()
    outcomes = other.recalls().restore(found, RecallScope(), recall, not_before=near)
    done = RecallOutcome.LEFTOVER if step == "recall.confirmed" else RecallOutcome.RESTORED
    assert outcomes == dict.fromkeys(found, done)
    assert other.states() == {"recalled": 2}
    after = {
        key: value
        for key, value in other.legacy.contents().items()
        if not (isinstance(key, tuple) and key[1].startswith("migrator."))
    }
    assert after == before


def test_a_recall_that_ended_half_way_is_finished_however_near_it_is(site: AzureSite) -> None:
    """The timeout is in the store already: left in its level as well, it would be sent twice."""
    site.legacy.add(due(1))
    lease = site.lease()
    site.hand_over(site.must_take(lease), lease)
    found = [_sighting(row) for row in site.ledger_rows()]
    recall, now = site.lease(lane=999), datetime.now(UTC)
    site.stop_at = "recall.put_back"
    with pytest.raises(Stopped):
        site.recalls().restore(found, RecallScope(), recall, not_before=now)
    books = DocumentVerifications(site.engine, site.tables, site.documents)
    assert books.in_both_places([], at_most=10)[0] == 1
    site.stop_at = ""
    scope = RecallScope(destination="Another")
    near = now + timedelta(hours=2)
    outcomes = site.recalls().restore(found, scope, recall, not_before=near)
    assert outcomes == dict.fromkeys(found, RecallOutcome.RESTORED)
    assert site.states() == {"recalled": 1}


def _sighting(row: Any) -> Sighting:
    mark = RowMark(
        batch=BatchId(row.batch_id),
        row_index=row.row_index,
        timeout_id=TimeoutId(row.store_id),
    )
    return Sighting(row=mark, body_bytes=len(row.body))


def test_an_id_that_is_stored_again_is_left_to_a_person(site: AzureSite) -> None:
    """A release sets it aside, a recall leaves its message; the other one is not touched."""
    rows = due(1, count=2)
    site.legacy.add(rows)
    lease = site.lease()
    claim = site.must_take(lease)
    theirs = replace(rows[0], body=b"theirs")
    site.legacy.add([theirs])
    stored = site.legacy.contents()
    assert site.claims.release(claim.batch, lease) == 1
    assert site.states() == {"released": 1, "quarantined": 1}
    assert [row.reason for row in site.ledger_rows() if row.state == "quarantined"] == ["id-taken"]
    left = site.legacy.contents()
    assert {key: left[key] for key in stored} == stored
    assert site.claims.release_quarantined(None) == 0
    assert site.legacy.try_remove(rows[0].id)
    assert site.claims.release_quarantined(None) == 1
    assert site.legacy.ids() == {row.id for row in rows}


def test_a_timeout_without_its_body_is_set_aside_and_never_sent_empty(site: AzureSite) -> None:
    """It can go back as it was; a retry leaves it alone."""
    rows = [*due(1, body=None), *due(1, start=1)]
    site.legacy.add(rows)
    before = site.legacy.contents()
    lease = site.lease()
    claim = site.must_take(lease)
    assert site.ids(claim) == [rows[1].id]
    site.hand_over(claim, lease)
    assert [row.reason for row in site.ledger_rows()] == ["body-missing", None]
    assert site.quarantine.retry(QuarantineFilter(), mode=Mode.DIRECT) == 0
    assert site.claims.release_quarantined(site.orders_or_named) == 1
    after = site.legacy.contents()
    assert {key for key in before if rows[0].id in key} == set(after)


def test_leftovers_and_what_the_vendor_moved_are_never_claimed(site: AzureSite) -> None:
    """Nor do they stand in the way of what is due later."""
    rows = due(1, count=8)
    site.legacy.add(rows)
    for row in rows[:4]:
        site.legacy.table.delete_entity(row.id, "")
    site.legacy.hide(rows[4], "run")
    lease = site.lease()
    claim = site.must_take(lease, max_rows=2)
    assert site.ids(claim) == [rows[5].id, rows[6].id]
    listed = {each.id for page in site.documents.list(site.orders) for each in page}
    assert listed == {rows[7].id}


def test_an_open_run_of_the_vendors_tool_is_told(site: AzureSite) -> None:
    """So are hidden timeouts that no completed run explains; a completed one is history."""
    assert site.view.unfinished_vendor_runs() == []
    rows = due(1, count=2)
    site.legacy.add(rows)
    site.legacy.hide(rows[0], "tmp1")
    assert "hidden" in site.view.unfinished_vendor_runs()[0]
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
            assert "'Sales.Orders' is open" in site.view.unfinished_vendor_runs()[0]
            table.upsert_entity({**state, "Status": 2})
            assert site.view.unfinished_vendor_runs() == []
        finally:
            service.delete_table("timeoutsmigrationtoolstate")


def test_two_claimers_never_share_a_timeout(
    build: Callable[[str], AzureSite], legacy: LegacyAccount, database_url: str
) -> None:
    """Each has a lane and a process of its own; together they get everything."""
    rows = due(0.5, count=24)
    legacy.add(rows)
    sites = [build(database_url), build(database_url)]
    runs = [site.run(site.orders) for site in sites]

    def claim_all(number: int) -> list[str]:
        site, lease = sites[number], sites[number].lease(lane=number, owner=f"me{number}")
        found: list[str] = []
        while claim := site.take(lease, run=runs[number], max_rows=4):
            found += site.ids(claim)
        return found

    with ThreadPoolExecutor(2) as pool:
        first, second = pool.map(claim_all, range(2))
    assert sorted([*first, *second]) == [row.id for row in rows]
    assert legacy.contents() == {}
    assert sites[0].states() == {"claimed": 24}


def test_a_batch_of_another_account_is_not_finished_here(
    site: AzureSite, azurite_server: AzuriteServer, ledger_url: str
) -> None:
    """Nothing would be found in there, and what was claimed would be taken for somebody else's."""
    site.legacy.add(due(1))
    site.stop_at = "claim.taken"
    with pytest.raises(Stopped):
        site.take(site.lease())
    elsewhere = LegacyAccount(azurite_server.url())
    other = AzureSite(ledger_url, elsewhere)
    lease = other.lease(owner="me")
    (batch,) = other.batches.open_batches(lease)
    with pytest.raises(StoreError, match="nothing was changed"):
        other.claims.resume(batch, lease)
    assert other.states() == {"claiming": 1}
    other.close()
    elsewhere.close()


def test_a_trial_proves_rights_and_leaves_nothing(site: AzureSite) -> None:
    """Neither in the account nor in the ledger."""
    site.legacy.add(due(1))
    before = site.legacy.contents()
    site.view.trial_claim(site.orders)
    assert site.legacy.contents() == before
    assert (site.states(), site.ledger_rows()) == ({}, [])


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
        lambda: store.read(endpoint, [TimeoutId("x")]),
        lambda: store.soonest(endpoint, due_after=None, due_until=now, at_most=1),
        lambda: store.probe(endpoint),
    )
    for ask in asked:
        with pytest.raises(StoreError, match="there is no table Nowhere"):
            ask()
    store.close()


def test_verification_lists_the_store(site: AzureSite) -> None:
    """What is in both places is told, what is half claimed is not; counts are of live ones."""
    rows = due(1, count=5)
    site.legacy.add(rows)
    lease = site.lease()
    site.must_take(lease, max_rows=2)
    site.legacy.add([rows[0]])
    books = DocumentVerifications(site.engine, site.tables, site.documents)
    (balance,) = books.balances()
    assert (balance.in_store, balance.claimed) == (4, 2)
    total, both = books.in_both_places([], at_most=10)
    assert (total, [each.timeout_id for each in both]) == (1, [rows[0].id])
    site.stop_at = "claim.recorded"
    with pytest.raises(Stopped):
        site.take(lease)
    assert books.in_both_places([], at_most=10)[0] == 1


def test_counts_and_pulse_are_for_the_page_and_the_throttle(site: AzureSite) -> None:
    """How many, how soon, and how fast the store answers."""
    site.legacy.add(due(0.9, count=3))
    source = site.orders.source
    counted = DocumentCounting(site.documents).count(source, datetime.now(UTC))
    assert (counted.rows, counted.is_all) == (3, True)
    assert counted.due == [("up to 1h", 1), ("up to 1d", 2)]
    assert 0 < DocumentPulse(site.documents).answer_s(source, patience=LONG) < 60


def test_whoever_comes_late_restores_nothing(
    site: AzureSite, again: Callable[[], AzureSite], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was held up while another one restored all, and the timeout manager sent it."""
    row = due(1)[0]
    site.legacy.add([row])
    lease = site.lease()
    claim = site.must_take(lease)
    other, put_back = again(), site.documents.put_back

    def held_up(*args: Any, **options: Any) -> Any:
        with site.engine.begin() as connection:  # the lease runs out
            past = datetime(2020, 1, 1, tzinfo=UTC)
            connection.execute(update(site.tables.lease).values(until=past))
        theirs = other.lease(owner="other")
        (batch,) = other.batches.open_batches(theirs)
        assert other.claims.resume(batch, theirs) is None
        assert site.legacy.try_remove(row.id)
        return put_back(*args, **options)

    monkeypatch.setattr(site.documents, "put_back", held_up)
    with pytest.raises(LeaseLost):
        site.claims.release(claim.batch, lease)
    assert site.legacy.ids() == set()


def test_two_rollbacks_at_once_restore_once(
    site: AzureSite, again: Callable[[], AzureSite]
) -> None:
    """One is held up between recording and restoring; the other one did it all, and it was sent."""
    row = due(1, body=None)[0]
    site.legacy.add([row])
    lease = site.lease()
    claim = site.must_take(lease)
    site.hand_over(claim, lease)
    rows = site.document_books.begin_return(None, QuarantineFilter(), after=0)
    assert again().claims.release_quarantined(None) == 1
    assert site.legacy.try_remove(row.id)
    late: Any = site.claims
    assert late.bring_back(rows, RowState.RELEASED) == 0
    assert site.legacy.ids() == set()
    assert site.states() == {"released": 1}


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
        lambda: list(site.documents.list(site.orders_or_named)),
        lambda: site.documents.probe(site.orders_or_named),
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
    found = site.documents.soonest(site.orders_or_named, due_after=None, due_until=base, at_most=2)
    assert [each.id for each in found] == [rows[19].id, rows[18].id]


def test_a_body_too_large_to_be_held_stays_where_it_is(site: AzureSite) -> None:
    """The timeout is set aside with its size, and goes back as it was."""
    rows = [*due(1, body=b"x" * 9), *due(1, start=1)]
    site.legacy.add(rows)
    before = site.legacy.contents()
    account: Any = site.documents._account
    site.claims._documents = AzureStore(  # type: ignore[attr-defined]
        account, parse_scope("yyyyMMddHH"), largest_body=8
    )
    lease = site.lease()
    claim = site.must_take(lease)
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


@pytest.mark.parametrize("step", ["claim.taken", "release.restored", "recall.put_back"])
def test_a_ledger_is_not_adopted_while_something_is_half_done(site: AzureSite, step: str) -> None:
    """Its evidence in the store bears the former id, and nobody would find it."""
    site.legacy.add(due(1))
    lease, before = site.lease(), site.ledger_id
    site.stop_at = step
    with contextlib.suppress(Stopped):
        claim = site.must_take(lease)
        if step == "recall.put_back":
            site.hand_over(claim, lease)
            found = [_sighting(row) for row in site.ledger_rows()]
            recall, now = site.lease(lane=999), datetime.now(UTC)
            site.recalls().restore(found, RecallScope(), recall, not_before=now)
        site.claims.release(claim.batch, lease)
    with pytest.raises(LedgerError, match="former id"):
        adopt(site.engine, site.tables)
    assert site.ledger_id == before


def test_large_bodies_are_read_a_few_at_a_time(
    site: AzureSite, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No listing tells how large they are: what a claim may take bounds what is held."""
    rows = due(1, count=40, body=b"x" * 1000)
    site.legacy.add(rows)
    asked, read = list[int](), site.documents.read

    def counted(endpoint: StoreEndpoint, ids: Any) -> Any:
        asked.append(len(ids))
        return read(endpoint, ids)

    monkeypatch.setattr(site.documents, "read", counted)
    claim = site.must_take(site.lease(), max_bytes=10_000)
    assert claim.batch.body_bytes <= 10_000
    assert max(asked) <= 8


def test_a_blob_that_may_not_be_removed_stops_no_claim(site: AzureSite) -> None:
    """Its main entry is gone, so nobody else would ever send the timeout; it can go back, too."""
    rows = due(1, count=2)
    site.legacy.add(rows)
    before = site.legacy.contents()
    blob = site.legacy.container.get_blob_client(rows[0].id)
    held = blob.acquire_lease()
    lease = site.lease()
    claim = site.must_take(lease)
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
    claim = site.must_take(lease)
    assert site.ids(claim) == [rows[1].id]
    assert "BlobArchived" in site.ledger_rows()[0].reason_detail
    assert site.claims.release(claim.batch, lease) == 2
    blob.set_standard_blob_tier("Hot")
    assert site.legacy.contents() == before
