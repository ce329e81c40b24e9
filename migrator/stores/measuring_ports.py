"""How much is in a store and how fast it answers: for the status page and the throttle."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Protocol


@dataclass(frozen=True, slots=True, kw_only=True)
class TableCount:
    """The rows of one table."""

    rows: int
    is_all: bool
    """False: too many to be counted; *rows* is estimated."""
    due: Sequence[tuple[str, int]]
    """Those that were read, by how soon they are due, soonest first."""


class Counting(Protocol):
    """Counts stored timeouts, for a page that is looked at."""

    def count(self, source: str, now: datetime) -> TableCount:
        """Return how many rows *source* has, and how soon they are due, as of *now*.

        Raises:
            StoreError: It is gone, or the store cannot be asked.
        """
        ...


class Pulse(Protocol):
    """Measures how long the store takes to answer."""

    def answer_s(self, source: str, *, patience: timedelta) -> float:
        """Return the seconds it takes to be let at *source*; about *patience* at most.

        Raises:
            StoreError: It is gone, or a right is missing.
            StoreUnavailable: The store cannot be reached at all.
        """
        ...
