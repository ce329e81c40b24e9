"""Memory and disk alarms of the broker, from every connection that hears of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from migrator.daemon.throttles.base import Verdict
from migrator.daemon.worker import WorkerThread

_LIMIT = "until the broker takes messages again"


def judge_alarm(workers: Iterable[WorkerThread], look: Callable[[], str | None]) -> Verdict | None:
    """Return what the broker says; None: it takes messages."""
    reasons = [worker.blocked_reason for worker in workers]
    reason = next((each for each in reasons if each), None) or look()
    return None if reason is None else Verdict(observed=reason, limit=_LIMIT)
