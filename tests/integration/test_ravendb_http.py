"""The RavenDB adapter at the HTTP boundary, with RavenDB behind it, and with strict servers.

The requests, conditions and answers of the latter are those of reference ``legacy-stores.md`` 3.3;
every other is refused. What is only about odd answers does not ask RavenDB.
"""

from __future__ import annotations

import base64
import socket
import ssl
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from migrator.errors import ConfigError, SourceGone, StoreError, StoreUnavailable
from migrator.ledger.work import StoreEndpoint
from migrator.nservicebus.timeouts import EndpointName, TimeoutId
from migrator.stores.documents.ports import Candidate, Document, Mark, Unclaimable
from migrator.stores.ravendb import http as raven_http
from migrator.stores.ravendb import listing
from migrator.stores.ravendb.http import ServerSettings
from migrator.stores.ravendb.listing import PAGE_DOCUMENTS
from migrator.stores.ravendb.store import NO_OWNER, RavenOptions, RavenStore
from tests.conftest import TlsMaterial
from tests.support.raven_boundary import DATABASE, Boundary, Plan
from tests.support.ravendb import StrictRaven

NOW = datetime(2026, 11, 3, 8, 0, tzinfo=UTC)
NEVER = NOW + timedelta(days=10_000)
MARK = Mark("lg1.7.c")
BACK = Mark("lg1.7.r")
MARKS = ("hidden", "migrated")


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


def opened(raven: Boundary, timeout_s: float = 30.0, **options: Any) -> RavenStore:
    """Return the adapter, connected to *raven*."""
    server = ServerSettings(url=raven.url, database=DATABASE, request_timeout_s=timeout_s)
    return RavenStore(RavenOptions(server=server, **options))


@pytest.fixture
def store(raven: Boundary) -> Iterator[RavenStore]:
    """Return the adapter with its defaults."""
    with opened(raven) as store:
        yield store


def sales(store: RavenStore) -> StoreEndpoint:
    """Return the endpoint that most timeouts here belong to."""
    return StoreEndpoint(name=EndpointName("Sales"), source=store.source_of("Sales"))


def metadata(raven: Boundary, collection: str = "TimeoutDatas") -> dict[str, Any]:
    """Return what NServiceBus leaves in the metadata."""
    key = "Raven-Entity-Name" if raven.family == "3.5" else "@collection"
    return {
        key: collection,
        "Raven-Clr-Type": "NServiceBus.TimeoutPersisters.RavenDB.TimeoutData, NServiceBus.RavenDB",
        "NServiceBus-Persistence-RavenDB-TimeoutData-SchemaVersion": "1.0.0",
    }


def stored(
    raven: Boundary,
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
    id_ = f"{collection}/{n}" + ("" if raven.family == "3.5" else "-A")
    raven.store(id_, content, **metadata(raven, collection))
    return TimeoutId(id_)


def listed(store: RavenStore, endpoint: StoreEndpoint | None = None) -> list[str]:
    """Return the ids of a listing."""
    pages = store.list(endpoint or sales(store))
    return [each.id for page in pages for each in page if isinstance(each, Candidate)]


def soonest_ids(store: RavenStore, at_most: int = 10, **range_: Any) -> list[str]:
    """Return the ids that are due next."""
    asked = {"due_after": None, "due_until": NEVER} | range_
    return [c.id for c in store.soonest(sales(store), at_most=at_most, **asked)]


def read_all(store: RavenStore) -> Sequence[Document]:
    """Return all timeouts of Sales, whole."""
    return [*store.read(sales(store), [TimeoutId(each) for each in listed(store)])]


# ── finding ─────────────────────────────────────────────────────────────────────────────────────


def test_endpoints_are_those_that_own_timeouts(raven: Boundary, store: RavenStore) -> None:
    """Both collections count; other collections, moved and held timeouts do not."""
    stored(raven, 1)
    stored(raven, 2, owner="Billing", collection="TimeoutData")
    stored(raven, 3, owner="__migrated__Shipping")
    raven.store("TimeoutDatas/4", {"OwningTimeoutManager": "Other"}, **metadata(raven, "Else"))
    host = raven.url.removeprefix("http://")
    assert [(e.name, e.source) for e in store.endpoints()] == [
        ("Billing", f"{host}/{DATABASE}:Billing"),
        ("Sales", f"{host}/{DATABASE}:Sales"),
    ]


def test_a_listing_shows_each_timeout_once_over_more_than_a_page(
    raven: Boundary, store: RavenStore
) -> None:
    """Pages follow each other without a gap, in both collections and whatever an id's length."""
    with raven.at_once():
        there = {stored(raven, n) for n in range(PAGE_DOCUMENTS + 300)}
        there |= {stored(raven, n, collection="TimeoutData") for n in range(3)}
        stored(raven, 99_999, owner="Billing")
    found = listed(store)
    assert len(found) == len(set(found))
    assert set(found) == there


def test_removals_during_a_listing_make_it_skip_nothing(raven: Boundary, store: RavenStore) -> None:
    """A page begins behind an id, so what a timeout manager removes moves no page."""
    with raven.at_once():
        ids = [stored(raven, n) for n in range(600)]
    pages = store.list(sales(store))
    first = [candidate.id for candidate in next(pages)]
    with raven.at_once():
        for id_ in first:
            raven.remove(id_)
    rest = [candidate.id for page in pages for candidate in page]
    assert sorted(first + rest) == sorted(ids)


@odd_answers
def test_a_server_that_does_not_page_ends_the_listing(
    raven: Boundary, store: RavenStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same page again and again is an error, not an endless loop."""
    stored(raven, 1)
    stored(raven, 2)
    real = StrictRaven._page
    monkeypatch.setattr(
        StrictRaven,
        "_page",
        lambda self, query: real(
            self, {k: v for k, v in query.items() if k not in ("skipAfter", "startAfter")}
        ),
    )
    with pytest.raises(StoreError, match="does not page"):
        listed(store)


def test_large_documents_come_in_smaller_pages(
    raven: Boundary, store: RavenStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However large documents are, no answer is held that is larger than the bound."""
    monkeypatch.setattr("migrator.stores.ravendb.listing.ANSWER_BYTES", 20_000)
    ids = [stored(raven, n, State=base64.b64encode(bytes(6_000)).decode()) for n in range(9)]
    assert listed(store) == sorted(ids)
    assert sorted(d.id for d in read_all(store)) == sorted(ids)


def test_what_is_too_large_is_named(
    raven: Boundary, store: RavenStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two documents beyond the bound are an error that says where they are."""
    for name in ("ANSWER_BYTES", "ONE_DOCUMENT_BYTES"):
        monkeypatch.setattr(f"migrator.stores.ravendb.listing.{name}", 2_000)
    stored(raven, 1)
    stored(raven, 2, State=base64.b64encode(bytes(6_000)).decode())
    with pytest.raises(StoreError, match="two documents behind 'TimeoutDatas/'"):
        listed(store)


def test_unreadable_timeouts_are_left_where_they_are(raven: Boundary, store: RavenStore) -> None:
    """They are listed with the reason, and not read; nothing touches them."""
    bad = stored(raven, 1, Time="soon")
    good = stored(raven, 3)
    assert listed(store) == [good]
    odd = [e for page in store.list(sales(store)) for e in page if isinstance(e, Unclaimable)]
    assert odd == [Unclaimable(id=bad, why="its due time cannot be read")]
    assert [d.id for d in store.read(sales(store), [TimeoutId(i) for i in raven.ids()])] == [good]


def test_ids_that_begin_otherwise_are_refused_instead_of_missed(raven: Boundary) -> None:
    """A convention of the application's own shows at either end of the collection, from 4 on."""
    with raven.at_once():
        for n in range(70):
            stored(raven, n)
    own = metadata(raven)
    raven.store("0c9d", {"OwningTimeoutManager": "Sales", "Time": "2026-11-03T08:15:30Z"}, **own)
    with opened(raven) as store:
        if raven.family == "3.5":
            assert len(store.endpoints()) == 1
        else:
            for ask in (store.endpoints, lambda: store.probe(sales(store))):
                with pytest.raises(StoreError, match=r"'0c9d' .*store\.ravendb\.prefixes"):
                    ask()
    with opened(raven, prefixes=["TimeoutDatas/", "0", "timeoutdatas/1"]) as store:
        assert len(store.endpoints()) == 1
        store.probe(sales(store))
        assert len(listed(store)) == 71


def test_the_soonest_come_first(raven: Boundary, store: RavenStore) -> None:
    """Due time decides, then the id; the lower bound is exclusive, the upper inclusive."""
    late = stored(raven, 1, due_in_s=300)
    early = stored(raven, 2, due_in_s=60)
    same = stored(raven, 10, due_in_s=60)
    assert soonest_ids(store) == [*sorted([early, same]), late]
    assert soonest_ids(store, at_most=1) == [min(early, same)]
    assert soonest_ids(store, due_after=NOW + timedelta(seconds=60)) == [late]
    assert len(soonest_ids(store, due_until=NOW + timedelta(seconds=300))) == 3
    assert soonest_ids(store, due_until=NOW) == []


def test_what_was_just_stored_is_among_the_soonest(raven: Boundary, store: RavenStore) -> None:
    """No index is asked that could lag behind."""
    stored(raven, 1, due_in_s=600)
    assert len(soonest_ids(store)) == 1
    new = stored(raven, 2, due_in_s=60)
    assert soonest_ids(store)[0] == new


def test_a_large_collection_is_listed_once_for_many_claims(
    raven: Boundary, store: RavenStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is remembered still shows nothing that is gone, changed or later than asked for."""
    monkeypatch.setattr(listing, "SMALL_COLLECTION", 5)
    monkeypatch.setattr(listing, "KEPT_ENTRIES", 16)
    monkeypatch.setattr(listing, "_AGE_FACTOR", 1_000_000)
    with raven.at_once():
        ids = [stored(raven, n, due_in_s=60 + n) for n in range(30)]
        others = [stored(raven, 100 + n, due_in_s=60 + n, owner="Billing") for n in range(20)]
    assert soonest_ids(store, at_most=4) == ids[:4]
    billing = StoreEndpoint(name=EndpointName("Billing"), source=store.source_of("Billing"))
    nobody = StoreEndpoint(name=EndpointName("Nobody"), source=store.source_of("Nobody"))
    with raven.watched() as requests:
        theirs = store.soonest(billing, due_after=None, due_until=NEVER, at_most=3)
        assert [each.id for each in theirs] == others[:3]
        assert not store.soonest(nobody, due_after=None, due_until=NEVER, at_most=3)
        raven.remove(ids[0])
        stored(raven, 1, due_in_s=90_000)
        assert soonest_ids(store, at_most=4) == ids[2:6]
        assert soonest_ids(store, due_until=NOW + timedelta(seconds=62)) == [ids[2]]
    assert not [each for each in requests if "startsWith" in each.target]
    assert soonest_ids(store, at_most=20) == [*ids[2:22]]  # beyond what was kept


def test_what_is_put_back_is_among_the_soonest_again(
    raven: Boundary, store: RavenStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is remembered of a large collection is forgotten when something comes back."""
    monkeypatch.setattr(listing, "SMALL_COLLECTION", 5)
    monkeypatch.setattr(listing, "_AGE_FACTOR", 1_000_000)
    ids = [stored(raven, n, due_in_s=60 + n) for n in range(9)]
    first = [*store.read(sales(store), ids[:1])]
    store.forget(sales(store), MARK, store.take(sales(store), MARK, first))
    assert soonest_ids(store, at_most=1) == ids[1:2]
    store.put_back(sales(store), BACK, first, is_meant=lambda: True)
    assert soonest_ids(store, at_most=1) == ids[:1]


# ── taking ──────────────────────────────────────────────────────────────────────────────────────


def receipts(raven: Boundary) -> list[str]:
    """Return the receipts that the server holds."""
    return raven.ids("migrator/")


def test_taking_removes_and_leaves_a_receipt(raven: Boundary, store: RavenStore) -> None:
    """The documents are gone, and the receipt lists them, until it is forgotten."""
    ids = [stored(raven, n) for n in range(3)]
    assert sorted(store.take(sales(store), MARK, read_all(store))) == sorted(ids)
    assert raven.ids() == [f"migrator/claims/{MARK}"]
    assert raven.content(f"migrator/claims/{MARK}") == {"Ids": sorted(ids)}
    store.forget(sales(store), MARK, [TimeoutId(i) for i in ids])
    store.forget(sales(store), MARK, [TimeoutId(i) for i in ids])
    assert raven.ids() == []


def test_the_batch_that_takes_is_as_documented(raven: Boundary, store: RavenStore) -> None:
    """One transaction: each document under its version, and the receipt, which must be new."""
    id_ = stored(raven, 1)
    version = raven.documents[id_.lower()].version
    documents = read_all(store)
    with raven.watched() as requests:
        store.take(sales(store), MARK, documents)
    (sent,) = requests
    receipt = f"migrator/claims/{MARK}"
    assert sent.line == f"POST /databases/{DATABASE}/bulk_docs"
    if raven.family == "4":
        content = {"Ids": [id_], "@metadata": {"@collection": "MigratorReceipts"}}
        assert sent.body == {
            "Commands": [
                {"Id": receipt, "ChangeVector": "", "Document": content, "Type": "PUT"},
                {"Id": id_, "ChangeVector": version, "Type": "DELETE"},
            ]
        }
        return
    no_etag = "00000000-0000-0000-0000-000000000000"
    collection = {"Raven-Entity-Name": "TimeoutDatas"}
    ours = {"Raven-Entity-Name": "MigratorReceipts"}
    put = {"Method": "PUT"}
    assert sent.body == [
        put | {"Key": receipt, "Document": {"Ids": [id_]}, "Metadata": ours, "Etag": no_etag},
        put | {"Key": id_, "Document": {}, "Metadata": collection, "Etag": version},
        {"Key": id_, "Method": "DELETE"},
    ]


def test_taking_again_with_the_same_mark_returns_the_same(
    raven: Boundary, store: RavenStore
) -> None:
    """Whoever repeats is told what was taken, although nothing is there any more."""
    stored(raven, 1)
    documents = read_all(store)
    first = store.take(sales(store), MARK, documents)
    assert tuple(store.take(sales(store), MARK, documents)) == tuple(first) == (documents[0].id,)


def changed(raven: Boundary, id_: str) -> None:
    """Change a document as a timeout manager or a person would."""
    raven.store(id_, {**(raven.content(id_) or {}), "Destination": "Else"}, **metadata(raven))


def removed(raven: Boundary, id_: str) -> None:
    """Remove a document as a timeout manager does."""
    raven.remove(id_)


@pytest.mark.parametrize("somebody", [removed, changed], ids=["removed", "changed"])
def test_what_somebody_else_was_sooner_with_is_left_out(
    raven: Boundary, store: RavenStore, somebody: Callable[[Boundary, str], None]
) -> None:
    """A batch that meets a changed or vanished document leaves that one out, and takes the rest."""
    theirs, ours = stored(raven, 1), stored(raven, 2)
    documents = read_all(store)
    somebody(raven, theirs)
    assert list(store.take(sales(store), MARK, documents)) == [ours]
    assert raven.content(f"migrator/claims/{MARK}") == {"Ids": [ours]}
    assert ours not in raven.ids()


def test_when_all_are_gone_nothing_is_ours_and_nothing_ever_will_be(
    raven: Boundary, store: RavenStore
) -> None:
    """Even then a receipt is left: a request still under way finds it, and does nothing."""
    theirs = stored(raven, 1)
    documents = read_all(store)
    raven.remove(theirs)
    assert list(store.take(sales(store), MARK, documents)) == []
    assert raven.content(f"migrator/claims/{MARK}") == {"Ids": []}


def test_a_lost_answer_is_told_by_the_receipt(raven: Boundary, store: RavenStore) -> None:
    """The documents are gone and nobody heard why: asking again tells that it was us."""
    ids = [stored(raven, n) for n in range(2)]
    documents = read_all(store)
    raven.plan("/bulk_docs", lose=True)
    with pytest.raises(StoreUnavailable, match="cannot be reached"):
        store.take(sales(store), MARK, documents)
    assert raven.ids("Timeout") == []
    assert sorted(store.take(sales(store), MARK, documents)) == sorted(ids)


def test_a_request_that_arrives_late_takes_nothing_twice(
    raven: Boundary, store: RavenStore
) -> None:
    """The first request is done long after the second one was told: the receipt stands."""
    kept, moved = stored(raven, 1), stored(raven, 2)
    documents = read_all(store)
    late = raven.plan("/bulk_docs", wait_for=threading.Event())
    with pytest.raises(StoreUnavailable):
        store.take(sales(store), MARK, documents)
    changed(raven, kept)
    assert list(store.take(sales(store), MARK, documents)) == [moved]
    released(late)
    assert raven.ids("Timeout") == [kept]
    assert list(store.take(sales(store), MARK, documents)) == [moved]


def released(late: Plan) -> None:
    """Let a request go on that was held up, and wait for its work."""
    assert late.wait_for is not None
    late.wait_for.set()
    assert late.done.wait(60)


@odd_answers
@pytest.mark.parametrize("status", [429, 500, 503])
def test_an_answer_that_may_pass_is_unavailable(
    raven: Boundary, store: RavenStore, status: int
) -> None:
    """The same call later does it; nothing was taken meanwhile."""
    id_ = stored(raven, 1)
    documents = read_all(store)
    raven.plan("/bulk_docs", status=status)
    with pytest.raises(StoreUnavailable, match=str(status)):
        store.take(sales(store), MARK, documents)
    assert list(store.take(sales(store), MARK, documents)) == [id_]


@odd_answers
@pytest.mark.parametrize("page", [b"<html>Log in</html>", b"{}", b"[]", b'{"Results": []}', b""])
def test_a_proxys_answer_does_not_tell_that_a_batch_was_done(
    raven: Boundary, store: RavenStore, page: bytes
) -> None:
    """Nobody knows then, and the same call again finds out."""
    id_ = stored(raven, 1)
    documents = read_all(store)
    raven.plan("/bulk_docs", instead=page)
    with pytest.raises(StoreUnavailable, match="may have been done or not"):
        store.take(sales(store), MARK, documents)
    assert list(store.take(sales(store), MARK, documents)) == [id_]


@odd_answers
def test_a_document_that_nodes_disagree_about_is_told(raven: Boundary, store: RavenStore) -> None:
    """A read that is answered 409 is an error for a person, not for the next attempt."""
    raven.plan("startsWith", status=409)
    with pytest.raises(StoreError, match="somebody has to decide") as caught:
        listed(store)
    assert not isinstance(caught.value, StoreUnavailable)


@odd_answers
@pytest.mark.parametrize("status", [401, 403, 404, 400])
def test_a_refusal_for_good_is_no_reason_to_repeat(
    raven: Boundary, store: RavenStore, status: int
) -> None:
    """A wrong certificate, database or request: an error that says so."""
    stored(raven, 1)
    documents = read_all(store)
    raven.plan("/bulk_docs", status=status)
    with pytest.raises(StoreError, match=r"refused|not found") as caught:
        store.take(sales(store), MARK, documents)
    assert not isinstance(caught.value, StoreUnavailable)


@odd_answers
def test_a_read_is_tried_again(raven: Boundary, store: RavenStore) -> None:
    """One answer of 503 does not end a listing."""
    id_ = stored(raven, 1)
    raven.plan("startsWith", status=503)
    assert listed(store) == [id_]


@odd_answers
def test_conflicts_without_end_give_up_with_nothing_done(
    raven: Boundary, store: RavenStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A server that always says 409 is unavailable, after a bounded number of rounds."""
    monkeypatch.setattr("migrator.stores.ravendb.receipts._PAUSE_S", 0.0)
    id_ = stored(raven, 1)
    documents = read_all(store)
    for _ in range(10):
        raven.plan("/bulk_docs", status=409)
    with pytest.raises(StoreUnavailable, match="nothing was done"):
        store.take(sales(store), MARK, documents)
    assert raven.ids() == [id_]


def test_two_claimers_never_share_a_timeout(raven: Boundary, store: RavenStore) -> None:
    """Both read all, both take all: each timeout is one's."""
    with raven.at_once():
        ids = [stored(raven, n) for n in range(40)]
    documents = read_all(store)
    with opened(raven) as other:
        taken: list[list[TimeoutId]] = [[], []]

        def take(n: int, by: RavenStore, mine: Sequence[Document]) -> None:
            for start in range(0, len(mine), 10):
                part = mine[start : start + 10]
                taken[n] += by.take(sales(store), Mark(f"lg{n}.{start}.c"), part)

        threads = [
            threading.Thread(target=take, args=(0, store, documents)),
            threading.Thread(target=take, args=(1, other, documents[::-1])),
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert sorted(taken[0] + taken[1]) == sorted(ids)


def test_a_saga_that_is_cleared_takes_its_timeouts_from_us(
    raven: Boundary, store: RavenStore
) -> None:
    """The timeout manager removes by saga, whoever owns: what is gone between is not ours."""
    stored(raven, 1, SagaId="0e0e0e0e-0000-4000-8000-000000000001")
    ours = stored(raven, 2)
    documents = read_all(store)
    raven.plan("/bulk_docs", before=lambda: clear_saga(raven, "0e0e0e0e"))
    assert list(store.take(sales(store), MARK, documents)) == [ours]


def clear_saga(raven: Boundary, saga: str) -> None:
    """Remove what belongs to a saga, as a timeout manager does."""
    for id_ in raven.ids("TimeoutDatas/"):
        if str((raven.content(id_) or {}).get("SagaId")).startswith(saga):
            raven.remove(id_)


# ── putting back ────────────────────────────────────────────────────────────────────────────────


def taken(store: RavenStore) -> Sequence[Document]:
    """Return all timeouts of Sales, taken, with the evidence forgotten."""
    documents = read_all(store)
    store.forget(sales(store), MARK, store.take(sales(store), MARK, documents))
    return documents


ODD: dict[str, dict[str, Any]] = {
    "plain": {},
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


@pytest.mark.parametrize("odd", ODD)
def test_what_is_put_back_is_what_was_there(raven: Boundary, odd: str) -> None:
    """Content, order of fields and metadata are as before; only the version is the server's."""
    id_ = stored(raven, 1, **ODD[odd])
    before = raven.documents[id_.lower()]
    with opened(raven, unowned="Sales") as store:
        documents = taken(store)
        assert raven.ids() == []
        assert list(store.put_back(sales(store), BACK, documents, is_meant=lambda: True)) == [id_]
    after = raven.documents[id_.lower()]
    assert list(after.content.items()) == list(before.content.items())
    assert (after.id, after.metadata) == (before.id, before.metadata)
    assert after.version != before.version


def test_an_id_that_somebody_stored_again_is_left_to_them(
    raven: Boundary, store: RavenStore
) -> None:
    """Their document stays as it is, and the others are restored."""
    theirs, ours = stored(raven, 1), stored(raven, 2)
    documents = taken(store)
    raven.store(theirs, {"OwningTimeoutManager": "Else"}, **metadata(raven))
    assert list(store.put_back(sales(store), BACK, documents, is_meant=lambda: True)) == [ours]
    assert raven.content(theirs) == {"OwningTimeoutManager": "Else"}


def test_what_was_left_out_may_come_back_later_under_the_same_mark(
    raven: Boundary, store: RavenStore
) -> None:
    """Each is restored once, also what a first request of that mark still wanted to restore."""
    first, second = stored(raven, 1), stored(raven, 2)
    documents = taken(store)
    changed(raven, first)
    raven.plan("/bulk_docs")
    late = raven.plan("/bulk_docs", wait_for=threading.Event())
    with pytest.raises(StoreUnavailable):
        store.put_back(sales(store), BACK, documents, is_meant=lambda: True)
    assert list(store.put_back(sales(store), BACK, documents, is_meant=lambda: True)) == [second]
    raven.remove(first)
    assert set(store.put_back(sales(store), BACK, documents, is_meant=lambda: True)) == {
        first,
        second,
    }
    raven.remove(second)
    released(late)
    assert set(store.put_back(sales(store), BACK, documents, is_meant=lambda: True)) == {
        first,
        second,
    }
    assert raven.ids("Timeout") == [first]


def test_where_nothing_could_be_restored_no_receipt_is_left(
    raven: Boundary, store: RavenStore
) -> None:
    """There is nothing to remember, and it can be tried again."""
    id_ = stored(raven, 1)
    documents = taken(store)
    changed(raven, id_)
    assert list(store.put_back(sales(store), BACK, documents, is_meant=lambda: True)) == []
    assert receipts(raven) == []
    raven.remove(id_)
    assert list(store.put_back(sales(store), BACK, documents, is_meant=lambda: True)) == [id_]


def test_a_restored_timeout_that_was_sent_is_not_restored_again(
    raven: Boundary, store: RavenStore
) -> None:
    """The answer was lost, a timeout manager sent it meanwhile: the receipt tells, once is all."""
    id_ = stored(raven, 1)
    documents = taken(store)
    raven.plan("/bulk_docs")  # the opening of the receipt
    raven.plan("/bulk_docs", lose=True)
    with pytest.raises(StoreUnavailable):
        store.put_back(sales(store), BACK, documents, is_meant=lambda: True)
    raven.remove(id_)
    assert list(store.put_back(sales(store), BACK, documents, is_meant=lambda: True)) == [id_]
    assert raven.ids("Timeout") == []


def test_a_late_restoration_does_nothing_even_after_the_receipt_is_forgotten(
    raven: Boundary, store: RavenStore
) -> None:
    """Restored by a second request, sent, removed, forgotten: the first one restores nothing."""
    id_ = stored(raven, 1)
    documents = taken(store)
    raven.plan("/bulk_docs")
    late = raven.plan("/bulk_docs", wait_for=threading.Event())
    with pytest.raises(StoreUnavailable):
        store.put_back(sales(store), BACK, documents, is_meant=lambda: True)
    assert list(store.put_back(sales(store), BACK, documents, is_meant=lambda: True)) == [id_]
    raven.remove(id_)
    store.forget(sales(store), BACK, [id_])
    released(late)
    assert raven.ids() == []


def test_a_late_removal_does_nothing_to_what_was_put_back(
    raven: Boundary, store: RavenStore
) -> None:
    """A restored document has another version, so no old request fits it."""
    id_ = stored(raven, 1)
    documents = read_all(store)
    late = raven.plan("/bulk_docs", wait_for=threading.Event())
    with pytest.raises(StoreUnavailable):
        store.take(sales(store), MARK, documents)
    store.forget(sales(store), MARK, store.take(sales(store), MARK, documents))
    store.put_back(sales(store), BACK, documents, is_meant=lambda: True)
    released(late)
    assert raven.ids("Timeout") == [id_]


def test_evidence_of_more_than_is_recorded_is_kept(raven: Boundary, store: RavenStore) -> None:
    """A receipt goes only when the ledger has recorded all that it tells of."""
    ids = [stored(raven, n) for n in range(2)]
    store.take(sales(store), MARK, read_all(store))
    store.forget(sales(store), MARK, ids[:1])
    assert receipts(raven)
    store.forget(sales(store), MARK, ids)
    assert not receipts(raven)


# ── owners and the vendor's tool ────────────────────────────────────────────────────────────────


def test_timeouts_without_an_owner_are_shown_and_never_taken(
    raven: Boundary, store: RavenStore
) -> None:
    """Any timeout manager would send them; without a setting nobody here does."""
    stored(raven, 1, owner="")
    stored(raven, 2, owner=None)
    (endpoint,) = store.endpoints()
    assert endpoint.name == NO_OWNER
    assert endpoint.source == store.source_of(NO_OWNER)
    assert len(listed(store, endpoint)) == 2
    documents = [*store.read(endpoint, [TimeoutId(each) for each in raven.ids()])]
    with pytest.raises(StoreError, match=r"store\.ravendb\.unowned"):
        store.soonest(endpoint, due_after=None, due_until=NEVER, at_most=1)
    with pytest.raises(StoreError, match=r"store\.ravendb\.unowned"):
        store.take(endpoint, MARK, documents)
    with pytest.raises(StoreError, match=r"store\.ravendb\.unowned"):
        store.probe(endpoint)
    assert len(raven.ids("Timeout")) == 2


def test_timeouts_without_an_owner_belong_to_the_one_that_is_named(raven: Boundary) -> None:
    """The named endpoint has them, and no other."""
    ids = [stored(raven, 1, owner=""), stored(raven, 2, owner=None), stored(raven, 3)]
    stored(raven, 4, owner="Billing")
    with opened(raven, unowned="Sales") as store:
        assert [endpoint.name for endpoint in store.endpoints()] == ["Billing", "Sales"]
        assert sorted(listed(store)) == sorted(ids)
        assert len(listed(store, store.endpoints()[0])) == 1
        assert sorted(store.take(sales(store), MARK, read_all(store))) == sorted(ids)


def test_what_the_vendors_tool_holds_is_neither_shown_nor_read(
    raven: Boundary, store: RavenStore
) -> None:
    """Hidden is under way, migrated is done: both are somebody else's."""
    marked = [
        stored(raven, 1, owner="__hidden__Sales"),
        stored(raven, 2, owner="__migrated__Sales"),
    ]
    good = stored(raven, 3)
    assert listed(store) == [good]
    assert [*store.read(sales(store), marked)] == []


def test_a_timeout_that_the_vendors_tool_marks_meanwhile_is_left(
    raven: Boundary, store: RavenStore
) -> None:
    """Its mark is a change like any other."""
    id_ = stored(raven, 1)
    documents = read_all(store)
    stored(raven, 1, owner="__hidden__Sales")
    assert list(store.take(sales(store), MARK, documents)) == []
    assert raven.ids("Timeout") == [id_]


def test_what_the_vendors_tool_left_is_told(raven: Boundary, store: RavenStore) -> None:
    """Its state, its batches and hidden timeouts; finished runs and moved timeouts are history."""
    raven.store("TimeoutMigrationTool/MigrationRun-Sales-2026-11-01 10-00-00", {"Status": 2})
    stored(raven, 1, owner="__migrated__Sales")
    assert store.unfinished_vendor_runs() == []
    raven.store("TimeoutMigrationTool/State", {"Endpoint": "Sales", "RunParameters": {"s": "p"}})
    raven.store("batch/1", {"Number": 1})
    stored(raven, 2, owner="__hidden__Sales")
    told = store.unfinished_vendor_runs()
    assert len(told) == 3
    assert "Sales" in told[0]
    assert "RunParameters" not in "".join(told)


@odd_answers
def test_a_document_under_a_distributed_transaction_is_left(raven: Boundary) -> None:
    """A 3.5 server shows it so; its timeout manager is about to remove it."""
    id_ = stored(raven, 1)
    found = raven.documents[id_.lower()]
    raven.store(id_, found.content, **found.metadata, **{"Non-Authoritative-Information": True})
    with opened(raven) as store:
        assert listed(store) == ([] if raven.family == "3.5" else [id_])


# ── connections ─────────────────────────────────────────────────────────────────────────────────


def test_the_version_is_asked_for_once_or_set(raven: Boundary) -> None:
    """Auto asks the server; a version that is set is believed."""
    stored(raven, 1)
    with opened(raven) as asking, raven.watched() as requests:
        assert listed(asking) == listed(asking)
    assert [each.target for each in requests].count("/build/version") == 1
    with opened(raven, version=raven.family) as told, raven.watched() as requests:
        assert len(listed(told)) == 1
    assert "/build/version" not in [each.target for each in requests]


def test_an_answer_of_the_other_family_is_an_error() -> None:
    """A wrong ``store.ravendb.version`` is told, never taken for an empty database."""
    with StrictRaven("3.5") as server, opened(server, version="4") as store:
        stored(server, 1)
        with pytest.raises(StoreError, match=r"store\.ravendb\.version"):
            listed(store)


def test_a_database_that_is_not_there_is_no_empty_one(raven: Boundary) -> None:
    """That the server has no such database is an error, whatever is asked for."""
    server = ServerSettings(url=raven.url, database="Wrong")
    with RavenStore(RavenOptions(server=server)) as store:
        with pytest.raises(SourceGone, match=r"store\.ravendb\.database"):
            store.endpoints()
        with pytest.raises(SourceGone, match=r"store\.ravendb\.database"):
            next(store.read(sales(store), [TimeoutId("x")]))


def test_a_404_that_is_not_ravendbs_does_not_tell_that_the_database_is_gone(
    raven: Boundary, store: RavenStore
) -> None:
    """A proxy's: an operator could close a half-done batch by it, and write off what is there."""
    raven.plan("/", status=404)
    with pytest.raises(StoreError, match="no word of RavenDB") as caught:
        next(store.read(sales(store), [TimeoutId("x")]))
    assert not isinstance(caught.value, SourceGone)


def test_a_probe_changes_nothing(raven: Boundary, store: RavenStore) -> None:
    """It asks for a change that has no effect, and fails where changes are refused."""
    stored(raven, 1)
    before = dict(raven.documents)
    store.probe(sales(store))
    assert raven.documents == before
    raven.plan("/bulk_docs", status=403)
    with pytest.raises(StoreError, match="cert_file"):
        store.probe(sales(store))


@odd_answers
def test_what_was_claimed_elsewhere_is_not_looked_for_here(
    raven: Boundary, store: RavenStore
) -> None:
    """Another server may have a database of that name, and none of the documents."""
    stored(raven, 1)
    documents = read_all(store)
    theirs = StoreEndpoint(name=EndpointName("Sales"), source=f"other:8080/{DATABASE}:Sales")
    asked: tuple[Callable[[], object], ...] = (
        lambda: list(store.list(theirs)),
        lambda: [*store.read(theirs, [documents[0].id])],
        lambda: store.soonest(theirs, due_after=None, due_until=NEVER, at_most=1),
        lambda: store.take(theirs, MARK, documents),
        lambda: store.put_back(theirs, BACK, documents, is_meant=lambda: True),
        lambda: store.forget(theirs, MARK, []),
        lambda: store.probe(theirs),
    )
    for ask in asked:
        with pytest.raises(StoreError, match="nothing was changed"):
            ask()
    assert raven.ids() == [documents[0].id]


def test_no_server_is_unavailable_and_its_address_is_told_without_more() -> None:
    """A refused connection names host and port."""
    server = ServerSettings(url="http://127.0.0.1:1/raven", database=DATABASE)
    unreachable = pytest.raises(StoreUnavailable, match=r"127\.0\.0\.1:1 cannot be reached")
    with RavenStore(RavenOptions(server=server)) as store, unreachable:
        store.endpoints()


def test_a_server_that_does_not_answer_is_unavailable() -> None:
    """It takes the connection, and that is all."""
    with closing(socket.create_server(("127.0.0.1", 0))) as deaf:
        url = f"http://127.0.0.1:{deaf.getsockname()[1]}"
        server = ServerSettings(url=url, database=DATABASE, request_timeout_s=0.2)
        with (
            RavenStore(RavenOptions(server=server)) as store,
            pytest.raises(StoreUnavailable, match="ReadTimeout"),
        ):
            store.endpoints()


def test_a_secured_server_is_shown_the_certificate(tls_material: TlsMaterial) -> None:
    """With certificate and authority all works; without either there is no connection."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=tls_material.ca)
    context.load_cert_chain(tls_material.server_cert, tls_material.server_key)
    context.verify_mode = ssl.CERT_REQUIRED
    authority: dict[str, Any] = {"ca_file": tls_material.ca}
    own = {"cert_file": tls_material.client_cert, "key_file": tls_material.client_key}
    with StrictRaven("4", context) as raven:
        id_ = stored(raven, 1)
        untrusted = r"cannot be reached: nobody vouches .* check .*store\.ravendb\.ca_file"
        for given, refusal in ((authority | own, ""), (authority, "reached"), (own, untrusted)):
            server = ServerSettings(url=raven.url, database=DATABASE, **given)
            with RavenStore(RavenOptions(server=server)) as store:
                if not refusal:
                    assert listed(store) == [id_]
                    continue
                with pytest.raises(StoreUnavailable, match=refusal):
                    listed(store)


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


def test_a_certificate_that_is_not_there_is_named(tmp_path: Path) -> None:
    """Before anything is connected."""
    absent = tmp_path / "absent.pem"
    wrong: list[dict[str, Any]] = [{"ca_file": absent}, {"cert_file": absent, "key_file": absent}]
    for given in wrong:
        server = ServerSettings(url="https://h", database=DATABASE, **given)
        with pytest.raises(ConfigError, match=r"store\.ravendb\.c\w+_file .*absent\.pem"):
            RavenStore(RavenOptions(server=server))


@odd_answers
def test_an_answer_without_end_is_bounded(
    raven: Boundary, store: RavenStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the version is asked from may be anything."""
    monkeypatch.setattr(raven_http, "ANSWER_BYTES", 10)
    with pytest.raises(StoreError):
        store.endpoints()
