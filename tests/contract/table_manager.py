"""A timeout manager at a legacy table, in SQL of its own: what the persistence asks, and no more.

Each call is a transaction of its own, as with the persistence. Source: reference
``timeout-manager.md``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from sqlalchemy import Engine, text

from migrator.database.engine import reading, writing


@dataclass(frozen=True, slots=True, kw_only=True)
class TableManager:
    """Implements ``TimeoutManager`` for one endpoint."""

    engine: Engine
    table: str
    """As SQL."""
    columns: dict[str, str]
    """The vendor's name of each column, and the same as SQL."""
    key: str
    """SQL of a GUID that is given as ``:id``."""
    stored: Callable[[str], object] = str
    """Returns a GUID as the driver takes it."""
    owner: str | None = None
    """Whose rows of the table; None: all."""

    def due(self) -> Sequence[str]:
        """Return the ids of all timeouts that it knows of, soonest first."""
        query = f"SELECT {self.columns['Id']} FROM {self.table} WHERE {self._is_mine()}"
        with reading(self.engine) as connection:
            found = connection.execute(
                text(f"{query} ORDER BY {self.columns['Time']}"), self._values()
            )
            return [_text(each) for (each,) in found]

    def peek(self, row_id: str) -> bool:
        """Return whether it would send this timeout now."""
        query = f"SELECT 1 FROM {self.table} WHERE {self.columns['Id']} = {self.key}"
        with reading(self.engine) as connection:
            return connection.execute(text(query), {"id": self.stored(row_id)}).first() is not None

    def remove(self, row_id: str) -> bool:
        """Remove a timeout that is about to be sent; False: it is gone, and is not sent."""
        return self._deleted("Id", row_id) == 1

    def remove_saga(self, saga_id: str) -> int:
        """Remove all timeouts of a saga that has ended; return how many there were."""
        return self._deleted("SagaId", saga_id)

    def _deleted(self, column: str, guid: str) -> int:
        which = f"{self.columns[column]} = {self.key} AND {self._is_mine()}"
        statement = text(f"DELETE FROM {self.table} WHERE {which}")
        with writing(self.engine) as connection:
            return connection.execute(
                statement, self._values() | {"id": self.stored(guid)}
            ).rowcount

    def _is_mine(self) -> str:
        return "1 = 1" if self.owner is None else f"{self.columns['Endpoint']} = :owner"

    def _values(self) -> dict[str, Any]:
        return {} if self.owner is None else {"owner": self.owner}


def _text(guid: object) -> str:
    """Return a GUID of any column as text."""
    return str(UUID(bytes_le=guid) if isinstance(guid, bytes) else UUID(str(guid)))
