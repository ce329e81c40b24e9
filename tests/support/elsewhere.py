"""What every statement that a test executes would be on SQL Server and on Oracle.

While tests run on the databases that are here, each statement of the program is compiled for the
two that are not, parsed, looked at for what those two refuse, and compared with what a person has
read: so none is forgotten. What the program says otherwise there is in ``ELSEWHERE``, and its
snapshot is among those of ``tests/unit/stores``.

A snapshot holds statements, not where they come from: whoever moves or renames code has nothing to
renew. ``--snapshot-update`` adds to it. For one without statements that are no longer sent, delete
it, and run ``tests/contract`` in the long form with that option.

Source: SQL Server documentation, "SELECT", "Aggregate functions", "ORDER BY"; Oracle
documentation, "Conditions", "Data types" ("LOB restrictions", "Empty strings").
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from itertools import chain
from pathlib import Path
from types import FrameType
from typing import Any, Final

import sqlglot
from sqlalchemy import (
    ClauseElement,
    Column,
    ColumnElement,
    Connection,
    Engine,
    Select,
    Table,
    Update,
    event,
)
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.sql import operators, visitors
from sqlalchemy.sql.dml import Insert, UpdateBase
from sqlalchemy.sql.elements import BinaryExpression, BindParameter
from sqlalchemy.sql.selectable import SelectBase
from sqlalchemy.types import TIMESTAMP, Text
from sqlglot import expressions as e
from sqlglot.errors import SqlglotError

from migrator.database.types import AsciiText
from migrator.ledger.tables import PREFIX
from migrator.stores.sql.local_time import LocalTime
from tests.support.statements import kind_of

SNAPSHOTS: Final = Path(__file__).parents[1] / "contract" / "statements"
_BETWEEN: Final = ";\n\n"
KINDS: Final = {"mssql": kind_of("mssql"), "oracle": kind_of("oracle")}
DONORS: Final = {"mssql": "postgresql", "oracle": "sqlite"}
"""On which database a statement is seen that is then written for another: its GUIDs are alike."""
_LEDGER_NAMES: Final = {"mssql": ("migrator_", "migrator."), "oracle": ("migrator.", "migrator_")}
"""How tables of the ledger are called on the donor, and there."""
_LEDGER_ONLY: Final = (
    "ledger/", "recovery/", "quarantine/",
    "stores/documents/", "stores/azure/", "stores/ravendb/",
)  # fmt: skip
"""Places that know no GUIDs of a legacy table, so that any database will do, but for ..."""
_APART: Final = ("mysql",)
"""... one whose ledger has a column of its own, and which returns nothing from a DELETE."""
ELSEWHERE: Final[dict[tuple[str, str], str]] = {
    # Oracle takes no limit with a lock
    ("oracle", "stores/documents/ledger.py DocumentLedger.begin_return"): "quarantine",
    # SQL Server compares no pairs, and neither of the two hashes
    ("mssql", "recall/queries.py rows_of"): "recall",
    ("mssql", "verify/queries.py LedgerAudit.known"): "verify",
    ("mssql", "verify/queries.py LedgerAudit._whole"): "verify",
    ("oracle", "verify/queries.py LedgerAudit._whole"): "verify",
    ("mssql", "verify/queries.py LedgerAudit.intact"): "verify",
    ("oracle", "verify/queries.py LedgerAudit.intact"): "verify",
    ("oracle", "verify/queries.py LedgerAudit.known"): "verify",
    ("oracle", "quarantine/rows.py SqlQuarantine._chosen"): "quarantine",
    ("oracle", "stores/sql/claims.py SqlClaims._release_some"): "quarantine",
}
ALSO_NULL: Final = frozenset(
    {
        "stores/sql/nhibernate.py unowned_rows",
        "stores/sql/nhibernate.py owners_in",
        "stores/sql/summary.py TableSummary._stream",
        "stores/sql/summary.py TableSummary._read",
    }
)
"""Places that ask for an empty text and for none alike, or that no empty text of Oracle reaches."""
_PARSERS: Final = {"mssql": "tsql", "oracle": "oracle"}
_PACKAGE: Final = Path(__file__).parents[2] / "migrator"
_OWN: Final = ("stores/sql/dialects/", "database/", "recovery/lost_window.py")
"""What a dialect says to its own database alone, and what only PostgreSQL is ever told."""
_PASSES_ON: Final = ("database/", "ledger/tables.py LedgerPart._read")
"""What only executes what somebody else says."""
_IN_LIST: Final = re.compile(r"__\[POSTCOMPILE_(\w+?)\]")
_UNKNOWN: Final = re.compile(r" OUTPUT deleted\.\w+")
"""What the parser does not know; a statement without it is one, too."""
_COMPARED: Final = frozenset(
    {operators.eq, operators.ne, operators.lt, operators.le, operators.gt, operators.ge,
     operators.in_op, operators.not_in_op}
)  # fmt: skip


class Watch:
    """Listens to statements while tests run, and looks at them afterwards.

    With *accepts*, statements that nobody has read are written down instead of refused.
    """

    def __init__(self, *, accepts: bool) -> None:
        self._heard: list[tuple[str, str, ClauseElement, Sequence[Mapping[str, Any]]]] = []
        self._flaws: list[str] = []
        self._accepts = accepts
        self._seen: set[tuple[object, ...]] = set()
        self._read = {kind: read_snapshot(kind) for kind in KINDS}

    def __enter__(self) -> Watch:
        """Begin."""
        event.listen(Engine, "before_execute", self._look)
        return self

    def __exit__(self, *_: object) -> None:
        """End, and keep what was accepted."""
        event.remove(Engine, "before_execute", self._look)
        if self._accepts:
            for kind, found in self._read.items():
                write_snapshot(kind, found | read_snapshot(kind))

    def _look(
        self,
        connection: Connection,
        element: object,
        many: Sequence[Mapping[str, Any]],
        one: Mapping[str, Any],
        _options: object,
    ) -> None:
        place = _place(sys._getframe(1))
        if place is None or place.startswith(_OWN):
            return
        if not isinstance(element, SelectBase | UpdateBase):
            return
        # a transaction is open, and the database waits only for a while
        self._heard.append((connection.dialect.name, place, element, [*many] or [one]))

    def forget(self) -> None:
        """Look at nothing that was said until now: other tests of this process said it."""
        self._heard.clear()

    def flaws(self) -> list[str]:
        """Return what is wrong with the statements since the last call."""
        heard, self._heard, self._flaws = self._heard, [], []
        for spoken_to, place, element, rows in heard:
            cached = element._generate_cache_key()
            bound = [each.value for each in cached.bindparams] if cached else [""]
            said = (spoken_to, place, cached.key if cached else str(element), tuple(rows[0]))
            has_empty_text = "" in bound or any("" in row.values() for row in rows)
            is_new = said not in self._seen
            self._seen.add(said)
            if not (is_new or has_empty_text) or _is_in_local_time(element):
                continue
            for kind, donor in DONORS.items():
                is_for_all = place.startswith(_LEDGER_ONLY) and spoken_to not in _APART
                is_alike = donor == spoken_to or is_for_all
                if is_alike and (kind, place) not in ELSEWHERE:
                    self._check(kind, place, element, rows, is_new=is_new)
        return self._flaws

    def _check(
        self,
        kind: str,
        place: str,
        element: ClauseElement,
        rows: Sequence[Mapping[str, Any]],
        *,
        is_new: bool,
    ) -> None:
        if place not in ALSO_NULL:
            self._flaws += [f"{place}: {flaw}" for flaw in empty_texts(element, rows)]
        if not is_new:
            return
        try:
            statement = written(kind, element, columns=[*rows[0]])
        except SQLAlchemyError as exc:
            self._flaws.append(f"{place} for {kind}: {exc}")
            return
        self._flaws += [f"{place} for {kind}: {f}" for f in flaws(kind, element, statement)]
        if self._accepts:
            self._read[kind].add(statement)
        elif statement not in self._read[kind]:
            self._flaws.append(
                f"{place}: nobody has read this for {kind} yet; run the test with "
                f"--snapshot-update, and read what it writes into tests/contract/statements\n"
                f"{statement}"
            )


def _is_in_local_time(element: ClauseElement) -> bool:
    """Return whether a due column holds local time, which it does on PostgreSQL alone."""
    written_to = element.table.c if isinstance(element, UpdateBase) else ()
    parts = chain(visitors.iterate(element), written_to)
    return any(isinstance(getattr(each, "type", None), LocalTime) for each in parts)


def read_snapshot(kind: str) -> set[str]:
    """Return the statements that were read."""
    path = SNAPSHOTS / f"{kind}.sql"
    return {*path.read_text().split(_BETWEEN)[:-1]} if path.exists() else set()


def write_snapshot(kind: str, found: Iterable[str]) -> None:
    """Write *found*, in an order that does not depend on that of the tests."""
    SNAPSHOTS.mkdir(exist_ok=True)
    text = "".join(each + _BETWEEN for each in sorted(found))
    (SNAPSHOTS / f"{kind}.sql").write_text(text)


def written(kind: str, element: ClauseElement, *, columns: list[str]) -> str:
    """Return *element* as that database is told it; all legacy tables of tests have one name."""
    is_change = isinstance(element, Insert | Update)
    compiled = element.compile(dialect=KINDS[kind], column_keys=columns if is_change else None)
    text = _IN_LIST.sub(r":\1", str(compiled)).strip()
    text = re.sub(r" +$", "", text, flags=re.MULTILINE)
    text = text.replace(*_LEDGER_NAMES[kind])
    for table in _tables(element):
        if table.name.endswith("TimeoutData"):
            name = KINDS[kind].identifier_preparer.format_table(table)
            text = text.replace(name, "timeouts")
    return text


def flaws(kind: str, element: ClauseElement, statement: str) -> Iterator[str]:
    """Yield what the database would refuse of *statement*, as far as it is known here."""
    yield from _of_text(kind, statement)
    yield from {"mssql": _of_narrow_text, "oracle": _of_oracle}[kind](element)


@cache
def _of_text(kind: str, statement: str) -> Sequence[str]:
    """Return what can be told from the text alone; each test says most of it once more."""
    parsable = _UNKNOWN.sub("", re.sub(r"(TOP|FIRST) :\w+", r"\1 1", statement))
    try:
        trees = sqlglot.parse(parsable, read=_PARSERS[kind])
    except SqlglotError as exc:
        return [f"does not parse: {exc}"]
    found: list[str] = []
    for tree in trees:
        if tree is not None:
            found += _of_any(tree)
            found += _of_sql_server(tree) if kind == "mssql" else ()
    return found


def empty_texts(element: ClauseElement, rows: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Yield empty texts where Oracle, which makes NULL of them, would see another meaning."""
    given = {(name, value) for row in rows for name, value in row.items() if value == ""}
    bound = [each for each in visitors.iterate(element) if isinstance(each, BindParameter)]
    if isinstance(element, Insert | Update):
        set_to: dict[Any, Any] = element._values or {}
        given |= {
            (str(getattr(column, "key", column)), _value(each)) for column, each in set_to.items()
        }
        bound = [each for each in bound if all(each is not other for other in set_to.values())]
    given |= {(each.key, each.value) for each in bound if each.value == ""}
    for name, value in given:
        if value == "" and not _takes_null(element, name):
            yield f"an empty text for {name} is NULL on Oracle: {element}"


def _value(expression: object) -> object:
    """Return the empty text if it is that."""
    is_empty = isinstance(expression, BindParameter) and expression.value == ""
    return "" if is_empty else None


def _takes_null(element: ClauseElement, name: str) -> bool:
    if not isinstance(element, Insert | Update) or not isinstance(element.table, Table):
        return False
    column = element.table.c.get(name)
    return isinstance(column, Column) and bool(column.nullable)


def _of_any(tree: Any) -> Iterator[str]:
    """Yield what neither takes: there are no booleans among the columns."""
    for select in tree.find_all(e.Select):
        for column in select.expressions:
            if isinstance(column.unalias(), e.Predicate | e.Connector | e.Not):
                yield f"selects a condition: {column}"
    for clause in tree.find_all(e.Where, e.Having, e.If):
        if isinstance(clause.this, e.Literal | e.Placeholder | e.Column | e.Boolean):
            yield f"takes a value for a condition: {clause}"
    for boolean in tree.find_all(e.Boolean):
        yield f"has a boolean: {boolean.parent}"


def _of_sql_server(tree: Any) -> Iterator[str]:
    for each in tree.find_all(e.In):
        if isinstance(each.this, e.Tuple):
            yield f"compares pairs: {each}"
    for aggregate in tree.find_all(e.AggFunc):
        if aggregate.find(e.Select):
            yield f"sums up a subquery: {aggregate}"
    for select in tree.find_all(e.Select):
        if select.parent and select.args.get("order") and not select.args.get("limit"):
            yield f"orders a subquery without TOP: {select}"


def _of_narrow_text(element: ClauseElement) -> Iterator[str]:
    """Yield text whose letters SQL Server would look up in a code page; no column here has one.

    But those that are ASCII alone.
    """
    compiled: Any = element.compile(dialect=KINDS["mssql"])
    for parameter, name in compiled.bind_names.items():
        if isinstance(parameter.type, AsciiText):
            continue
        told: Any = parameter.type._unwrapped_dialect_impl(KINDS["mssql"])
        if "SQL_VARCHAR" in str(told.get_dbapi_type(_Names())):
            yield f"binds {name} as VARCHAR"


def _of_oracle(element: ClauseElement) -> Iterator[str]:
    compiled: Any = element.compile(dialect=KINDS["oracle"])
    for part in visitors.iterate(element):
        if isinstance(part, BinaryExpression) and part.operator in _COMPARED:
            clobs = [side for side in (part.left, part.right) if _is_clob(side)]
            yield from (f"compares a CLOB: {part}" for _ in clobs)
        if isinstance(part, Select):
            sorted_by = [*part._group_by_clauses, *part._order_by_clauses]
            distinct = part.selected_columns if part._distinct else ()
            if any(_is_clob(column) for column in (*sorted_by, *distinct)):
                yield f"sorts by a CLOB: {part}"
    for parameter, name in compiled.bind_names.items():
        told: Any = parameter.type.dialect_impl(KINDS["oracle"])
        kept = parameter.type._unwrapped_dialect_impl(KINDS["oracle"])
        if isinstance(kept, TIMESTAMP) and told.get_dbapi_type(_Names()) != "TIMESTAMP":
            yield f"loses the fraction of a second: {name}"  # for the driver binds a DATE


class _Names:
    """A driver whose types are their names."""

    def __getattr__(self, name: str) -> str:
        return name


def _is_clob(part: object) -> bool:
    """Return whether a column of the ledger is a CLOB there; legacy ones have the donor's types."""
    if not isinstance(part, ColumnElement):
        return False
    of_ledger = [
        column
        for column in part.base_columns
        if str(getattr(getattr(column, "table", None), "name", "")).startswith(PREFIX)
    ]
    return any(isinstance(each.type.dialect_impl(KINDS["oracle"]), Text) for each in of_ledger)


def _tables(element: ClauseElement) -> set[Table]:
    return {each for each in visitors.iterate(element) if isinstance(each, Table)}


def _place(frame: FrameType | None) -> str | None:
    """Return which file and function of the program asks; None: a test does, or an inspector."""
    is_passed_on = False
    while frame is not None:
        file = _file(frame.f_code.co_filename)
        if file is None:
            return None
        if file:
            place = f"{file} {frame.f_code.co_qualname.partition('.<locals>')[0]}"
            is_passed_on |= "LedgerPart._read" in place  # whose caller says it
            if not is_passed_on or not place.startswith(_PASSES_ON):
                return place
        frame = frame.f_back
    return None


@cache  # asked for each frame under each statement
def _file(name: str) -> str | None:
    """Return which file of the program *name* is; "": one of a library; None: nobody's."""
    path = Path(name)
    if path.name == "reflection.py" or ("dialects" in path.parts[-4:] and ".venv" in path.parts):
        return None
    if path.is_relative_to(_PACKAGE):
        return str(path.relative_to(_PACKAGE))
    is_ours = path.is_relative_to(_PACKAGE.parent) and ".venv" not in path.parts
    return None if is_ours else ""
