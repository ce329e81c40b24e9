"""Due times of which a test says how they are read."""

from __future__ import annotations

from migrator.ledger.work import StoreEndpoint
from migrator.stores.due_times import DueTimeReader, DueTimeReading


class KnownDueTimes(DueTimeReader):
    """Reads no row; by default none proves the zone."""

    def __init__(self, reading: DueTimeReading | None = None) -> None:
        self.reading = reading or DueTimeReading()

    def read(self, endpoint: StoreEndpoint) -> DueTimeReading:
        return self.reading
