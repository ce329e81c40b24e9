"""What is written for every database, on real servers: GUIDs in bytes, and long lists of names."""

from __future__ import annotations

from collections.abc import Iterator
from uuid import UUID

import pytest
import sqlalchemy as sa

from migrator.database.engine import open_engine
from migrator.database.portable import among
from migrator.database.types import GuidBytes, guid_as_bytes, guid_as_text
from tests.unit.database.test_portable import ODD, many

GUIDS = ["7d0c1b52-9e4f-4a3b-b1c0-011d9e215a77", str(UUID(int=0)), str(UUID(int=2**128 - 1))]


@pytest.fixture(params=["database", "mariadb_database"])
def engine(request: pytest.FixtureRequest) -> Iterator[sa.Engine]:
    """A server of each kind."""
    engine = open_engine(request.getfixturevalue(request.param))
    yield engine
    engine.dispose()


def test_a_server_converts_guids_as_dotnet_does(engine: sa.Engine) -> None:
    """Both ways, in any letter case, and NULL stays NULL."""
    with engine.connect() as connection:
        for guid in GUIDS:
            as_bytes = guid_as_bytes(sa.literal(guid.upper(), sa.Text))
            assert bytes(connection.scalar(sa.select(as_bytes)) or b"") == UUID(guid).bytes_le
            assert connection.scalar(sa.select(guid_as_text(sa.literal(guid, GuidBytes)))) == guid
        nothing = guid_as_text(guid_as_bytes(sa.cast(sa.null(), sa.Text)))
        assert connection.scalar(sa.select(nothing)) is None


@pytest.mark.slow
def test_odd_names_are_found_in_long_lists(engine: sa.Engine) -> None:
    """PostgreSQL takes 65 535 parameters; names that were written out mean what they are."""
    table = sa.Table("names", sa.MetaData(), sa.Column("name", sa.String(100)))
    wanted = many(66_000)
    with engine.begin() as connection:
        table.create(connection)
        connection.execute(sa.insert(table), [{"name": each} for each in [*ODD, "other"]])
        found = set(connection.scalars(sa.select(table.c.name).where(among(table.c.name, wanted))))
        left = set(connection.scalars(sa.select(table.c.name).where(~among(table.c.name, wanted))))
    assert (found, left) == (set(ODD), {"other"})
