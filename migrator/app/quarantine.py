"""What ``migrator quarantine`` works with."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from migrator.app.ledger import Ledger, open_ledger
from migrator.app.values import fault_point
from migrator.ledger.states import Mode
from migrator.quarantine import decisions
from migrator.quarantine.decisions import QuarantineDecision
from migrator.quarantine.rows import SqlQuarantine

if TYPE_CHECKING:
    from migrator.config import Settings
    from migrator.ledger.report import QuarantineFilter


class QuarantineParts:
    """The quarantine of a ledger; the store is opened when rows go back to it."""

    def __init__(self, settings: Settings, ledger: Ledger) -> None:
        self._settings = settings
        self._ledger = ledger
        self.rows = SqlQuarantine(ledger.engine, ledger.tables)

    def retry(self, which: QuarantineFilter) -> QuarantineDecision:
        """Try rows again, and record that."""
        from migrator.app.stores import open_backend

        mode = Mode(self._settings.handover.mode)
        with open_backend(self._settings, self._ledger, fault_point()) as backend:
            done = decisions.retry(self.rows, backend.claims, which, mode=mode)
        return self._recorded(done)

    def discard(self, which: QuarantineFilter) -> QuarantineDecision:
        """Let rows never be sent, and record that."""
        return self._recorded(decisions.discard(self.rows, which))

    def _recorded(self, done: QuarantineDecision) -> QuarantineDecision:
        self._ledger.runs.record(done.event, detail=done.detail, batch=None)
        return done


@contextmanager
def open_quarantine(settings: Settings) -> Iterator[QuarantineParts]:
    """Open the ledger that *settings* name.

    Raises:
        PreflightRefused: There is none that can be used.
    """
    with open_ledger(settings) as ledger:
        yield QuarantineParts(settings, ledger)
