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
PARSERS: Final = {"mssql": "tsql", "oracle": "oracle"}
_UNKNOWN: Final = re.compile(r" VIRTUAL(?=,)| NONCLUSTERED")
"""Words the parser does not know; a statement without them is one, too."""
_SEPARATOR: Final = {"mssql": r"\n+GO\n+", "oracle": r"\n+/\n+"}


def parsed(statement: str, dialect: str) -> None:
    """Fail unless *statement* is one statement of the dialect, and nothing unknown."""
    known = _UNKNOWN.sub("", statement)
    found = sqlglot.parse(known, read=PARSERS[dialect], error_level=ErrorLevel.RAISE)
    assert [each for each in found if each is not None], statement


def reviewed(path: Path, text: str, *, accepts: bool) -> None:
    """Fail unless *text* is what a person has read."""
    if accepts:
        path.write_text(text)
    assert path.read_text() == text, "read the difference, then run with --snapshot-update"


@pytest.mark.parametrize("dialect", PARSERS)
def test_statements_are_the_reviewed_ones(dialect: str, request: pytest.FixtureRequest) -> None:
    """What the program says is what a person has read, and what a parser understands."""
    accepts = request.config.getoption("--snapshot-update")
    for family, statements in families(dialect):
        texts = [written(dialect, each) for each in statements]
        for text in texts:
            parsed(text, dialect)
        path = SNAPSHOTS / dialect / f"{family}.sql"
        reviewed(path, "".join(f"{text};\n\n" for text in texts), accepts=accepts)


@pytest.mark.parametrize("dialect", PARSERS)
def test_the_ledger_of_a_dba_is_the_reviewed_one(
    dialect: str, request: pytest.FixtureRequest
) -> None:
    """The whole history of the ledger, as `db sql` prints it, is readable, too."""
    text = re.sub(r" +$", "", ledger_sql(dialect, "migrator"), flags=re.MULTILINE)
    bare = re.sub(r"^--.*$", "", text, flags=re.MULTILINE)
    for statement in filter(str.strip, re.split(_SEPARATOR[dialect], bare)):
        parsed(statement, dialect)
    path = SNAPSHOTS / dialect / "ledger.sql"
    reviewed(path, text, accepts=request.config.getoption("--snapshot-update"))


@pytest.mark.parametrize("dialect", PARSERS)
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


def test_a_lock_that_two_databases_would_leave_out_or_refuse_does_not_compile() -> None:
    """SQL Server is told by a hint or not at all; Oracle takes none with a limit (ORA-02014)."""
    _, _, ledger = tables("mssql")
    query = select(ledger.lease.c.name)
    assert "WITH (UPDLOCK, ROWLOCK)" in written("mssql", for_update(query, ledger.lease))
    first = query.order_by(ledger.lease.c.name).limit(5)
    for kind, said in (("mssql", "no hint"), ("oracle", "ORA-02014")):
        with pytest.raises(CompileError, match=said):
            first.with_for_update().compile(dialect=kind_of(kind))


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
