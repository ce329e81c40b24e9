"""Tests of ``migrator.service.audit_log``: events reach the ledger in order, and nobody waits."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping

import pytest

from migrator.errors import StoreUnavailable
from migrator.service.audit_log import AuditLog

Lines = Callable[[str], list[logging.LogRecord]]


class Ledger:
    """Takes events when it is there."""

    def __init__(self) -> None:
        self.found: list[str] = []
        self.is_there = threading.Event()
        self.is_there.set()
        self.asked = threading.Event()

    def record(self, kind: str, *, detail: Mapping[str, object], batch: object) -> None:
        self.asked.set()
        if not self.is_there.is_set():
            raise StoreUnavailable("no ledger")
        if "bug" in detail:
            raise KeyError("a bug")
        self.found.append(f"{kind} {detail['n']}")


def log_to(ledger: Ledger) -> AuditLog:
    """Return a log that runs."""
    audit_log = AuditLog(ledger)  # type: ignore[arg-type]  # only what is asked
    audit_log.start()
    return audit_log


def test_events_are_written_in_order() -> None:
    """And whoever wants to know is told when one is."""
    ledger = Ledger()
    audit_log = log_to(ledger)
    notes = [audit_log.note("command", {"n": n}) for n in range(50)]
    assert notes[-1].written.wait(30)
    audit_log.end()
    assert ledger.found == [f"command {n}" for n in range(50)]


def test_a_ledger_that_is_away_gets_them_later(
    monkeypatch: pytest.MonkeyPatch, lines: Lines
) -> None:
    """It is told once, and whoever notes something does not wait."""
    monkeypatch.setattr("migrator.service.audit_log._AGAIN_S", 0.02)
    ledger = Ledger()
    ledger.is_there.clear()
    audit_log = log_to(ledger)
    first, second = (audit_log.note("hold", {"n": n}) for n in (1, 2))
    assert ledger.asked.wait(30)
    assert not first.written.wait(0.1)
    ledger.is_there.set()
    assert second.written.wait(30)
    audit_log.end()
    assert ledger.found == ["hold 1", "hold 2"]
    assert len(lines("audit_delayed")) == 1
    assert not lines("audit_lost")


def test_at_the_end_what_is_lost_is_said(monkeypatch: pytest.MonkeyPatch, lines: Lines) -> None:
    """The log has the events themselves."""
    monkeypatch.setattr("migrator.service.audit_log._AGAIN_S", 0.02)
    monkeypatch.setattr("migrator.service.audit_log._LAST_WAIT_S", 0.1)
    ledger = Ledger()
    ledger.is_there.clear()
    audit_log = log_to(ledger)
    audit_log.note("hold", {"n": 1})
    assert ledger.asked.wait(30)
    audit_log.end()
    (line,) = lines("audit_lost")
    assert vars(line)["count"] == 1


def test_a_bug_costs_one_event_only(lines: Lines) -> None:
    """The next is written."""
    ledger = Ledger()
    audit_log = log_to(ledger)
    audit_log.note("hold", {"bug": True})
    assert audit_log.note("hold", {"n": 2}).written.wait(30)
    audit_log.end()
    assert ledger.found == ["hold 2"]
    assert len(lines("audit_lost")) == 1
