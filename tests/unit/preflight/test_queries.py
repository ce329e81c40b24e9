"""Tests of ``migrator.preflight.queries``."""

from __future__ import annotations

from datetime import timedelta

import pytest

from migrator.errors import LedgerError
from migrator.nservicebus.timeouts import QueueName
from migrator.preflight.findings import Level
from migrator.preflight.queries import KnownHandOvers
from migrator.preflight.registry import Rechecks
from tests.unit.preflight.fakes import NOW, FakeBroker, FakeHandOvers, context, no_binding

FIVE_MINUTES = timedelta(minutes=5)


def names(known: KnownHandOvers) -> list[str]:
    """Return what is known to be due from now on."""
    return [str(each.destination) for each in known.handed_over(due_from=NOW)]


def test_all_is_read_once_and_then_what_is_new() -> None:
    """With an overlap, because what was just written may not be seen yet."""
    ledger = FakeHandOvers(["Billing"])
    known = KnownHandOvers(ledger, lambda: NOW)
    assert names(known) == ["Billing"]
    ledger.names = ["Archive"]
    assert names(known) == ["Archive", "Billing"]
    assert ledger.since == [None, NOW - FIVE_MINUTES]


def test_a_question_without_an_answer_is_asked_again() -> None:
    """What was handed over meanwhile is not left out."""
    ledger = FakeHandOvers(["Billing"])
    times = iter([NOW, NOW + timedelta(hours=1), NOW + timedelta(hours=2)])
    known = KnownHandOvers(ledger, lambda: next(times))
    names(known)
    ledger.failure = LedgerError("away")
    with pytest.raises(LedgerError):
        names(known)
    ledger.failure = None
    names(known)
    assert ledger.since == [None, NOW - FIVE_MINUTES]


def test_what_is_over_is_forgotten() -> None:
    """Nobody waits for it any more, so memory does not grow."""
    ledger = FakeHandOvers(["Billing"])
    known = KnownHandOvers(ledger, lambda: NOW)
    names(known)
    ledger.names = []
    assert list(known.handed_over(due_from=NOW + timedelta(seconds=1))) == []


def test_what_was_called_back_needs_no_way() -> None:
    """Before a destination is told to be out of reach, the ledger is asked for all again."""
    ledger = FakeHandOvers(["Gone"])
    known = KnownHandOvers(ledger, lambda: NOW)
    names(known)
    ledger.names = []
    broker = FakeBroker(bound=frozenset({QueueName("Sales")}), closed=[no_binding("Gone")])
    (finding,) = Rechecks(context(broker=broker), known, tuple).ways()
    assert finding.level is Level.OK
    assert ledger.since[-1] is None
