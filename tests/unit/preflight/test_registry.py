"""Tests of ``migrator.preflight.registry``."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from migrator.delays.routing import DelaysVersion
from migrator.errors import LedgerMissing, PreflightRefused, StoreUnavailable, TargetUnavailable
from migrator.nservicebus.timeouts import EndpointName, QueueName
from migrator.preflight.broker import DelayEntities
from migrator.preflight.context import DISPATCH, FORWARD, Context
from migrator.preflight.findings import Finding, Level, verdict
from migrator.preflight.registry import (
    CHECKS,
    DELAY_CHECKS,
    UNREACHABLE,
    check_delays,
    refuse,
    run_checks,
)
from tests.unit.preflight.fakes import (
    RETRY,
    SALES,
    SATELLITES,
    FakeBroker,
    FakeLedger,
    FakeStore,
    context,
    delays_context,
    preview,
    queue,
)


def test_checks_run_in_the_order_of_their_names() -> None:
    """So that the first complaint stays the same; those that are in both tables are the same."""
    assert list(CHECKS) == sorted(CHECKS)
    assert list(DELAY_CHECKS) == sorted(DELAY_CHECKS)
    assert CHECKS.keys() >= UNREACHABLE
    assert DELAY_CHECKS.keys() - CHECKS.keys() == {"bound-names", "frozen-levels", "ways-out"}
    assert all(CHECKS[name] is DELAY_CHECKS[name] for name in CHECKS.keys() & DELAY_CHECKS.keys())


def test_when_all_is_well_every_check_says_so() -> None:
    """None is silent, and each is heard under its name."""
    found = run_checks(context())
    assert verdict(found) is Level.OK
    assert [f.check for f in found if f.check != "destinations"] == [
        name for name in sorted(CHECKS) if name != "destinations"
    ]


def dispatching(broker: FakeBroker | None = None, *, mode: str = DISPATCH) -> Context:
    """Return a context in which one endpoint is dispatched or forwarded."""
    return context(
        broker=broker or FakeBroker(),
        previews=[preview(destinations={"Billing": 2}, left=3)],
        modes={"Sales": mode},
        satellites=(SATELLITES,),
        cutoff=timedelta(minutes=1),
    )


def healthy() -> FakeBroker:
    """Return a broker with the queues of a timeout manager."""
    names = ("Sales.Timeouts", "Sales.TimeoutsDispatcher", "error", "Billing")
    return FakeBroker(probes={name: queue() for name in names})


def test_a_dispatcher_alone_needs_no_native_delays() -> None:
    """Whatever is wrong with them, and with staging, is no concern of its endpoint."""
    broker = healthy()
    broker.entities = DelayEntities(missing=("queue x",), different={}, not_checked=())
    broker.hanging = {3: 40}
    broker.forbidden = {"migrator.staging.a1.0": "access refused"}
    broker.bound = frozenset({QueueName("Invoices.Billing")})
    found = run_checks(dispatching(broker))
    assert [f for f in found if f.level is not Level.OK] == []
    assert broker.policies_asked == [RETRY, "Sales.Timeouts", "Sales.TimeoutsDispatcher"]
    assert {f.check for f in found} == set(CHECKS)


def test_forwarding_needs_the_native_delays_and_staging() -> None:
    """New messages enter the delays, and stored rows are moved into them."""
    broker = healthy()
    broker.entities = DelayEntities(missing=("queue x",), different={}, not_checked=())
    broker.forbidden = {"migrator.staging.a1.0": "access refused"}
    found = run_checks(dispatching(broker, mode=FORWARD))
    refused = [f.check for f in found if f.level is Level.REFUSED]
    assert refused == ["broker-rights", "delay-entities"]
    assert len(broker.policies_asked) == 31 + 2


def test_a_dispatcher_needs_a_broker_that_can_hold_retries() -> None:
    """And the right to make the queues in which they wait."""
    broker = healthy()
    broker.version = (3, 9, 29)
    broker.forbidden = {RETRY: "access refused"}
    refused = [f for f in run_checks(dispatching(broker)) if f.level is Level.REFUSED]
    assert [f.check for f in refused] == ["broker-rights", "broker-version"]
    assert all("dispatch.retry_delays = []" in f.remedy for f in refused)


def test_one_endpoint_that_is_migrated_needs_everything() -> None:
    """Beside others that are dispatched."""
    broker = healthy()
    broker.entities = DelayEntities(missing=("queue x",), different={}, not_checked=())
    billing = replace(SALES, name=EndpointName("Billing"))
    both = replace(
        dispatching(broker),
        endpoint_names=("Sales", "Billing"),
        store=FakeStore(found=(SALES, billing)),
    )
    refused = [f.check for f in run_checks(both) if f.level is Level.REFUSED]
    assert refused == ["delay-entities"]


def test_checks_that_cannot_ask_are_not_checked() -> None:
    """A broker that is gone is refused once; everything else about it is unknown."""
    broker = FakeBroker(failure=TargetUnavailable("it is gone"))
    found = run_checks(context(broker=broker, previews=[preview(destinations={"Sales": 1})]))
    refused = [f.check for f in found if f.level is Level.REFUSED]
    unknown = {f.check for f in found if f.level is Level.NOT_CHECKED}
    assert refused == ["broker-reachable"]
    assert {"broker-alarms", "policies", "destinations", "vendor-run"} <= unknown
    assert all(f.text == "it is gone" for f in found if f.check in unknown)


def test_a_store_that_is_gone_is_refused_once() -> None:
    """Checks of the broker go on."""
    found = run_checks(context(store=FakeStore(failure=StoreUnavailable("gone")), previews=None))
    assert [f.check for f in found if f.level is Level.REFUSED] == ["store-reachable"]
    assert any(f.check == "broker-version" and f.level is Level.OK for f in found)


def test_only_the_named_checks_run() -> None:
    """In the order of their names all the same."""
    found = run_checks(context(), only=["vendor-run", "ledger"])
    assert [f.check for f in found] == ["ledger", "vendor-run"]


def test_a_refusal_raised_on_the_way_is_a_refusal() -> None:
    """Whichever check meets it."""
    broken = context(ledger=FakeLedger(LedgerMissing("no ledger")))
    (found,) = run_checks(broken, only=["ledger"])
    assert found.level is Level.REFUSED

    class Refusing(FakeStore):
        def unfinished_vendor_runs(self) -> list[str]:
            raise LedgerMissing("no ledger")

    (found,) = run_checks(context(store=Refusing()), only=["vendor-run"])
    assert (found.level, found.text) == (Level.REFUSED, "no ledger")


def test_an_unknown_endpoint_is_refused_once() -> None:
    """By the check that looks for endpoints; others just cannot look."""
    found = run_checks(replace(context(), endpoint_names=("Nobody",)))
    assert [f.check for f in found if f.level is Level.REFUSED] == ["endpoints"]
    (rights,) = [f for f in found if f.check == "rights"]
    assert rights.level is Level.NOT_CHECKED


def _finding(level: Level, remedy: str = "") -> Finding:
    return Finding(check="c", level=level, subject="s", text="t", remedy=remedy)


def test_anything_but_a_refusal_lets_through() -> None:
    """Warnings and gaps are told, not obeyed."""
    refuse([_finding(Level.OK), _finding(Level.WARNING), _finding(Level.NOT_CHECKED)])


def test_refusals_are_raised_together() -> None:
    """Each with its remedy."""
    with pytest.raises(PreflightRefused, match=r"^preflight refused: s: t; do it\n  s: t$"):
        refuse([_finding(Level.REFUSED, "do it"), _finding(Level.REFUSED)])


# ── the checks of the delays ────────────────────────────────────────────────────────────────────


def test_when_the_delays_are_well_every_check_says_so() -> None:
    """In the order of their names."""
    found = check_delays(delays_context())
    assert verdict(found) is Level.OK
    assert [finding.check for finding in found] == list(DELAY_CHECKS)


def test_policies_of_the_levels_alone_are_looked_at() -> None:
    """Of the generation that was asked for."""
    broker = FakeBroker()
    check_delays(delays_context(broker, version=DelaysVersion.V1))
    assert broker.policies_asked == [f"nsb.delay-level-{level:02d}" for level in range(28)]


def test_of_a_broker_that_is_gone_nothing_else_is_known() -> None:
    """It is refused once."""
    found = check_delays(delays_context(FakeBroker(failure=TargetUnavailable("gone"))))
    assert [f.check for f in found if f.level is Level.REFUSED] == ["broker-reachable"]
    assert {f.level for f in found} == {Level.REFUSED, Level.NOT_CHECKED}
