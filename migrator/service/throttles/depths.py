"""How many messages wait on the broker: in the delay levels, and for each destination."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import islice
from typing import Final

from migrator.app import App
from migrator.service.throttles.base import Sample, Whom

_MOST_QUEUES: Final = 500
"""Destinations whose queues are looked at."""


def measure_levels(app: App) -> Mapping[Whom, Sample]:
    """Return the messages in all levels together, as far as they are known."""
    ladder = app.broker_facts.ladder(app.plan.delays)
    count = sum(step.known for step in ladder.steps)
    return {None: Sample(value=count, text=f"{count} messages in the delay levels")}


def measure_destinations(app: App) -> Mapping[Whom, Sample]:
    """Return the messages that wait for the busiest destination of this process."""
    names = list(islice(app.destinations.known(), _MOST_QUEUES))
    found = app.broker_facts.queues(names) if names else {}
    depths = [(queue.ready, name) for name, queue in found.items() if queue is not None]
    count, name = max(depths, default=(0, "no destination"))
    return {None: Sample(value=count, text=f"{name}: {count} messages")}
