"""Tests of ``migrator.cli.store``."""

from __future__ import annotations

import pytest

from tests.unit.cli.conftest import Program


def test_endpoints_are_listed_with_their_tables(program: Program) -> None:
    """A configured one by its own name, dots included."""
    program("seed", "--endpoint", "Sales.Orders", "--count", "1")
    program("seed", "--endpoint", "Billing", "--count", "1")
    (program.folder / "migrator.toml").write_text(
        '[[endpoints]]\nname = "Sales.Orders"\nmode = "dispatch"\n'
    )
    assert program("endpoints", "--json").document == {
        "schema": "migrator/endpoints/1",
        "endpoints": [
            {
                "endpoint": "Billing",
                "source": "Billing_TimeoutData",
                "configured": False,
                "mode": "migrate",
            },
            {
                "endpoint": "Sales.Orders",
                "source": "Sales_Orders_TimeoutData",
                "configured": True,
                "mode": "dispatch",
            },
        ],
    }
    assert "Sales_Orders_TimeoutData" in program("endpoints").out


def test_an_empty_store_is_told(program: Program) -> None:
    """It may be the wrong database."""
    assert "has no endpoint's timeouts" in program("endpoints").err


def test_a_missing_store_url_names_every_way_to_set_it(program: Program) -> None:
    """Exit code 2."""
    ended = program("--store-url", "", "endpoints", codes=[2])
    assert "store.url is not set" in ended.err


def test_invented_timeouts_are_written_into_a_table_of_their_own(program: Program) -> None:
    """To the destinations in turn; the same seed writes the same rows."""
    seed = ["--count", "10", "--seed", "3", "--destinations", "Billing, Shipping"]
    ended = program("seed", "--endpoint", "A.B", *seed)
    assert ended.err == "10 invented timeouts are in A_B_TimeoutData, 0 of them bad\n"
    found = program.rows("SELECT Destination, count(*) FROM A_B_TimeoutData GROUP BY 1 ORDER BY 1")
    assert found == [("Billing", 5), ("Shipping", 5)]
    document = program("seed", "--endpoint", "C", "--json").document
    assert document["schema"] == "migrator/seed/1"
    assert program.rows("SELECT DISTINCT Destination FROM C_TimeoutData") == [("C",)]


def test_bad_rows_are_bad_in_different_ways(program: Program) -> None:
    """As many as asked for would be quarantined."""
    program.seeded("--bad", "7", "--due-from", "1h", count=20)
    (endpoint,) = program("preview", "--json").document["endpoints"]
    reasons = {found["reason"]: found["count"] for found in endpoint["quarantine"]}
    # the seventh and second of an unknown destination only show when the broker is asked
    assert sum(reasons.values()) + endpoint["destinations"]["Nobody.Home"] == 7
    assert len(reasons) == 4


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
    ended = program("seed", "--endpoint", "Sales", "--count", "10", *options, codes=[2])
    assert text in ended.err


def test_overdue_rows_may_be_asked_for(program: Program) -> None:
    """With a minus."""
    program.seeded("--due-from=-1h", "--due-to=-1m")
    (endpoint,) = program("preview", "--json").document["endpoints"]
    assert (endpoint["overdue"], endpoint["left"]) == (20, 20)
