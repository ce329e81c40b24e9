"""Tests of ``migrator.cli.delays``."""

from __future__ import annotations

import pytest

from migrator.broker.connection import ConnectionSettings
from migrator.cli import delays
from migrator.domain.routing import DelaysVersion
from migrator.ports import DelayEntities
from tests.unit.cli.conftest import Program
from tests.unit.engine.checks.fakes import NO_API


@pytest.mark.parametrize("version", ["v1", "v2"])
def test_delays_are_created_on_demand(
    program: Program, monkeypatch: pytest.MonkeyPatch, version: str
) -> None:
    """Of the generation that was asked for."""
    made: list[tuple[str, str]] = []

    def create(settings: ConnectionSettings, which: DelaysVersion) -> None:
        made.append((settings.address.host, str(which)))

    monkeypatch.setattr(delays, "create_delays", create)
    url = ["--broker-url", "amqp://a:b@broker-1"]
    ended = program(*url, "delays", "create", "--delays", version)
    assert ended.err == f"delays {version} are complete\n"
    document = program(*url, "delays", "create", "--delays", version, "--json").document
    assert document == {"schema": "migrator/delays-create/1", "delays": version}
    assert made == [("broker-1", version)] * 2


def test_complete_delays_are_fine(program: Program) -> None:
    """Exit code 0."""
    assert program("delays", "inspect").err == "delays v2 are complete\n"


def test_what_is_missing_or_different_is_listed(program: Program) -> None:
    """Exit code 3."""
    program.broker.entities = DelayEntities(
        missing=["queue x"], different={"y": "z"}, not_checked=[NO_API]
    )
    assert "queue x" in program("delays", "inspect", codes=[3]).out
    document = program("delays", "inspect", "--json", codes=[3]).document
    assert document["schema"] == "migrator/delays-inspect/1"
    assert [f["state"] for f in document["findings"]] == ["missing", "different", "not_checked"]


def test_an_unknown_generation_is_refused(program: Program) -> None:
    """It says which there are."""
    assert "must be v1 or v2" in program("delays", "inspect", "--delays", "v3", codes=[2]).err
