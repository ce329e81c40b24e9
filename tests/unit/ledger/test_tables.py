"""Grants, and what tells one database from another, without a database."""

from __future__ import annotations

import pytest

from migrator.errors import LedgerError
from migrator.ledger.identity import is_same
from migrator.ledger.rights import GrantedTable, Purpose, Work, grants
from migrator.ledger.tables import ledger_names

_ALL = Work(purposes=[*Purpose])


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
    lines = grants(ledger_names(dialect), role, [legacy, legacy], _ALL).splitlines()
    assert lines.count(expected) == 1
    assert lines[-1] == expected
    assert all(line.startswith("GRANT ") for line in lines)
    words = {*" ".join(lines[1:]).replace(",", " ").split()}
    assert not {"ALL", "CREATE", "TRUNCATE", "REFERENCES"} & words


@pytest.mark.parametrize("dialect", ["postgresql", "mysql", "mssql"])
@pytest.mark.parametrize("documents", [False, True])
def test_rights_follow_the_purpose(dialect: str, documents: bool) -> None:
    """Events are only ever added; a reader only reads; rows are deleted where something does so."""
    legacy = [GrantedTable(schema="x", name="old", lock_column="Id")]

    def rights(*purposes: Purpose, purges: bool = False) -> dict[str, str]:
        work = Work(purposes=purposes, purges=purges, claims_documents=documents)
        found = {}
        for line in grants(ledger_names(dialect), "u", legacy, work).splitlines():
            wanted, _, rest = line.removeprefix("GRANT ").partition(" ON ")
            found[rest.split()[0].rpartition(".")[2].strip('"`[]').removeprefix("migrator_")] = (
                wanted
            )
        return found

    assert rights(*Purpose)["event"] == "SELECT, INSERT"
    reading = rights(Purpose.READ)
    assert {right for name, right in reading.items() if right != "USAGE"} == {"SELECT"}
    moving, purging = rights(Purpose.HAND_OVER), rights(Purpose.HAND_OVER, purges=True)
    assert ("DELETE" in moving["timeout"], "DELETE" in purging["timeout"]) == (documents, True)
    assert "DELETE" in rights(Purpose.DISPATCH)["batch"]
    assert rights(Purpose.ROLLBACK)["old"] == "SELECT, INSERT"
    assert ("UPDATE" in rights(Purpose.ADOPT)["ledger"], moving["ledger"]) == (True, "SELECT")


def test_a_database_without_users_needs_no_grants() -> None:
    """File permissions decide there."""
    with pytest.raises(LedgerError, match="no users"):
        grants(ledger_names("sqlite"), "x", [], _ALL)


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
