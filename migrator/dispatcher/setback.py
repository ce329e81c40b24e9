"""Work that failed because of store or broker, and when it may be tried again."""

from __future__ import annotations

import random
from typing import Final

from migrator.errors import MigratorError

_FIRST_PAUSE_S: Final = 0.5
_LONGEST_PAUSE_S: Final = 10.0


class Setback:
    """One kind of work; what it was about stays in hand meanwhile.

    Ending the link instead would give all deliveries back, and coming back counts: a quorum queue
    with a delivery limit drops them in the end.
    """

    def __init__(self) -> None:
        """Nothing has failed yet."""
        self.error: MigratorError | None = None
        """Why it failed the last time; None: it did not."""
        self._failures = 0
        self._again_s = float("-inf")

    def note(self, error: MigratorError, *, now_s: float) -> None:
        """Remember a failure; the pause before the next try doubles, with jitter."""
        self.error = error
        pause_s = min(_FIRST_PAUSE_S * 2.0 ** min(self._failures, 10), _LONGEST_PAUSE_S)
        self._again_s = now_s + pause_s * random.uniform(0.5, 1.0)  # noqa: S311 - no secret
        self._failures += 1

    def clear(self) -> None:
        """Remember that it worked."""
        self.error = None
        self._failures = 0
        self._again_s = float("-inf")

    def may_try(self, now_s: float) -> bool:
        """Return whether the pause is over."""
        return now_s >= self._again_s
