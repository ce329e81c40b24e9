"""The same small system with MariaDB; filled and read with plain SQL of its own."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC
from typing import Any

import pymysql
from psycopg import sql
from psycopg.sql import Composed
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
            init_command="SET time_zone = '+00:00', sql_mode = 'ANSI_QUOTES'",
            autocommit=True,
        )
        with connection, connection.cursor() as cursor:
            yield cursor

    @property
    def table(self) -> sql.Identifier:
        """The table as SQL; its database is the connection's."""
        return sql.Identifier(self._table_name)

    def query(self, text: str | Composed, *values: object) -> list[tuple[Any, ...]]:
        """Return all rows of what *text* asks the database."""
        statement = text if isinstance(text, str) else text.as_string()
        with self.cursor() as cursor:
            cursor.execute(statement.replace("migrator.", "migrator_"), values or None)
            return list(cursor.fetchall())

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
