"""The store's and the ledger's side of a recall."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from migrator.ledger.work import Lease
from migrator.nservicebus.tags import RowTag
from migrator.recall.rules import RecallForecast, RecallOutcome, RecallScope


@dataclass(frozen=True, slots=True, kw_only=True)
class Sighting:
    """A message in a delay level that bears this ledger's mark."""

    row: RowTag
    body_bytes: int


class Recalls(Protocol):
    """Puts handed-over rows back, byte for byte."""

    def restore(
        self,
        sightings: Collection[Sighting],
        scope: RecallScope,
        lease: Lease,
        *,
        not_before: datetime,
    ) -> Mapping[Sighting, RecallOutcome]:
        """Restore the rows of *sightings* that are meant, in one transaction; say what each is.

        A row that is restored is in its legacy table and marked ``recalled`` in the ledger.
        Repeating is harmless: a row is restored once.

        Args:
            sightings: Messages that were found; they are held meanwhile.
            scope: Which rows are meant.
            lease: The recall's own.
            not_before: Rows due before this are left to the broker.

        Raises:
            LeaseLost: Nothing was changed.
            StoreUnavailable: Nothing was changed, or all of it was and the answer was lost.
        """
        ...

    def forecast(
        self,
        scope: RecallScope,
        *,
        now: datetime,
        not_before: datetime,
        exact_rows: int | None = None,
    ) -> RecallForecast:
        """Return what is still to be found in the levels, by the ledger; changes nothing.

        Args:
            scope: Which rows are meant.
            now: What was due before has left.
            not_before: What is due before is too near.
            exact_rows: How many rows are read at most, of batches that are due in part; beyond
                that, such batches count by their due times. None: all are read.
        """
        ...
