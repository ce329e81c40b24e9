"""Tests of ``migrator.cli.seed``."""

from __future__ import annotations

import pytest

from tests.unit.cli.conftest import Program


def test_invented_timeouts_are_written_into_a_table_of_their_own(program: Program) -> None:
    """To the destinations in turn, overdue if wanted; bad ones are bad in different ways."""
    seed = ["--count", "20", "--seed", "3", "--destinations", "Billing, Shipping", "--bad", "7"]
    ended = program("seed", "--yes", "--endpoint", "A.B", *seed, "--due-from", "1h")
    assert ended.err == "20 invented timeouts are in A_B_TimeoutData, 7 of them bad\n"
    (endpoint,) = program("preview", "--offline", "--json", codes=[3]).document["endpoints"]
    reasons = {found["reason"]: found["count"] for found in endpoint["quarantine"]}
    # those of an unknown destination only show when the broker is asked
    assert sum(reasons.values()) + endpoint["destinations"]["Nobody.Home"] == 7
    assert len(reasons) == 2
    assert {"Billing", "Shipping"} < set(endpoint["destinations"])
    seed = ["--endpoint", "C", "--due-from=-1h", "--due-to=-1m", "--json"]
    assert program("seed", "--yes", *seed).document["schema"] == "migrator/seed/1"
    found = program("preview", "--offline", "--endpoint", "C", "--json", codes=[3]).document[
        "endpoints"
    ]
    assert [(each["overdue"], each["left"]) for each in found] == [(1000, 1000)]
    assert program.rows("SELECT DISTINCT Destination FROM C_TimeoutData") == [("C",)]


def test_nothing_is_invented_beside_real_timeouts(program: Program) -> None:
    """Not even one; without --yes nothing is written at all."""
    seed = ("seed", "--endpoint", "Sales", "--count", "4", "--bad", "3")
    assert "add --yes" in program(*seed, codes=[2]).err
    program(*seed, "--yes")
    program(*seed, "--yes")
    program.change("UPDATE Sales_TimeoutData SET Headers = '{}' WHERE rowid = 5")
    assert "seed did not write" in program(*seed, "--yes", codes=[3]).err
    assert program.rows("SELECT count(*) FROM Sales_TimeoutData") == [(8,)]
    assert "seed" not in program("--help").out


def test_nothing_is_invented_for_an_endpoint_that_was_run(program: Program) -> None:
    """Its table is merely empty: all that was in it is handed over."""
    program.seeded(count=3)
    program.claimed(3)
    assert program.rows("SELECT count(*) FROM Sales_TimeoutData") == [(0,)]
    again = ("seed", "--yes", "--count", "4", "--endpoint")
    assert "the ledger knows endpoint Sales" in program(*again, "Sales", codes=[3]).err
    assert program.rows("SELECT count(*) FROM Sales_TimeoutData") == [(0,)]
    program(*again, "Shop")


@pytest.mark.parametrize(
    ("options", "text"),
    [
        (["--due-from", "2h", "--due-to", "1h"], "must not be later"),
        (["--due-from", "soon"], "--due-from 'soon' must be a duration"),
        (["--bad", "11"], "more than --count"),
    ],
)
def test_nonsense_is_refused(program: Program, options: list[str], text: str) -> None:
    """Before a table is made."""
    ended = program("seed", "--yes", "--endpoint", "Sales", "--count", "10", *options, codes=[2])
    assert text in ended.err
