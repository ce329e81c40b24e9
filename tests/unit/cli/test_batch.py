"""Tests of ``migrator.cli.batch``: what a person decides about, and about whose store is gone."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from datetime import timedelta

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
from migrator.verify.stores import DocumentVerifications
from tests.contract.site import NOW, Site
from tests.support import ravendb
from tests.support.ravendb import DATABASE, StrictRaven
from tests.unit.cli.conftest import Program


def store_timeout(server: StrictRaven, id_: str) -> None:
    """Store a timeout of Sales that is due in an hour."""
    content = {
        "Destination": "Billing",
        "SagaId": "00000000-0000-0000-0000-000000000000",
        "State": base64.b64encode(b"x").decode(),
        "Time": (NOW + timedelta(hours=1)).strftime("%Y-%m-%dT%H:%M:%S.0000000Z"),
        "OwningTimeoutManager": "Sales",
        "Headers": {"NServiceBus.MessageId": "m"},
    }
    server.store(id_, content, **{"@collection": "TimeoutDatas"})


def use(server: StrictRaven, ledger_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Have the program work on *server* and the ledger at *ledger_url*."""
    monkeypatch.setenv("MIGRATOR_LEDGER__URL", ledger_url)
    monkeypatch.setenv("MIGRATOR_STORE__KIND", "ravendb")
    monkeypatch.setenv("MIGRATOR_STORE__URL", server.url)
    monkeypatch.setenv("MIGRATOR_STORE__RAVENDB__DATABASE", DATABASE)


STATE = "SELECT state FROM migrator_batch"


@pytest.fixture
def doubtful(program: Program) -> Program:
    """The program, with a batch of which nobody can tell."""
    program("db", "upgrade")
    program.change(
        "INSERT INTO migrator_run (id, endpoint, source, options, tool_version, status, begun_at)"
        " VALUES (1, 'Sales', 'Sales_TimeoutData', '{}', '0', 'done', '2026-01-01 00:00:00.000')",
        "INSERT INTO migrator_batch (id, run_id, endpoint, source, lane, mode, state, attempt,"
        " size, body_bytes, lease_token, doubtful_at)"
        " VALUES (7, 1, 'Sales', 'Sales_TimeoutData', 0, 'staged', 'doubtful', 1, 3, 9, 1,"
        " '2026-01-01 00:00:00.000000')",
    )
    return program


def test_doubtful_batches_are_listed_and_the_exit_code_tells(doubtful: Program) -> None:
    """6 means: a person has to look."""
    assert "Sales" in doubtful("batch", "list", codes=[6]).out
    document = doubtful("batch", "list", "--json", codes=[6]).document
    assert document["schema"] == "migrator/batches/1"
    assert [found["batch"] for found in document["doubtful"]] == [7]


@pytest.mark.parametrize(
    ("outcome", "state"), [("handed-over", "handed_over"), ("claimed", "claimed")]
)
def test_an_operator_decides(doubtful: Program, outcome: str, state: str) -> None:
    """And the audit trail remembers."""
    ended = doubtful("batch", "resolve", "7", "--as", outcome, "--yes")
    assert ended.err == f"batch 7 is {outcome} now\n"
    assert doubtful.rows(STATE) == [(state,)]
    assert doubtful.rows("SELECT kind, batch_id FROM migrator_event") == [("batch_resolved", 7)]
    assert doubtful("batch", "list").out.count("Sales") == 0


def test_a_decision_is_json_on_demand(doubtful: Program) -> None:
    """As all of them."""
    ended = doubtful("batch", "resolve", "7", "--as", "claimed", "--yes", "--json")
    assert ended.document == {"schema": "migrator/batch-resolve/1", "batch": 7, "as": "claimed"}


@pytest.mark.parametrize(
    ("arguments", "code", "text"),
    [
        (["7", "--as", "claimed"], 2, "add --yes"),
        (["7", "--as", "lost", "--yes"], 2, "must be handed-over, claimed or written-off"),
        (["7", "--as", "written-off", "--yes"], 2, "a doubtful batch is handed-over or claimed"),
        (["8", "--as", "claimed", "--yes"], 4, "not doubtful"),
    ],
)
def test_anything_else_changes_nothing(
    doubtful: Program, arguments: list[str], code: int, text: str
) -> None:
    """It says why."""
    assert text in doubtful("batch", "resolve", *arguments, codes=[code]).err
    assert doubtful.rows(STATE) == [("doubtful",)]


HALF_DONE = "SELECT state, attempt FROM migrator_batch"


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
    assert program.rows(HALF_DONE) == [("claiming", 0)]


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
    assert program.rows(HALF_DONE) == [("claiming", 0)]
    document = program(*resolve, "--yes", "--json").document
    assert "was not found" in document["evidence"]
    assert (document["as"], document["rows"]) == (outcome, 1)
    assert program.rows(HALF_DONE) == [(state, attempt)]
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
    assert program.rows(HALF_DONE) == [("claiming", 0)]
    program(*resolve, "--store-is-gone")
    ((detail,),) = program.rows("SELECT reason_detail FROM migrator_timeout")
    assert "by the word of the operator" in detail


def test_nothing_is_closed_under_the_owner_of_its_lane(program: Program, gone: StrictRaven) -> None:
    """It may be asking the store at this moment."""
    program.change("UPDATE migrator_lease SET owner = 'host/1', until = '2999-01-01 00:00:00.0'")
    refused = program("batch", "resolve", "1", "--as", "written-off", "--yes", codes=[4]).err
    assert "host/1 holds lane 0" in refused
    assert program.rows(HALF_DONE) == [("claiming", 0)]


def test_what_was_never_passed_on_was_not_handed_over(program: Program, gone: StrictRaven) -> None:
    """The one outcome of a doubtful batch that a half-done one cannot have."""
    arguments = ("batch", "resolve", "1", "--as", "handed-over", "--yes")
    assert "claimed or written-off" in program(*arguments, codes=[2]).err


ROWS = "SELECT store_id, state, reason, going_back FROM migrator_timeout ORDER BY store_id"
FIRST, SECOND = "TimeoutDatas/1-A", "TimeoutDatas/2-A"


@pytest.fixture
def returning(program: Program, monkeypatch: pytest.MonkeyPatch) -> Iterator[StrictRaven]:
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
def none_returning(returning: StrictRaven, monkeypatch: pytest.MonkeyPatch) -> StrictRaven:
    """The same server after its database was deleted."""
    monkeypatch.setattr(ravendb, "DATABASE", "another")
    return returning


def test_rows_that_go_back_are_listed(program: Program, returning: StrictRaven) -> None:
    """With their batch, what they were to become, and where they came from."""
    shown = program("batch", "list").out
    assert ("going back, released" in shown, "going back, recalled" in shown) == (True, True)
    found = program("batch", "list", "--json").document["going_back"]
    assert [(each["batch"], each["towards"], each["rows"]) for each in found] == [
        (1, "recalled", 1),
        (1, "released", 1),
    ]
    assert {each["source"].endswith(f"/{DATABASE}:Sales") for each in found} == {True}


def test_a_store_that_answers_finishes_it(program: Program, returning: StrictRaven) -> None:
    """Whatever the operator says; the next rollback does it."""
    for outcome in ("handed-over", "quarantined", "written-off"):
        arguments = ("batch", "resolve", "1", "--as", outcome, "--store-is-gone", "--yes")
        assert "has 0 of its timeouts" in program(*arguments, codes=[3]).err
    program("rollback", "--keep-handed-over", "--yes")
    assert program.rows(ROWS)[0] == (FIRST, "released", "no-destination", None)
    assert returning.ids("TimeoutDatas/") == [FIRST]


def test_a_rollback_tells_what_stays(program: Program, none_returning: StrictRaven) -> None:
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
    none_returning: StrictRaven,
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
    store = RavenStore(
        RavenOptions(server=ServerSettings(url=none_returning.url, database=DATABASE))
    )
    (balance,) = DocumentVerifications(site.engine, site.tables, store).balances()
    store.close()
    site.engine.dispose()
    assert (balance.claimed, balance.unaccounted) == (2, 0)
    again = program(*resolve, "--yes", codes=[2]).err
    assert "handed-over" in again if outcome != "handed-over" else "out of quarantine" in again


def test_what_was_closed_can_be_retried(program: Program, none_returning: StrictRaven) -> None:
    """The way on for rows that nobody has any more but the ledger."""
    program("batch", "resolve", "1", "--as", "quarantined", "--yes")
    assert program("quarantine", "retry", "--json").document["rows"] == 1
    assert program.rows("SELECT state FROM migrator_batch WHERE id = 2") == [("claimed",)]


def test_nothing_is_closed_under_a_recall(program: Program, none_returning: StrictRaven) -> None:
    """It may be asking the store at this moment."""
    program.change(
        "UPDATE migrator_lease SET owner = 'host/1', until = '2999-01-01 00:00:00.0' "
        "WHERE name = 'lane.999'"
    )
    refused = program("batch", "resolve", "1", "--as", "handed-over", "--yes", codes=[4]).err
    assert "host/1 recalls" in refused
    assert program.rows(ROWS)[1] == (SECOND, None, None, "recalled")


def test_an_outcome_of_others_is_refused(program: Program, none_returning: StrictRaven) -> None:
    """What was handed over, or is in quarantine, is not claimed."""
    refused = program("batch", "resolve", "1", "--as", "claimed", "--yes", codes=[2]).err
    assert "are handed-over or quarantined or written-off" in refused
