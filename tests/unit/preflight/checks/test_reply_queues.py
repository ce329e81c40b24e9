"""Tests of ``migrator.preflight.checks.reply_queues``."""

from __future__ import annotations

from migrator.preflight.checks.reply_queues import check
from migrator.preflight.findings import Level
from migrator.preflight.ports import QueueProbe
from tests.unit.preflight.checks.fakes import FakeBroker, levels, preview

PROBE = QueueProbe(messages=0, consumers=1)


def test_queues_of_replies_that_are_gone_are_warned_of() -> None:
    """One finding each, most rows first, with the rows of all endpoints."""
    rows = [preview(reply_queues={"Web.OLD1": 2, "Sales": 5}), preview(reply_queues={"Web": 3})]
    first, second = check(FakeBroker(probes={"Sales": PROBE}), rows)
    assert (first.level, first.subject, second.subject) == (Level.WARNING, "Web", "Web.OLD1")
    assert first.text.startswith("3 rows")


def test_no_more_than_twenty_are_named() -> None:
    """Each old machine may have had one."""
    *named, last = check(FakeBroker(), [preview(reply_queues={f"Web.{n}": 1 for n in range(25)})])
    assert len(named) == 20
    assert last.text == "5 more of these queues are gone, of 5 rows"


def test_nothing_to_warn_of() -> None:
    """They exist, or there are none; what was not looked at is not fine."""
    broker = FakeBroker(probes={"Sales": PROBE})
    assert levels(list(check(broker, [preview(reply_queues={"Sales": 1})]))) == [Level.OK]
    assert levels(list(check(broker, []))) == [Level.OK]
    assert levels(list(check(broker, None))) == [Level.NOT_CHECKED]
