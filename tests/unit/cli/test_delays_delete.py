"""Tests of ``migrator.cli.delays``."""

from __future__ import annotations

import pytest

from migrator.decommission.levels import DelaysFound, DelaysRemoval
from migrator.delays.routing import DelaysVersion, infrastructure
from migrator.errors import PreflightRefused
from migrator.rabbitmq.entities import Binding, exchange_entity
from tests.unit.cli.conftest import Program

WHOLE = infrastructure(DelaysVersion.V1)
EMPTY = DelaysFound(
    version=DelaysVersion.V1,
    exchanges=WHOLE.exchanges,
    queues=[queue.name for queue in WHOLE.queues],
)
SALES = Binding(source="nsb.delay-delivery", target=exchange_entity("Sales"), key="#.Sales")
URLS = ("--broker-url", "amqp://broker-1", "--management-url", "http://broker-1:15672")
DELETE = (*URLS, "delays", "delete", "--delays", "v1")


@pytest.fixture
def found(monkeypatch: pytest.MonkeyPatch) -> dict[str, DelaysFound]:
    """What the broker has; deleting leaves nothing of it."""
    there = {"now": EMPTY}

    def delete(_self: DelaysRemoval, *, even_if_bound: bool) -> None:
        if there["now"].staged:
            raise PreflightRefused("a message came meanwhile")
        there["now"] = DelaysFound(version=DelaysVersion.V1, exchanges=(), queues=())

    monkeypatch.setattr(DelaysRemoval, "look", lambda _self: there["now"])
    monkeypatch.setattr(DelaysRemoval, "delete", delete)
    return there


def test_empty_delays_are_deleted_only_with_yes(
    program: Program, found: dict[str, DelaysFound]
) -> None:
    """And a second time there is nothing to do."""
    assert "add --yes" in program(*DELETE, codes=[2]).err
    assert "nothing prevents deleting" in program(*DELETE, "--dry-run").err
    assert not found["now"].is_absent
    document = program(*DELETE, "--yes", "--json").document
    assert document == {
        "schema": "migrator/delays-delete/1",
        "delays": "v1",
        "dry_run": False,
        "deleted": True,
        "exchanges": 29,
        "queues": 28,
        "obstacles": [],
        "bound": [],
    }
    assert program(*DELETE, "--yes").err == "delays v1 do not exist here\n"


def test_whatever_speaks_against_it_is_told(
    program: Program, found: dict[str, DelaysFound]
) -> None:
    """Exit code 3, and nothing is deleted; what is bound may be ignored."""
    found["now"] = DelaysFound(
        version=DelaysVersion.V1, exchanges=["nsb.delay-delivery"], queues=(), bound=[SALES]
    )
    ended = program(*DELETE, "--yes", codes=[3])
    assert "still bound to the delays: Sales;" in ended.err
    assert "`migrator delays create --delays v1` creates it" in ended.err
    assert "#.Sales" in ended.out
    assert not found["now"].is_absent
    document = program(*DELETE, "--dry-run", "--even-if-bound", "--json").document
    bound = {"source": "nsb.delay-delivery", "target": "Sales", "key": "#.Sales", "is_queue": False}
    assert (document["obstacles"], document["bound"]) == ([], [bound])
    program(*DELETE, "--yes", "--even-if-bound")
    assert found["now"].is_absent
