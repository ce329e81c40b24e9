"""Tests of ``migrator.broker.wire`` that need no broker."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import closing
from itertools import pairwise

import pytest

from migrator.broker.wire import Pump


@pytest.fixture
def beats() -> Iterator[list[float]]:
    """When a sign of life came, while a pump waited for half a second."""
    found: list[float] = []
    with closing(Pump(lambda: found.append(time.monotonic()))) as pump:
        for _ in range(5):
            pump.run(lambda: False, 0.1)
        yield found


@pytest.mark.punctual
def test_a_lane_that_waits_for_its_broker_shows_signs_of_life(beats: list[float]) -> None:
    """At each step, whether anything happens or not."""
    assert len(beats) >= 5
    assert max(later - sooner for sooner, later in pairwise(beats)) < 0.5
