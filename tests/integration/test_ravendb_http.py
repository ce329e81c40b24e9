"""The RavenDB adapter at the HTTP boundary, with RavenDB behind it, and with strict servers.

The requests, conditions and answers of the latter are those of reference ``legacy-stores.md`` 3.3;
every other is refused. What is only about odd answers does not ask RavenDB. What every document
store promises is in ``tests/contract``.
"""

from __future__ import annotations

import base64
import socket
import threading
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from dev.servers import RavenServer
from migrator.errors import ConfigError, SourceGone, StoreError, StoreUnavailable
from migrator.ledger.work import StoreEndpoint
from migrator.nservicebus.timeouts import EndpointName, TimeoutId
from migrator.stores.documents.ports import Document, DueRange, Mark
from migrator.stores.ravendb import listing
from migrator.stores.ravendb.http import ServerSettings
from migrator.stores.ravendb.store import NO_OWNER, RavenOptions, RavenStore
from tests.support.raven_boundary import DATABASE, Boundary, Plan
from tests.support.ravendb import StrictRaven

NOW = datetime(2026, 11, 3, 8, 0, tzinfo=UTC)
NEVER = NOW + timedelta(days=10_000)
MARK, BACK = Mark("lg1.7.c"), Mark("lg1.7.r")
RECEIPT = f"migrator/claims/{MARK}"


class Sales:
    """An endpoint, the adapter, and the server with its timeouts."""

    def __init__(self, raven: Boundary, **options: Any) -> None:
        self.raven = raven
        server = ServerSettings(url=raven.url, database=DATABASE)
        self.store = RavenStore(RavenOptions(server=server, **options))
        self.endpoint = self.called("Sales")

    def __enter__(self) -> Sales:
        return self

    def __exit__(self, *_: object) -> None:
        self.store.close()

    def called(self, name: str) -> StoreEndpoint:
        """Return an endpoint."""
        return StoreEndpoint(name=EndpointName(name), source=self.store.source_of(name))

    def metadata(self, collection: str = "TimeoutDatas") -> dict[str, Any]:
        """Return what NServiceBus leaves in the metadata."""
        key = "Raven-Entity-Name" if self.raven.family == "3.5" else "@collection"
        return {
            key: collection,
            "Raven-Clr-Type": "NServiceBus.TimeoutPersisters.RavenDB.TimeoutData, NServiceBus.R",
            "NServiceBus-Persistence-RavenDB-TimeoutData-SchemaVersion": "1.0.0",
        }

    def put(
        self,
        n: int,
        *,
        owner: str | None = "Sales",
        due_in_s: int = 60,
        collection: str = "TimeoutDatas",
        **fields: Any,
    ) -> TimeoutId:
        """Store a timeout; return its id."""
        due_at = NOW + timedelta(seconds=due_in_s)
        content = {
            "Destination": "Billing",
            "SagaId": "5f6e0c1a-0000-4000-8000-00000000c2d1",
            "State": base64.b64encode(b'{"n":%d}' % n).decode(),
            "Time": due_at.strftime("%Y-%m-%dT%H:%M:%S.0000000Z"),
            "OwningTimeoutManager": owner,
            "Headers": {"NServiceBus.MessageId": f"m-{n}", "naïve": "ü", "void": None},
            **fields,
        }
        id_ = f"{collection}/{n}" + ("" if self.raven.family == "3.5" else "-A")
        self.raven.store(id_, content, **self.metadata(collection))
        return TimeoutId(id_)

    def change(self, id_: str) -> None:
        """Change a document as a person would."""
        content = {**(self.raven.content(id_) or {}), "Destination": "Else"}
        self.raven.store(id_, content, **self.metadata())

    def listed(self, endpoint: StoreEndpoint | None = None) -> list[str]:
        """Return the ids of a listing."""
        pages = self.store.list(endpoint or self.endpoint)
        return [each.id for page in pages for each in page]

    def soonest(
        self, at_most: int = 10, *, of: str = "Sales", due_until: datetime = NEVER
    ) -> list[str]:
        """Return the ids that are due next."""
        due = DueRange(None, due_until)
        return [each.id for each in self.store.soonest(self.called(of), due, at_most)]

    def read(self, ids: Sequence[str] | None = None) -> Sequence[Document]:
        """Return timeouts, whole; without *ids* all."""
        asked = self.listed() if ids is None else ids
        return [*self.store.read(self.endpoint, [TimeoutId(each) for each in asked])]

    def take(self, documents: Sequence[Document]) -> list[TimeoutId]:
        """Take what is unchanged."""
        return sorted(self.store.take(self.endpoint, MARK, documents))

    def taken(self) -> Sequence[Document]:
        """Return all timeouts, taken, with the evidence forgotten."""
        documents = self.read()
        self.store.forget(self.endpoint, MARK, self.take(documents))
        return documents

    def put_back(self, documents: Sequence[Document]) -> list[TimeoutId]:
        """Restore what was taken."""
        back = self.store.put_back(self.endpoint, BACK, documents, is_meant=lambda: True)
        return sorted(back)

    def forget(self, mark: Mark, ids: Collection[TimeoutId]) -> None:
        """Remove evidence."""
        self.store.forget(self.endpoint, mark, ids)


@pytest.fixture(params=["3.5", "4", "for real"])
def raven(request: pytest.FixtureRequest) -> Iterator[Boundary]:
    """Return a server; no request of a test may be one that it, or the reference, does not know."""
    if request.param == "for real":
        yield request.getfixturevalue("real_raven")
        return
    with StrictRaven(request.param) as server:
        yield server
    assert server.violations == []


odd_answers = pytest.mark.parametrize("raven", ["3.5", "4"], indirect=True)
"""What never reaches the server, or what no server should ever answer."""


@pytest.fixture
def sales(raven: Boundary) -> Iterator[Sales]:
    """Return the adapter with its defaults."""
    with Sales(raven) as made:
        yield made


@pytest.fixture
def _remembers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a few documents be a large collection, and a listing of it be remembered for long."""
    monkeypatch.setattr(listing, "SMALL_COLLECTION", 5)
    monkeypatch.setattr(listing, "KEPT_ENTRIES", 16)
    monkeypatch.setattr(listing, "_AGE_FACTOR", 1_000_000)


# ── finding ─────────────────────────────────────────────────────────────────────────────────────


def test_removals_during_a_listing_make_it_skip_nothing(sales: Sales) -> None:
    """A page begins behind an id, so what a timeout manager removes moves no page."""
    with sales.raven.at_once():
        ids = [sales.put(n) for n in range(600)]
    pages = sales.store.list(sales.endpoint)
    first = [candidate.id for candidate in next(pages)]
    with sales.raven.at_once():
        for id_ in first:
            sales.raven.remove(id_)
    rest = [candidate.id for page in pages for candidate in page]
    assert sorted(first + rest) == sorted(ids)


@odd_answers
def test_a_server_that_does_not_page_ends_the_listing(
    sales: Sales, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same page again and again is an error, not an endless loop."""
    sales.put(1)
    sales.put(2)
    real, behind = StrictRaven._page, ("skipAfter", "startAfter")
    monkeypatch.setattr(
        StrictRaven,
        "_page",
        lambda self, query: real(self, {k: v for k, v in query.items() if k not in behind}),
    )
    with pytest.raises(StoreError, match="does not return pages"):
        sales.listed()


def test_large_documents_come_in_smaller_pages(
    sales: Sales, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No answer is held that is larger than the bound; two documents beyond it are named."""
    for bound in ("ANSWER_BYTES", "ONE_DOCUMENT_BYTES"):
        monkeypatch.setattr(listing, bound, 20_000)
    ids = [sales.put(n, State=base64.b64encode(bytes(6_000)).decode()) for n in range(9)]
    assert sales.listed() == sorted(ids)
    assert sorted(d.id for d in sales.read()) == sorted(ids)
    monkeypatch.setattr(listing, "ONE_DOCUMENT_BYTES", 2_000)
    with pytest.raises(StoreError, match="two documents behind 'TimeoutDatas/'"):
        sales.listed()


def test_ids_that_begin_otherwise_are_refused_instead_of_missed(raven: Boundary) -> None:
    """A convention of the application's own shows at either end of the collection, from 4 on."""
    with Sales(raven) as sales:
        with raven.at_once():
            for n in range(70):
                sales.put(n)
        own = {"OwningTimeoutManager": "Sales", "Time": "2026-11-03T08:15:30Z"}
        raven.store("0c9d", own, **sales.metadata())
        for ask in (sales.store.endpoints, lambda: sales.store.probe(sales.endpoint)):
            if raven.family == "3.5":
                ask()
                continue
            with pytest.raises(StoreError, match=r"'0c9d' .*store\.ravendb\.prefixes"):
                ask()
    with Sales(raven, prefixes=["TimeoutDatas/", "0", "timeoutdatas/1"]) as sales:
        assert len(sales.store.endpoints()) == 1
        sales.store.probe(sales.endpoint)
        assert len(sales.listed()) == 71


@pytest.mark.usefixtures("_remembers")
def test_a_large_collection_is_listed_once_for_many_claims(sales: Sales) -> None:
    """What turned out to be gone is not named again, nor what is later than asked for.

    Where all of it is gone, there is more behind it, and a run to the end must not end here.
    """
    raven = sales.raven
    with raven.at_once():
        ids = [sales.put(n, due_in_s=60 + n) for n in range(30)]
        others = [sales.put(100 + n, due_in_s=60 + n, owner="Billing") for n in range(20)]
    assert sales.soonest(4) == ids[:4]
    with raven.watched() as requests:
        assert sales.soonest(3, of="Billing") == others[:3]
        assert not sales.soonest(3, of="Nobody")
        raven.remove(ids[0])
        raven.remove(ids[1])
        assert [d.id for d in sales.read(sales.soonest(4))] == ids[2:4]
        assert sales.soonest(4) == ids[2:6]
        assert sales.soonest(due_until=NOW + timedelta(seconds=62)) == [ids[2]]
    assert not [each for each in requests if "startsWith" in each.target]
    assert sales.soonest(20) == ids[2:22]  # beyond what was kept
    for each in ids[2:22]:
        raven.remove(each)
    assert sales.read(ids[2:22]) == []
    assert sales.soonest(4) == ids[22:26]


@pytest.mark.usefixtures("_remembers")
def test_what_is_put_back_is_among_the_soonest_again(sales: Sales) -> None:
    """What is remembered of a large collection is forgotten when something comes back."""
    ids = [sales.put(n, due_in_s=60 + n) for n in range(9)]
    first = [*sales.store.read(sales.endpoint, ids[:1])]
    sales.forget(MARK, sales.take(first))
    assert sales.soonest(1) == ids[1:2]
    sales.put_back(first)
    assert sales.soonest(1) == ids[:1]


# ── taking ──────────────────────────────────────────────────────────────────────────────────────


def test_the_batch_that_takes_is_as_documented(sales: Sales) -> None:
    """One transaction: each document under its version, and the receipt, which must be new."""
    id_ = sales.put(1)
    version = sales.raven.documents[id_.lower()].version
    documents = sales.read()
    with sales.raven.watched() as requests:
        sales.take(documents)
    (sent,) = requests
    assert sent.line == f"POST /databases/{DATABASE}/bulk_docs"
    if sales.raven.family == "4":
        content = {"Ids": [id_], "@metadata": {"@collection": "MigratorReceipts"}}
        assert sent.body == {
            "Commands": [
                {"Id": RECEIPT, "ChangeVector": "", "Document": content, "Type": "PUT"},
                {"Id": id_, "ChangeVector": version, "Type": "DELETE"},
            ]
        }
        return
    no_etag = "00000000-0000-0000-0000-000000000000"
    collection = {"Raven-Entity-Name": "TimeoutDatas"}
    ours = {"Raven-Entity-Name": "MigratorReceipts"}
    put = {"Method": "PUT"}
    assert sent.body == [
        put | {"Key": RECEIPT, "Document": {"Ids": [id_]}, "Metadata": ours, "Etag": no_etag},
        put | {"Key": id_, "Document": {}, "Metadata": collection, "Etag": version},
        {"Key": id_, "Method": "DELETE"},
    ]


def test_when_all_are_gone_nothing_is_ours_and_nothing_ever_will_be(sales: Sales) -> None:
    """Even then a receipt is left: a request still under way finds it, and does nothing."""
    theirs = sales.put(1)
    documents = sales.read()
    sales.raven.remove(theirs)
    assert sales.take(documents) == []
    assert sales.raven.content(RECEIPT) == {"Ids": []}


def test_a_lost_answer_is_told_by_the_receipt(sales: Sales) -> None:
    """The documents are gone and nobody heard why: asking again tells that it was us."""
    ids = [sales.put(n) for n in range(2)]
    documents = sales.read()
    sales.raven.plan("/bulk_docs", lose=True)
    with pytest.raises(StoreUnavailable, match="cannot be reached"):
        sales.take(documents)
    assert sales.raven.ids("Timeout") == []
    assert sales.take(documents) == sorted(ids)


def test_a_request_that_arrives_late_takes_nothing_twice(sales: Sales) -> None:
    """The first request is done long after the second one was told: the receipt stands."""
    kept, moved = sales.put(1), sales.put(2)
    documents = sales.read()
    late = sales.raven.plan("/bulk_docs", wait_for=threading.Event())
    with pytest.raises(StoreUnavailable):
        sales.take(documents)
    sales.change(kept)
    assert sales.take(documents) == [moved]
    released(late)
    assert sales.raven.ids("Timeout") == [kept]
    assert sales.take(documents) == [moved]


def released(late: Plan) -> None:
    """Let a request go on that was held up, and wait for its work."""
    assert late.wait_for is not None
    late.wait_for.set()
    assert late.done.wait(60)


PAGES = [b"<html>Log in</html>", b"{}", b"[]", b'{"Results": []}', b""]


@odd_answers
@pytest.mark.parametrize(
    ("happens", "kind", "told"),
    [
        *(({"status": status}, StoreUnavailable, str(status)) for status in (429, 500, 503)),
        *(({"instead": page}, StoreUnavailable, "may or may not have been done") for page in PAGES),
        *(({"status": status}, StoreError, "refused") for status in (400, 401, 403)),
        ({"status": 404}, StoreError, "the answer is not RavenDB"),  # a proxy's: nothing is gone
    ],
)
def test_an_answer_says_whether_to_repeat(
    sales: Sales, happens: dict[str, Any], kind: type[StoreError], told: str
) -> None:
    """What may pass is unavailable; a refusal for good is for a person. Nothing is concluded."""
    id_ = sales.put(1)
    documents = sales.read()
    sales.raven.plan("/bulk_docs", **happens)
    with pytest.raises(StoreError, match=told) as caught:
        sales.take(documents)
    assert caught.type is kind
    assert sales.take(documents) == [id_]
    sales.raven.plan("/bulk_docs", **happens)
    with pytest.raises(kind, match=told):
        sales.store.probe(sales.endpoint)


@odd_answers
def test_a_read_is_tried_again_unless_nodes_disagree(sales: Sales) -> None:
    """One answer of 503 does not end a listing; 409 is for a person, not for the next attempt."""
    id_ = sales.put(1)
    sales.raven.plan("startsWith", status=503)
    assert sales.listed() == [id_]
    sales.raven.plan("startsWith", status=409)
    with pytest.raises(StoreError, match="has to be resolved in RavenDB"):
        sales.listed()


@odd_answers
def test_conflicts_without_end_give_up_with_nothing_done(
    sales: Sales, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A server that always says 409 is unavailable, after a bounded number of rounds."""
    monkeypatch.setattr("migrator.stores.ravendb.receipts._PAUSE_S", 0.0)
    id_ = sales.put(1)
    documents = sales.read()
    for _ in range(10):
        sales.raven.plan("/bulk_docs", status=409)
    with pytest.raises(StoreUnavailable, match="nothing was done"):
        sales.take(documents)
    assert sales.raven.ids() == [id_]


# ── putting back ────────────────────────────────────────────────────────────────────────────────


ODD: dict[str, dict[str, Any]] = {
    "no body": {"State": None},
    "empty body": {"State": ""},
    "no headers": {"Headers": None},
    "legacy address": {"Destination": {"Queue": "billing", "Machine": "SRV"}},
    "legacy field": {"CorrelationId": "c-1"},
    "null owner": {"OwningTimeoutManager": None},
    "empty owner": {"OwningTimeoutManager": ""},
    "seven digits": {"Time": "2026-11-03T08:15:30.1224171Z"},
    "no zone": {"Time": "2026-11-03T08:15:30"},
    "odd base64": {"State": "e30 ="},
    "other plane": {"Headers": {"k": "\U0001f600\u2028"}, "Destination": "Büro"},
    "half a character": {"Headers": {"k": "\ud83d"}},
    "no base64": {"State": "?"},
    "odd header": {"Headers": {"n": 1, "t": ["x"]}},
}


def test_what_is_put_back_is_what_was_there(raven: Boundary) -> None:
    """Content, order of fields and metadata are as before; only the version is the server's."""
    with Sales(raven, unowned="Sales") as sales:
        ids = [sales.put(n, **odd) for n, odd in enumerate(ODD.values())]
        before = raven.documents
        documents = sales.taken()
        assert raven.ids() == []
        assert sales.put_back(documents) == sorted(ids)
        sales.forget(BACK, ids)
    for key, after in raven.documents.items():
        assert list(after.content.items()) == list(before[key].content.items())
        assert (after.id, after.metadata) == (before[key].id, before[key].metadata)
        assert after.version != before[key].version


def test_what_was_left_out_may_come_back_later_under_the_same_mark(sales: Sales) -> None:
    """Each is restored once, also what a first request of that mark still wanted to restore."""
    raven, (first, second) = sales.raven, (sales.put(1), sales.put(2))
    documents = sales.taken()
    sales.change(first)
    raven.plan("/bulk_docs")
    late = raven.plan("/bulk_docs", wait_for=threading.Event())
    with pytest.raises(StoreUnavailable):
        sales.put_back(documents)
    assert sales.put_back(documents) == [second]
    raven.remove(first)
    assert sales.put_back(documents) == [first, second]
    raven.remove(second)
    released(late)
    assert sales.put_back(documents) == [first, second]
    assert raven.ids("Timeout") == [first]


def test_a_late_restoration_does_nothing_even_after_the_receipt_is_forgotten(sales: Sales) -> None:
    """Restored by a second request, sent, removed, forgotten: the first one restores nothing."""
    id_ = sales.put(1)
    documents = sales.taken()
    sales.raven.plan("/bulk_docs")
    late = sales.raven.plan("/bulk_docs", wait_for=threading.Event())
    with pytest.raises(StoreUnavailable):
        sales.put_back(documents)
    assert sales.put_back(documents) == [id_]
    sales.raven.remove(id_)
    sales.forget(BACK, [id_])
    released(late)
    assert sales.raven.ids() == []


def test_evidence_of_more_than_is_recorded_is_kept(sales: Sales) -> None:
    """A receipt goes only when the ledger has recorded all that it tells of."""
    ids = [sales.put(n) for n in range(2)]
    sales.take(sales.read())
    sales.forget(MARK, ids[:1])
    assert sales.raven.ids("migrator/") == [RECEIPT]
    sales.forget(MARK, ids)
    assert not sales.raven.ids("migrator/")


# ── owners and the vendor's tool ────────────────────────────────────────────────────────────────


def test_timeouts_without_an_owner_are_shown_and_never_taken(sales: Sales) -> None:
    """Any timeout manager would send them; without a setting nobody here does."""
    store = sales.store
    ids = [sales.put(1, owner=""), sales.put(2, owner=None)]
    (endpoint,) = store.endpoints()
    assert endpoint == sales.called(NO_OWNER)
    assert len(sales.listed(endpoint)) == 2
    documents = [*store.read(endpoint, ids)]
    asked: Sequence[Callable[[], object]] = (
        lambda: sales.soonest(of=NO_OWNER),
        lambda: store.take(endpoint, MARK, documents),
        lambda: store.probe(endpoint),
    )
    for ask in asked:
        with pytest.raises(StoreError, match=r"store\.ravendb\.unowned"):
            ask()
    assert len(sales.raven.ids("Timeout")) == 2


def test_timeouts_without_an_owner_belong_to_the_one_that_is_named(raven: Boundary) -> None:
    """The named endpoint has them, and no other."""
    with Sales(raven, unowned="Sales") as sales:
        ids = [sales.put(1, owner=""), sales.put(2, owner=None), sales.put(3)]
        sales.put(4, owner="Billing", collection="TimeoutData")
        raven.store("TimeoutDatas/5", {"OwningTimeoutManager": "Other"}, **sales.metadata("Else"))
        assert sales.store.endpoints() == [sales.called("Billing"), sales.called("Sales")]
        assert len(sales.listed(sales.called("Billing"))) == 1
        assert sales.take(sales.read()) == sorted(ids)


def test_what_the_vendors_tool_holds_is_told_and_neither_shown_nor_read(sales: Sales) -> None:
    """Its state, its batches and hidden timeouts; finished runs and moved timeouts are history."""
    raven, store = sales.raven, sales.store
    raven.store("TimeoutMigrationTool/MigrationRun-Sales-2026-11-01 10-00-00", {"Status": 2})
    moved, good = sales.put(1, owner="__migrated__Sales"), sales.put(3)
    assert store.unfinished_vendor_runs() == []
    raven.store("TimeoutMigrationTool/State", {"Endpoint": "Sales", "RunParameters": {"s": "p"}})
    raven.store("batch/1", {"Number": 1})
    hidden = sales.put(2, owner="__hidden__Sales")
    told = store.unfinished_vendor_runs()
    assert len(told) == 3
    assert "Sales" in told[0]
    assert "RunParameters" not in "".join(told)
    assert [each.name for each in store.endpoints()] == ["Sales"]
    assert sales.listed() == [good]
    assert [*store.read(sales.endpoint, [moved, hidden])] == []


@odd_answers
def test_a_document_under_a_distributed_transaction_is_left(sales: Sales) -> None:
    """A 3.5 server shows it so; its timeout manager is about to remove it."""
    id_ = sales.put(1)
    found = sales.raven.documents[id_.lower()]
    mark = {"Non-Authoritative-Information": True}
    sales.raven.store(id_, found.content, **found.metadata, **mark)
    assert sales.listed() == ([] if sales.raven.family == "3.5" else [id_])


# ── connections ─────────────────────────────────────────────────────────────────────────────────


def test_an_answer_of_the_other_family_is_an_error() -> None:
    """A wrong ``store.ravendb.version`` is told, never taken for an empty database."""
    with StrictRaven("3.5") as server, Sales(server, version="4") as sales:
        sales.put(1)
        with pytest.raises(StoreError, match=r"store\.ravendb\.version"):
            sales.listed()


def test_a_database_that_is_not_there_is_no_empty_one(raven: Boundary) -> None:
    """That the server has no such database is an error, whatever is asked for."""
    server = ServerSettings(url=raven.url, database="Wrong")
    with closing(RavenStore(RavenOptions(server=server))) as store:
        endpoint = StoreEndpoint(name=EndpointName("Sales"), source=store.source_of("Sales"))
        asked: Sequence[Callable[[], object]] = (
            store.endpoints,
            lambda: next(store.read(endpoint, [TimeoutId("x")])),
        )
        for ask in asked:
            with pytest.raises(SourceGone, match=r"store\.ravendb\.database"):
                ask()


@pytest.mark.parametrize("raven", ["4"], indirect=True)
def test_what_was_claimed_elsewhere_is_not_looked_for_here(sales: Sales) -> None:
    """Another server may have a database of that name, and none of the documents."""
    sales.put(1)
    documents, store = sales.read(), sales.store
    theirs = StoreEndpoint(name=EndpointName("Sales"), source=f"other:8080/{DATABASE}:Sales")
    asked: Sequence[Callable[[], object]] = (
        lambda: list(store.list(theirs)),
        lambda: [*store.read(theirs, [documents[0].id])],
        lambda: store.soonest(theirs, DueRange(None, NEVER), 1),
        lambda: store.take(theirs, MARK, documents),
        lambda: store.put_back(theirs, BACK, documents, is_meant=lambda: True),
        lambda: store.forget(theirs, MARK, []),
        lambda: store.probe(theirs),
    )
    for ask in asked:
        with pytest.raises(StoreError, match="nothing was changed"):
            ask()
    assert sales.raven.ids() == [documents[0].id]


def refuse_shards(url: str, database: str) -> None:
    """Assert that the store says what is wrong, whatever it is asked first."""
    options = RavenOptions(server=ServerSettings(url=url, database=database))
    with closing(RavenStore(options)) as store:
        endpoint = StoreEndpoint(name=EndpointName("Sales"), source=store.source_of("Sales"))
        for ask in (store.endpoints, lambda: store.probe(endpoint)):
            with pytest.raises(StoreError, match=r"is sharded.*nothing was changed"):
                ask()


@pytest.mark.parametrize("raven", ["4"], indirect=True)
def test_a_database_of_shards_is_refused(sales: Sales) -> None:
    """As 6.2 and 7.0 tell it; a proxy may let nothing through but the database itself."""
    assert isinstance(sales.raven, StrictRaven)
    sales.raven.plan("namesOnly", status=403)
    assert sales.store.endpoints() == []
    sales.raven.shards = [f"{DATABASE}$0", f"{DATABASE}$1"]
    refuse_shards(sales.raven.url, DATABASE)
    assert not [seen for seen in sales.raven.seen if seen.method != "GET"]


@pytest.mark.slow
def test_real_shards_are_refused(raven_server: RavenServer) -> None:
    """RavenDB makes them of any database that is asked for so."""
    if raven_server.version < "6":
        pytest.skip("it has no shards")
    on_one_node = {"Members": ["A"]}
    shards = {"0": on_one_node, "1": on_one_node}
    told = {"Shards": shards, "Orchestrator": {"Topology": on_one_node}}
    name = raven_server.create_database(Sharding=told)
    try:
        refuse_shards(raven_server.url(), name)
    finally:
        raven_server.drop_database(name)


def test_who_does_not_answer_is_unavailable_and_told_without_more() -> None:
    """A refused connection, and one that is taken, and that is all."""
    with closing(socket.create_server(("127.0.0.1", 0))) as deaf:
        silent = f"http://127.0.0.1:{deaf.getsockname()[1]}"
        for url, told in ((silent, "ReadTimeout"), ("http://127.0.0.1:1/x", "1:1 cannot be")):
            server = ServerSettings(url=url, database=DATABASE, request_timeout_s=0.2)
            unreachable = pytest.raises(StoreUnavailable, match=told)
            with closing(RavenStore(RavenOptions(server=server))) as store, unreachable:
                store.endpoints()


@pytest.mark.parametrize(
    "url",
    ["ftp://h", "http://", "http://u:p@h", "http://h?x=1", "raven", "http://h:port"],
)
def test_an_address_that_cannot_be_used_is_refused_without_showing_it(url: str) -> None:
    """A password that somebody wrote into it stays where it is."""
    server = ServerSettings(url=url, database=DATABASE)
    with pytest.raises(ConfigError, match=r"store\.url") as caught:
        RavenStore(RavenOptions(server=server))
    assert "u:p" not in str(caught.value)


@pytest.mark.parametrize("files", [["ca_file"], ["cert_file", "key_file"]])
def test_a_certificate_that_is_not_there_is_named(tmp_path: Path, files: list[str]) -> None:
    """Before anything is connected."""
    given: dict[str, Any] = dict.fromkeys(files, tmp_path / "absent.pem")
    server = ServerSettings(url="https://h", database=DATABASE, **given)
    with pytest.raises(ConfigError, match=r"store\.ravendb\.c\w+_file .*absent\.pem"):
        RavenStore(RavenOptions(server=server))
