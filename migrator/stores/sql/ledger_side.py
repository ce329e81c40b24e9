"""What claims need of the ledger's tables; wiring passes the real ones in."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, Protocol

from sqlalchemy import ColumnElement, FromClause, Table


class LedgerSide(Protocol):
    """The three ledger tables a claim or a release writes to."""

    @property
    def lease(self) -> Table:
        """One row per lane, called ``lease_name(lane)``."""
        ...

    @property
    def run(self) -> Table:
        """One row per run."""
        ...

    @property
    def batch(self) -> Table:
        """One row per batch."""
        ...

    @property
    def timeout(self) -> Table:
        """One row per timeout."""
        ...

    def is_open(self, timeout: FromClause, store_id: Any) -> ColumnElement[bool]:
        """Return the condition under which a timeout called *store_id* may not be claimed again."""
        ...

    def are_open(self, timeout: FromClause, store_ids: Collection[str]) -> ColumnElement[bool]:
        """Return the condition of ``is_open`` for any of *store_ids*."""
        ...

    def lease_name(self, lane: int) -> str:
        """Return the primary key of a lane's lease."""
        ...
