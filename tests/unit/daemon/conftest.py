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


@pytest.fixture
def wait_for() -> Callable[[Callable[[], bool]], None]:
    """Wait until something is so, for seconds at most."""

    def wait(is_so: Callable[[], bool]) -> None:
        deadline_s = time.monotonic() + 10
        while not is_so():
            assert time.monotonic() < deadline_s
            time.sleep(0.005)

    return wait
