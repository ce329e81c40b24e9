"""An account that is busy, and one that does a part of what it is asked: nothing gets lost."""

from __future__ import annotations

import itertools
import logging
import re
from collections.abc import Iterator
from contextlib import ExitStack, closing
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from urllib.parse import urlsplit

import pytest

from dev.servers import AzuriteServer
from migrator.errors import SourceGone, StoreError, StoreUnavailable
from migrator.ledger.work import StoreEndpoint
from migrator.nservicebus.timeouts import TimeoutId
from migrator.stores.azure.account import Account, AccountSettings
from migrator.stores.azure.partitions import parse_scope
from migrator.stores.azure.store import AzureStore
from migrator.stores.documents.ports import Document, DueRange, Mark
from tests.support.azure import LegacyAccount, Stored
from tests.support.http_proxy import Answer, HttpProxy, Request, passed_on

MARK = Mark("lg1.7.c")
BACK = Mark("lg1.7.b")
HOUR = (datetime.now(UTC) + timedelta(days=1)).replace(minute=5, second=0, microsecond=0)
BUSY_BODY = b"<Error><Code>ServerBusy</Code><Message>busy</Message></Error>"


def busy(request: Request, *, after: str | None) -> Answer:
    """Return what an account says that has too much to do."""
    headers = {"x-ms-error-code": "ServerBusy", "Content-Type": "application/xml"}
    return Answer(
        status=503,
        headers=headers | ({} if after is None else {"Retry-After": after}),
        body=b"" if request.method == "HEAD" else BUSY_BODY,
    )


@dataclass
class Between:
    """An account, and the proxies through which the adapter sees it."""

    legacy: LegacyAccount
    store: AzureStore
    blobs: HttpProxy
    table: HttpProxy

    @property
    def sales(self) -> StoreEndpoint:
        """The endpoint whose timeouts there are."""
        return StoreEndpoint(name="Sales", source=self.store.source_of("Sales"))  # type: ignore[arg-type]

    def fill(self, count: int) -> None:
        """Store *count* timeouts of one hour."""
        self.legacy.add(
            Stored(id=f"id-{n:03}", due_at=HOUR + timedelta(seconds=n), owner="Sales")
            for n in range(count)
        )

    def read(self) -> list[Document]:
        """List and read all, as a claim does."""
        found = self.store.soonest(self.sales, DueRange(None, HOUR + timedelta(hours=1)), 100)
        return [*self.store.read(self.sales, [TimeoutId(each.id) for each in found])]


@pytest.fixture
def between(azurite_server: AzuriteServer) -> Iterator[Between]:
    """An account of this test's own."""
    with ExitStack() as stack:
        url = azurite_server.url()
        legacy = LegacyAccount(url)
        stack.callback(legacy.close)
        ports = (azurite_server.blob_port, azurite_server.table_port)
        blobs, table = (stack.enter_context(HttpProxy(port)) for port in ports)
        for port, proxy in zip(ports, (blobs, table), strict=True):
            url = url.replace(f":{port}/", f":{proxy.port}/")
        settings = AccountSettings(
            connection_string=url,
            table=legacy.table_name,
            container=legacy.container_name,
            requests=4,
        )
        store = AzureStore(Account(settings), parse_scope("yyyyMMddHH"), page=5)
        stack.callback(store.close)
        yield Between(legacy=legacy, store=store, blobs=blobs, table=table)


def test_a_busy_account_is_asked_again_and_nothing_is_lost(
    between: Between, caplog: pytest.LogCaptureFixture
) -> None:
    """Every fourth request is refused, of every kind; there and back all is as it was."""
    between.fill(6)
    before = between.legacy.contents()
    turns = itertools.count()

    def refuse(request: Request) -> Answer | None:
        turn = next(turns)
        return busy(request, after="1" if turn == 3 else None) if turn % 4 == 3 else None

    for proxy in (between.blobs, between.table):
        proxy.instead = refuse
    with caplog.at_level(logging.WARNING):
        documents = between.read()
        taken = between.store.take(between.sales, MARK, documents)
        assert sorted(taken) == [f"id-{n:03}" for n in range(6)]
        between.store.forget(between.sales, MARK, taken)
        assert between.legacy.contents() == {}
        back = between.store.put_back(between.sales, BACK, documents, is_meant=lambda: True)
        between.store.forget(between.sales, BACK, back)
    assert between.legacy.contents() == before
    assert between.table.seen["GET", 503] >= 1
    assert between.table.seen["POST", 503] >= 1
    assert [getattr(each, "action", "") for each in caplog.records] == ["store_busy"]


@pytest.mark.slow
def test_an_account_that_stays_busy_is_given_up_in_good_time(between: Between) -> None:
    """With Azure's own word; the same call goes on later."""
    between.fill(2)
    documents = between.read()
    between.table.instead = lambda request: busy(request, after=None)
    with pytest.raises(StoreUnavailable, match="ServerBusy"):
        between.store.take(between.sales, MARK, documents)
    assert 6 <= between.table.seen["POST", 503] <= 36
    between.table.instead = lambda _request: None
    assert len(between.store.take(between.sales, MARK, documents)) == 2


def test_a_transaction_that_does_not_tell_was_done_all_the_same(between: Between) -> None:
    """Its answer ends too soon; asked again, the entry is gone, and our evidence says whose."""
    between.fill(1)
    documents = between.read()
    seen = itertools.count()

    def spoil(request: Request, answer: Answer) -> Answer:
        is_first = request.method == "POST" and next(seen) == 0
        return replace(answer, body=answer.body[:40]) if is_first else answer

    between.table.edit = spoil
    assert between.store.take(between.sales, MARK, documents) == {"id-000"}
    assert next(seen) == 2
    assert [*between.legacy.contents()] == [("id-000", f"migrator.{MARK}")]


def test_a_proxy_of_the_environment_is_used(
    between: Between, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As Azure's own client libraries do: entities and bodies are asked for by way of it."""
    between.fill(1)
    targets = list[str]()

    def pass_on(request: Request) -> Answer:
        target = urlsplit(request.target)
        targets.append(target.netloc)
        return passed_on(
            request, int(target.port or 0), target._replace(scheme="", netloc="").geturl()
        )

    between.table.instead = pass_on
    monkeypatch.setenv("http_proxy", f"http://127.0.0.1:{between.table.port}")
    for name in ("no_proxy", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
    settings = AccountSettings(
        connection_string=between.legacy.url,
        table=between.legacy.table_name,
        container=between.legacy.container_name,
        requests=2,
    )
    with closing(AzureStore(Account(settings), parse_scope("yyyyMMddHH"))) as store:
        (document,) = store.read(between.sales, [TimeoutId("id-000")])
    assert document.body == b'{"a":1}'
    assert len(targets) >= 3, "main entry, time entry and body"
    assert all(targets), "a proxy is told the whole address"


def test_blobs_go_one_by_one_where_batches_are_refused(between: Between) -> None:
    """Once refused, no batch is tried again."""
    between.fill(6)
    documents = between.read()
    no_batches = Answer(status=403, headers={"x-ms-error-code": "AuthorizationFailure"})
    between.blobs.instead = lambda request: no_batches if request.method == "POST" else None
    for some in (documents[:3], documents[3:]):
        taken = between.store.take(between.sales, MARK, some)
        between.store.forget(between.sales, MARK, taken)
    assert between.legacy.contents() == {}
    assert between.blobs.seen["POST", 403] == 1
    assert between.blobs.seen["DELETE", 202] == 6


def test_a_batch_of_blobs_that_did_a_part_is_followed_up(between: Between) -> None:
    """One of its answers is that the service was busy, although the whole was accepted."""
    between.fill(6)
    documents = between.read()

    def spoil(request: Request, answer: Answer) -> Answer:
        if request.method != "POST":
            return answer
        body = re.sub(rb"HTTP/1.1 202 [^\r]*", b"HTTP/1.1 503 Busy", answer.body, count=1)
        assert body != answer.body
        return replace(answer, body=body)

    between.blobs.edit = spoil
    taken = between.store.take(between.sales, MARK, documents)
    between.store.forget(between.sales, MARK, taken)
    assert between.legacy.contents() == {}
    assert between.blobs.seen["POST", 202] == 1
    assert between.blobs.seen["DELETE", 412] == 6  # gone already, and asked for again


def test_entries_that_do_not_go_together_go_one_by_one(between: Between) -> None:
    """One of an hour was written anew; it stays, and the others go."""
    between.fill(6)
    documents = between.read()
    partition = HOUR.strftime("%Y%m%d%H")
    entity = between.legacy.table.get_entity(partition, "id-003")
    between.legacy.table.upsert_entity({**entity, "Destination": "Elsewhere"})
    taken = between.store.take(between.sales, MARK, documents)
    assert len(taken) == 6
    between.store.forget(between.sales, MARK, taken)
    assert [*between.legacy.contents()] == [(partition, "id-003")]


def test_many_of_an_hour_cost_few_requests(between: Between) -> None:
    """A listing for all, one transaction for their time entries, one batch for their blobs."""
    between.fill(10)
    documents = between.read()
    taken = between.store.take(between.sales, MARK, documents)
    between.store.forget(between.sales, MARK, taken)
    assert between.legacy.contents() == {}
    assert between.table.seen == {("GET", 200): 10 + 3, ("POST", 202): 10 + 1, ("DELETE", 204): 10}
    assert between.blobs.seen == {("GET", 200): 10, ("POST", 202): 1}


def test_bodies_that_may_not_be_listed_have_no_known_size(
    between: Between, caplog: pytest.LogCaptureFixture
) -> None:
    """A listing of timeouts goes on without; it says so in the log."""
    between.fill(2)
    refusal = Answer(status=403, headers={"x-ms-error-code": "AuthorizationPermissionMismatch"})
    between.blobs.instead = lambda request: refusal if "comp=list" in request.target else None
    pages = between.store.list(between.sales, with_sizes=True)
    listed = [each for page in pages for each in page]
    assert [each.body_bytes for each in listed] == [None, None]
    assert [getattr(each, "action", "") for each in caplog.records] == ["sizes_unknown"]


def test_a_404_that_is_not_azures_does_not_tell_that_the_table_is_gone(between: Between) -> None:
    """A proxy's: an operator could close a half-done batch by it, and write off what is there."""
    between.table.instead = lambda _request: Answer(status=404, body=b"<html>no such page</html>")
    with pytest.raises(StoreError, match="HTTP 404") as caught:
        next(between.store.read(between.sales, [TimeoutId("id-000")]))
    assert not isinstance(caught.value, SourceGone)
