"""Tests of ``migrator.preflight.checks.frozen_levels``."""

from __future__ import annotations

from datetime import timedelta

import pytest

from migrator.delays.routing import DelaysVersion
from migrator.errors import LedgerMissing
from migrator.preflight.checks.frozen_levels import Watch, check
from migrator.preflight.findings import Finding, Level
from migrator.preflight.ports import HandOvers
from tests.unit.preflight.checks.fakes import NO_API, NOW, FakeBroker, FakeHandOvers, no_way


def found(
    broker: FakeBroker, hand_overs: HandOvers | None = None, *, waits: list[float] | None = None
) -> list[Finding]:
    """Return what is found in ten seconds that take no time."""
    watch = Watch(span_s=10, wait=(waits if waits is not None else []).append)
    return list(check(broker, hand_overs, version=DelaysVersion.V2, watch=watch, now=NOW))


def test_nobody_waits_when_nothing_is_held() -> None:
    """It is fine at once."""
    waits: list[float] = []
    assert [finding.level for finding in found(FakeBroker(), waits=waits)] == [Level.OK]
    assert waits == []


def test_levels_are_looked_at_for_as_long_as_was_asked() -> None:
    """In steps, so that a short gap is noticed."""
    waits: list[float] = []
    found(FakeBroker(hanging={1: 40}), waits=waits)
    assert waits == [2.0] * 5


def test_a_frozen_level_is_named_with_its_destination_and_the_fix() -> None:
    """Only destinations that were due lately and cannot be reached are to blame."""
    broker = FakeBroker(hanging={1: 40}, closed=[no_way("Gone")])
    hand_overs = FakeHandOvers(["Billing", "Gone"])
    (finding,) = found(broker, hand_overs)
    assert (finding.level, finding.subject) == (Level.REFUSED, "nsb.v2.delay-level-01")
    assert "at least 40" in finding.text
    assert "stands still for every endpoint" in finding.text
    assert finding.remedy.startswith("10 timeouts for Gone were due in the past hour")
    assert no_way("Gone").remedy in finding.remedy
    assert "Billing" not in finding.remedy
    assert hand_overs.asked == [(NOW - timedelta(hours=1), NOW)]


@pytest.mark.parametrize(
    ("looks", "level"),
    [
        ([{1: 20}, {1: 20}], Level.REFUSED),  # they do not move
        ([{1: 20}, {1: 60}], Level.REFUSED),  # and more come
        ([{1: 60}, {1: 40}], Level.REFUSED),  # too many to let others pass
        ([{1: 20}, {1: 3}], Level.WARNING),  # they may be on their way
        ([{1: 20}, {}], Level.OK),
        ([{1: 20}, {2: 20}], Level.OK),
    ],
)
def test_what_stays_is_told_from_what_passes(looks: list[dict[int, int]], level: Level) -> None:
    """The least that was ever held counts."""
    (finding,) = found(FakeBroker(hanging=looks[0], later=[*looks[1:]]))
    assert finding.level is level


@pytest.mark.parametrize(
    ("broker", "hand_overs"),
    [
        (FakeBroker(hanging={0: 33}, closed=[no_way("Gone")]), None),
        (FakeBroker(hanging={0: 33}), FakeHandOvers(["Billing"])),
        (FakeBroker(hanging={0: 33}, bound=NO_API), FakeHandOvers(["Gone"])),
        (FakeBroker(hanging={0: 33}), FakeHandOvers(failure=LedgerMissing("none"))),
    ],
    ids=["no store", "all can be reached", "no bindings", "no ledger"],
)
def test_without_a_culprit_it_says_what_to_look_for(
    broker: FakeBroker, hand_overs: FakeHandOvers | None
) -> None:
    """The level is refused all the same."""
    (finding,) = found(broker, hand_overs)
    assert finding.level is Level.REFUSED
    assert finding.remedy.startswith("find the queue")


def test_several_levels_are_told_apart() -> None:
    """Lowest first."""
    subjects = [finding.subject[-2:] for finding in found(FakeBroker(hanging={7: 40, 1: 40}))]
    assert subjects == ["01", "07"]


def test_what_nobody_tells_is_not_checked() -> None:
    """Neither at first nor later."""
    (finding,) = found(FakeBroker(hanging=NO_API))
    assert finding.level is Level.NOT_CHECKED

    class Failing(FakeBroker):
        def stuck(self, version):  # type: ignore[no-untyped-def]  # as its base
            found, self.hanging = self.hanging, NO_API
            return found

    (finding,) = found(Failing(hanging={1: 40}))
    assert finding.level is Level.NOT_CHECKED
