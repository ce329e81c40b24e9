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
    if names.dialect == "mysql":
        return _grants_on_mysql(names, role, legacy)
    if names.dialect == "mssql":
        return _grants_on_mssql(names, role, legacy)
    if names.dialect == "oracle":
        return _grants_on_oracle(role, legacy)
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
    for used in sorted({each.schema for each in legacy}):
        lines.append(f"GRANT USAGE ON SCHEMA {quoted(used)} TO {user};")
    for each in dict.fromkeys(legacy):
        table, column = f"{quoted(each.schema)}.{quoted(each.name)}", quoted(each.lock_column)
        lines.append(f"GRANT SELECT, INSERT, DELETE, UPDATE ({column}) ON {table} TO {user};")
    return "\n".join(lines) + "\n"


def _grants_on_mysql(names: LedgerNames, role: str, legacy: Sequence[GrantedTable]) -> str:
    """Return GRANTs to be run in the database itself, so that none has to name it."""
    user, _, host = role.rpartition("@") if "@" in role else (role, "", "%")
    account = f"{_literal(user)}@{_literal(host)}"
    changed = [names.table(noun) for noun in _TABLES]
    lines = [
        f"GRANT SELECT, INSERT, UPDATE, DELETE ON {_backticked(t)} TO {account};" for t in changed
    ]
    read = [names.table(noun) for noun in _READ_ONLY]
    lines += [f"GRANT SELECT ON {_backticked(table)} TO {account};" for table in read]
    for each in dict.fromkeys(legacy):
        rights = f"SELECT, INSERT, DELETE, UPDATE ({_backticked(each.lock_column)})"
        lines.append(f"GRANT {rights} ON {_backticked(each.name)} TO {account};")
    return "\n".join(lines) + "\n"


def _grants_on_mssql(names: LedgerNames, role: str, legacy: Sequence[GrantedTable]) -> str:
    """Return GRANTs; locking hints want no more than SELECT."""
    user, schema = _bracketed(role), names.schema or "dbo"
    granted = [("SELECT, INSERT, UPDATE, DELETE", schema, names.table(noun)) for noun in _TABLES]
    granted += [("SELECT", schema, names.table(noun)) for noun in _READ_ONLY]
    granted += [("SELECT, INSERT, DELETE", t.schema, t.name) for t in dict.fromkeys(legacy)]
    lines = [
        f"GRANT {rights} ON {_bracketed(within)}.{_bracketed(name)} TO {user};"
        for rights, within, name in granted
    ]
    return "\n".join(lines) + "\n"


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


def _bracketed(name: str) -> str:
    """Return a name of SQL Server; sqlcmd takes double quotes for text unless told otherwise."""
    return "[" + name.replace("]", "]]") + "]"


def _backticked(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


def _literal(value: str) -> str:
    return "'" + value.replace("\\", "\\\\").replace("'", "''") + "'"
