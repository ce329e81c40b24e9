"""Tests of ``migrator.preflight.checks_store``."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from migrator.delays.routing import DelaysVersion
from migrator.errors import (
    DatabaseFailedOver,
    LedgerCloned,
    LedgerMissing,
    NotChecked,
    PreflightRefused,
    StoreError,
    StoreUnavailable,
    TargetUnavailable,
)
from migrator.ledger.report import OpenCommit
from migrator.nservicebus.timeouts import BatchId, Lane
from migrator.preflight.checks_store import STAGING_QUEUE, vendor_run
from migrator.preflight.context import DISPATCH
from migrator.preflight.findings import Level
from migrator.stores.endpoints import Quarantinable
from migrator.stores.ports import DueTime, StoreRemark
from tests.unit.preflight.fakes import (
    NOW,
    SALES,
    FakeBroker,
    FakeClock,
    FakeLedger,
    FakeStore,
    context,
    found,
    levels,
    preview,
    queue,
)


@pytest.mark.parametrize(
    ("skew_s", "expected", "text"),
    [
        (0.0, Level.OK, "0.0 s behind"),
        (1.9, Level.OK, "1.9 s ahead of"),
        (-1.9, Level.OK, "1.9 s behind"),
        (2.0, Level.WARNING, "2.0 s ahead of"),
        (-60.0, Level.WARNING, "60.0 s behind"),
        (61.0, Level.REFUSED, "61.0 s ahead of"),
        (-7200.0, Level.REFUSED, "7200.0 s behind"),
    ],
)
def test_two_seconds_are_told_and_a_minute_is_refused(
    skew_s: float, expected: Level, text: str
) -> None:
    """In either direction."""
    (finding,) = found("clock-skew", clock=FakeClock(NOW + timedelta(seconds=skew_s)))
    assert finding.level is expected
    assert text in finding.text


@pytest.mark.parametrize(
    ("hours", "expected", "text"),
    [
        ([], Level.OK, "no row tells of its zone"),
        ([0] * 5, Level.OK, "5 sampled rows are due when"),
        ([1] * 5, Level.REFUSED, "of 5 sampled rows, 5 have a due time +1 h"),
        ([0] * 9 + [1], Level.WARNING, "of 10 sampled rows, 1 have"),
    ],
)
def test_a_sample_of_each_endpoint_is_judged(hours: list[int], expected: Level, text: str) -> None:
    """Refused, told, or fine, under the place of its rows."""
    moved = [NOW + timedelta(hours=each) for each in hours]
    store = FakeStore(due=[DueTime(stored=at, due_at=at, expires_at=NOW) for at in moved])
    (finding,) = found("due-times", store=store)
    assert (finding.level, finding.subject) == (expected, SALES.source)
    assert text in finding.text
    assert bool(finding.remedy) is (expected is Level.REFUSED)


# ── endpoints ───────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("names", [["Sales"], []])
def test_endpoints_that_exist_are_fine(names: list[str]) -> None:
    """It tells which the store has; without names all of them are meant."""
    (finding,) = found("endpoints", endpoint_names=names)
    assert (finding.level, finding.text) == (Level.OK, "it has timeouts of Sales")


def test_a_store_without_any_table_is_refused() -> None:
    """It is probably the wrong database or schema."""
    (finding,) = found("endpoints", store=FakeStore(found=()))
    assert finding.level is Level.REFUSED
    assert "store.schema" in finding.remedy


def test_each_unknown_endpoint_is_refused() -> None:
    """With the names there are."""
    findings = found("endpoints", endpoint_names=["Nobody", "Sales", "Else"])
    assert levels(findings) == [Level.REFUSED, Level.REFUSED]
    assert [f.subject for f in findings] == ["Nobody", "Else"]
    assert "it has: Sales" in findings[0].text


# ── the ledger ──────────────────────────────────────────────────────────────────────────────────


def test_a_fit_ledger_is_fine() -> None:
    """With its id."""
    (finding,) = found("ledger")
    assert (finding.level, finding.text) == (Level.OK, "ledger a1, version 0001")


def test_a_database_that_forgets_is_warned_of() -> None:
    """It keeps nobody from migrating, and breaks the promise when its machine fails."""
    fine, finding = found("ledger", ledger=FakeLedger(forgetting="some setting is 2"))
    assert (fine.level, finding.level) == (Level.OK, Level.WARNING)
    assert finding.text.startswith("some setting is 2")


def test_a_standby_that_may_be_behind_is_warned_of() -> None:
    """Where the server hides it, that is said."""
    _, finding = found("ledger", ledger=FakeLedger(behind=["walreceiver"]))
    assert finding.level is Level.WARNING
    assert finding.text.startswith("walreceiver asynchronous")
    _, finding = found("ledger", ledger=FakeLedger(behind=NotChecked(reason="hidden")))
    assert (finding.level, finding.text) == (Level.NOT_CHECKED, "hidden")


@pytest.mark.parametrize(
    ("failure", "remedy"),
    [
        (LedgerMissing("no ledger"), "migrator db upgrade"),
        (LedgerCloned("of another database"), "migrator db adopt"),
        (DatabaseFailedOver("another server"), "migrator db adopt --after-failover"),
    ],
)
def test_ledgers_that_do_not_fit_are_refused(failure: PreflightRefused, remedy: str) -> None:
    """Each with its own way out."""
    (finding,) = found("ledger", ledger=FakeLedger(failure))
    assert (finding.level, finding.text) == (Level.REFUSED, str(failure))
    assert finding.remedy.startswith(remedy)


def test_batches_that_only_other_delays_can_settle_are_refused() -> None:
    """Whoever moves nothing into any delays does not mind."""
    commits = [OpenCommit(batch=BatchId(7), lane=Lane(0), delays="v2")]
    _, finding = found("ledger", version=DelaysVersion.V1, other_commits=commits)
    assert (finding.level, finding.subject) == (Level.REFUSED, "batches in committing: 7")
    assert "migrator run --delays v2 --once" in finding.remedy
    alone = found(
        "ledger", other_commits=commits, endpoint_names=["Sales"], modes={"Sales": DISPATCH}
    )
    assert levels(alone) == [Level.OK]


# ── tables and rights ───────────────────────────────────────────────────────────────────────────


def test_what_the_store_remarks_is_a_warning() -> None:
    """It costs time or leaves rows behind, and nobody is kept from migrating."""
    assert levels(found("legacy-table", previews=None)) == [Level.OK]
    remark = StoreRemark(subject="public.x", text="no index", remedy="make one")
    (finding,) = found("legacy-table", store=FakeStore(remarked=[remark]))
    assert (finding.level, finding.subject) == (Level.WARNING, "public.x")
    assert (finding.text, finding.remedy) == ("no index", "make one")


def test_what_nobody_can_claim_is_a_warning() -> None:
    """With the reason and an id; it stays, and is never passed over in silence."""
    flawed = {"its due time cannot be read": Quarantinable(count=2, examples=["x-1"])}
    _, finding = found("legacy-table", previews=[replace(preview(), unclaimable=flawed)])
    assert (finding.level, finding.subject) == (Level.WARNING, "Sales")
    assert finding.text == "2 timeouts are never claimed, its due time cannot be read; such as x-1"


def test_a_trial_claim_proves_the_rights() -> None:
    """Per endpoint; a missing one is refused with the way to grant it."""
    (fine,) = found("rights")
    assert (fine.level, fine.subject) == (Level.OK, SALES.source)
    (finding,) = found("rights", store=FakeStore(claim_failure=StoreError("no DELETE on it")))
    assert (finding.level, finding.text) == (Level.REFUSED, "no DELETE on it")
    assert "migrator db grants" in finding.remedy
    with pytest.raises(StoreUnavailable):  # which the registry makes a finding
        found("rights", store=FakeStore(claim_failure=StoreUnavailable("gone")))


@pytest.mark.parametrize(
    ("failure", "expected", "text"),
    [
        (None, Level.OK, "memory; it answers"),
        (StoreUnavailable("timed out"), Level.REFUSED, "cannot be reached: timed out"),
        (StoreError("wrong password"), Level.REFUSED, "refuses: wrong password"),
    ],
)
def test_network_and_refusal_are_different_findings(
    failure: StoreError | None, expected: Level, text: str
) -> None:
    """A person does different things about them."""
    (finding,) = found("store-reachable", store=FakeStore(found=(), failure=failure))
    assert finding.level is expected
    assert text in finding.text


# ── the vendor's tool ───────────────────────────────────────────────────────────────────────────


def test_traces_of_the_vendors_tool_are_refused() -> None:
    """In store or broker; even an empty staging queue belongs to a run."""
    assert levels(found("vendor-run")) == [Level.OK]
    broker = FakeBroker(probes={STAGING_QUEUE: queue()})
    findings = found("vendor-run", broker, store=FakeStore(vendor_runs=["a run of 2024"]))
    assert levels(findings) == [Level.REFUSED, Level.REFUSED]
    assert (findings[0].text, findings[1].subject) == ("a run of 2024", STAGING_QUEUE)


def test_what_the_store_says_is_told_though_the_broker_is_gone() -> None:
    """It comes first."""
    gone = FakeBroker(failure=TargetUnavailable("gone"))
    findings = vendor_run(context(store=FakeStore(vendor_runs=["x"]), broker=gone))
    assert next(findings).level is Level.REFUSED
    with pytest.raises(TargetUnavailable):
        next(findings)
