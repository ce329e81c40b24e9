"""What is said to SQL Server, with which types, and how its answers are read; without a server."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import sqlalchemy as sa

from migrator.database.engine import open_engine
from migrator.errors import LedgerError, StoreUnavailable
from migrator.ledger import migrations
from migrator.ledger.tables import LedgerTables, build_tables, ledger_names
from tests.support import fake_odbc
from tests.support.fake_odbc import FakeOdbc


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> FakeOdbc:
    """What answers instead of a SQL Server."""
    found = FakeOdbc()
    found.install(monkeypatch)
    return found


@pytest.fixture
def engine(server: FakeOdbc) -> Iterator[sa.Engine]:
    """An engine as any command has it."""
    found = open_engine(fake_odbc.URL)
    yield found
    found.dispose()


@pytest.fixture
def ledger() -> LedgerTables:
    """The ledger's tables."""
    return build_tables(ledger_names("mssql"))


# ── the lock of an upgrade ──────────────────────────────────────────────────────────────────────


def test_the_lock_of_an_upgrade_is_the_sessions_and_is_given_back(
    server: FakeOdbc, engine: sa.Engine, ledger: LedgerTables
) -> None:
    """Before the first statement no transaction is open; the lock ends after the upgrade's."""

    def taken() -> list[tuple[int]]:
        is_refused = "'Transaction'" in server.said[-1][0] and not server.in_transaction
        return [(-999 if is_refused else 0,)]

    server.answer("sp_getapplock", taken)
    server.answer("CREATE SCHEMA", fake_odbc.error("42000", "No right to CREATE SCHEMA. (262) (S"))
    with pytest.raises(LedgerError, match="No right"):
        migrations.upgrade(engine, ledger)
    said = server.statements()
    lock = next(n for n, each in enumerate(said) if "sp_getapplock" in each)
    assert said[lock].rindex("SET NOCOUNT OFF") > said[lock].index("EXEC")
    assert "BEGIN TRAN" not in " ".join(said)
    ends = [each for each in said[lock + 2 :] if each == "ROLLBACK" or "releaseapplock" in each]
    assert [each.split(" @")[0] for each in ends[:2]] == ["ROLLBACK", "EXEC sp_releaseapplock"]
    assert "@LockOwner = 'Session'" in ends[1]
    assert said[lock + 1] == "COMMIT"


@pytest.mark.parametrize(
    ("taken", "failure", "told"),
    [
        (-1, StoreUnavailable, "somebody else is upgrading"),
        (-3, StoreUnavailable, "somebody else is upgrading"),
        (-999, LedgerError, "returned -999; nobody else has it"),
    ],
)
def test_a_refused_lock_is_told_from_one_that_somebody_has(
    taken: int,
    failure: type[Exception],
    told: str,
    server: FakeOdbc,
    engine: sa.Engine,
    ledger: LedgerTables,
) -> None:
    """Who is told that somebody else upgrades, looks for somebody; and nothing is given back."""
    server.answer("sp_getapplock", [(taken,)])
    with pytest.raises(failure, match=told):
        migrations.upgrade(engine, ledger)
    assert not any("releaseapplock" in each for each in server.statements())
