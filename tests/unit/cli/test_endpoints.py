"""Tests of ``migrator.cli.endpoints``."""

from __future__ import annotations

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
