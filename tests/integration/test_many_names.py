"""Conditions on more names than a statement takes parameters, on real databases."""

from __future__ import annotations

import pytest
from sqlalchemy import Column, MetaData, String, Table, insert, select

from migrator.database.engine import open_engine
from migrator.database.portable import among, not_among
from tests.unit.database.test_portable import ODD, many

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("name", ["database", "mariadb_database"])
def test_odd_names_are_found_in_long_lists(request: pytest.FixtureRequest, name: str) -> None:
    """PostgreSQL takes 65 535 parameters; names that were written out mean what they are."""
    engine = open_engine(request.getfixturevalue(name))
    table = Table("names", MetaData(), Column("name", String(100)))
    wanted = many(66_000)
    with engine.begin() as connection:
        table.create(connection)
        connection.execute(insert(table), [{"name": each} for each in [*ODD, "other"]])
        found = set(connection.scalars(select(table.c.name).where(among(table.c.name, wanted))))
        left = set(connection.scalars(select(table.c.name).where(not_among(table.c.name, wanted))))
    engine.dispose()
    assert (found, left) == (set(ODD), {"other"})
