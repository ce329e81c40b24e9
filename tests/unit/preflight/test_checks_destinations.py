"""Tests of ``migrator.preflight.checks_destinations``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any

import pytest

from migrator.errors import NotChecked
from migrator.nservicebus.timeouts import QueueName
from migrator.preflight.context import DISPATCH
from migrator.preflight.findings import Finding, Level
from migrator.stores.endpoints import EndpointPreview
from tests.unit.preflight.fakes import NO_API, FakeBroker, found, levels, preview, queue

BOTH = {"Sales": queue(1), "Billing": queue(1)}
ROWS = [preview(destinations={"Sales": 5}), preview(destinations={"Sales": 1, "Billing": 2})]


@pytest.mark.parametrize("check", ["destinations", "suffix-collisions", "reply-queues"])
def test_without_rows_nobody_knows_the_destinations(check: str) -> None:
    """That is not the same as fine."""
    assert levels(found(check, previews=None)) == [Level.NOT_CHECKED]


# ── destinations ────────────────────────────────────────────────────────────────────────────────


def test_bound_destinations_are_fine() -> None:
    """Each is a finding, with the rows of all endpoints."""
    names = frozenset({QueueName("Sales"), QueueName("Billing")})
    billing, sales = found("destinations", FakeBroker(probes=BOTH, bound=names), previews=ROWS)
    assert (billing.level, sales.level) == (Level.OK, Level.OK)
    assert sales.text == "6 rows; bound to the delays"


@pytest.mark.parametrize(
    ("may_bind", "expected", "text"),
    [(True, Level.OK, "run binds it"), (False, Level.WARNING, "rows stay in the store")],
)
def test_unbound_destinations_are_bound_unless_that_is_forbidden(
    may_bind: bool, expected: Level, text: str
) -> None:
    """Then their rows wait in the store."""
    findings = found("destinations", FakeBroker(probes=BOTH), previews=ROWS, may_bind=may_bind)
    assert {f.level for f in findings} == {expected}
    assert all(text in f.text for f in findings)


def test_rows_for_an_unknown_destination_wait() -> None:
    """Not refused as long as others of the endpoint exist: nothing is lost, and they go on."""
    rows = [preview(destinations={"Sales": 1, "Billing": 2})]
    billing, _ = found("destinations", FakeBroker(probes={"Sales": queue()}), previews=rows)
    assert billing.level is Level.WARNING
    assert billing.text == "it has no queue: 2 rows stay in the store until it has"


def test_an_endpoint_without_any_destination_is_in_the_wrong_virtual_host() -> None:
    """Refused, naming it; unless an earlier run saw what is missing now beside what was there."""
    broker = FakeBroker(probes={"Billing": queue()}, bound=frozenset({QueueName("Billing")}))
    refused, *_ = found("destinations", broker, previews=ROWS, vhost="shop")
    assert (refused.level, refused.subject) == (Level.REFUSED, "Sales")
    assert refused.text == "virtual host 'shop' has a queue for none of its 1 destinations: Sales"
    assert "broker.url" in refused.remedy
    known = found("destinations", broker, previews=ROWS, held={QueueName("Sales")})
    assert Level.REFUSED not in levels(known)
    assert found("destinations", broker, previews=[preview(destinations={})]) == []


def test_bindings_that_nobody_saw_are_not_fine() -> None:
    """The queue exists; more is not known without the management API."""
    broker = FakeBroker(probes=BOTH, bound=NO_API)
    assert levels(found("destinations", broker, previews=ROWS)) == [Level.NOT_CHECKED] * 2


def test_rows_that_are_sent_when_due_need_no_binding() -> None:
    """They never enter the delays; those that cannot be sent wait, and the others go on."""
    broker = FakeBroker(probes={"Sales": queue()}, bound=NO_API)
    rows = [preview(destinations={"Sales": 4, "Gone": 3})]
    gone, sales = found(
        "destinations", broker, previews=rows, modes={"Sales": DISPATCH}, may_bind=False
    )
    assert (sales.level, sales.text) == (Level.OK, "4 rows; sent to it when due")
    assert (gone.subject, gone.level) == ("Gone", Level.WARNING)
    assert gone.text == "it has no queue: 3 rows would wait until it has"


# ── replies ─────────────────────────────────────────────────────────────────────────────────────


def test_queues_of_replies_that_are_gone_are_warned_of() -> None:
    """One finding each, most rows first, with the rows of all endpoints."""
    rows = [preview(reply_queues={"Web.OLD1": 2, "Sales": 5}), preview(reply_queues={"Web": 3})]
    first, second = found("reply-queues", FakeBroker(probes=BOTH), previews=rows)
    assert (first.level, first.subject, second.subject) == (Level.WARNING, "Web", "Web.OLD1")
    assert first.text.startswith("3 rows")


def test_no_more_than_twenty_are_named() -> None:
    """Each old machine may have had one."""
    rows = [preview(reply_queues={f"Web.{n}": 1 for n in range(25)})]
    *named, last = found("reply-queues", previews=rows)
    assert len(named) == 20
    assert last.text == "5 more of these queues are gone, of 5 rows"


@pytest.mark.parametrize("rows", [[preview(reply_queues={"Sales": 1})], []])
def test_queues_of_replies_that_exist_are_fine(rows: Sequence[EndpointPreview]) -> None:
    """Also when there are none."""
    assert levels(found("reply-queues", FakeBroker(probes=BOTH), previews=rows)) == [Level.OK]


# ── names that catch others' messages ───────────────────────────────────────────────────────────


def collisions(
    *destinations: str, bound: Sequence[str] | NotChecked = (), is_accepted: bool = False
) -> list[Finding]:
    """Return what the check finds about *destinations*."""
    names = bound if isinstance(bound, NotChecked) else frozenset(map(QueueName, bound))
    rows = [preview(destinations=dict.fromkeys(destinations, 1))]
    broker = FakeBroker(bound=names)
    check = "suffix-collisions"
    return found(check, broker, previews=rows, accepts_suffix_collisions=is_accepted)


def test_distinct_names_are_fine() -> None:
    """Collisions of others are none of ours: we send nothing there."""
    assert levels(collisions("Sales", "Billing")) == [Level.OK]
    assert levels(collisions("Sales", bound=["A.B", "B", "X.Sales"])) == [Level.OK]


@pytest.mark.parametrize(
    ("destinations", "bound"), [(["Sales", "My.Sales"], []), (["My.Sales"], ["Sales"])]
)
def test_a_message_that_would_reach_a_second_destination_is_refused(
    destinations: list[str], bound: list[str]
) -> None:
    """The finding is about the one whose messages are doubled, whoever has bound the other."""
    (finding,) = collisions(*destinations, bound=bound)
    assert (finding.level, finding.subject) == (Level.REFUSED, "My.Sales")
    assert finding.text == "messages for it also reach Sales"
    assert levels(collisions(*destinations, bound=bound, is_accepted=True)) == [Level.WARNING]


def test_without_the_management_api_only_known_names_are_compared() -> None:
    """And that is said."""
    found = collisions("Sales", "My.Sales", bound=NO_API)
    assert levels(found) == [Level.NOT_CHECKED, Level.REFUSED]
    assert levels(collisions("Sales", bound=NO_API)) == [Level.NOT_CHECKED, Level.OK]


# ── rows that nobody sends ──────────────────────────────────────────────────────────────────────


def unattended(
    previews: Sequence[EndpointPreview] | None,
    consumers: Mapping[str, int] | None = None,
    **chosen: Any,
) -> Finding:
    """Return the one finding; *consumers* by endpoint of its dispatcher queue."""
    probes = {f"{name}.TimeoutsDispatcher": queue(n) for name, n in (consumers or {}).items()}
    chosen = {"cutoff": timedelta(minutes=1), **chosen}
    (finding,) = found("unattended-rows", FakeBroker(probes=probes), previews=previews, **chosen)
    return finding


LEFT = preview(left=5)


def test_a_running_timeout_manager_sends_what_is_left() -> None:
    """Its dispatcher queue has a consumer; a discovered table shows dots as underscores."""
    finding = unattended([LEFT], {"Sales": 1})
    assert finding.level is Level.OK
    assert "5 rows" in finding.text
    dotted = preview(left=1, endpoint="Sales_Orders")
    assert unattended([dotted], {"Sales.Orders": 2}).level is Level.OK


@pytest.mark.parametrize("consumers", [{}, {"Sales": 0}])
def test_rows_that_nobody_will_send_are_warned_of(consumers: dict[str, int]) -> None:
    """They are not lost, but they lie there for ever."""
    finding = unattended([LEFT], consumers)
    assert finding.level is Level.WARNING
    assert "5 rows are overdue or due soon" in finding.text
    assert "--cutoff 0s" in finding.remedy


def test_the_danger_is_told_before_there_are_such_rows() -> None:
    """They would come whenever migrator is down for longer than the cutoff."""
    finding = unattended([preview(destinations={"Sales": 1})])
    assert finding.level is Level.WARNING
    assert "while migrator is down" in finding.text


@pytest.mark.parametrize(
    ("previews", "chosen", "expected"),
    [
        ([LEFT], {"cutoff": timedelta(0)}, Level.OK),
        ([LEFT], {"sends_near_due": True}, Level.OK),
        (None, {"sends_near_due": True}, Level.OK),
        ([], {}, Level.OK),  # no chosen endpoint is migrated
        (None, {}, Level.NOT_CHECKED),
    ],
)
def test_rows_that_migrator_itself_sends_are_attended(
    previews: Sequence[EndpointPreview] | None, chosen: dict[str, Any], expected: Level
) -> None:
    """No timeout manager is looked for; without rows nobody can tell."""
    assert unattended(previews, **chosen).level is expected


def test_the_timeout_manager_is_looked_for_at_the_endpoints_queue() -> None:
    """Which may have another name than the endpoint."""
    assert unattended([LEFT], {"In": 1}, queues={"Sales": "In"}).level is Level.OK
    finding = unattended([LEFT], {"In": 1}, queues={"Sales": "Out"})
    assert "nobody consumes Out.TimeoutsDispatcher" in finding.text
