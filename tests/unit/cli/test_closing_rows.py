"""Tests of ``migrator.cli.closing``: rows that go back one by one, and their store is gone."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from migrator.database.engine import open_engine
from migrator.ledger.report import QuarantineFilter
from migrator.ledger.states import RowState
from migrator.ledger.work import StoreEndpoint
from migrator.nservicebus.timeouts import EndpointName
from migrator.stores.documents.claims import DocumentClaims
from migrator.stores.documents.ledger import DocumentLedger
from migrator.stores.ravendb.http import ServerSettings
from migrator.stores.ravendb.store import RavenOptions, RavenStore
from migrator.verify.documents import DocumentVerifications
from tests.contract.site import Site
from tests.support import ravendb
from tests.support.ravendb import DATABASE, StrictRaven
from tests.unit.cli.conftest import Program
from tests.unit.cli.half_done import store_timeout, use

ROWS = "SELECT store_id, state, reason, going_back FROM migrator_timeout ORDER BY store_id"
FIRST, SECOND = "TimeoutDatas/1-A", "TimeoutDatas/2-A"


@pytest.fixture
def raven(program: Program, monkeypatch: pytest.MonkeyPatch) -> Iterator[StrictRaven]:
    """A server of whose two timeouts batch 1 was handed over, all but one in quarantine.

    A rollback and a recall have each recorded that one of them goes back, and died.
    """
    with StrictRaven("4") as server:
        for id_ in (FIRST, SECOND):
            store_timeout(server, id_)
        site = Site(open_engine(program.url))
        store = RavenStore(RavenOptions(server=ServerSettings(url=server.url, database=DATABASE)))
        books = DocumentLedger(site.engine, site.tables)
        claims = DocumentClaims(books, store, ledger_id=lambda: site.ledger_id)
        endpoint = StoreEndpoint(name=EndpointName("Sales"), source=store.source_of("Sales"))
        lease = site.lease()
        assert claims.claim(site.request(endpoint, lease)) is not None
        site.leases.surrender(lease)
        program.change(
            "UPDATE migrator_batch SET state = 'handed_over'",
            "UPDATE migrator_timeout SET state = 'quarantined', reason = 'no-destination' "
            f"WHERE store_id = '{FIRST}'",
        )
        assert len(books.begin_return(None, QuarantineFilter(), after=0)) == 1
        with site.engine.begin() as connection:
            (row,) = books.kept(connection, [2])
            books.mark_going(connection, [row], RowState.RECALLED)
        store.close()
        site.engine.dispose()
        use(server, program.url, monkeypatch)
        yield server


@pytest.fixture
def gone(raven: StrictRaven, monkeypatch: pytest.MonkeyPatch) -> StrictRaven:
    """The same server after its database was deleted."""
    monkeypatch.setattr(ravendb, "DATABASE", "another")
    return raven


def test_rows_that_go_back_are_listed(program: Program, raven: StrictRaven) -> None:
    """With their batch, what they were to become, and where they came from."""
    shown = program("batch", "list").out
    assert ("going back, released" in shown, "going back, recalled" in shown) == (True, True)
    found = program("batch", "list", "--json").document["going_back"]
    assert [(each["batch"], each["towards"], each["rows"]) for each in found] == [
        (1, "recalled", 1),
        (1, "released", 1),
    ]
    assert {each["source"].endswith(f"/{DATABASE}:Sales") for each in found} == {True}


def test_a_store_that_answers_finishes_it(program: Program, raven: StrictRaven) -> None:
    """Whatever the operator says; the next rollback does it."""
    for outcome in ("handed-over", "quarantined", "written-off"):
        arguments = ("batch", "resolve", "1", "--as", outcome, "--store-is-gone", "--yes")
        assert "has 0 of its timeouts" in program(*arguments, codes=[3]).err
    program("rollback", "--keep-handed-over", "--yes")
    assert program.rows(ROWS)[0] == (FIRST, "released", "no-destination", None)
    assert raven.ids("TimeoutDatas/") == [FIRST]


def test_a_rollback_tells_what_stays(program: Program, gone: StrictRaven) -> None:
    """It ends as one that is not whole; and a retry leaves alone what was on its way."""
    ended = program("rollback", "--keep-handed-over", "--yes", codes=[5])
    assert "others stay in quarantine, as their store is gone" in ended.err
    assert program("quarantine", "retry", "--json").document["rows"] == 0
    assert program.rows(ROWS)[0] == (FIRST, "quarantined", "no-destination", "released")


@pytest.mark.parametrize(
    ("outcome", "first", "second"),
    [
        ("handed-over", ("quarantined", "no-destination", "released"), (None, None, None)),
        ("quarantined", ("quarantined", "no-destination", None), (None, None, "recalled")),
        ("written-off", ("released", "written-off", None), (None, None, "recalled")),
    ],
)
def test_rows_of_a_store_that_is_gone_are_closed(
    program: Program,
    gone: StrictRaven,
    outcome: str,
    first: tuple[str | None, ...],
    second: tuple[str | None, ...],
) -> None:
    """Those that the outcome is about, with the server's answer as evidence; the books balance."""
    resolve = ("batch", "resolve", "1", "--as", outcome)
    before = program.rows(ROWS)
    assert "was not found" in program(*resolve, "--dry-run").err
    assert "add --yes" in program(*resolve, codes=[2]).err
    assert program.rows(ROWS) == before
    document = program(*resolve, "--yes", "--json").document
    assert ("was not found" in document["evidence"], document["rows"]) == (True, 1)
    assert program.rows(ROWS) == [(FIRST, *first), (SECOND, *second)]
    ((kind, batch, detail),) = program.rows("SELECT kind, batch_id, detail FROM migrator_event")
    assert (kind, batch, json.loads(detail)["as"]) == ("batch_resolved", 1, outcome)
    site = Site(open_engine(program.url))
    store = RavenStore(RavenOptions(server=ServerSettings(url=gone.url, database=DATABASE)))
    (balance,) = DocumentVerifications(site.engine, site.tables, store).balances()
    store.close()
    site.engine.dispose()
    assert (balance.claimed, balance.unaccounted) == (2, 0)
    again = program(*resolve, "--yes", codes=[2]).err
    assert "handed-over" in again if outcome != "handed-over" else "out of quarantine" in again


def test_what_was_closed_can_be_retried(program: Program, gone: StrictRaven) -> None:
    """The way on for rows that nobody has any more but the ledger."""
    program("batch", "resolve", "1", "--as", "quarantined", "--yes")
    assert program("quarantine", "retry", "--json").document["rows"] == 1
    assert program.rows("SELECT state FROM migrator_batch WHERE id = 2") == [("claimed",)]


def test_a_store_that_does_not_answer_may_come_back(
    program: Program, raven: StrictRaven, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Or the settings name another one: only an operator knows."""
    monkeypatch.setenv("MIGRATOR_STORE__RAVENDB__DATABASE", "another")
    resolve = ("batch", "resolve", "1", "--as", "written-off", "--yes")
    assert "--store-is-gone" in program(*resolve, codes=[3]).err
    program(*resolve, "--store-is-gone")
    ((detail,),) = program.rows("SELECT reason_detail FROM migrator_timeout WHERE id = 1")
    assert "by the word of the operator" in detail


def test_nothing_is_closed_under_a_recall(program: Program, gone: StrictRaven) -> None:
    """It may be asking the store at this moment."""
    program.change(
        "UPDATE migrator_lease SET owner = 'host/1', until = '2999-01-01 00:00:00.0' "
        "WHERE name = 'lane.999'"
    )
    refused = program("batch", "resolve", "1", "--as", "handed-over", "--yes", codes=[4]).err
    assert "host/1 recalls" in refused
    assert program.rows(ROWS)[1] == (SECOND, None, None, "recalled")


def test_an_outcome_of_others_is_refused(program: Program, gone: StrictRaven) -> None:
    """What was handed over, or is in quarantine, is not claimed."""
    refused = program("batch", "resolve", "1", "--as", "claimed", "--yes", codes=[2]).err
    assert "are handed-over or quarantined or written-off" in refused
