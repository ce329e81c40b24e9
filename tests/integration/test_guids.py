"""GUIDs of sixteen bytes: what a server computes is what Python computes."""

from __future__ import annotations

from uuid import UUID

import pytest
from sqlalchemy import Text, cast, literal, null, select

from migrator.database.engine import open_engine
from migrator.database.guids import GuidBytes, guid_as_bytes, guid_as_text

TEXTS = ["7d0c1b52-9e4f-4a3b-b1c0-011d9e215a77", str(UUID(int=0)), str(UUID(int=2**128 - 1))]


@pytest.mark.parametrize("fixture", ["database", "mariadb_database"])
def test_a_server_converts_as_dotnet_does(request: pytest.FixtureRequest, fixture: str) -> None:
    """Both ways, in any letter case, and NULL stays NULL."""
    engine = open_engine(request.getfixturevalue(fixture))
    with engine.connect() as connection:
        for text in TEXTS:
            stored = UUID(text).bytes_le
            as_bytes = guid_as_bytes(literal(text.upper(), Text))
            assert bytes(connection.scalar(select(as_bytes)) or b"") == stored
            as_text = guid_as_text(literal(text, GuidBytes))
            assert connection.scalar(select(as_text)) == text
        nothing = guid_as_text(guid_as_bytes(cast(null(), Text)))
        assert connection.scalar(select(nothing)) is None
    engine.dispose()
