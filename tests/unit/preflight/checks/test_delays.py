"""Tests of ``migrator.preflight.checks.delays``."""

from __future__ import annotations

from migrator.delays.routing import DelaysVersion
from migrator.errors import TargetUnavailable
from migrator.preflight.checks import CHECKS, DELAY_CHECKS, DelaysContext, Watch, check_delays
from migrator.preflight.findings import Level, verdict
from tests.unit.preflight.checks.fakes import NOW, FakeBroker, FakeHandOvers


def context(broker: FakeBroker, version: DelaysVersion = DelaysVersion.V2) -> DelaysContext:
    """Return a context with a ledger that knows nothing."""
    return DelaysContext(
        broker=broker,
        version=version,
        accepts_suffix_collisions=False,
        hand_overs=FakeHandOvers(),
        wall_clock=lambda: NOW,
        watch=Watch(span_s=1, wait=lambda _s: None),
    )


def test_when_all_is_well_every_check_says_so() -> None:
    """In the order of their names; those that preflight makes as well have the same names."""
    found = check_delays(context(FakeBroker()))
    assert verdict(found) is Level.OK
    assert [finding.check for finding in found] == sorted(DELAY_CHECKS) == list(DELAY_CHECKS)
    assert DELAY_CHECKS.keys() - CHECKS.keys() == {"bound-names", "frozen-levels", "ways-out"}


def test_policies_of_the_levels_alone_are_looked_at() -> None:
    """Of the generation that was asked for."""
    broker = FakeBroker()
    check_delays(context(broker, DelaysVersion.V1))
    assert broker.policies_asked == [f"nsb.delay-level-{level:02d}" for level in range(28)]


def test_a_broker_that_is_gone_is_refused_once() -> None:
    """Everything else is not checked."""
    found = check_delays(context(FakeBroker(failure=TargetUnavailable("gone"))))
    assert [f.check for f in found if f.level is Level.REFUSED] == ["broker-reachable"]
    assert {f.level for f in found} == {Level.REFUSED, Level.NOT_CHECKED}
