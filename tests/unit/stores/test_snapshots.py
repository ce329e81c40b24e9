"""SQL for databases that no test here can run, as it was reviewed, and as its parser reads it."""

from __future__ import annotations

import re
from importlib import import_module
from pathlib import Path
from typing import Final

import pytest
import sqlglot
from sqlalchemy import TextClause, select
from sqlalchemy.exc import CompileError
from sqlglot.errors import ErrorLevel

from migrator.database.portable import for_update
from migrator.ledger.migrations import sql as ledger_sql
from tests.support.statements import families, kind_of, tables, written

SNAPSHOTS: Final = Path(__file__).parent / "snapshots"
PARSERS: Final = {"mssql": "tsql", "oracle": "oracle", "mysql": "mysql"}
FAMILIES: Final = [name for name, _ in families("mssql")]
_UNKNOWN: Final = re.compile(r" VIRTUAL(?=,)| NONCLUSTERED| CHARACTER SET ascii(?= PATH)")
"""Words the parser does not know; a statement without them is one, too."""
_SEPARATOR: Final = {"mssql": r"\n+GO\n+", "oracle": r"\n+/\n+", "mysql": r";\n+"}


def parsed(statement: str, dialect: str) -> None:
    """Fail unless *statement* is one statement of the dialect, and nothing unknown."""
    known = _UNKNOWN.sub("", statement)
    found = sqlglot.parse(known, read=PARSERS[dialect], error_level=ErrorLevel.RAISE)
    assert [each for each in found if each is not None], statement


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("dialect", sorted(PARSERS))
def test_statements_are_the_reviewed_ones(
    dialect: str, family: str, request: pytest.FixtureRequest
) -> None:
    """What the program says is what a person has read, and what a parser understands."""
    statements = [written(dialect, each) for each in dict(families(dialect))[family]]
    for statement in statements:
        parsed(statement, dialect)
    path = SNAPSHOTS / dialect / f"{family}.sql"
    text = "".join(f"{statement};\n\n" for statement in statements)
    if request.config.getoption("--snapshot-update"):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    assert path.read_text() == text, "read the difference, then run with --snapshot-update"


@pytest.mark.parametrize("dialect", sorted(PARSERS))
def test_the_ledger_of_a_dba_is_the_reviewed_one(
    dialect: str, request: pytest.FixtureRequest
) -> None:
    """The whole history of the ledger, as `db sql` prints it, is readable, too."""
    text = re.sub(r" +$", "", ledger_sql(dialect, "migrator"), flags=re.MULTILINE)
    bare = re.sub(r"^--.*$", "", text, flags=re.MULTILINE)
    for statement in filter(str.strip, re.split(_SEPARATOR[dialect], bare)):
        parsed(statement, dialect)
    path = SNAPSHOTS / dialect / "ledger.sql"
    if request.config.getoption("--snapshot-update"):
        path.write_text(text)
    assert path.read_text() == text, "read the difference, then run with --snapshot-update"


@pytest.mark.parametrize("dialect", sorted(PARSERS))
def test_what_a_dialect_says_in_plain_text_parses(dialect: str) -> None:
    """Questions about tables, indexes and rights are statements of the dialect."""
    asked = [
        str(each)
        for part in (f"migrator.stores.sql.dialects.{dialect}", f"migrator.database.{dialect}")
        for each in vars(import_module(part)).values()
        if isinstance(each, TextClause)
    ]
    assert asked
    for statement in asked:
        parsed(statement, dialect)


def test_sql_server_is_never_asked_for_a_lock_without_a_hint() -> None:
    """A FOR UPDATE that SQL Server would not be told of does not compile."""
    _, _, ledger = tables("mssql")
    query = select(ledger.lease.c.name)
    assert "WITH (UPDLOCK, ROWLOCK)" in written("mssql", for_update(query, ledger.lease))
    with pytest.raises(CompileError, match="no hint"):
        query.with_for_update().compile(dialect=kind_of("mssql"))


def test_oracle_is_never_asked_for_a_lock_with_a_limit() -> None:
    """ORA-02014 is found when the statement is compiled, not when it is run."""
    _, _, ledger = tables("oracle")
    query = select(ledger.batch.c.id).order_by(ledger.batch.c.id).limit(5)
    with pytest.raises(CompileError, match="ORA-02014"):
        query.with_for_update().compile(dialect=kind_of("oracle"))


def test_only_one_place_asks_for_locks() -> None:
    """Every other file says ``portable.for_update``; dialects may know better."""
    root = Path(__file__).parents[3] / "migrator"
    asking = {
        str(path.relative_to(root))
        for path in root.rglob("*.py")
        if ".with_for_update(" in path.read_text()
    }
    assert {each for each in asking if "dialects/" not in each} == {
        "database/portable.py",
        "stores/sql/moving.py",  # PostgreSQL's and SQLite's way of claiming
    }
