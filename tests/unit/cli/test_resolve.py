"""Tests of ``migrator.cli.resolve``: what a person decides about, and about whose store is gone."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from migrator.database.engine import open_engine
from migrator.ledger.report import QuarantineFilter
from migrator.ledger.states import RowState
from tests.contract.any_site import hours, timeout_id
from tests.contract.document_site import Stopped
from tests.contract.raven_site import PREFIX, Raven4Site
from tests.support import ravendb
from tests.support.ravendb import DATABASE, StrictRaven
from tests.unit.cli.conftest import Program


@pytest.fixture
def site(program: Program, monkeypatch: pytest.MonkeyPatch) -> Iterator[Raven4Site]:
    """A RavenDB server that the program works on, and an empty ledger beside it."""
    with StrictRaven("4") as server:
        engine = open_engine(program.url)
        made = Raven4Site(engine=engine, endpoint_name="Sales", legacy=server)
        for name, value in (
            ("LEDGER__URL", program.url),
            ("STORE__KIND", "ravendb"),
            ("STORE__URL", server.url),
            ("STORE__RAVENDB__DATABASE", DATABASE),
            ("STORE__RAVENDB__PREFIXES", json.dumps([PREFIX])),
        ):
            monkeypatch.setenv(f"MIGRATOR_{name}", value)
        yield made
        made.close()


@pytest.fixture
def gone(site: Raven4Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """Somebody deletes the database on the server; what was prepared for it came before."""
    monkeypatch.setattr(ravendb, "DATABASE", "another")


STATE = "SELECT state FROM migrator_batch"


@pytest.fixture
def doubtful(program: Program) -> Program:
    """The program, with a batch of which nobody can tell."""
    program("db", "upgrade")
    program.record("doubtful", number=7, doubtful_at="2026-01-01 00:00:00.000000")
    return program


def test_doubtful_batches_are_listed(doubtful: Program) -> None:
    """Without a number."""
    assert "Sales" in doubtful("db", "resolve").out
    document = doubtful("db", "resolve", "--json").document
    assert document["schema"] == "migrator/db-unresolved/1"
    assert [found["batch"] for found in document["doubtful"]] == [7]


@pytest.mark.parametrize(
    ("outcome", "state"), [("handed-over", "handed_over"), ("claimed", "claimed")]
)
def test_an_operator_decides(doubtful: Program, outcome: str, state: str) -> None:
    """And the audit trail remembers."""
    ended = doubtful("db", "resolve", "7", "--as", outcome, "--yes", "--json")
    assert ended.document == {"schema": "migrator/db-resolve/1", "batch": 7, "as": outcome}
    assert doubtful.rows(STATE) == [(state,)]
    assert doubtful.rows("SELECT kind, batch_id FROM migrator_event") == [("batch_resolved", 7)]
    assert doubtful("db", "resolve").err == "no batch is doubtful or half done\n"


@pytest.mark.parametrize(
    ("arguments", "code", "text"),
    [
        (["7", "--as", "claimed"], 2, "add --yes"),
        (
            ["7", "--as", "lost", "--yes"],
            2,
            "must be handed-over, claimed, quarantined, ",
        ),
        (["7", "--as", "written-off", "--yes"], 2, "a doubtful batch is handed-over or claimed"),
        (["8", "--as", "claimed", "--yes"], 4, "not doubtful"),
    ],
)
def test_anything_else_changes_nothing(
    doubtful: Program, arguments: list[str], code: int, text: str
) -> None:
    """It says why."""
    assert text in doubtful("db", "resolve", *arguments, codes=[code]).err
    assert doubtful.rows(STATE) == [("doubtful",)]


HALF_DONE = "SELECT state, attempt FROM migrator_batch"


@pytest.fixture
def half_claimed(site: Raven4Site) -> Raven4Site:
    """The same with one timeout, of which batch 1 is half claimed: recorded, and not taken."""
    endpoint, lease, site.stop_at = site.create(hours(1)), site.lease(), "claim.recorded"
    with pytest.raises(Stopped):
        site.claims.claim(site.request(endpoint, lease))
    site.leases.release(lease)
    return site


def test_a_store_that_answers_is_asked_and_not_guessed(
    program: Program, half_claimed: Raven4Site
) -> None:
    """Whatever the operator says; what is half done is listed with where it came from."""
    assert "claiming" in program("db", "resolve").out
    (found,) = program("db", "resolve", "--json").document["half_done"]
    assert (found["batch"], found["state"], found["rows"]) == (1, "claiming", 1)
    assert found["source"].endswith(f"/{DATABASE}:Sales")
    resolve = ("db", "resolve", "1", "--assume-store-lost", "--yes", "--as")
    for outcome in ("claimed", "written-off"):
        assert "has 1 of its timeouts" in program(*resolve, outcome, codes=[3]).err
    assert "claimed or written-off" in program(*resolve, "handed-over", codes=[2]).err
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
    half_claimed: Raven4Site,
    gone: None,
    outcome: str,
    state: str,
    attempt: int,
    row: tuple[str | None, str | None],
) -> None:
    """With the server's own answer in the audit trail; and the counts balance."""
    resolve = ("db", "resolve", "1", "--as", outcome)
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
    (balance,) = half_claimed.audit().balances()
    assert (balance.claimed, balance.unaccounted, balance.in_store) == (1, 0, None)


@pytest.mark.parametrize("is_taken", [False, True])
def test_a_rollback_finishes_what_is_half_claimed(
    program: Program, half_claimed: Raven4Site, is_taken: bool
) -> None:
    """Of what a timeout manager had meanwhile, nothing is left to give back."""
    rows = half_claimed.legacy_rows()
    if is_taken:
        half_claimed.manager.remove(rows[0].id)
    program("rollback", "--yes")
    assert half_claimed.legacy_rows() == ([] if is_taken else rows)
    assert program.rows(STATE) == ([] if is_taken else [("released",)])


def test_of_a_store_that_is_gone_one_batch_is_tried(
    program: Program, site: Raven4Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is half-done from then on; the others are as they were, and can still be handed over."""
    endpoint, lease = site.create(hours(3)), site.lease()
    for _ in range(3):
        site.claim(endpoint, lease, max_rows=1)
    site.leases.release(lease)
    monkeypatch.setattr(ravendb, "DATABASE", "another")
    found = program("rollback", "--yes", "--json", codes=[5]).document
    assert (found["rows"], found["stuck"]) == (0, [1, 2, 3])
    assert program.rows(f"{STATE} ORDER BY id") == [("releasing",), ("claimed",), ("claimed",)]


def test_a_store_that_is_gone_keeps_no_other_from_going_back(
    program: Program, site: Raven4Site
) -> None:
    """Only a person can go on with what came from there; the batch behind it goes back."""
    endpoint, lease = site.create(hours(2)), site.lease()
    for _ in range(2):
        site.claim(endpoint, lease, max_rows=1)
    site.leases.release(lease)
    program.change("UPDATE migrator_batch SET source = 'there/gone:Sales' WHERE id = 1")
    found = program("rollback", "--yes", "--json", codes=[5]).document
    assert (found["rows"], found["batches"], found["stuck"]) == (1, [2], [1])
    assert len(site.legacy_rows()) == 1


def test_a_store_that_does_not_answer_may_come_back(
    program: Program, half_claimed: Raven4Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Or the settings name another one. Only an operator knows, and has to say so."""
    resolve = ("db", "resolve", "1", "--as", "written-off", "--yes")
    monkeypatch.setenv("MIGRATOR_STORE__RAVENDB__DATABASE", "another")
    assert "--assume-store-lost" in program(*resolve, codes=[3]).err
    assert program.rows(HALF_DONE) == [("claiming", 0)]
    program(*resolve, "--assume-store-lost")
    ((detail,),) = program.rows("SELECT reason_detail FROM migrator_timeout")
    assert "according to the operator" in detail


def test_nothing_is_closed_under_the_owner_of_its_lane(
    program: Program, half_claimed: Raven4Site, gone: None
) -> None:
    """It may be asking the store at this moment."""
    program.change("UPDATE migrator_lease SET owner = 'host/1', until = '2999-01-01 00:00:00.0'")
    refused = program("db", "resolve", "1", "--as", "written-off", "--yes", codes=[4]).err
    assert "host/1 owns lane 0" in refused
    assert program.rows(HALF_DONE) == [("claiming", 0)]


ROWS = "SELECT store_id, state, reason, going_back FROM migrator_timeout ORDER BY store_id"
FIRST, SECOND = timeout_id(0), timeout_id(1)


@pytest.fixture
def returning(program: Program, site: Raven4Site) -> Raven4Site:
    """The same with two timeouts: batch 1 was handed over, all but one in quarantine.

    A rollback and a recall have each recorded that one of them goes back, and died.
    """
    endpoint, lease = site.create(hours(2)), site.lease()
    site.claim(endpoint, lease)
    site.leases.release(lease)
    program.change(
        "UPDATE migrator_batch SET state = 'handed_over'",
        "UPDATE migrator_timeout SET state = 'quarantined', reason = 'no-destination' "
        f"WHERE store_id = '{FIRST}'",
    )
    ledger = site.document_ledger
    assert len(ledger.begin_return(None, QuarantineFilter(), after=0)) == 1
    with site.engine.begin() as connection:
        (row,) = ledger.kept(connection, [2])
        ledger.mark_going(connection, [row], RowState.RECALLED)
    return site


def test_a_store_that_answers_finishes_it(program: Program, returning: Raven4Site) -> None:
    """Whatever the operator says; the next rollback does it."""
    shown = program("db", "resolve").out
    assert ("going back, released" in shown, "going back, recalled" in shown) == (True, True)
    found = program("db", "resolve", "--json").document["going_back"]
    assert [(g["batch"], g["towards"], g["rows"], g["source"][-6:]) for g in found] == [
        (1, "recalled", 1, ":Sales"),
        (1, "released", 1, ":Sales"),
    ]
    for outcome in ("handed-over", "quarantined", "written-off"):
        arguments = ("db", "resolve", "1", "--as", outcome, "--assume-store-lost", "--yes")
        assert "has 0 of its timeouts" in program(*arguments, codes=[3]).err
    program("rollback", "--keep-handed-over", "--yes")
    assert program.rows(ROWS)[0] == (FIRST, "released", "no-destination", None)
    assert [row.id for row in returning.legacy_rows()] == [FIRST]


def test_a_rollback_tells_what_stays(program: Program, returning: Raven4Site, gone: None) -> None:
    """It ends as one that is not whole; a retry leaves it alone until a person has closed it."""
    ended = program("rollback", "--keep-handed-over", "--yes", codes=[5])
    assert "others stay in quarantine because their store is gone" in ended.err
    assert program("quarantine", "retry", "--json").document["rows"] == 0
    assert program.rows(ROWS)[0] == (FIRST, "quarantined", "no-destination", "released")
    program("db", "resolve", "1", "--as", "quarantined", "--yes")
    assert program("quarantine", "retry", "--json").document["rows"] == 1
    assert program.rows("SELECT state FROM migrator_batch WHERE id = 2") == [("claimed",)]


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
    returning: Raven4Site,
    gone: None,
    outcome: str,
    first: tuple[str | None, ...],
    second: tuple[str | None, ...],
) -> None:
    """Those that the outcome is about, with the server's answer as evidence; the counts balance."""
    resolve = ("db", "resolve", "1", "--as", outcome)
    before = program.rows(ROWS)
    assert "was not found" in program(*resolve, "--dry-run").err
    assert "add --yes" in program(*resolve, codes=[2]).err
    assert program.rows(ROWS) == before
    document = program(*resolve, "--yes", "--json").document
    assert ("was not found" in document["evidence"], document["rows"]) == (True, 1)
    assert program.rows(ROWS) == [(FIRST, *first), (SECOND, *second)]
    ((kind, batch, detail),) = program.rows("SELECT kind, batch_id, detail FROM migrator_event")
    assert (kind, batch, json.loads(detail)["as"]) == ("batch_resolved", 1, outcome)
    (balance,) = returning.audit().balances()
    assert (balance.claimed, balance.unaccounted) == (2, 0)
    again = program(*resolve, "--yes", codes=[2]).err
    assert "handed-over" in again if outcome != "handed-over" else "leaving quarantine" in again


def test_nothing_is_closed_under_a_recall(
    program: Program, returning: Raven4Site, gone: None
) -> None:
    """It may be asking the store at this moment; nor as what such a row cannot be."""
    refused = program("db", "resolve", "1", "--as", "claimed", "--yes", codes=[2]).err
    assert "can only be handed-over or quarantined or written-off" in refused
    program.change(
        "UPDATE migrator_lease SET owner = 'host/1', until = '2999-01-01 00:00:00.0' "
        "WHERE name = 'lane.999'"
    )
    refused = program("db", "resolve", "1", "--as", "handed-over", "--yes", codes=[4]).err
    assert "host/1 runs a recall" in refused
    assert program.rows(ROWS)[1] == (SECOND, None, None, "recalled")
