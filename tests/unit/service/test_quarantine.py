"""Tests of ``migrator.service.control``: the quarantine of a running daemon."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import pytest

from migrator.errors import LedgerError
from migrator.ledger.report import QuarantinedRow, QuarantineFilter
from migrator.ledger.states import Mode
from migrator.nservicebus.timeouts import BatchId, EndpointName, TimeoutId
from migrator.service import control
from migrator.service.control import QuarantineService
from migrator.web.control import Answer, Retry

SALES = EndpointName("Sales")
ALL = Retry(endpoint=None, reason=None, timeout_id=None)


def row(key: int) -> QuarantinedRow:
    """Return a row of the quarantine."""
    return QuarantinedRow(
        key=key,
        endpoint=SALES,
        source="SalesTimeoutData",
        timeout_id=TimeoutId(f"t{key}"),
        batch=BatchId(1),
        destination="Billing",
        due_at=datetime(2031, 1, 1, tzinfo=UTC),
        body_bytes=10,
        reason="destination-unbound",
        detail="",
    )


class World:
    """A ledger that only remembers, and what is heard of it."""

    def __init__(self) -> None:
        self.asked: list[QuarantineFilter] = []
        self.error: Exception | None = None
        self.goes_on = threading.Event()
        self.goes_on.set()
        self.noted: list[tuple[str, Mapping[str, object]]] = []
        self.is_noted = threading.Event()
        self.woken = 0
        self.quarantine = self.claims = self.plan = self
        self.mode = Mode.STAGED
        app: Any = self
        audit_log: Any = self
        self.service = QuarantineService(app, audit_log, wake=self._wake)

    def page(self, which: QuarantineFilter, *, after: int, limit: int) -> Sequence[QuarantinedRow]:
        if self.error is not None:
            raise self.error
        self.asked.append(which)
        return [row(key) for key in range(1, 6) if key > after][:limit]

    def release_quarantined(self, _endpoint: None, which: QuarantineFilter) -> int:
        assert which.mode is Mode.DISPATCH
        return 2

    def retry(self, which: QuarantineFilter, *, mode: Mode) -> int:
        assert mode is self.mode
        self.asked.append(which)
        self.goes_on.wait(30)
        if self.error is not None:
            raise self.error
        return 3

    def note(self, kind: str, detail: Mapping[str, object]) -> None:
        self.noted.append((kind, detail))
        self.is_noted.set()

    def _wake(self) -> None:
        self.woken += 1


def test_pages_say_whether_more_follow() -> None:
    """Each goes on after the last key of the one before."""
    world, which = World(), QuarantineFilter(endpoint=SALES)
    first = world.service.page(which, after=0, limit=3)
    assert ([each.key for each in first.rows], first.has_more) == ([1, 2, 3], True)
    last = world.service.page(which, after=3, limit=3)
    assert ([each.key for each in last.rows], last.has_more) == ([4, 5], False)
    assert world.asked == [which, which]


def test_a_ledger_that_does_not_answer_is_told() -> None:
    """Instead of an empty page."""
    world = World()
    world.error = LedgerError("reading the quarantine: gone")
    assert world.service.page(QuarantineFilter(), after=0, limit=3).trouble == str(world.error)


def test_rows_are_tried_again() -> None:
    """Lanes look for them at once, and the audit trail says how many they were."""
    world = World()
    wish = Retry(endpoint=SALES, reason="destination-unbound", timeout_id=TimeoutId("t1"))
    found = world.service.retry(wish)
    assert found == Answer(is_done=True, text="5 rows of the quarantine tried again")
    assert world.is_noted.wait(30)
    ((kind, detail),) = world.noted
    assert kind == "quarantine_retried"
    assert detail == {"endpoint": SALES, "reason": "destination-unbound", "id": "t1", "rows": 5}
    assert world.woken == 1


def test_many_rows_keep_nobody_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever asked is told so; a second wish is refused until the first is over."""
    monkeypatch.setattr(control, "_RETRY_PATIENCE_S", 0.05)
    world = World()
    world.goes_on.clear()
    assert "being tried again" in world.service.retry(ALL).text
    second = world.service.retry(ALL)
    assert (second.is_done, "nothing was begun" in second.text) == (False, True)
    world.goes_on.set()
    assert world.is_noted.wait(30)
    assert world.asked == [QuarantineFilter()]


@pytest.mark.parametrize("error", [LedgerError("gone"), RuntimeError("a bug")])
def test_what_fails_is_told_and_the_next_wish_is_heard(error: Exception) -> None:
    """Rows are moved in steps, so some may have been tried again."""
    world = World()
    world.error = error
    assert not world.service.retry(ALL).is_done
    world.error = None
    assert world.service.retry(ALL).is_done
    assert world.is_noted.wait(30)
    assert len(world.noted) == 1
