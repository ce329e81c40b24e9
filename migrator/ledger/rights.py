"""The least rights in a database, by purpose: what ``migrator db grants`` prints.

Rules of this file: a user that may write may also read. Rows of ``event`` are inserted, never
changed and never deleted. Nothing here allows DDL. Tests run every verb under exactly these rights.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

from sqlalchemy.dialects import oracle

from migrator.documents import Document
from migrator.errors import LedgerError
from migrator.ledger.tables import LedgerNames, quoted


class GrantsDocument(Document, title="migrator/db-grants/1"):
    """`migrator db grants --json`."""

    user: str
    sql: str


class Purpose(StrEnum):
    READ = "read"
    """``status``, ``preview``, dry runs, lists; included in all others."""
    VERIFY = "verify"
    """``verify``, which records its result; with ``--deep`` it owns a lane meanwhile."""
    HAND_OVER = "hand-over"
    DISPATCH = "dispatch"
    ROLLBACK = "rollback"
    OPERATE = "operate"
    """``quarantine``, ``decommission``, ``db resolve``, ``db purge``, ``delays probe``."""
    ADOPT = "adopt"


_SELECT, _INSERT, _UPDATE, _DELETE = RIGHTS = ("SELECT", "INSERT", "UPDATE", "DELETE")
_ADDED: Final = (_INSERT,)
_CHANGED: Final = (_UPDATE,)
_KEPT: Final = (_INSERT, _UPDATE)

_NOUNS: Final = ("run", "batch", "timeout", "lease", "held_destination", "event")
_ONLY_READ: Final = ("ledger", "alembic_version", "progress")
_COUNTING: Final = frozenset({"run", "batch", "timeout", "event"})
"""Tables whose key the database generates."""
_WORK: Final = {
    "run": _KEPT,
    "batch": _KEPT,
    "timeout": _KEPT,
    "lease": _KEPT,
    "held_destination": (*_KEPT, _DELETE),
    "event": _ADDED,
}
_IN_LEDGER: Final[Mapping[Purpose, Mapping[str, Sequence[str]]]] = {
    Purpose.READ: {},
    Purpose.VERIFY: {"batch": _CHANGED, "lease": _KEPT, "event": _ADDED},
    Purpose.HAND_OVER: _WORK,
    Purpose.DISPATCH: _WORK | {"batch": (*_KEPT, _DELETE), "timeout": (*_KEPT, _DELETE)},
    Purpose.ROLLBACK: {
        "batch": _CHANGED,
        "timeout": _CHANGED,
        "lease": _KEPT,
        "held_destination": (_DELETE,),
        "event": _ADDED,
    },
    Purpose.OPERATE: {
        "batch": _KEPT,
        "timeout": (_UPDATE, _DELETE),
        "lease": _KEPT,
        "event": _ADDED,
    },
    Purpose.ADOPT: {
        "ledger": _CHANGED,
        "run": _ADDED,
        "batch": _KEPT,
        "timeout": _KEPT,
        "lease": _KEPT,
        "event": _ADDED,
    },
}
_DELETING: Final = {"timeout": (_DELETE,)}
_CLAIMING_DOCUMENTS: Final = {"batch": (_DELETE,), "timeout": (_DELETE,)}
"""Such a claim is recorded before its outcome is known."""

_LOCK: Final = "lock"
_IN_LEGACY: Final[Mapping[Purpose, Sequence[str]]] = {
    Purpose.READ: (),
    Purpose.VERIFY: (),
    Purpose.HAND_OVER: (_INSERT, _DELETE, _LOCK),
    Purpose.DISPATCH: (_INSERT, _DELETE, _LOCK),
    Purpose.ROLLBACK: (_INSERT,),
    Purpose.OPERATE: (),
    Purpose.ADOPT: (_DELETE, _LOCK),
}


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class GrantedTable:
    schema: str
    name: str
    lock_column: str
    """Locking rows needs UPDATE on one column, no matter which; nothing is ever updated."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    purposes: Collection[Purpose]
    purges: bool = False
    claims_documents: bool = False
    """The store is not SQL."""

    def in_ledger(self) -> Mapping[str, Sequence[str]]:
        """Tables and views to rights, in the order of ``RIGHTS``."""
        found = {noun: {_SELECT} for noun in (*_NOUNS, *_ONLY_READ)}
        of_all = [_IN_LEDGER[purpose] for purpose in self.purposes]
        if Purpose.HAND_OVER in self.purposes or Purpose.DISPATCH in self.purposes:
            of_all += [_DELETING] if self.purges else []
            of_all += [_CLAIMING_DOCUMENTS] if self.claims_documents else []
        for rights in of_all:
            for noun, names in rights.items():
                found[noun].update(names)
        return {noun: [each for each in RIGHTS if each in has] for noun, has in found.items()}

    def in_legacy(self) -> Sequence[str]:
        wanted = {_SELECT, *(each for purpose in self.purposes for each in _IN_LEGACY[purpose])}
        return [each for each in (*RIGHTS, _LOCK) if each in wanted]


def grants(names: LedgerNames, role: str, legacy: Sequence[GrantedTable], work: Work) -> str:
    """Return GRANTs for *role*: *work* on the ledger and on the *legacy* tables, but no DDL.

    *role* is ``user@host`` on MariaDB and MySQL, and without a host means any.

    Raises:
        LedgerError: The database has no users.
    """
    if names.dialect == "oracle":
        return _grants_on_oracle(role, legacy, work)
    if names.dialect not in _QUOTES:
        raise LedgerError("this kind of database has no users; file permissions decide")
    return "\n".join(_grants(names, role, legacy, work)) + "\n"


def _grants(
    names: LedgerNames, role: str, legacy: Sequence[GrantedTable], work: Work
) -> Iterator[str]:
    quote, dialect = _QUOTES[names.dialect], names.dialect
    user = _account(role) if dialect == "mysql" else quote(role)

    def grant(rights: Sequence[str], schema: str | None, name: str) -> str:
        # on MySQL they are run in the database itself, so that none has to name it
        table = quote(name) if schema is None or dialect == "mysql" else quote(schema, name)
        return f"GRANT {', '.join(rights)} ON {table} TO {user};"

    has_sequences = dialect == "postgresql"
    own = "dbo" if dialect == "mssql" and names.schema is None else names.schema
    in_ledger = work.in_ledger()
    if has_sequences:
        yield f"GRANT USAGE ON SCHEMA {quote(own or '')} TO {user};"
    for noun, rights in in_ledger.items():
        yield grant(rights, own, names.table(noun))
    if has_sequences:
        for noun in [each for each in in_ledger if each in _COUNTING]:
            if _INSERT in in_ledger[noun]:
                sequence = quote(own or "", f"{names.table(noun)}_id_seq")
                yield f"GRANT USAGE ON SEQUENCE {sequence} TO {user};"
        for schema in sorted({each.schema for each in legacy}):
            yield f"GRANT USAGE ON SCHEMA {quote(schema)} TO {user};"
    for each in dict.fromkeys(legacy):
        wanted = [right for right in work.in_legacy() if right != _LOCK]
        # hints that lock, of SQL Server, want no more than SELECT
        if _LOCK in work.in_legacy() and dialect != "mssql":
            wanted.append(f"UPDATE ({quote(each.lock_column)})")
        yield grant(wanted, each.schema, each.name)


def _grants_on_oracle(role: str, legacy: Sequence[GrantedTable], work: Work) -> str:
    """The user owns the ledger, so its tables need no GRANTs."""
    spelled: Any = oracle.dialect()  # type: ignore[no-untyped-call] # SQLAlchemy's
    user = quoted(spelled.denormalize_name(role))
    rights = ", ".join(right for right in work.in_legacy() if right != _LOCK)
    lines = [f"GRANT CREATE SESSION TO {user};"]
    for each in dict.fromkeys(legacy):
        if each.schema:
            parts = (each.schema, each.name)
            table = ".".join(quoted(spelled.denormalize_name(part)) for part in parts)
            lines.append(f"GRANT {rights} ON {table} TO {user};")
    return "\n".join(lines) + "\n"


def _double_quoted(*names: str) -> str:
    return ".".join(map(quoted, names))


def _bracketed(*names: str) -> str:
    """Sqlcmd takes double quotes for text by default."""
    return ".".join("[" + name.replace("]", "]]") + "]" for name in names)


def _backticked(*names: str) -> str:
    return ".".join("`" + name.replace("`", "``") + "`" for name in names)


_QUOTES: Final = {"postgresql": _double_quoted, "mssql": _bracketed, "mysql": _backticked}


def _account(role: str) -> str:
    user, _, host = role.rpartition("@") if "@" in role else (role, "", "%")
    return f"{_literal(user)}@{_literal(host)}"


def _literal(value: str) -> str:
    return "'" + value.replace("\\", "\\\\").replace("'", "''") + "'"
