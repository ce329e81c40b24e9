"""Tests of ``migrator.cli.closing``: a half-done batch, and its store answers no more."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from migrator.database.engine import open_engine
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

STATE = "SELECT state, attempt FROM migrator_batch"


class _Died(BaseException):
    pass


@pytest.fixture
def raven(program: Program, monkeypatch: pytest.MonkeyPatch) -> Iterator[StrictRaven]:
    """A server with one timeout, of which batch 1 is half claimed: recorded, and not taken."""
    with StrictRaven("4") as server:
        store_timeout(server, "TimeoutDatas/1-A")
        site = Site(open_engine(program.url))
        store = RavenStore(RavenOptions(server=ServerSettings(url=server.url, database=DATABASE)))

        def dies(_step: str) -> None:
            raise _Died

        claims = DocumentClaims(
            DocumentLedger(site.engine, site.tables),
            store,
            ledger_id=lambda: site.ledger_id,
            fault=dies,
        )
        endpoint = StoreEndpoint(name=EndpointName("Sales"), source=store.source_of("Sales"))
        lease = site.lease()
        with pytest.raises(_Died):
            claims.claim(site.request(endpoint, lease))
        site.leases.surrender(lease)
        store.close()
        site.engine.dispose()
        use(server, program.url, monkeypatch)
        yield server


@pytest.fixture
def gone(raven: StrictRaven, monkeypatch: pytest.MonkeyPatch) -> StrictRaven:
    """The same server after its database was deleted."""
    monkeypatch.setattr(ravendb, "DATABASE", "another")
    return raven


def test_half_done_batches_are_listed(program: Program, raven: StrictRaven) -> None:
    """With where they came from; nobody has to look into them yet."""
    assert "claiming" in program("batch", "list").out
    (found,) = program("batch", "list", "--json").document["half_done"]
    assert (found["batch"], found["state"], found["rows"]) == (1, "claiming", 1)
    assert found["source"].endswith(f"/{DATABASE}:Sales")


def test_a_store_that_answers_is_asked_and_not_guessed(
    program: Program, raven: StrictRaven
) -> None:
    """Whatever the operator says."""
    for outcome in ("claimed", "written-off"):
        arguments = ("batch", "resolve", "1", "--as", outcome, "--store-is-gone", "--yes")
        assert "has 1 of its timeouts" in program(*arguments, codes=[3]).err
    assert program.rows(STATE) == [("claiming", 0)]


@pytest.mark.parametrize(
    ("outcome", "state", "attempt", "row"),
    [
        ("claimed", "claimed", 0, (None, None)),
        ("written-off", "released", 1, ("released", "written-off")),
    ],
)
def test_a_batch_whose_database_is_gone_is_closed(
    program: Program,
    gone: StrictRaven,
    outcome: str,
    state: str,
    attempt: int,
    row: tuple[str | None, str | None],
) -> None:
    """With the server's own answer in the audit trail; and the books balance."""
    resolve = ("batch", "resolve", "1", "--as", outcome)
    assert "was not found" in program(*resolve, "--dry-run").err
    assert "add --yes" in program(*resolve, codes=[2]).err
    assert program.rows(STATE) == [("claiming", 0)]
    document = program(*resolve, "--yes", "--json").document
    assert "was not found" in document["evidence"]
    assert (document["as"], document["rows"]) == (outcome, 1)
    assert program.rows(STATE) == [(state, attempt)]
    assert program.rows("SELECT state, reason FROM migrator_timeout") == [row]
    ((kind, batch, detail),) = program.rows("SELECT kind, batch_id, detail FROM migrator_event")
    assert (kind, batch) == ("batch_resolved", 1)
    assert json.loads(detail)["state"] == "claiming"
    site = Site(open_engine(program.url))
    store = RavenStore(RavenOptions(server=ServerSettings(url=gone.url, database=DATABASE)))
    (balance,) = DocumentVerifications(site.engine, site.tables, store).balances()
    store.close()
    site.engine.dispose()
    assert (balance.claimed, balance.unaccounted, balance.in_store) == (1, 0, None)


def test_a_store_that_does_not_answer_may_come_back(
    program: Program, raven: StrictRaven, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Or the settings name another one. Only an operator knows, and has to say so."""
    resolve = ("batch", "resolve", "1", "--as", "written-off", "--yes")
    monkeypatch.setenv("MIGRATOR_STORE__RAVENDB__DATABASE", "another")
    assert "--store-is-gone" in program(*resolve, codes=[3]).err
    assert program.rows(STATE) == [("claiming", 0)]
    program(*resolve, "--store-is-gone")
    ((detail,),) = program.rows("SELECT reason_detail FROM migrator_timeout")
    assert "by the word of the operator" in detail


def test_nothing_is_closed_under_the_owner_of_its_lane(program: Program, gone: StrictRaven) -> None:
    """It may be asking the store at this moment."""
    program.change("UPDATE migrator_lease SET owner = 'host/1', until = '2999-01-01 00:00:00.0'")
    refused = program("batch", "resolve", "1", "--as", "written-off", "--yes", codes=[4]).err
    assert "host/1 holds lane 0" in refused
    assert program.rows(STATE) == [("claiming", 0)]


def test_what_was_never_passed_on_was_not_handed_over(program: Program, gone: StrictRaven) -> None:
    """The one outcome of a doubtful batch that a half-done one cannot have."""
    arguments = ("batch", "resolve", "1", "--as", "handed-over", "--yes")
    assert "claimed or written-off" in program(*arguments, codes=[2]).err
