"""Tests of ``migrator.preflight.checks.broker_reachable``."""

from __future__ import annotations

import pytest

from migrator.errors import AccessRefused, TargetError, TargetUnavailable
from migrator.preflight.checks.broker_reachable import check
from migrator.preflight.findings import Level
from tests.unit.preflight.checks.fakes import FakeBroker


def test_a_broker_that_answers_is_named() -> None:
    """With its version."""
    (found,) = check(FakeBroker())
    assert (found.level, found.text) == (Level.OK, "RabbitMQ 3.12.4 answers")


@pytest.mark.parametrize(
    ("failure", "text"),
    [
        (AccessRefused("wrong password"), "does not let us in: wrong password"),
        (TargetUnavailable("timed out"), "cannot be reached: timed out"),
        (TargetError("bad certificate"), "cannot be reached: bad certificate"),
    ],
)
def test_network_and_authentication_are_different_findings(failure: TargetError, text: str) -> None:
    """A person does different things about them."""
    (found,) = check(FakeBroker(failure=failure))
    assert found.level is Level.REFUSED
    assert text in found.text
    assert found.remedy
