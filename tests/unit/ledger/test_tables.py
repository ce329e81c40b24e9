"""Grants, and what tells one database from another, without a database."""

from __future__ import annotations

import pytest

from migrator.errors import LedgerError
from migrator.ledger.identity import is_same
from migrator.ledger.migrations import GrantedTable, grants
from migrator.ledger.tables import ledger_names


@pytest.mark.parametrize(
    ("dialect", "role", "legacy", "expected"),
    [
        (
            "postgresql",
            'o"neil',
            GrantedTable(schema="Sales EU", name='x"TimeoutData', lock_column="Version"),
            'GRANT SELECT, INSERT, DELETE, UPDATE ("Version") ON "Sales EU"."x""TimeoutData" '
            'TO "o""neil";',
        ),
        (
            "mssql",
            "us]er",
            GrantedTable(schema="dbo", name="a]b", lock_column="Version"),
            "GRANT SELECT, INSERT, DELETE ON [dbo].[a]]b] TO [us]]er];",
        ),
        (
            "oracle",
            "daemon",
            GrantedTable(schema="sales", name="sales_to", lock_column=""),
            'GRANT SELECT, INSERT, DELETE ON "SALES"."SALES_TO" TO "DAEMON";',
        ),
    ],
)
def test_grants_are_no_more_than_is_needed(
    dialect: str, role: str, legacy: GrantedTable, expected: str
) -> None:
    """Rows only; on the legacy table one column may be locked; no name can end its quotes."""
    lines = grants(ledger_names(dialect), role, [legacy, legacy]).splitlines()
    assert lines.count(expected) == 1
    assert lines[-1] == expected
    assert all(line.startswith("GRANT ") for line in lines)
    words = {*" ".join(lines[1:]).replace(",", " ").split()}
    assert not {"ALL", "CREATE", "TRUNCATE", "REFERENCES"} & words


def test_a_database_without_users_needs_no_grants() -> None:
    """File permissions decide there."""
    with pytest.raises(LedgerError, match="no users"):
        grants(ledger_names("sqlite"), "x", [])


@pytest.mark.parametrize(
    ("stored", "present", "same"),
    [
        ("postgresql:1:5", "postgresql:1:5", True),
        ("postgresql:1:5", "postgresql:1:6", False),
        ("postgresql:1:5", "postgresql:2:5", False),
        ("postgresql:1:5", "postgresql:-:5", True),
        ("postgresql:-:5", "postgresql:2:5", True),
        ("postgresql:-:5", "postgresql:-:6", False),
        ("sqlite:/a", "sqlite:/b", False),
        ("sqlite:/a:b", "postgresql:1:5", False),
    ],
)
def test_identities_differ_unless_they_cannot_be_told_apart(
    stored: str, present: str, same: bool
) -> None:
    """A server that hides its identifier is recognised by the database alone."""
    assert is_same(stored, present) is same
