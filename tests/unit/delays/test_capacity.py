"""Tests of ``migrator.delays.capacity``: what bursts tell of the cost of an exchange."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from migrator.delays.capacity import (
    MeasuredBroker,
    MeasuredCapacity,
    SentBurst,
    capacity_document,
    fit_exchange_cost_s,
    read_capacity,
)
from migrator.delays.routing import DelaysVersion

COST_S = 0.0001


def burst(delay_s: int, released_s: float, *, published_s: float = 0.1) -> SentBurst:
    """Return a burst of a thousand and one messages: a thousand steps between arrivals."""
    return SentBurst(delay_s=delay_s, messages=1001, published_s=published_s, released_s=released_s)


def test_the_cost_is_that_of_each_exchange() -> None:
    """Two bursts that agree give it exactly, and two that do not one between their own."""
    assert fit_exchange_cost_s([burst(8, 0.4), burst(2, 0.2)]) == pytest.approx(COST_S)
    assert COST_S < fit_exchange_cost_s([burst(8, 0.4), burst(2, 0.3)]) < 1.5 * COST_S
    assert [burst(8, 0.4).exchanges, burst(2, 0.2).exchanges] == [4, 2]
    assert burst(8, 0.4).per_second == pytest.approx(2500)


def test_a_burst_that_was_published_slowly_does_not_count() -> None:
    """Unless no burst tells more: then the level is at least so fast, and the cost too high."""
    slow = burst(2, 0.5, published_s=0.5)
    assert fit_exchange_cost_s([burst(8, 0.4), slow]) == pytest.approx(COST_S)
    assert fit_exchange_cost_s([burst(8, 0.8, published_s=0.8), slow]) > COST_S


def test_arrivals_at_one_moment_cost_something() -> None:
    """A clock that did not move must not make a level infinitely fast."""
    assert fit_exchange_cost_s([burst(8, 0.0), burst(2, 0.0)]) > 0


def test_the_ledger_gives_back_what_was_measured() -> None:
    """But for the bursts; whatever else stands there is no measurement."""
    measured = MeasuredCapacity(
        exchange_cost_s=COST_S,
        measured_at=datetime(2026, 3, 10, 9, 30, tzinfo=UTC),
        broker=MeasuredBroker(
            delays=DelaysVersion.V2, broker_version="3.10.8", cluster="rabbit@one", vhost="/"
        ),
    )
    document = capacity_document(measured)
    assert read_capacity(document) == measured
    assert measured.per_second(4) == pytest.approx(2500)
    for wrong in ({"delays": "v3"}, {"exchange_cost_s": 0}, {"measured_at": "yesterday"}):
        assert read_capacity(document | wrong) is None
    assert read_capacity({}) is None
