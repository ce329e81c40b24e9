"""Tests of ``migrator.broker.wire`` that need no broker."""

from __future__ import annotations

from contextlib import closing

import pytest

from migrator.broker.wire import Pump
from migrator.errors import Interrupted


def test_the_guard_ends_a_wait() -> None:
    """What it raises comes out, however long the wait would have been."""

    def guard() -> None:
        raise Interrupted("asked twice to stop")

    with closing(Pump(guard)) as pump, pytest.raises(Interrupted):
        pump.run(lambda: False, 3600)


def test_a_lane_that_waits_for_its_broker_shows_signs_of_life() -> None:
    """At each step, whether anything happens or not."""
    beats: list[None] = []
    with closing(Pump(lambda: beats.append(None))) as pump:
        for _ in range(5):
            before = len(beats)
            pump.run(lambda: False, 0.02)
            assert len(beats) > before
