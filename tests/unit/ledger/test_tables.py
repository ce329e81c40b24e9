"""Names, quoting and grants, without a database."""

from __future__ import annotations

import pytest

from migrator.errors import LedgerError
from migrator.ledger.grants import GrantedTable, grants
from migrator.ledger.identity import is_same
from migrator.ledger.tables import build_tables, ledger_names, quoted


def test_postgresql_has_a_schema_and_sqlite_a_prefix() -> None:
    """Exactly one of the two."""
    assert ledger_names("postgresql", "mine").schema == "mine"
    assert ledger_names("postgresql", "mine").table("batch") == "batch"
    assert ledger_names("sqlite", "mine").schema is None
    assert ledger_names("sqlite", "mine").table("batch") == "migrator_batch"


def test_lease_names_and_lanes_match() -> None:
    """A lane's lease is found again from its name."""
    tables = build_tables(ledger_names("sqlite"))
    assert tables.lease_name(12) == "lane.12"
    assert tables.lane_of("lane.12") == 12


def test_quotes_in_names_are_doubled() -> None:
    """A name cannot end its own quotes."""
    assert quoted('a"; DROP TABLE b; --') == '"a""; DROP TABLE b; --"'


LEGACY = GrantedTable(schema="Sales EU", name='x"TimeoutData', lock_column="PersistenceVersion")


def test_grants_allow_no_ddl_and_touch_nothing_else() -> None:
    """Rows only; on the legacy table one column may be locked."""
    text = grants(ledger_names("postgresql"), 'o"neil', [LEGACY])
    assert all(line.startswith("GRANT ") for line in text.splitlines())
    assert 'TO "o""neil";' in text
    assert not {"ALL", "CREATE", "TRUNCATE", "REFERENCES"} & set(text.replace(",", " ").split())
    (legacy,) = [line for line in text.splitlines() if "TimeoutData" in line]
    assert legacy == (
        'GRANT SELECT, INSERT, DELETE, UPDATE ("PersistenceVersion") '
        'ON "Sales EU"."x""TimeoutData" TO "o""neil";'
    )


def test_databases_without_users_need_no_grants() -> None:
    """Said plainly instead of printing nothing."""
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
