"""A database clock for tests: its database says what it is told to."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from migrator.ledger.clock import DatabaseClock, _Sample

START = datetime(2026, 3, 1, tzinfo=UTC)


class ToldClock(DatabaseClock):
    """Its database is ahead by ``ahead_s``, and answers after ``round_trip_s``."""

    def __init__(self) -> None:
        self.elapsed_s = 0.0
        self.ahead_s = 0.0
        self.round_trip_s = 0.0
        super().__init__(None, lambda: self.elapsed_s)  # type: ignore[arg-type]

    def _best_sample(self) -> _Sample:
        ahead = timedelta(seconds=self.elapsed_s + self.ahead_s - self.round_trip_s)
        return _Sample(START + ahead, self.elapsed_s, self.round_trip_s)

    def after(self, seconds: float) -> float:
        """Let time pass; return by how much ``now`` is ahead of where it would be."""
        self.elapsed_s += seconds
        return (self.now() - START).total_seconds() - self.elapsed_s
