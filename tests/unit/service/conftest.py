"""What the tests of the daemon's threads look at."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator

import pytest


@pytest.fixture
def lines(caplog: pytest.LogCaptureFixture) -> Iterator[Callable[[str], list[logging.LogRecord]]]:
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
        "control._LEDGER_PATIENCE_S",
        "control._RETRY_PATIENCE_S",
        "hooks._KILLING_S",
        "hooks._KILL_WAIT_S",
        "hooks._LAST_WAIT_S",
        "schedule._LAST_WAIT_S",
        "systemd._PATIENCE_S",
        "throttle._FIRST_S",
        "throttle_signals.HttpCheck._PATIENCE_S",
        "audit_log._LAST_WAIT_S",
    ):
        monkeypatch.setattr(f"migrator.service.{where}", 30.0)


@pytest.fixture
def wait_for() -> Callable[[Callable[[], bool]], None]:
    """Wait until something is so, for half a minute at most."""

    def wait(is_so: Callable[[], bool]) -> None:
        deadline_s = time.monotonic() + 30
        while not is_so():
            assert time.monotonic() < deadline_s
            time.sleep(0.005)

    return wait
