"""Memory and disk alarms of the broker, from every connection that hears of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from migrator.errors import TargetError
from migrator.service.throttles.base import Verdict
from migrator.service.worker import WorkerThread

_LIMIT = "until the broker takes messages again"


def judge_alarm(workers: Iterable[WorkerThread], look: Callable[[], str | None]) -> Verdict | None:
    """Return what the broker says; None: it takes messages."""
    heard = next(filter(None, (worker.blocked_reason for worker in workers)), None)
    try:
        reason = look() or heard  # it looks in any case: a connection that nobody serves is lost
    except TargetError:
        if heard is None:
            raise
        reason = heard
    return None if reason is None else Verdict(observed=reason, limit=_LIMIT)
