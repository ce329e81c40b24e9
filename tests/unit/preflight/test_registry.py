"""Tests of how checks are run, once and again: ``registry``, ``findings`` and ``queries``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from migrator.delays.topology import DelayEntities
from migrator.errors import (
    LedgerError,
    LedgerMissing,
    PreflightRefused,
    StoreLocked,
    StoreUnavailable,
    TargetUnavailable,
)
from migrator.nservicebus.timeouts import EndpointName
from migrator.preflight.context import (
    DISPATCH,
    FORWARD,
    UNREACHABLE,
    Context,
    Finding,
    Level,
    refusals,
    refuse,
    refuse_all,
    standing,
    verdict,
)
from migrator.preflight.queries import KnownHandOvers
from migrator.preflight.registry import CHECKS, DELAY_CHECKS, Rechecks, check_delays, run_checks
from tests.unit.preflight.fakes import (
    NOW,
    OWN_QUEUES,
    RETRY,
    SALES,
    SATELLITES,
    FakeBroker,
    FakeHandOvers,
    FakeStore,
    context,
    delays_context,
    preview,
    queue,
)

INCOMPLETE = DelayEntities(missing=("queue x",), different={}, not_checked=())


def refusing(context: Context) -> list[str]:
    """Return the checks that refuse."""
    return [f.check for f in run_checks(context) if f.level is Level.REFUSED]


def test_checks_run_in_the_order_of_their_names() -> None:
    """So that the first complaint stays the same; those that are in both tables are the same."""
    assert list(CHECKS) == sorted(CHECKS)
    assert list(DELAY_CHECKS) == sorted(DELAY_CHECKS)
    assert CHECKS.keys() >= UNREACHABLE
    assert all(CHECKS[name] is DELAY_CHECKS[name] for name in CHECKS.keys() & DELAY_CHECKS.keys())
    found = run_checks(context(), only=["vendor-run", "ledger"])
    assert [f.check for f in found] == ["ledger", "vendor-run"]


def test_when_all_is_well_every_check_says_so() -> None:
    """None is silent but that of destinations, where no row has one."""
    found = run_checks(context())
    assert verdict(found) is Level.OK
    assert [f.check for f in found] == [name for name in CHECKS if name != "destinations"]
    of_delays = check_delays(delays_context())
    assert verdict(of_delays) is Level.OK
    assert [f.check for f in of_delays] == list(DELAY_CHECKS)


# ── what an endpoint's mode needs ───────────────────────────────────────────────────────────────


def dispatching(mode: str = DISPATCH, **broken: Any) -> Context:
    """Return a context in which one endpoint is dispatched or forwarded, by a *broken* broker."""
    names = ("Sales.Timeouts", "Sales.TimeoutsDispatcher", "error", "Billing")
    return context(
        broker=FakeBroker(probes={name: queue() for name in names}, **broken),
        previews=[preview({"Billing": 2}, left=3)],
        modes={"Sales": mode},
        satellites=(SATELLITES,),
        cutoff=timedelta(minutes=1),
    )


BROKEN: Mapping[str, Any] = {
    "entities": INCOMPLETE,
    "hanging": {3: 40},
    "forbidden": OWN_QUEUES,
    "bound": ["Invoices.Billing"],
}
"""What is wrong with the delays, and with staging."""


@pytest.mark.parametrize(
    ("mode", "broken", "expected"),
    [
        (DISPATCH, BROKEN, []),
        (FORWARD, BROKEN, ["broker-rights", "broker-rights", "delay-entities"]),
        (
            DISPATCH,
            {"version": "3.9.29", "forbidden": [RETRY]},
            ["broker-rights", "broker-version"],
        ),
    ],
    ids=[
        "a dispatcher alone needs no native delays and no staging",
        "forwarding needs both",
        "a dispatcher needs a broker that can hold retries, and the right to make their queues",
    ],
)
def test_what_is_needed(mode: str, broken: Mapping[str, Any], expected: list[str]) -> None:
    """By what is done for an endpoint."""
    assert refusing(dispatching(mode, **broken)) == expected


def test_one_endpoint_that_is_migrated_needs_everything() -> None:
    """Next to others that are dispatched."""
    both = replace(
        dispatching(entities=INCOMPLETE),
        endpoint_names=("Sales", "Billing"),
        store=FakeStore(endpoints=(SALES, replace(SALES, name=EndpointName("Billing")))),
    )
    assert refusing(both) == ["delay-entities"]


# ── what cannot be asked ────────────────────────────────────────────────────────────────────────


def test_what_is_gone_is_refused_once() -> None:
    """A broker or a store; everything else about it is unknown, and the rest is looked at."""
    gone = FakeBroker(failure=TargetUnavailable("it is gone"))
    lost = context(broker=gone, previews=[preview({"Sales": 1})])
    found = run_checks(lost)
    unknown = {f.check for f in found if f.level is Level.NOT_CHECKED}
    assert refusing(lost) == ["broker-reachable"]
    assert {"broker-alarms", "policies", "destinations", "vendor-run"} <= unknown
    assert all(f.text == "it is gone" for f in found if f.check in unknown)
    of_delays = [f.level for f in check_delays(delays_context(broker=gone))]
    assert (of_delays.count(Level.REFUSED), of_delays.count(Level.OK)) == (1, 0)
    lost = context(store=FakeStore(failure=StoreUnavailable("gone")), previews=None)
    assert refusing(lost) == ["store-reachable"]
    assert any(f.check == "broker-version" and f.level is Level.OK for f in run_checks(lost))


def test_a_refusal_raised_on_the_way_is_a_refusal() -> None:
    """Whichever check meets it; but who looks for endpoints says alone that one is unknown."""
    store = FakeStore(failure=LedgerMissing("no ledger"))
    (found,) = run_checks(context(store=store), only=["vendor-run"])
    assert (found.level, found.text) == (Level.REFUSED, "no ledger")
    unknown = context(endpoint_names=("Nobody",))
    assert refusing(unknown) == ["endpoints"]
    assert [f.level for f in run_checks(unknown, only=["rights"])] == [Level.NOT_CHECKED]


# ── findings ────────────────────────────────────────────────────────────────────────────────────


def finding(level: Level, subject: str = "x", *, check: str = "policies") -> Finding:
    """Return a finding with a text and a remedy of its own."""
    remedy = f"mend {subject}" if level is Level.REFUSED else ""
    return Finding(check=check, level=level, subject=subject, text=f"{level} text", remedy=remedy)


FINE, BAD = finding(Level.OK), finding(Level.REFUSED, "policy all")
BLIND, CARE = finding(Level.NOT_CHECKED, "policies"), finding(Level.WARNING)


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        ([], Level.OK),
        ([FINE, BLIND], Level.NOT_CHECKED),
        ([BLIND, CARE, FINE], Level.WARNING),
        ([CARE, BAD, BLIND], Level.REFUSED),
    ],
)
def test_the_worst_finding_is_the_verdict(found: list[Finding], expected: Level) -> None:
    """What was not checked is never fine, and never hides something worse."""
    assert verdict(found) is expected


def test_refusals_are_raised_together() -> None:
    """Each with its remedy; warnings and gaps are told, not obeyed."""
    refuse([FINE, CARE, BLIND])
    both = [BAD, replace(BAD, subject="y", remedy="")]
    text = r"^preflight refused: policy all: refused text; mend policy all\n  y: refused text$"
    with pytest.raises(PreflightRefused, match=text):
        refuse(both)


@pytest.mark.parametrize(
    ("rounds", "stands"),
    [
        ([[]], False),
        ([[FINE]], False),
        ([[BLIND]], False),
        ([[CARE]], False),
        ([[BAD]], True),
        ([[BAD], [FINE]], False),
        ([[BAD], [BLIND]], True),
        ([[BAD], []], True),
        ([[BAD], [BLIND], [FINE]], False),
        ([[BAD], [FINE, BLIND]], True),
        # what could not be seen when it refused is not needed to see that it is over
        ([[BAD, BLIND], [FINE, BLIND]], False),
        ([[BAD, BLIND], [finding(Level.NOT_CHECKED, "all")]], True),
    ],
)
def test_what_could_not_be_looked_at_lifts_nothing(
    rounds: list[list[Finding]], stands: bool
) -> None:
    """Nor does it hold anything."""
    refusals = standing({}, [])
    for findings in rounds:
        refusals = standing(refusals, findings)
    assert list(refusals) == (["policies"] if stands else [])


def test_a_refusal_has_its_first_finding_and_the_number_of_the_others() -> None:
    """Each check stands for itself; the latest text counts."""
    before = standing({}, [BAD, finding(Level.REFUSED, "level 3", check="delay-entities")])
    found = standing(before, [BAD, finding(Level.REFUSED, "policy b")])
    assert list(found) == ["delay-entities", "policies"]
    assert found["delay-entities"] == before["delay-entities"]
    assert found["policies"].text == "policy all: refused text, and 1 more"
    assert found["policies"].remedy == "mend policy all"


# ── while it runs ───────────────────────────────────────────────────────────────────────────────


class Known:
    """A ledger that hands over, and what is remembered of it; an hour passes with each question."""

    def __init__(self) -> None:
        self.ledger = FakeHandOvers(["Billing"])
        times = (NOW + timedelta(hours=n) for n in range(9))
        self.known = KnownHandOvers(self.ledger, lambda: next(times))

    def names(self, due_in: timedelta = timedelta(0)) -> list[str]:
        """Return what is known to be due from then on."""
        return [str(each.destination) for each in self.known.handed_over(due_from=NOW + due_in)]

    @property
    def asked(self) -> list[Any]:
        """Since when the ledger was asked for hand-overs."""
        return [each["handed_over_from"] for each in self.ledger.asked]


def test_all_is_read_once_and_then_what_is_new() -> None:
    """With an overlap, because what was just written may not be seen yet; what is over is gone."""
    known = Known()
    assert known.names() == ["Billing"]
    known.ledger.names = ["Archive"]
    assert known.names() == ["Archive", "Billing"]
    assert known.asked == [None, NOW - timedelta(minutes=5)]
    known.ledger.names = []
    assert known.names(timedelta(seconds=1)) == []


def test_a_question_without_an_answer_is_asked_again() -> None:
    """What was handed over meanwhile is not left out."""
    known = Known()
    known.names()
    known.ledger.failure = LedgerError("away")
    with pytest.raises(LedgerError):
        known.names()
    known.ledger.failure = None
    known.names()
    assert known.asked == [None, NOW - timedelta(minutes=5)]


def test_what_was_called_back_needs_no_way() -> None:
    """Before a destination is told to be out of reach, the ledger is asked for all again."""
    known = Known()
    known.names()
    known.ledger.names = []
    broker = FakeBroker(bound=["Sales"], gone=["Billing"])
    (found,) = Rechecks(context(broker=broker), known.known).bindings()
    assert found.level is Level.OK
    assert known.asked[-1] is None


def test_what_refuses_one_endpoint_leaves_the_others_to_be_served() -> None:
    """All are refused by what is no endpoint's, or when each is refused by itself."""
    sales, shop = (replace(BAD, endpoint=name) for name in ("Sales", "Shop"))
    refuse_all([sales, FINE, CARE], ["Sales", "Shop"])
    assert refusals([sales, FINE, BAD]) == {"Sales": [sales], None: [BAD]}
    for findings, endpoints in (([sales, BAD], ["Sales", "Shop"]), ([shop, sales], ["Shop"])):
        with pytest.raises(PreflightRefused):
            refuse_all(findings, endpoints)


def test_a_table_that_is_gone_refuses_its_endpoint_and_the_others_are_checked() -> None:
    """What a check cannot ask of one is no gap in what it says of another."""
    asked = context(endpoint_names=("Sales", "Gone"), store=FakeStore(expected=SALES))
    found = run_checks(asked, only=["due-times", "endpoints", "rights"])
    assert {each.endpoint for each in found if each.level is Level.REFUSED} == {"Gone"}
    assert [each.check for each in found if each.level is Level.OK] == ["due-times", "rights"]


def test_a_locked_table_refuses_its_endpoint_with_what_to_do() -> None:
    """It may be free a moment later; nobody waits for it meanwhile."""
    locked = FakeStore(trial_claim=StoreLocked("waited too long for a lock"))
    (found,) = run_checks(context(store=locked), only=["rights"])
    assert (found.level, found.endpoint) == (Level.REFUSED, "Sales")
    assert "end it" in found.remedy
