"""Grants, and what tells one database from another, without a database."""

from __future__ import annotations

import pytest

from migrator.errors import LedgerError
from migrator.ledger.grants import GrantedTable, grants
from migrator.ledger.identity import is_same
from migrator.ledger.tables import ledger_names


def test_grants_allow_no_ddl_and_touch_nothing_else() -> None:
    """Rows only; on the legacy table one column may be locked; no name can end its quotes."""
    legacy = GrantedTable(schema="Sales EU", name='x"TimeoutData', lock_column="Version")
    text = grants(ledger_names("postgresql"), 'o"neil', [legacy])
    assert all(line.startswith("GRANT ") for line in text.splitlines())
    assert not {"ALL", "CREATE", "TRUNCATE", "REFERENCES"} & set(text.replace(",", " ").split())
    assert (
        'GRANT SELECT, INSERT, DELETE, UPDATE ("Version") '
        'ON "Sales EU"."x""TimeoutData" TO "o""neil";'
    ) in text.splitlines()
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
