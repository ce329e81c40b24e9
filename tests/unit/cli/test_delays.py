"""Tests of ``migrator.cli.delays``."""

from __future__ import annotations

import pytest

from migrator.cli import delays
from migrator.delays.depths import LevelDepth, build_level_depths
from migrator.delays.routing import DelaysVersion
from migrator.rabbitmq.connection import ConnectionSettings
from tests.unit.cli.conftest import Program
from tests.unit.preflight.checks.fakes import ladder


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


def test_levels_are_drawn(program: Program) -> None:
    """As a ladder, with what is held marked; exit code 0."""
    program.broker.steps = ladder(
        LevelDepth(level=5, ready=3, unacknowledged=0, held=40, consumers=0)
    )
    ended = program("delays", "inspect")
    (line,) = [line for line in ended.out.splitlines() if line.startswith("05")]
    assert "may stand still" in line
    assert ended.err == ""
    document = program("delays", "inspect", "--json", "--delays", "v1").document
    assert (document["schema"], document["delays"]) == ("migrator/delays-inspect/1", "v1")
    assert document["levels"][22]["held"] == document["total"]["held"] == 40


def test_what_is_not_known_is_said(program: Program) -> None:
    """Not shown as zero."""
    program.broker.steps = ladder(
        LevelDepth(level=5, ready=3, consumers=0), gap="no management API"
    )
    ended = program("delays", "inspect")
    assert ended.err == "not known: no management API\n"
    assert "not known" in ended.out
    document = program("delays", "inspect", "--json").document
    assert document["total"] == {"ready": 3, "unacknowledged": None, "held": None, "consumers": 0}


def test_missing_levels_end_with_3(program: Program) -> None:
    """With the command that makes them."""
    program.broker.steps = ladder(LevelDepth(level=5, exists=False))
    ended = program("delays", "inspect", codes=[3])
    assert ended.err == "1 levels are missing: migrator delays create --delays v2\n"
    program.broker.steps = build_level_depths(DelaysVersion.V2, [])
    ended = program("delays", "inspect", codes=[3])
    assert (ended.out, ended.err.partition(":")[0]) == ("", "delays v2 do not exist here")


def test_an_unknown_generation_is_refused(program: Program) -> None:
    """It says which there are."""
    assert "must be v1 or v2" in program("delays", "inspect", "--delays", "v3", codes=[2]).err
