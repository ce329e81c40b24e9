"""Log lines about single messages: enough to see what happens, never a flood."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

_MOST: Final = 20
_WINDOW_S: Final = 60.0


class Sparingly:
    """Lets so many lines of a kind through in a minute, and counts the others."""

    def __init__(self, monotonic_s: Callable[[], float]) -> None:
        """Measure minutes by *monotonic_s*."""
        self._monotonic_s = monotonic_s
        self._since_s: dict[str, float] = {}
        self._lines: dict[str, int] = {}

    def left_out(self, kind: str) -> int | None:
        """Return how many lines of *kind* were left out before this one; None: leave it out."""
        now_s = self._monotonic_s()
        if now_s - self._since_s.get(kind, float("-inf")) >= _WINDOW_S:
            before = max(self._lines.get(kind, 0) - _MOST, 0)
            self._since_s[kind], self._lines[kind] = now_s, 1
            return before
        self._lines[kind] += 1
        return 0 if self._lines[kind] <= _MOST else None
