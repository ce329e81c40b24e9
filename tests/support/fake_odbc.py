"""A driver that talks to no server: it gives what a test says a SQL Server would answer.

There is no SQL Server here, and pyodbc cannot be imported without unixODBC. What is shown with it
is what the program says, how it binds text, and how it reads errors; never what a server does.
Source: pyodbc wiki; SQL Server documentation, "sp_getapplock", "SET IMPLICIT_TRANSACTIONS".
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any, Final

import pytest

URL: Final = "mssql+pyodbc://user@host/db?driver=ODBC+Driver+18+for+SQL+Server"
MICROSOFTS: Final = "libmsodbcsql-18.5.so.1.1"
WVARCHAR: Final = -9
VARCHAR: Final = 12
_DRIVER_NAME: Final = 6

Error: Final = type("Error", (Exception,), {"__module__": "pyodbc"})
ProgrammingError: Final = type("ProgrammingError", (Error,), {"__module__": "pyodbc"})

Answer = Sequence[Sequence[Any] | dict[str, Any]] | Exception
"""Rows, with the names of their columns where these matter; or what is raised."""
_OPENS: Final = re.compile(r"\b(FROM|INSERT|UPDATE|DELETE|CREATE|ALTER)\b")
"""What begins a transaction where they begin implicitly."""


def error(state: str, message: str) -> Any:
    """Return an error as pyodbc raises it."""
    text = f"[{state}] [Microsoft][ODBC Driver 18 for SQL Server][SQL Server]{message}"
    return Error(state, text)


class FakeOdbc:
    """What is answered, and what was said."""

    def __init__(self) -> None:
        """Answer like an idle SQL Server 2022 with nothing in it."""
        self.said: list[tuple[str, tuple[Any, ...]]] = []
        """Statements with their values, and ``COMMIT`` and ``ROLLBACK`` without."""
        self.sizes: list[Any] = []
        """What the driver was told of the values of the last statement."""
        self.driver_name = MICROSOFTS
        self.in_transaction = False
        self.rollback_error: Exception | None = None
        self._answers: list[tuple[str, Answer | Callable[[], Answer]]] = []
        self.answer("ProductMajorVersion", [(16, 3)])
        self.answer("ProductVersion", [("16.0.4135.4",)])
        self.answer("schema_name", [("dbo",)])
        self.answer("FROM sys.system_views", [("dm_exec_sessions",)])
        self.answer("transaction_isolation_level", [("READ COMMITTED",)])

    def answer(self, pattern: str, answer: Answer | Callable[[], Answer]) -> None:
        """Answer a statement in which *pattern* is found; what was said last counts."""
        self._answers.insert(0, (pattern, answer))

    def install(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Be pyodbc for this test."""
        module: Any = ModuleType("pyodbc")
        module.paramstyle, module.version, module.pooling = "qmark", "5.2.0", True
        module.Error = module.DatabaseError = module.OperationalError = Error
        module.InterfaceError = module.IntegrityError = Error
        module.ProgrammingError = ProgrammingError
        module.Binary, module.BinaryNull = bytes, None
        module.SQL_VARCHAR, module.SQL_WVARCHAR = VARCHAR, WVARCHAR
        module.DATETIME, module.BINARY, module.NUMBER, module.STRING = object, bytes, float, str
        module.SQL_DRIVER_NAME = _DRIVER_NAME
        module.Cursor = _Cursor
        module.connect = lambda *_, **__: _Connection(self)
        monkeypatch.setitem(__import__("sys").modules, "pyodbc", module)

    def asked(self, statement: str, values: tuple[Any, ...]) -> Answer:
        """Return what is answered."""
        self.said.append((statement, values))
        self.in_transaction |= bool(_OPENS.search(statement))
        for pattern, found in self._answers:
            if re.search(pattern, statement, re.DOTALL):
                return found() if callable(found) else found
        return []

    def values(self) -> tuple[Any, ...]:
        """Return the values of the last statement."""
        return next(values for statement, values in reversed(self.said) if " " in statement)

    def statements(self) -> list[str]:
        """Return what was said, without values."""
        return [statement for statement, _ in self.said]


class _Connection:
    autocommit = False
    timeout = 0

    def __init__(self, server: FakeOdbc) -> None:
        self._server = server

    def cursor(self) -> _Cursor:
        return _Cursor(self._server)

    def commit(self) -> None:
        self._server.said.append(("COMMIT", ()))
        self._server.in_transaction = False

    def rollback(self) -> None:
        self._server.said.append(("ROLLBACK", ()))
        self._server.in_transaction = False
        if self._server.rollback_error is not None:
            raise self._server.rollback_error

    def close(self) -> None:
        pass

    def getinfo(self, what: int) -> str:
        return self._server.driver_name if what == _DRIVER_NAME else "16.00.4135"

    def add_output_converter(self, *_: object) -> None:
        pass


class _Cursor:
    rowcount = -1
    description: Any = None

    def __init__(self, server: FakeOdbc) -> None:
        self._server = server
        self._rows: list[Sequence[Any]] = []

    def execute(self, statement: str, *values: Any) -> _Cursor:
        found = self._server.asked(statement, values[0] if values else ())
        if isinstance(found, Exception):
            raise found
        first = found[0] if found else ("c0",)
        names = [*first] if isinstance(first, dict) else [f"c{n}" for n in range(len(first))]
        self._rows = [tuple(row.values()) if isinstance(row, dict) else row for row in found]
        self.description = (
            [(name, None, None, None, None, None, True) for name in names]
            if found or re.search(r"^(SELECT|WITH)\b|\bOUTPUT\b", statement)
            else None
        )
        self.rowcount = len(found)
        return self

    def executemany(self, statement: str, many: Sequence[Any]) -> None:
        for values in many:
            self.execute(statement, values)

    def fetchone(self) -> Sequence[Any] | None:
        return self._rows.pop(0) if self._rows else None

    def fetchall(self) -> list[Sequence[Any]]:
        found, self._rows = self._rows, []
        return found

    def fetchmany(self, size: int = 1) -> list[Sequence[Any]]:
        found, self._rows = self._rows[:size], self._rows[size:]
        return found

    def setinputsizes(self, sizes: Sequence[Any]) -> None:
        self._server.sizes = [*sizes]

    def nextset(self) -> bool:
        return False

    def close(self) -> None:
        pass
