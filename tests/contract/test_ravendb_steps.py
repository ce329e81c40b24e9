"""Two-step claims on RavenDB's HTTP boundary, stopped after each step; no RavenDB is run here.

The ledger is SQLite: what differs between ledgers is tested elsewhere.
"""

from __future__ import annotations

import base64
import shutil
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import update

from migrator.database.engine import open_engine
from migrator.domain.marks import RowMark
from migrator.domain.recall import RecallScope
from migrator.domain.states import BatchState, Event
from migrator.domain.timeouts import BatchId, TimeoutId
from migrator.errors import LeaseLost, StoreUnavailable
from migrator.ports import Claim, FaultPoint, Lease, StoreEndpoint
from migrator.ports.documents import DocumentStore
from migrator.ports.recall import Sighting
from migrator.stores.documents.books import DocumentBooks
from migrator.stores.documents.claims import DocumentClaims
from migrator.stores.documents.recalls import DocumentRecalls
from migrator.stores.documents.store import DocumentStoreView
from migrator.stores.documents.verification import DocumentVerifications
from migrator.stores.ravendb import soonest
from migrator.stores.ravendb.http import ServerSettings
from migrator.stores.ravendb.store import RavenOptions, RavenStore
from tests.contract.site import NOW, Site
from tests.support.ravendb import DATABASE, StrictRaven

_store: type[DocumentStore] = RavenStore
ENDPOINT = "Sales.Orders: EU"


class Died(BaseException):
    """The process ended at a step."""


class RavenSite:
    """A ledger, a strict server, and claims between them."""

    def __init__(self, site: Site, raven: StrictRaven) -> None:
        """Connect all three."""
        self.site = site
        self.raven = raven
        self.store = RavenStore(
            RavenOptions(server=ServerSettings(url=raven.url, database=DATABASE))
        )
        name: Any = ENDPOINT
        self.endpoint = StoreEndpoint(name=name, source=self.store.source_of(ENDPOINT))
        self.books = DocumentBooks(site.engine, site.tables)
        self.view = DocumentStoreView(site.engine, site.tables, self.books, self.store)
        self.lease: Lease = site.lease()

    def put(self, n: int, **fields: Any) -> str:
        """Store a timeout that is due *n* hours after ``NOW``."""
        collection = "Raven-Entity-Name" if self.raven.family == "3.5" else "@collection"
        due_at = NOW + timedelta(hours=n)
        content = {
            "Destination": "Billing",
            "SagaId": "00000000-0000-0000-0000-000000000000",
            "State": base64.b64encode(bytes([n, 0, 255])).decode(),
            "Time": due_at.strftime("%Y-%m-%dT%H:%M:%S.1234560Z"),
            "OwningTimeoutManager": ENDPOINT,
            "Headers": {"NServiceBus.MessageId": f"m-{n}", "ü": None},
        }
        id_ = f"TimeoutDatas/{n}-A"
        self.raven.store(id_, content | fields, **{collection: "TimeoutDatas"})
        return id_

    def fault(self, dies_at: str) -> FaultPoint:
        """Return what ends the process at a step."""

        def reached(step: str) -> None:
            if step == dies_at:
                raise Died(step)

        return reached

    def claims(self, dies_at: str = "") -> DocumentClaims:
        """Return claims as a new process has them; it dies at a step."""
        return DocumentClaims(
            self.books,
            self.store,
            ledger_id=lambda: self.site.ledger_id,
            fault=self.fault(dies_at),
        )

    def claim(self, claims: DocumentClaims, **changes: Any) -> Claim | None:
        """Claim what is due."""
        return claims.claim(self.site.request(self.endpoint, self.lease, **changes))

    def recover(self) -> None:
        """Do what a lane does when it starts."""
        for batch in self.site.batches.open_batches(self.lease):
            if batch.state in (BatchState.CLAIMING, BatchState.RELEASING):
                self.claims().resume(batch, self.lease)

    def account(self) -> tuple[list[str], list[str]]:
        """Return the ids that the ledger has claimed, and those in the store."""
        claimed = [
            str(row.store_id)
            for row in self.site.ledger_rows()
            if (batch := self.site.batches.find(row.batch_id)) is not None
            and batch.state is BatchState.CLAIMED
        ]
        return sorted(claimed), self.raven.ids("TimeoutDatas/")


@pytest.fixture(params=["3.5", "4"])
def raven_site(
    request: pytest.FixtureRequest, sqlite_template: Path, tmp_path: Path
) -> Iterator[RavenSite]:
    """Return a site with an empty store."""
    shutil.copy(sqlite_template, tmp_path / "ledger.db")
    engine = open_engine(f"sqlite:///{tmp_path}/ledger.db")
    with StrictRaven(request.param) as raven:
        built = RavenSite(Site(engine), raven)
        yield built
        built.store.close()
    engine.dispose()
    assert raven.violations == []


def test_claims_go_from_the_soonest_to_the_latest(raven_site: RavenSite) -> None:
    """Batch after batch, each timeout once, with all that was in it; no evidence is left."""
    for n in (5, 3, 9, 1, 7):
        raven_site.put(n)
    raven_site.put(2, OwningTimeoutManager="Else")
    claims = raven_site.claims()
    batches = []
    while claim := raven_site.claim(claims, max_rows=2):
        batches.append(raven_site.site.ids(claim))
    assert batches == [[f"TimeoutDatas/{n}-A" for n in some] for some in ((1, 3), (5, 7), (9,))]
    assert raven_site.raven.ids() == ["TimeoutDatas/2-A"]
    first = raven_site.site.ledger_rows()[0]
    assert first.headers == '{"NServiceBus.MessageId":"m-1","ü":null}'
    assert (first.body, first.destination) == (b"\x01\x00\xff", "Billing")
    assert first.due == NOW + timedelta(hours=1, microseconds=123_456)


@pytest.mark.parametrize("step", ["claim.recorded", "claim.taken", "claim.confirmed"])
def test_a_claim_that_died_is_finished(raven_site: RavenSite, step: str) -> None:
    """Each timeout is in the ledger, and none is in the store as well."""
    ids = [raven_site.put(n) for n in (1, 2, 3)]
    with pytest.raises(Died):
        raven_site.claim(raven_site.claims(step))
    raven_site.recover()
    assert raven_site.account() == (ids, [])


def test_what_was_sent_while_the_claim_was_dead_is_not_ours(raven_site: RavenSite) -> None:
    """Recorded, and not yet taken: a timeout manager has the first one, we have the others."""
    ids = [raven_site.put(n) for n in (1, 2, 3)]
    with pytest.raises(Died):
        raven_site.claim(raven_site.claims("claim.recorded"))
    raven_site.raven.remove(ids[0])
    raven_site.recover()
    assert raven_site.account() == (ids[1:], [])


def test_a_claim_whose_answer_was_lost_is_finished(raven_site: RavenSite) -> None:
    """The documents are gone: the receipt tells that it was us."""
    ids = [raven_site.put(n) for n in (1, 2)]
    raven_site.raven.plan("/bulk_docs", lose=True)
    with pytest.raises(StoreUnavailable):
        raven_site.claim(raven_site.claims())
    raven_site.recover()
    assert raven_site.account() == (ids, [])


@pytest.mark.parametrize("step", ["release.recorded", "release.restored", "release.confirmed", ""])
def test_a_release_puts_all_back_once(raven_site: RavenSite, step: str) -> None:
    """Wherever it died; and one that was sent after it was back does not come back again."""
    ids = [raven_site.put(n) for n in (1, 2)]
    before = {id_: raven_site.raven.content(id_) for id_ in ids}
    claim = raven_site.claim(raven_site.claims())
    assert claim is not None
    if step:
        with pytest.raises(Died):
            raven_site.claims(step).release(claim.batch, raven_site.lease)
    else:
        assert raven_site.claims().release(claim.batch, raven_site.lease) == 2
    is_back = bool(raven_site.raven.ids("TimeoutDatas/"))
    if is_back:
        raven_site.raven.remove(ids[0])
    raven_site.recover()
    left = ids[1:] if is_back else ids
    assert raven_site.account() == ([], left)
    assert [raven_site.raven.content(id_) for id_ in left] == [before[id_] for id_ in left]


def test_a_body_that_cannot_be_read_is_set_aside(raven_site: RavenSite) -> None:
    """In quarantine with its reason, and back as it was when it is released."""
    id_ = raven_site.put(1, State="no base64!")
    before = raven_site.raven.content(id_)
    assert raven_site.claim(raven_site.claims()) is not None
    (row,) = raven_site.site.ledger_rows()
    assert (row.reason, row.state) == ("body-missing", "quarantined")
    batch = raven_site.site.batches.find(row.batch_id)
    assert batch is not None
    raven_site.claims().release(batch, raven_site.lease)
    assert raven_site.raven.content(id_) == before


def test_two_claimers_never_share_a_timeout(raven_site: RavenSite) -> None:
    """Each has a lane; together they get everything, whoever is faster."""
    ids = sorted(raven_site.put(n) for n in range(1, 17))
    run = raven_site.site.run(raven_site.endpoint)
    leases = [raven_site.lease, raven_site.site.lease(lane=1, owner="other")]

    def claim_all(lease: Lease) -> list[str]:
        found: list[str] = []
        request = raven_site.site.request(raven_site.endpoint, lease, run=run, max_rows=3)
        while claim := raven_site.claims().claim(request):
            found += raven_site.site.ids(claim)
        return found

    with ThreadPoolExecutor(2) as pool:
        first, second = pool.map(claim_all, leases)
    assert sorted(first + second) == ids
    assert raven_site.account() == (ids, [])
    assert raven_site.raven.ids() == []


def test_an_id_that_is_stored_again_is_left_to_a_person(raven_site: RavenSite) -> None:
    """A release sets ours aside; once the other one is gone, ours can go back."""
    id_ = raven_site.put(1)
    before = raven_site.raven.content(id_)
    claim = raven_site.claim(raven_site.claims())
    assert claim is not None
    raven_site.put(1, Destination="Theirs")
    assert raven_site.claims().release(claim.batch, raven_site.lease) == 0
    assert [row.reason for row in raven_site.site.ledger_rows()] == ["id-taken"]
    assert (raven_site.raven.content(id_) or {})["Destination"] == "Theirs"
    assert raven_site.claims().release_quarantined(None) == 0
    raven_site.raven.remove(id_)
    assert raven_site.claims().release_quarantined(None) == 1
    assert raven_site.raven.content(id_) == before


def test_whoever_comes_late_restores_nothing(
    raven_site: RavenSite, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was held up while another one restored all, and a timeout manager sent it."""
    id_ = raven_site.put(1)
    claim = raven_site.claim(raven_site.claims())
    assert claim is not None
    ours, put_back = raven_site.lease, raven_site.store.put_back

    def held_up(*args: Any, **options: Any) -> Any:
        monkeypatch.undo()
        with raven_site.site.engine.begin() as connection:  # the lease runs out
            past = datetime(2020, 1, 1, tzinfo=UTC)
            connection.execute(update(raven_site.site.tables.lease).values(until=past))
        raven_site.lease = raven_site.site.lease(owner="other")
        raven_site.recover()
        raven_site.raven.remove(id_)
        return put_back(*args, **options)

    monkeypatch.setattr(raven_site.store, "put_back", held_up)
    with pytest.raises(LeaseLost):
        raven_site.claims().release(claim.batch, ours)
    assert raven_site.account() == ([], [])
    assert raven_site.site.states() == {"released": 1}


@pytest.mark.parametrize("step", ["", "recall.recorded", "recall.put_back", "recall.confirmed"])
def test_a_handed_over_timeout_comes_back_once(raven_site: RavenSite, step: str) -> None:
    """As it was, although the recall died half-way and is made again."""
    ids = [raven_site.put(n) for n in (1, 2)]
    before = [raven_site.raven.content(id_) for id_ in ids]
    site = raven_site.site
    claim = raven_site.claim(raven_site.claims())
    assert claim is not None
    batch = site.batches.advance(claim.batch, Event.BEGIN_PUBLISHING, raven_site.lease)
    site.batches.advance(batch, Event.ALL_SETTLED, raven_site.lease)
    found = [sighting_of(row) for row in site.ledger_rows()]
    lease = site.lease(lane=999)

    def recall(dies_at: str) -> None:
        recalls = DocumentRecalls(
            site.engine,
            site.tables,
            raven_site.books,
            raven_site.claims(dies_at),
            fault=raven_site.fault(dies_at),
        )
        recalls.restore(found, RecallScope(), lease, not_before=NOW)

    if step:
        with pytest.raises(Died):
            recall(step)
    sent = raven_site.raven.ids("TimeoutDatas/")[:1]  # a timeout manager is faster with one
    for id_ in sent:
        raven_site.raven.remove(id_)
    recall("")
    left = [id_ for id_ in ids if id_ not in sent]
    assert raven_site.raven.ids("TimeoutDatas/") == left
    assert [raven_site.raven.content(id_) for id_ in left] == before[len(sent) :]
    assert site.states() == {"recalled": 2}


def sighting_of(row: Any) -> Sighting:
    """Return the message of a row, as a recall finds it."""
    mark = RowMark(
        batch=BatchId(row.batch_id), row_index=row.row_index, timeout_id=TimeoutId(row.store_id)
    )
    return Sighting(row=mark, body_bytes=len(row.body))


def test_the_books_compare_store_and_ledger(raven_site: RavenSite) -> None:
    """What is in both places is told; the counts are of live timeouts."""
    ids = [raven_site.put(n) for n in (1, 2, 3)]
    assert raven_site.claim(raven_site.claims(), max_rows=1) is not None
    raven_site.put(1)
    site = raven_site.site
    books = DocumentVerifications(site.engine, site.tables, raven_site.store)
    (balance,) = books.balances()
    assert (balance.in_store, balance.claimed) == (3, 1)
    total, both = books.in_both_places([], at_most=10)
    assert (total, [each.timeout_id for each in both]) == (1, ids[:1])


def test_the_view_shows_endpoints_and_rows(raven_site: RavenSite) -> None:
    """What preview and check ask, and an endpoint whose name has a colon."""
    raven_site.put(1)
    assert list(raven_site.view.endpoints()) == [raven_site.endpoint]
    assert raven_site.view.find(ENDPOINT) == raven_site.endpoint
    (page,) = raven_site.view.survey(raven_site.endpoint)
    assert [(row.id, row.body_bytes, row.is_in_ledger) for row in page] == [
        ("TimeoutDatas/1-A", 3, False)
    ]
    raven_site.view.trial_claim(raven_site.endpoint)
    assert raven_site.view.unfinished_vendor_runs() == []


def test_what_others_took_hides_nothing_that_is_due_later(
    raven_site: RavenSite, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All that was remembered is gone: there is more, and a run to the end must not end here."""
    monkeypatch.setattr(soonest, "SMALL_COLLECTION", 0)
    monkeypatch.setattr(soonest, "KEPT_ENTRIES", 3)
    monkeypatch.setattr(soonest, "_AGE_FACTOR", 10**6)
    ids = [raven_site.put(n) for n in range(1, 9)]
    claim = raven_site.claim(raven_site.claims(), max_rows=1)
    assert claim is not None
    for id_ in ids[1:5]:
        raven_site.raven.remove(id_)
    second = raven_site.claim(raven_site.claims(), max_rows=1)
    assert second is not None
    assert raven_site.site.ids(second) == [ids[5]]
