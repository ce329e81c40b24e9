"""How a statement of MariaDB or MySQL names the rows that were picked before.

Rules of this file: each row is looked up by its key, so no column is converted; nothing but ids is
sent, as a list in JSON.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, Final

from sqlalchemy import (
    BigInteger,
    Connection,
    TableValuedAlias,
    Text,
    bindparam,
    column,
    func,
    literal_column,
    text,
)

from migrator.database.guids import GuidBytes, guid_bytes
from migrator.stores.sql.legacy_table import LegacyTable

_KEY_CHARACTERS: Final = text(
    "SELECT character_set_name AS characters, collation_name AS collation "
    "FROM information_schema.columns "
    "WHERE table_schema = database() AND table_name = :table AND column_name = :column"
)


class Naming:
    """``:ids`` as a table ``picked``: ``row_index``, which counts from 1, and ``id``."""

    def __init__(self, characters: str = "ascii", collation: str = "") -> None:
        """Read ids as text of these *characters*, and compare them by *collation*.

        A key's own characters are at least ASCII, so it is not converted to be compared with it.
        Without *collation* the key's own counts: it gives way to none but another one of the same
        character set, and then the two do not mix.
        """
        kind = f"VARCHAR(500) CHARACTER SET {characters}"
        self.rows: Final = f"'$[*]' COLUMNS (row_index FOR ORDINALITY, id {kind} PATH '$')"
        """What ``json_table`` makes of ``:ids``."""
        self.picked: Final[TableValuedAlias] = func.json_table(
            bindparam("ids", type_=Text()), literal_column(self.rows)
        ).table_valued(column("row_index", BigInteger), column("id", Text), name="picked")
        self._collation = f" COLLATE {collation}" if collation else ""

    def key(self, legacy: LegacyTable) -> str:
        """Return an id of the list as the table's key has it."""
        is_bytes = isinstance(legacy.table.c.Id.type, GuidBytes)
        return "unhex(picked.id)" if is_bytes else f"picked.id{self._collation}"


GUIDS: Final = Naming()
"""For GUIDs, and for all other ids of ASCII letters."""


def naming(
    connection: Connection, legacy: LegacyTable, ids: Sequence[str]
) -> tuple[Naming, dict[str, Any]]:
    """Return how rows called *ids* are named, and the parameters for it."""
    if isinstance(legacy.table.c.Id.type, GuidBytes):
        return GUIDS, {"ids": json.dumps([(guid_bytes(each) or b"").hex() for each in ids])}
    listed = {"ids": json.dumps(ids)}
    if all(each.isascii() for each in ids):
        return GUIDS, listed
    names = {"table": legacy.table.name, "column": legacy.table.c.Id.name}
    found = connection.execute(_KEY_CHARACTERS, names).one()
    return Naming(found.characters, found.collation), listed
