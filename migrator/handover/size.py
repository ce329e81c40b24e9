"""How many rows a staged pass has: fewer when passes take too long, for each row waits for all.

A delay counts from the moment its message reaches a level, and was fixed when the message was
published. What passes between the two makes a row late, beside the second by which delays are
rounded up (docs/adr/0003).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

_FEWEST_ROWS: Final = 50
_LONGEST_S: Final = 1.5
"""From a pass's first publish to its receipt; above it, the next ones are half as large."""
_SHORT_S: Final = 1.0
"""Below it, they may grow again."""


class PassSize:
    """The rows that a lane claims at a time, at most as many as are wished for."""

    def __init__(self, wished: Callable[[], int]) -> None:
        """Begin with what *wished* says, which may change at any time."""
        self._wished = wished
        self._most: int | None = None

    @property
    def rows(self) -> int:
        """Rows in the next batch."""
        return self._wished() if self._most is None else min(self._wished(), self._most)

    def halve(self, rows: int) -> bool:
        """Claim half of *rows*, which took too long, or fewer already; is that a change?"""
        before = self.rows
        self._most = min(before, max(rows // 2, _FEWEST_ROWS))
        return self.rows < before

    def has_arrived(self, rows: int, seconds: float) -> bool:
        """Note how long a pass took from its first publish to its receipt; is the next smaller?

        Between the two limits nothing changes. Growth is a quarter at a time.
        """
        if seconds > _LONGEST_S:
            return self.halve(rows)
        if seconds < _SHORT_S and self._most is not None:
            self._most += self._most // 4 + 1
            if self._most >= self._wished():
                self._most = None
        return False
