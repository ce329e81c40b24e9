"""What only RavenDB has: ids as NServiceBus makes them, lost answers, remembered listings.

The ledger is SQLite: what differs between ledgers is tested elsewhere.
"""

from __future__ import annotations

import base64
import shutil
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from migrator.database.engine import open_engine
from migrator.errors import StoreUnavailable
from migrator.ledger.states import BatchState
from migrator.ledger.work import Lease, StoreEndpoint
from migrator.stores.documents.claims import DocumentClaims
from migrator.stores.documents.ledger import DocumentLedger
from migrator.stores.documents.ports import DocumentStore
from migrator.stores.documents.store import DocumentStoreView
from migrator.stores.ports import Claim
from migrator.stores.ravendb import listing
from migrator.stores.ravendb.http import ServerSettings
from migrator.stores.ravendb.store import RavenOptions, RavenStore
from tests.contract.site import NOW, Site
from tests.support.raven_boundary import DATABASE, Boundary
from tests.support.ravendb import StrictRaven

_store: type[DocumentStore] = RavenStore
ENDPOINT = "Sales.Orders: EU"


class RavenSite:
    """A ledger, a server, and claims between them."""

    def __init__(self, site: Site, raven: Boundary) -> None:
        """Connect all three."""
        self.site = site
        self.raven = raven
        self.store = RavenStore(
            RavenOptions(server=ServerSettings(url=raven.url, database=DATABASE))
        )
        name: Any = ENDPOINT
        self.endpoint = StoreEndpoint(name=name, source=self.store.source_of(ENDPOINT))
        self.books = DocumentLedger(site.engine, site.tables)
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

    def claims(self) -> DocumentClaims:
        """Return claims as a new process has them."""
        return DocumentClaims(
            self.books,
            self.store,
            ledger_id=lambda: self.site.ledger_id,
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


@pytest.fixture(params=["3.5", "4", pytest.param("for real", marks=[pytest.mark.slow])])
def raven(request: pytest.FixtureRequest) -> Iterator[Boundary]:
    """Return a server without documents."""
    if request.param == "for real":
        yield request.getfixturevalue("real_raven")
        return
    with StrictRaven(request.param) as raven:
        yield raven
    assert raven.violations == []


@pytest.fixture
def raven_site(raven: Boundary, sqlite_template: Path, tmp_path: Path) -> Iterator[RavenSite]:
    """Return a site with an empty store."""
    shutil.copy(sqlite_template, tmp_path / "ledger.db")
    engine = open_engine(f"sqlite:///{tmp_path}/ledger.db")
    built = RavenSite(Site(engine), raven)
    yield built
    built.store.close()
    engine.dispose()


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


def test_a_claim_whose_answer_was_lost_is_finished(raven_site: RavenSite) -> None:
    """The documents are gone: the receipt tells that it was us."""
    ids = [raven_site.put(n) for n in (1, 2)]
    raven_site.raven.plan("/bulk_docs", lose=True)
    with pytest.raises(StoreUnavailable):
        raven_site.claim(raven_site.claims())
    raven_site.recover()
    assert raven_site.account() == (ids, [])


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
    monkeypatch.setattr(listing, "SMALL_COLLECTION", 0)
    monkeypatch.setattr(listing, "KEPT_ENTRIES", 3)
    monkeypatch.setattr(listing, "_AGE_FACTOR", 10**6)
    ids = [raven_site.put(n) for n in range(1, 9)]
    claim = raven_site.claim(raven_site.claims(), max_rows=1)
    assert claim is not None
    for id_ in ids[1:5]:
        raven_site.raven.remove(id_)
    second = raven_site.claim(raven_site.claims(), max_rows=1)
    assert second is not None
    assert raven_site.site.ids(second) == [ids[5]]
