"""Tests of ``migrator.preflight.checks.broker_version``."""

from __future__ import annotations

import pytest

from migrator.delays.routing import DelaysVersion
from migrator.ledger.states import Mode
from migrator.preflight.checks.broker_version import check
from migrator.preflight.findings import Level
from tests.unit.preflight.checks.fakes import NO_API, FakeBroker

V1, V2 = DelaysVersion.V1, DelaysVersion.V2


@pytest.mark.parametrize("version", [(3, 10, 0), (3, 10, 8), (3, 13, 0), (4, 1, 2)])
def test_a_fit_broker_is_fine(version: tuple[int, int, int]) -> None:
    """From 3.10 on."""
    (found,) = check(FakeBroker(version=version), version=V2, mode=Mode.STAGED)
    assert (found.level, found.text) == (Level.OK, "fit for delays v2 and mode staged")


@pytest.mark.parametrize(
    ("delays", "mode", "expected"),
    [
        (V2, Mode.STAGED, Level.REFUSED),
        (V2, Mode.DIRECT, Level.REFUSED),
        (V1, Mode.STAGED, Level.REFUSED),
        (V1, Mode.DIRECT, Level.OK),
    ],
)
def test_an_old_broker_can_do_the_old_way_only(
    delays: DelaysVersion, mode: Mode, expected: Level
) -> None:
    """Staging needs quorum queues even when the delays do not."""
    broker = FakeBroker(version=(3, 9, 29), flags=NO_API)
    assert [f.level for f in check(broker, version=delays, mode=mode)] == [expected]


def test_a_flag_that_is_off_is_refused_by_name() -> None:
    """With the command that switches it on."""
    broker = FakeBroker(flags={"stream_queue": False, "quorum_queue": True})
    (found,) = check(broker, version=V2, mode=Mode.STAGED)
    assert found.level is Level.REFUSED
    assert found.remedy == "rabbitmqctl enable_feature_flag stream_queue"


def test_a_flag_that_is_gone_has_become_part_of_the_broker() -> None:
    """Newer brokers no longer list it."""
    (found,) = check(FakeBroker(flags={}), version=V2, mode=Mode.DIRECT)
    assert found.level is Level.OK


def test_unknown_flags_are_not_fine() -> None:
    """Without the management API nobody can tell."""
    (found,) = check(FakeBroker(flags=NO_API), version=V1, mode=Mode.STAGED)
    assert found.level is Level.NOT_CHECKED


def test_a_version_that_cannot_be_read_is_not_an_old_one() -> None:
    """Nor a fit one."""
    (found,) = check(FakeBroker(version=(0, 0, 0)), version=V2, mode=Mode.STAGED)
    assert found.level is Level.NOT_CHECKED


def test_a_dispatcher_without_retries_can_do_with_any_version() -> None:
    """With them it needs queues in which messages expire."""
    old = FakeBroker(version=(3, 9, 29), flags=NO_API)
    (found,) = check(old, version=None, mode=None)
    assert (found.level, found.text) == (Level.OK, "any version will do for a dispatcher")
    (found,) = check(old, version=None, mode=None, has_retries=True)
    assert found.text == "dispatch.retry_delays need version 3.10 or newer"
    assert found.remedy == "upgrade the broker, or set dispatch.retry_delays = []"
    (found,) = check(old, version=V2, mode=None, has_retries=True)
    assert "--delays v1 --mode direct" in found.remedy
