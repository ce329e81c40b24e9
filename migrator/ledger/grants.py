"""The least a daemon's database user needs, as SQL for a DBA."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from migrator.errors import LedgerError
from migrator.ledger.names import LedgerNames, quoted

_TABLES: Final = ("run", "batch", "timeout", "lease", "held_destination", "event")
_READ_ONLY: Final = ("ledger", "alembic_version", "progress", "timeout_status")
_SEQUENCES: Final = ("run", "batch", "timeout", "event")
_LOCK_COLUMN: Final = "PersistenceVersion"
"""Locking rows wants UPDATE on some column; this one is only informative."""


def grants(names: LedgerNames, role: str, legacy: Sequence[tuple[str | None, str]]) -> str:
    """Return GRANTs for *role*: work on the ledger and on the *legacy* tables, but no DDL.

    Args:
        names: How the ledger is called.
        role: The daemon's user.
        legacy: Schema and name of each legacy table.

    Raises:
        LedgerError: The database has no users to grant anything to.
    """
    if names.schema is None:
        raise LedgerError("this kind of database has no users; file permissions decide")
    user, schema = quoted(role), quoted(names.schema)
    lines = [f"GRANT USAGE ON SCHEMA {schema} TO {user};"]
    for noun in _TABLES:
        table = f"{schema}.{quoted(names.table(noun))}"
        lines.append(f"GRANT SELECT, INSERT, UPDATE, DELETE ON {table} TO {user};")
    for noun in _READ_ONLY:
        lines.append(f"GRANT SELECT ON {schema}.{quoted(names.table(noun))} TO {user};")
    for noun in _SEQUENCES:
        sequence = f"{schema}.{quoted(names.table(noun) + '_id_seq')}"
        lines.append(f"GRANT USAGE ON SEQUENCE {sequence} TO {user};")
    for used in sorted({legacy_schema or "public" for legacy_schema, _ in legacy}):
        lines.append(f"GRANT USAGE ON SCHEMA {quoted(used)} TO {user};")
    for legacy_schema, name in legacy:
        table = f"{quoted(legacy_schema or 'public')}.{quoted(name)}"
        lines.append(
            f"GRANT SELECT, INSERT, DELETE, UPDATE ({quoted(_LOCK_COLUMN)}) ON {table} TO {user};"
        )
    return "\n".join(lines) + "\n"
