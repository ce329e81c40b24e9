"""What the RavenDB adapter rests on, asked of RavenDB, and of the strict server.

The latter, of ``tests/support/ravendb``, is no RavenDB, but it also answers as 3.5 does. Where
``RAVENDB_URL`` names a server, that one is asked as well. ``RAVENDB_DATABASE`` names an empty
database for it (default ``migrator-tests``); ``RAVENDB_CERT``, ``RAVENDB_KEY`` and ``RAVENDB_CA``
name PEM files where it asks for them.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from dev.raven_parts import MAIN, VERSIONS
from dev.servers import RavenServer
from migrator.ledger.work import StoreEndpoint
from migrator.nservicebus.timeouts import EndpointName, TimeoutId
from migrator.stores.ravendb.families import MUST_BE_NEW, Family, Put, Remove, family_of
from migrator.stores.ravendb.http import Conflict, RavenHttp, ServerSettings
from migrator.stores.ravendb.listing import RavenReader
from migrator.stores.ravendb.store import RavenOptions, RavenStore
from migrator.stores.requests import ScannedRow
from tests.support.raven_boundary import DATABASE
from tests.support.ravendb import StrictRaven

COLLECTION = "TimeoutDatas"


class Bench:
    """A database, and how documents get into it and out of it."""

    def __init__(self, settings: ServerSettings) -> None:
        """Connect."""
        self.http = RavenHttp(settings)
        self.family: Family = family_of(self.http.build())
        self.reader = RavenReader(self.http, self.family)
        self.store = RavenStore(RavenOptions(server=settings, unowned="Sales"))
        name = EndpointName("Sales")
        self.sales = StoreEndpoint(name=name, source=self.store.source_of(name))

    def close(self) -> None:
        """Disconnect."""
        self.store.close()
        self.http.close()

    def send(self, *commands: Put | Remove) -> None:
        """Do all of *commands* or none."""
        self.http.send(self.family.batch(commands))

    def bare(self, id_: str, content: Mapping[str, Any], *, expected: str | None) -> Put:
        """Return what stores a document without more than its collection.

        For a while RavenDB 4 removes no document whose id was removed from another collection.
        """
        metadata = self.family.metadata_of(COLLECTION)
        return Put(id=id_, content=content, metadata=metadata, expected=expected)

    def timeout(self, n: int, **fields: Any) -> TimeoutId:
        """Store a timeout as NServiceBus does."""
        content = {
            "Destination": "Billing",
            "SagaId": "00000000-0000-0000-0000-000000000000",
            "State": "eyJhIjoxfQ==",
            "Time": "2031-11-03T08:15:30.1224171Z",
            "OwningTimeoutManager": "Sales",
            "Headers": {"NServiceBus.MessageId": f"m-{n}", "naïve": "\U0001f600", "void": None},
        }
        type_ = "NServiceBus.TimeoutPersisters.RavenDB.TimeoutData, NServiceBus.RavenDB"
        metadata = {**self.family.metadata_of(COLLECTION), "Raven-Clr-Type": type_}
        id_ = TimeoutId(f"{COLLECTION}/{n}-A")
        self.send(Put(id=id_, content=content | fields, metadata=metadata, expected=None))
        return id_

    def ids(self, prefix: str) -> list[str]:
        """Return the ids that begin so."""
        return [raw.id for page in self.reader.pages(prefix) for raw in page]


def _named_server() -> ServerSettings:
    files: dict[str, Any] = {
        f"{name}_file": Path(os.environ[variable])
        for name in ("cert", "key", "ca")
        if (variable := f"RAVENDB_{name.upper()}") in os.environ
    }
    database = os.environ.get("RAVENDB_DATABASE", "migrator-tests")
    return ServerSettings(url=os.environ["RAVENDB_URL"], database=database, **files)


def servers() -> Iterator[Any]:
    """Yield what is asked; all but one of the real ones with --full only."""
    yield from ("strict 3.5", "strict 4")
    for version in VERSIONS:
        yield pytest.param(version, marks=[] if version == MAIN else [pytest.mark.slow])
    if "RAVENDB_URL" in os.environ:
        yield "RAVENDB_URL"


@pytest.fixture(params=list(servers()))
def bench(
    request: pytest.FixtureRequest, raven_servers: Callable[[str], RavenServer]
) -> Iterator[Bench]:
    """Return a database without documents of the tests."""
    if request.param.startswith("strict "):
        with StrictRaven(request.param.removeprefix("strict ")) as strict:
            bench = Bench(ServerSettings(url=strict.url, database=DATABASE))
            yield bench
            bench.close()
        assert strict.violations == []
        return
    if request.param == "RAVENDB_URL":
        yield from _emptied(_named_server())
        return
    server = raven_servers(request.param)
    name = server.create_database()
    yield from _emptied(ServerSettings(url=server.url(), database=name))
    server.drop_database(name)


def _emptied(settings: ServerSettings) -> Iterator[Bench]:
    bench = Bench(settings)
    for prefix in ("migrator/", COLLECTION):
        assert not bench.ids(prefix), f"{settings.database} has documents; give an empty one"
    try:
        yield bench
    finally:
        made = [*bench.ids("migrator/"), *bench.ids(COLLECTION)]
        bench.send(*(Remove(id=each, expected=None) for each in made))
        bench.close()


def version_of(bench: Bench, id_: str) -> str:
    """Return a document's version."""
    (found,) = bench.reader.by_id([id_])
    return found.version


ODD = {"deep": "[" * 5_000 + "]" * 5_000, "rounded": "1.50"}


@pytest.mark.parametrize("bench", list(servers())[2:], indirect=True)
@pytest.mark.parametrize("name", ODD)
def test_one_odd_document_hides_no_other(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """The server takes what Python's parser gives up on, or would write as another number."""
    odd, other = bench.timeout(1, Odd="odd"), bench.timeout(2)
    (raw,) = bench.reader.by_id([odd])
    metadata = bench.family.kept_metadata(raw.metadata)
    with monkeypatch.context() as sending:
        as_it_is = lambda body: json.dumps(body).replace('"odd"', ODD[name]).encode()  # noqa: E731 - used once
        sending.setattr("migrator.stores.ravendb.http._encoded", as_it_is)
        bench.send(Put(id=odd, content=raw.content, metadata=metadata, expected=None))
    listed = {each.id: each for page in bench.store.list(bench.sales) for each in page}
    assert {id_: bool(each.why_unclaimable) for id_, each in listed.items()} == {
        odd: True,
        other: False,
    }
    assert [each.id for each in bench.store.read(bench.sales, [odd, other])] == [other]


def test_a_document_that_must_be_new_is_stored_once(bench: Bench) -> None:
    """The second attempt is a conflict, and changes nothing."""
    new = bench.bare(f"{COLLECTION}/1-A", {"n": 1}, expected=MUST_BE_NEW)
    bench.send(new)
    with pytest.raises(Conflict):
        bench.send(bench.bare(new.id, {"n": 2}, expected=MUST_BE_NEW))
    (found,) = bench.reader.by_id([new.id])
    assert found.content == {"n": 1}


@pytest.mark.parametrize("state", ["gone", "changed"])
def test_a_conditional_removal_fails_as_a_whole(bench: Bench, state: str) -> None:
    """Of a document that is gone or changed; what else is in the batch is not done either."""
    first, second = bench.timeout(1), bench.timeout(2)
    version, other = version_of(bench, first), version_of(bench, second)
    if state == "gone":
        bench.send(Remove(id=first, expected=None))
    else:
        bench.timeout(1, Destination="Else")
    with pytest.raises(Conflict):
        bench.send(
            Remove(id=second, expected=other, collection=COLLECTION),
            Remove(id=first, expected=version, collection=COLLECTION),
        )
    assert second in bench.ids(COLLECTION)


def test_a_version_never_comes_back(bench: Bench) -> None:
    """The same document, removed and stored again, is another one."""
    id_ = bench.timeout(1)
    before = version_of(bench, id_)
    bench.send(Remove(id=id_, expected=before, collection=COLLECTION))
    bench.timeout(1)
    with pytest.raises(Conflict):
        bench.send(Remove(id=id_, expected=before, collection=COLLECTION))


def test_pages_follow_the_last_id(bench: Bench) -> None:
    """Every document once, in the order of ids, over more than a page."""
    there = [f"{COLLECTION}/{n}-A" for n in range(700)]
    bench.send(*(bench.bare(each, {}, expected=None) for each in there))
    assert sorted(bench.ids(f"{COLLECTION}/")) == sorted(there)


def test_a_page_begins_behind_an_id_that_is_gone(bench: Bench) -> None:
    """Whatever a version makes of that, no listing leaves out what follows."""
    ids = [f"{COLLECTION}/{n}-A" for n in range(10, 15)]
    bench.send(*(bench.bare(each, {}, expected=None) for each in ids))
    bench.send(Remove(id=ids[1], expected=None))
    told = bench.http.send(bench.family.page(f"{COLLECTION}/", after=ids[1], size=9))
    behind = [raw.id for raw in bench.family.documents(told)]
    build = bench.http.build()["ProductVersion"]
    assert behind == ids[3:] if build[:3] in ("3.5", "4.1") else ids[2:]
    assert bench.ids(COLLECTION) == [ids[0], *ids[2:]]


@pytest.mark.parametrize("bench", list(servers())[1:], indirect=True)
def test_an_archived_timeout_is_left_where_it_is(bench: Bench) -> None:
    """From 6.0 on the server marks it, and the index that a timeout manager asks leaves it out."""
    id_ = bench.timeout(1)
    (raw,) = bench.reader.by_id([id_])
    metadata = bench.family.kept_metadata(raw.metadata) | {"@archived": True}
    bench.send(Put(id=id_, content=raw.content, metadata=metadata, expected=None))
    (page,) = bench.store.list(bench.sales)
    why = "it is archived, so its timeout manager does not see it"
    assert list(page) == [ScannedRow(id=id_, why_unclaimable=why)]
    assert list(bench.store.read(bench.sales, [id_])) == []
