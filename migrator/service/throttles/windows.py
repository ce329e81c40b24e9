"""Maintenance windows: the times in which rows may be moved."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime, tzinfo

from migrator.config.values import DAYS, Window
from migrator.service.throttles.base import Verdict


def judge_window(
    windows: Sequence[Window],
    zone: tzinfo,
    now: Callable[[], datetime] = lambda: datetime.now(UTC),
) -> Verdict | None:
    """Return why nothing is moved now; None: a window is open."""
    local = now().astimezone(zone)
    where = getattr(zone, "key", None) or local.tzname()
    if any(window.is_open(local) for window in windows):
        return None
    allowed = ", ".join(window.text for window in windows)
    return Verdict(
        observed=f"it is {DAYS[local.weekday()]} {local:%H:%M} {where}", limit=f"only {allowed}"
    )
