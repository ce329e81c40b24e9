"""What the tests of the daemon's threads look at."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pytest

from migrator.errors import StoreUnavailable

Lines = Callable[[str], list[logging.LogRecord]]
WaitFor = Callable[[Callable[[], bool]], None]


@pytest.fixture
def lines(caplog: pytest.LogCaptureFixture) -> Iterator[Lines]:
    """Return what was logged so far with an action."""
    with caplog.at_level(logging.INFO):
        yield lambda action: [
            record for record in caplog.records if getattr(record, "action", "") == action
        ]


@pytest.fixture(autouse=True)
def patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wait longer than the daemon does: a busy machine may keep any thread from work for seconds.

    A test of how long is waited sets that itself.
    """
    for where in (
        "service.control._LEDGER_PATIENCE_S",
        "service.control._RETRY_PATIENCE_S",
        "service.hooks._KILLING_S",
        "service.hooks._KILL_WAIT_S",
        "service.hooks._LAST_WAIT_S",
        "background._LAST_WAIT_S",
        "service.systemd._PATIENCE_S",
        "throttle.polling._FIRST_S",
        "service.audit_log._LAST_WAIT_S",
    ):
        monkeypatch.setattr(f"migrator.{where}", 30.0)


@pytest.fixture
def wait_for() -> WaitFor:
    """Wait until something is so, for half a minute at most."""

    def wait(is_so: Callable[[], bool]) -> None:
        deadline_s = time.monotonic() + 30
        while not is_so():
            assert time.monotonic() < deadline_s
            time.sleep(0.005)

    return wait


class Events:
    """The ledger's audit trail in memory: what writes into it, and what is written into."""

    def __init__(self) -> None:
        self.found: list[tuple[str, dict[str, Any]]] = []
        self.is_there = threading.Event()
        self.is_there.set()

    def record(self, kind: str, *, detail: Mapping[str, object], batch: object) -> None:
        """Write as ``SqlRuns`` does."""
        assert batch is None
        if not self.is_there.is_set():
            raise StoreUnavailable("away")
        self.note(kind, detail)

    def note(self, kind: str, detail: Mapping[str, object]) -> None:
        """Write as ``AuditLog`` does, at once."""
        self.found.append((kind, dict(detail)))

    def of(self, kind: str) -> list[dict[str, Any]]:
        """Return the details of one kind, oldest first."""
        return [detail for each, detail in self.found if each == kind]
