"""Tests of ``migrator.preflight.checks_delays``."""

from __future__ import annotations

from datetime import timedelta

import pytest

from migrator.errors import LedgerMissing
from migrator.nservicebus.timeouts import QueueName
from migrator.preflight.broker import DelayEntities
from migrator.preflight.context import Watch
from migrator.preflight.findings import Finding, Level
from tests.unit.preflight.fakes import (
    NO_API,
    NOW,
    FakeBroker,
    FakeHandOvers,
    binding,
    found,
    found_of_delays,
    levels,
    no_binding,
)

BOUND = frozenset({QueueName("Sales")})
HOUR = timedelta(hours=1)


# ── names, and entities ─────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(("is_accepted", "level"), [(False, Level.REFUSED), (True, Level.WARNING)])
def test_a_name_that_catches_anothers_messages_is_named(is_accepted: bool, level: Level) -> None:
    """With the binding that does it."""
    broker = FakeBroker(bound=frozenset(map(QueueName, ("My.Sales", "Sales", "Resales"))))
    (finding,) = found_of_delays("bound-names", broker, accepts_suffix_collisions=is_accepted)
    assert (finding.level, finding.subject) == (level, "My.Sales")
    assert finding.text.endswith("also reach Sales")
    assert "binding #.Sales of exchange nsb.v2.delay-delivery" in finding.remedy


def test_names_without_a_common_end_are_fine() -> None:
    """Also when there are none; those that nobody tells are not."""
    names = frozenset(map(QueueName, ("Sales", "Sales.Orders")))
    for bound in (names, frozenset[QueueName]()):
        assert levels(found_of_delays("bound-names", FakeBroker(bound=bound))) == [Level.OK]
    assert levels(found_of_delays("bound-names", FakeBroker(bound=NO_API))) == [Level.NOT_CHECKED]


def test_absent_delays_are_refused_with_the_command_that_makes_them() -> None:
    """They are never made unasked."""
    assert levels(found("delay-entities")) == [Level.OK]
    missing = DelayEntities(missing=list("abcde"), different={}, not_checked=())
    (finding,) = found("delay-entities", FakeBroker(entities=missing))
    assert finding.level is Level.REFUSED
    assert finding.text == "missing: a, b, c and 2 more"
    assert finding.remedy == "migrator delays create --delays v2"


def test_different_and_unknown_entities_are_findings_of_their_own() -> None:
    """Nothing is said to be fine beside them."""
    unknown = [NO_API] * 3
    report = DelayEntities(missing=["x"], different={"q": "x-overflow"}, not_checked=unknown)
    missing, different, unseen = found("delay-entities", FakeBroker(entities=report))
    assert levels([missing, different, unseen]) == [Level.REFUSED, Level.REFUSED, Level.NOT_CHECKED]
    assert (missing.text, different.subject) == ("missing: x", "q")
    assert unseen.text == f"{NO_API.reason}; and 2 more"


# ── messages that hang ──────────────────────────────────────────────────────────────────────────


def test_hanging_messages_are_warned_of_by_level() -> None:
    """From 32 on they may block the level for everyone."""
    few, many = found("stuck-levels", FakeBroker(hanging={8: 32, 0: 31}))
    assert (few.level, few.subject) == (Level.WARNING, "nsb.v2.delay-level-00")
    assert "stands still" not in few.text
    assert (many.subject, many.level) == ("nsb.v2.delay-level-08", Level.WARNING)
    assert "stands still for every endpoint" in many.text


def test_levels_that_nobody_saw_are_not_fine() -> None:
    """Without the management API."""
    assert levels(found("stuck-levels")) == [Level.OK]
    assert levels(found("stuck-levels", FakeBroker(hanging=NO_API))) == [Level.NOT_CHECKED]


def frozen(
    broker: FakeBroker,
    hand_overs: FakeHandOvers | None = None,
    *,
    waits: list[float] | None = None,
) -> list[Finding]:
    """Return what is found in ten seconds that take no time."""
    watch = Watch(span_s=10, wait=(waits if waits is not None else []).append)
    return found_of_delays("frozen-levels", broker, hand_overs=hand_overs, watch=watch)


def test_levels_are_looked_at_for_as_long_as_was_asked() -> None:
    """In steps, so that a short gap is noticed; nobody waits when nothing is held."""
    waits: list[float] = []
    assert levels(frozen(FakeBroker(), waits=waits)) == [Level.OK]
    assert waits == []
    frozen(FakeBroker(hanging={1: 40}), waits=waits)
    assert waits == [2.0] * 5


def test_a_frozen_level_is_named_with_its_destination_and_the_fix() -> None:
    """Only destinations that were due lately and cannot be reached are to blame."""
    hand_overs = FakeHandOvers(["Billing", "Gone"])
    (finding,) = frozen(FakeBroker(hanging={1: 40}, closed=[no_binding("Gone")]), hand_overs)
    assert (finding.level, finding.subject) == (Level.REFUSED, "nsb.v2.delay-level-01")
    assert "at least 40" in finding.text
    assert "stands still for every endpoint" in finding.text
    assert finding.remedy.startswith("10 timeouts for Gone were due in the past hour")
    assert no_binding("Gone").remedy in finding.remedy
    assert "Billing" not in finding.remedy
    assert hand_overs.asked == [(NOW - HOUR, NOW)]


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
    assert levels(frozen(FakeBroker(hanging=looks[0], later=[*looks[1:]]))) == [level]


@pytest.mark.parametrize(
    ("broker", "hand_overs"),
    [
        (FakeBroker(hanging={0: 33}, closed=[no_binding("Gone")]), None),
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
    (finding,) = frozen(broker, hand_overs)
    assert finding.level is Level.REFUSED
    assert finding.remedy.startswith("find the queue")


def test_several_levels_are_told_apart() -> None:
    """Lowest first."""
    findings = frozen(FakeBroker(hanging={7: 40, 1: 40}))
    assert [finding.subject[-2:] for finding in findings] == ["01", "07"]


def test_what_nobody_tells_is_not_checked() -> None:
    """Neither at first nor later."""

    class Failing(FakeBroker):
        def stuck(self, version):  # type: ignore[no-untyped-def]  # as its base
            found, self.hanging = self.hanging, NO_API
            return found

    for broker in (FakeBroker(hanging=NO_API), Failing(hanging={1: 40})):
        assert levels(frozen(broker)) == [Level.NOT_CHECKED]


# ── ways out ────────────────────────────────────────────────────────────────────────────────────


def ways(broker: FakeBroker, hand_overs: FakeHandOvers | None) -> list[Finding]:
    """Return what is found about ways out."""
    return found_of_delays("ways-out", broker, hand_overs=hand_overs)


def test_a_handed_over_destination_that_is_gone_is_refused() -> None:
    """With how many wait for it, until when, and what mends it."""
    hand_overs = FakeHandOvers(["Gone", "Sales"])
    (finding,) = ways(FakeBroker(bound=BOUND, closed=[no_binding("Gone")]), hand_overs)
    assert (finding.level, finding.subject) == (Level.REFUSED, "Gone")
    assert "10 timeouts" in finding.text
    assert "2026-03-10 09:30:00" in finding.text
    assert finding.remedy == no_binding("Gone").remedy
    assert hand_overs.asked == [(NOW - HOUR, None)]


def test_a_bound_name_that_leads_nowhere_is_a_warning() -> None:
    """Nobody knows whether anything waits for it."""
    closed = binding("Sales", has_queue=False, leads_on=False)
    (finding,) = ways(FakeBroker(bound=BOUND, closed=[closed]), FakeHandOvers())
    assert (finding.level, finding.subject) == (Level.WARNING, "Sales")
    assert finding.remedy == closed.remedy


def test_all_can_be_reached() -> None:
    """Bound ones and those of the ledger."""
    (finding,) = ways(FakeBroker(bound=BOUND), FakeHandOvers(["Sales", "Billing"]))
    assert (finding.level, finding.text[:2]) == (Level.OK, "2 ")


def test_without_a_ledger_only_bound_names_are_looked_at() -> None:
    """That is said; a ledger that cannot be read is no reason to stop."""
    for hand_overs in (None, FakeHandOvers(failure=LedgerMissing("the ledger is empty"))):
        findings = ways(FakeBroker(bound=BOUND), hand_overs)
        assert levels(findings) == [Level.NOT_CHECKED, Level.OK]


def test_bindings_that_nobody_tells_are_not_checked() -> None:
    """Neither at first, nor when the API goes away between two questions."""

    class Failing(FakeBroker):
        def destination_bindings(self, version, names):  # type: ignore[no-untyped-def]  # as its base
            return NO_API

    for broker in (FakeBroker(bound=NO_API), Failing(bound=BOUND)):
        assert levels(ways(broker, FakeHandOvers(["Gone"]))) == [Level.NOT_CHECKED]
