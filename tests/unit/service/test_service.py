"""Tests of ``migrator.service.service``: what signals mean."""

from __future__ import annotations

import signal
from typing import Any

import pytest

from migrator.service.service import Service
from migrator.service.worker import Stop


@pytest.mark.parametrize("is_draining", [False, True], ids=["at work", "after a drain"])
def test_only_a_second_signal_stops_between_two_steps(is_draining: bool) -> None:
    """``systemctl stop`` after ``migrator drain`` waits for the batch in hand as any first one."""
    unused: Any = None
    stop = Stop()
    if is_draining:
        stop.draining.set()
    parts: dict[str, Any] = {"moved": (), "holding": unused, "keeper": unused}
    service = Service(unused, [], **parts, stop=stop, once=False)
    with service._signals():
        signal.raise_signal(signal.SIGTERM)
        assert (stop.draining.is_set(), stop.at_once.is_set()) == (True, False)
        signal.raise_signal(signal.SIGTERM)
    assert stop.at_once.is_set()
