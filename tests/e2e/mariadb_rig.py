"""The same small system with MariaDB; filled and read with plain SQL of its own."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC
from typing import Any

import pymysql
from sqlalchemy.engine import make_url

from tests.e2e.rig import Rig
from tests.e2e.rows import Row


@dataclass
class MariadbRig(Rig):
    """One endpoint's store in a MariaDB database; the vendor's script, to the letter."""

    @contextmanager
    def cursor(self) -> Iterator[Any]:
        """Yield a cursor of the test's own, in UTC; committed at the end."""
        url = make_url(self.database_url)
        connection = pymysql.connect(
            host=url.host,
            port=url.port or 0,
            user=url.username,
            database=url.database,
            charset="utf8mb4",
            init_command="SET time_zone = '+00:00'",
            autocommit=True,
        )
        with connection, connection.cursor() as cursor:
            yield cursor

    def create_store(self) -> None:
        """Create the table as the vendor's script does."""
        with self.cursor() as cursor:
            cursor.execute(
                f"CREATE TABLE `{self._table_name}` (Id varchar(38) NOT NULL PRIMARY KEY,"
                " Destination nvarchar(200), SagaId varchar(38), State longblob, Time datetime,"
                " Headers json NOT NULL, PersistenceVersion varchar(23) NOT NULL,"
                " INDEX Index_SagaId (SagaId), INDEX Index_Time (Time)) DEFAULT CHARSET=ascii"
            )

    def insert(self, rows: Iterable[Row]) -> None:
        """Store *rows* as the persister would."""
        values = [
            (
                each.id,
                each.destination,
                str(each.saga_id),
                each.body,
                each.due_at.astimezone(UTC).replace(tzinfo=None),
                each.headers,
                each.persistence_version,
            )
            for each in rows
        ]
        with self.cursor() as cursor:
            cursor.executemany(
                f"INSERT INTO `{self._table_name}` VALUES (%s, %s, %s, %s, %s, %s, %s)", values
            )

    def stored_ids(self) -> set[str]:
        """Return the ids that are still in the legacy table."""
        return {*self.stored()}

    def stored(self) -> dict[str, tuple[Any, ...]]:
        """Return id → all columns of everything that is still in the legacy table."""
        return {str(each[0]): each for each in self._query(f"SELECT * FROM `{self._table_name}`")}

    def quarantined(self) -> dict[str, str]:
        """Return id → reason code of everything in quarantine."""
        query = "SELECT store_id, reason FROM migrator_timeout WHERE state = 'quarantined'"
        return {str(each): str(reason) for each, reason in self._query(query)}

    def batch_states(self) -> Counter[str]:
        """Return how many batches are in which state."""
        found = self._query("SELECT state, count(*) FROM migrator_batch GROUP BY state")
        return Counter({str(state): int(n) for state, n in found})

    def _query(self, statement: str) -> list[tuple[Any, ...]]:
        with self.cursor() as cursor:
            cursor.execute(statement)
            return list(cursor.fetchall())
