"""Tests of ``migrator.service.audit_log``: events reach the ledger in order, and nobody waits."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import pytest

from migrator.service import audit_log as module
from migrator.service.audit_log import AuditLog
from tests.unit.service.conftest import Events, Lines


@pytest.fixture
def ledger() -> Events:
    """One that is there."""
    return Events()


@pytest.fixture
def audit_log(ledger: Events, monkeypatch: pytest.MonkeyPatch) -> Iterator[AuditLog]:
    """A log that runs."""
    monkeypatch.setattr(module, "_AGAIN_S", 0.02)
    made = AuditLog(ledger)  # type: ignore[arg-type]  # only what is asked
    made.start()
    yield made
    made.end()


def test_a_ledger_that_is_away_gets_events_later_in_order(
    audit_log: AuditLog, ledger: Events, lines: Lines
) -> None:
    """It is told once, and whoever notes something does not wait."""
    ledger.is_there.clear()
    notes = [audit_log.note("hold", {"n": n}) for n in range(50)]
    assert not notes[0].written.wait(0.1)
    ledger.is_there.set()
    assert notes[-1].written.wait(30)
    assert ledger.of("hold") == [{"n": n} for n in range(50)]
    assert (len(lines("audit_delayed")), lines("audit_lost")) == (1, [])


def test_at_the_end_what_is_lost_is_said(
    audit_log: AuditLog, ledger: Events, monkeypatch: pytest.MonkeyPatch, lines: Lines
) -> None:
    """The log has the events themselves."""
    monkeypatch.setattr(module, "_LAST_WAIT_S", 0.1)
    ledger.is_there.clear()
    audit_log.note("hold", {"n": 1})
    audit_log.end()
    assert vars(lines("audit_lost")[0])["count"] == 1


def test_a_bug_costs_one_event_only(
    audit_log: AuditLog, ledger: Events, monkeypatch: pytest.MonkeyPatch, lines: Lines
) -> None:
    """The next is written."""
    note = ledger.note

    def noting(kind: str, detail: Mapping[str, object]) -> None:
        if not detail:
            raise KeyError
        note(kind, detail)

    monkeypatch.setattr(ledger, "note", noting)
    audit_log.note("hold", {})
    assert audit_log.note("hold", {"n": 2}).written.wait(30)
    assert (ledger.of("hold"), len(lines("audit_lost"))) == ([{"n": 2}], 1)
