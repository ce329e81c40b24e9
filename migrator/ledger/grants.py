"""The least a daemon's database user needs, as SQL for a DBA."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from sqlalchemy.dialects import oracle

from migrator.errors import LedgerError
from migrator.ledger.tables import LedgerNames, quoted

_TABLES: Final = ("run", "batch", "timeout", "lease", "held_destination", "event")
_READ_ONLY: Final = ("ledger", "alembic_version", "progress", "timeout_status")
_SEQUENCES: Final = ("run", "batch", "timeout", "event")


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class GrantedTable:
    """A legacy table that a daemon works on."""

    schema: str
    name: str
    lock_column: str
    """Locking rows wants UPDATE on some column, whichever; nothing is ever updated."""


def grants(names: LedgerNames, role: str, legacy: Sequence[GrantedTable]) -> str:
    """Return GRANTs for *role*: work on the ledger and on the *legacy* tables, but no DDL.

    Args:
        names: How the ledger is called.
        role: The daemon's user; on MariaDB and MySQL ``user@host``, from any host without it.
        legacy: Each legacy table; endpoints may share one.

    Raises:
        LedgerError: The database has no users to grant anything to.
    """
    if names.dialect == "oracle":
        return _grants_on_oracle(role, legacy)
    if names.dialect not in _QUOTES:
        raise LedgerError("this kind of database has no users; file permissions decide")
    quote, dialect = _QUOTES[names.dialect], names.dialect
    user = _account(role) if dialect == "mysql" else quote(role)

    def grant(rights: str, schema: str | None, name: str) -> str:
        # on MySQL they are run in the database itself, so that none has to name it
        table = quote(name) if schema is None or dialect == "mysql" else quote(schema, name)
        return f"GRANT {rights} ON {table} TO {user};"

    own = "dbo" if dialect == "mssql" and names.schema is None else names.schema
    lines = [grant("SELECT, INSERT, UPDATE, DELETE", own, names.table(noun)) for noun in _TABLES]
    lines += [grant("SELECT", own, names.table(noun)) for noun in _READ_ONLY]
    moved = []
    for each in dict.fromkeys(legacy):
        # hints that lock, of SQL Server, want no more than SELECT
        locking = "" if dialect == "mssql" else f", UPDATE ({quote(each.lock_column)})"
        moved.append(grant(f"SELECT, INSERT, DELETE{locking}", each.schema, each.name))
    if dialect == "postgresql":
        sequences = [quote(own or "", f"{names.table(noun)}_id_seq") for noun in _SEQUENCES]
        lines += [f"GRANT USAGE ON SEQUENCE {each} TO {user};" for each in sequences]
        used = sorted({each.schema for each in legacy})
        moved = [*(f"GRANT USAGE ON SCHEMA {quote(each)} TO {user};" for each in used), *moved]
        lines = [f"GRANT USAGE ON SCHEMA {quote(own or '')} TO {user};", *lines]
    return "\n".join([*lines, *moved]) + "\n"


def _grants_on_oracle(role: str, legacy: Sequence[GrantedTable]) -> str:
    """Return GRANTs for a user that owns the ledger; its own tables want none."""
    spelled: Any = oracle.dialect()  # type: ignore[no-untyped-call] # SQLAlchemy's
    user = quoted(spelled.denormalize_name(role))
    lines = [f"GRANT CREATE SESSION TO {user};"]
    for each in dict.fromkeys(legacy):
        if each.schema:
            parts = (each.schema, each.name)
            table = ".".join(quoted(spelled.denormalize_name(part)) for part in parts)
            lines.append(f"GRANT SELECT, INSERT, DELETE ON {table} TO {user};")
    return "\n".join(lines) + "\n"


def _double_quoted(*names: str) -> str:
    return ".".join(map(quoted, names))


def _bracketed(*names: str) -> str:
    """Return a name of SQL Server; sqlcmd takes double quotes for text unless told otherwise."""
    return ".".join("[" + name.replace("]", "]]") + "]" for name in names)


def _backticked(*names: str) -> str:
    return ".".join("`" + name.replace("`", "``") + "`" for name in names)


_QUOTES: Final = {"postgresql": _double_quoted, "mssql": _bracketed, "mysql": _backticked}


def _account(role: str) -> str:
    user, _, host = role.rpartition("@") if "@" in role else (role, "", "%")
    return f"{_literal(user)}@{_literal(host)}"


def _literal(value: str) -> str:
    return "'" + value.replace("\\", "\\\\").replace("'", "''") + "'"
