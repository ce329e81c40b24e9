"""Lists of names in conditions: as long as they may be, for every database."""

from __future__ import annotations

import re
from typing import Any

import pytest
from sqlalchemy import Column, MetaData, Table, Text, create_engine, insert, select
from sqlalchemy.dialects.mysql.pymysql import MySQLDialect_pymysql
from sqlalchemy.dialects.postgresql.psycopg import PGDialect_psycopg

from migrator.database.portable import MOST_IN_LIST, among
from migrator.database.types import exactly
from migrator.ledger.queries import LedgerQueries
from migrator.ledger.tables import build_tables, names_for
from migrator.ledger.work import StoreEndpoint
from migrator.nservicebus.timeouts import EndpointName
from tests.support.statements import kind_of

ODD = ["O'Hara", "back\\slash", "100%", ":colon", "ünï", "%s", '"', "\\'"]
_POSTGRESQL: Any = PGDialect_psycopg
KINDS: dict[str, Any] = {
    "mssql": kind_of("mssql"),
    "oracle": kind_of("oracle"),
    "mysql": MySQLDialect_pymysql(),
    "postgresql": _POSTGRESQL(),
}
TABLE = Table("names", MetaData(), Column("name", Text))


def many(count: int) -> list[str]:
    """Return so many names, the odd ones among them."""
    return [*ODD, *(f"Endpoint.{n}" for n in range(count - len(ODD)))]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("is_left_out", [False, True])
def test_no_list_and_no_statement_is_longer_than_a_database_takes(
    kind: str, *, is_left_out: bool
) -> None:
    """Oracle takes 1000 in a list, SQL Server 2100 parameters; one more is another list."""
    for count, parameters, lists in ((1000, 1000, 1), (1001, 0, 2), (5_000, 0, 5)):
        condition = among(exactly(TABLE.c.name), many(count))
        query = select(TABLE).where(~condition if is_left_out else condition)
        compiled = query.compile(dialect=KINDS[kind], compile_kwargs={"render_postcompile": True})
        found = re.findall(r" IN \((.*?)\)(?= OR| AND|$|\))", str(compiled), re.DOTALL)
        assert (len(compiled.params), len(found)) == (parameters, lists)
        assert all(each.count(", ") < MOST_IN_LIST for each in found)


@pytest.mark.parametrize("count", [0, 1000, 1001, 33_000])
def test_odd_names_are_found_in_long_lists(count: int) -> None:
    """SQLite takes 32 766 parameters; names that were written out mean what they are."""
    engine = create_engine("sqlite://")
    wanted = many(count) if count else []
    with engine.begin() as connection:
        TABLE.create(connection)
        connection.execute(insert(TABLE), [{"name": name} for name in [*ODD, "other"]])
        one = select(TABLE.c.name).where(among(TABLE.c.name, wanted))
        other = select(TABLE.c.name).where(~among(TABLE.c.name, wanted))
        found, left = set(connection.scalars(one)), set(connection.scalars(other))
    engine.dispose()
    assert (found, left) == ((set(ODD), {"other"}) if count else (set(), {*ODD, "other"}))


def test_a_ledger_is_asked_about_any_number_of_endpoints() -> None:
    """More than a statement takes of parameters."""
    engine = create_engine("sqlite://")
    tables = build_tables(names_for(engine))
    tables.metadata.create_all(engine)
    names = many(33_000)
    endpoints = [StoreEndpoint(name=EndpointName(each), source=each) for each in names]
    queries = LedgerQueries(engine, tables)
    assert (queries.quarantined(endpoints), queries.doubtful(endpoints)) == (0, 0)
    assert queries.latest_event_of_each("seeded", [each.name for each in endpoints]) == {}
    engine.dispose()
