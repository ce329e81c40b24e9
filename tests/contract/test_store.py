"""What every store promises about looking, over every database."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import pytest

from migrator.errors import UnknownEndpoint
from migrator.preflight.checks_store import vendor_run
from migrator.preflight.context import Level
from migrator.stores.ravendb import listing
from migrator.stores.sql import store as store_module
from migrator.stores.sql.seeding import SeedSpec, create_table, insert_rows, invent
from migrator.stores.sql.sql_persistence import Placement
from tests.contract.any_site import NOW, AnySite, LegacyRow, hours, timeout_id
from tests.contract.site import Site
from tests.unit.preflight.fakes import context

pytestmark = pytest.mark.every_store(slow=True)


@pytest.mark.own_table
def test_discovery_finds_timeouts_tables_by_their_columns(site: Site) -> None:
    """Tables with the right name but other columns, and the vendor's copies, are no endpoints."""
    assert site.store.endpoints() == []
    for table in ("Sales_TimeoutData", "Billing_EU_TimeoutData", "fooTimeoutData"):
        create_table(site.engine, site.store.blank(site.source_of(table)))
    copy = site.source_of("TimeoutData_migration_abc_TimeoutData")
    create_table(site.engine, site.store.blank(copy))
    site.execute('CREATE TABLE "Other_TimeoutData" ("Id" integer)')
    site.execute('CREATE TABLE "Plain" ("Id" integer)')
    assert [endpoint.name for endpoint in site.store.endpoints()] == ["Billing_EU", "Sales", "foo"]


@pytest.mark.own_table
@pytest.mark.parametrize("asked", ["Sales.Orders", "Sales_Orders"])
def test_find_understands_both_names(site: Site, asked: str) -> None:
    """Operators may write the endpoint's own name or the one the table shows."""
    site.create()
    endpoint = site.store.find(asked)
    assert (endpoint.name, endpoint.source) == (asked, site.source)


@pytest.mark.own_table
def test_configured_names_are_shown_as_written(build_site: Callable[..., Site]) -> None:
    """The table cannot tell dots from underscores; the operator can."""
    site = build_site(placements={"Sales.Orders": Placement()})
    site.create()
    assert [endpoint.name for endpoint in site.store.endpoints()] == ["Sales.Orders"]


def own(name: str, number: int, destination: str | None = None) -> LegacyRow:
    """Return a row that *name* sent, to itself unless *destination* is given."""
    headers = json.dumps({"NServiceBus.OriginatingEndpoint": name})
    return LegacyRow(id=timeout_id(number), destination=destination or name, headers=headers)


@pytest.mark.own_table
@pytest.mark.parametrize(
    ("rows", "name"),
    [
        ([own("Sales.Orders", 1), own("Billing", 2)], "Sales.Orders"),
        ([own("Sales.Orders", 1, "Sales.Orders@APP01")], "Sales.Orders"),
        ([own("Sales_Orders", 1)], "Sales_Orders"),
        ([own("Sales.Orders", 1), own("Sales_Orders", 2)], None),
        ([own("Sales.Orders", 1, "Sales_Orders"), own("Billing", 2, "Sales.Orders")], None),
        ([own("Billing", 1), LegacyRow(id=timeout_id(2), headers="{"), own("", 3, "@M")], None),
        ([], None),
    ],
    ids=["its own", "a machine", "no dots", "contradictory", "half", "of others", "none"],
)
def test_rows_tell_the_name_of_their_endpoint(
    site: Site, rows: list[LegacyRow], name: str | None
) -> None:
    """If they were sent by it and to it; a name that is not certain is the table's, with a hint."""
    source = site.create(rows).source
    (found,) = site.store.endpoints()
    spelled = "SALES_ORDERS" if site.kind == "oracle" else "Sales_Orders"
    assert (found.name, found.source) == (name or spelled, source)
    remarks = [each for each in site.store.remarks() if "is called" in each.text]
    assert [each.subject for each in remarks] == ([] if name or not rows else [source])
    assert site.open_store().find(spelled).name == spelled


@pytest.mark.own_table
def test_an_endpoint_keeps_its_name_when_its_rows_are_gone(site: Site) -> None:
    """The ledger knows it from a run, whatever rows say later; this process, if it was named."""
    endpoint = site.create([own("Sales.Orders", 1)])
    site.claim(endpoint, site.lease(), max_rows=1)
    for rows in ([], [own("Sales_Orders", 2)]):
        site.insert(rows)
        assert [each.name for each in site.open_store().endpoints()] == ["Sales.Orders"]
    site.store.find("Sales_Orders")
    assert [each.name for each in site.store.endpoints()] == ["Sales_Orders"]


@pytest.mark.every_store
def test_discovery_tells_whose_timeouts_there_are(site: AnySite) -> None:
    """Sorted by name, each once; one that nobody knows is refused with the names there are."""
    site.create(hours(2))
    other = site.second("Billing")
    other.create(hours(1, start=5))
    names = [str(each.name) for each in site.store.endpoints()]
    assert names == sorted(set(names))
    assert {"Billing", names[-1]} <= set(names)
    with pytest.raises(UnknownEndpoint) as caught:
        site.store.find("Sale.Orders")
    assert caught.value.known == tuple(names)
    assert site.store.find(site.endpoint_name).source == site.source
    other.close()


@pytest.mark.every_store
def test_scan_yields_every_row_once(site: AnySite, monkeypatch: pytest.MonkeyPatch) -> None:
    """Pages together are all there is, whatever the due times."""
    monkeypatch.setattr(store_module, "CHUNK_ROWS", 4)
    monkeypatch.setattr(listing, "PAGE_DOCUMENTS", 4)
    endpoint = site.create(hours(8))
    chunks = [chunk for chunk in site.store.scan(endpoint) if chunk]
    assert len(chunks) > 1
    assert sorted(row.id for chunk in chunks for row in chunk) == [timeout_id(n) for n in range(8)]


def test_scan_reports_a_row_as_it_is(site: AnySite) -> None:
    """Everything preview needs, and no body."""
    row = LegacyRow(id=timeout_id(1), body=b"xyz", destination=None, headers=None)
    ((found,),) = site.store.scan(site.create([row]))
    assert (found.id, found.destination, found.headers_text) == (row.id, None, None)
    assert (found.body_bytes, found.is_in_ledger) == (3, False)
    assert found.due_at == datetime(2026, 3, 1, 13, 0, 0, 123456, tzinfo=UTC)


@pytest.mark.every_store
def test_scan_shows_unusable_due_times_as_none(site: AnySite) -> None:
    """Rows no timeout manager would ever send have no due time, and break nothing."""
    rows = [LegacyRow(id=timeout_id(n), due=due) for n, due in enumerate(site.unusable_times)]
    found = [row for page in site.store.scan(site.create(rows)) for row in page]
    assert {row.id for row in found} == {row.id for row in rows}
    assert {row.due_at for row in found} == {None}


@pytest.mark.every_store
def test_scan_knows_what_the_ledger_has(site: AnySite) -> None:
    """A row that will not be claimed is marked as such."""
    endpoint, lease = site.create(hours(2)), site.lease()
    site.claim(endpoint, lease, max_rows=1)
    site.insert(hours(1))
    (chunk,) = site.store.scan(endpoint)
    assert {row.id: row.is_in_ledger for row in chunk} == {
        timeout_id(0): True,
        timeout_id(1): False,
    }


@pytest.mark.own_table
def test_scan_goes_on_while_rows_vanish(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows deleted between chunks do not make it skip others."""
    monkeypatch.setattr(store_module, "CHUNK_ROWS", 3)
    endpoint = site.create(hours(9))
    seen = []
    for chunk in site.store.scan(endpoint):
        seen += [row.id for row in chunk]
        site.execute(f"DELETE FROM {site.quoted()} WHERE \"Id\" = '{chunk[-1].id}'")
    assert seen == [timeout_id(n) for n in range(9)]


@pytest.mark.every_store
@pytest.mark.parametrize("rows", [0, 3])
def test_a_trial_claim_changes_nothing(site: AnySite, rows: int) -> None:
    """It may be made on a live system, with or without rows."""
    endpoint = site.create(hours(rows))
    site.store.trial_claim(endpoint)
    assert (site.legacy_rows(), site.remains()) == (hours(rows), [])
    assert site.ledger_rows() == []
    assert site.states() == {}


def vendor_findings(site: AnySite) -> list[tuple[Level, str]]:
    """Return what the preflight check finds."""
    found = vendor_run(context(store=site.store))
    return [(each.level, each.text) for each in found]


@pytest.mark.every_store
def test_a_half_finished_run_is_refused(site: AnySite) -> None:
    """Two tools at the same timeouts lose some: until it is finished or aborted with that tool."""
    site.create(hours(1))
    before = vendor_findings(site)
    assert [level for level, _ in before] == [Level.OK]
    with site.vendor_run():
        found = vendor_findings(site)
        assert {level for level, _ in found} == {Level.REFUSED}
        assert any(site.endpoint_name in text for _, text in found)
        assert not any("secret" in text for _, text in found)
    assert vendor_findings(site) == before


@pytest.mark.own_table
@pytest.mark.parametrize(
    ("status_type", "status", "is_open"),
    [("int", "0", True), ("varchar(15)", "1", True), ("varchar(15)", "2", False)],
)
def test_a_vendor_run_is_open_until_it_is_completed_or_aborted(
    site: Site, status_type: str, status: str, is_open: bool
) -> None:
    """Its number is kept as text or number, depending on the tool's version."""
    site.execute(
        'CREATE TABLE "TimeoutsMigration_State" ("MigrationRunId" varchar(500), '
        f'"EndpointName" varchar(500), "Status" {status_type})'
    )
    number = int(status) if status_type == "int" else status
    statement = "INSERT INTO \"TimeoutsMigration_State\" VALUES ('abc', 'Sales', :status)"
    site.execute(statement, status=number)
    assert len(site.store.unfinished_vendor_runs()) == is_open


@pytest.mark.own_table
@pytest.mark.parametrize(("row_status", "count"), [(0, 1), (1, 1), (2, 0)])
def test_a_damaged_vendor_run_is_reported(site: Site, row_status: int, count: int) -> None:
    """Rows in a vendor's table without an open run are somebody's timeouts."""
    site.execute('CREATE TABLE "TimeoutData_migration_abc" ("Id" varchar(38), "Status" int)')
    site.execute("INSERT INTO \"TimeoutData_migration_abc\" VALUES ('1', :s)", s=row_status)
    assert len(site.store.unfinished_vendor_runs()) == count


@pytest.mark.every_store
@pytest.mark.tables
def test_invented_rows_can_be_claimed(site: Site) -> None:
    """Seeding writes what the persistence writes, and the same seed writes it again."""
    what = SeedSpec(
        endpoint="Sales.Orders",
        count=50,
        due_from=NOW,
        due_until=NOW + timedelta(days=1),
        destinations=("Sales.Orders", "Billing"),
        body_bytes=500,
    )
    endpoint = site.create()
    assert insert_rows(site.engine, site.store.blank(site.source), invent(what)) == 50
    assert list(invent(what)) == list(invent(what))
    claim = site.claim(endpoint, site.lease(), due_after=NOW - timedelta(seconds=1))
    assert (claim.batch.size, claim.batch.body_bytes) == (50, 50 * 500)
    assert {row.destination for row in site.batches.rows(claim.batch)} == {
        "Sales.Orders",
        "Billing",
    }
