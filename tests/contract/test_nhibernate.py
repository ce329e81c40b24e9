"""What NHibernate's table promises beyond what every store does, over every database."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from sqlalchemy import event, text

from migrator.database.engine import reading
from migrator.decommission.queries import DecommissionDatabase
from migrator.errors import StoreError, UnknownEndpoint
from migrator.stores.sql.nhibernate import NHibernateOptions, NHibernateStore
from migrator.stores.sql.seeding import create_table
from migrator.stores.sql.store import TableStore
from tests.contract.nhibernate_site import NHibernateSite
from tests.contract.site import NOW, Site, due_in, hours, timeout_id

pytestmark = pytest.mark.shared_table

_store: type[TableStore] = NHibernateStore

SALES, OTHER = "Sales.Orders", "Other.Endpoint"
ODD = 'Sales "EU"#1; --\'%'


@pytest.fixture
def build(build_site: Callable[..., NHibernateSite]) -> Callable[..., NHibernateSite]:
    """Build a site with options of NHibernate's."""

    def with_options(**options: object) -> NHibernateSite:
        return build_site(options=NHibernateOptions(**options))  # type: ignore[arg-type]

    return with_options


def names(site: Site) -> list[str]:
    """Return the endpoints there are."""
    return [str(endpoint.name) for endpoint in site.store.endpoints()]


def without_index(site: NHibernateSite, suffix: str = "EndpointIdx") -> None:
    """Drop an index."""
    index = f"TimeoutEntity_{suffix}"
    on = f" ON {site.quoted()}" if site.is_mysql else ""
    site.execute(f"DROP INDEX {index}{on}")


# ── endpoints ───────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("is_indexed", [True, False])
def test_endpoints_are_those_of_the_rows(site: NHibernateSite, is_indexed: bool) -> None:
    """Each once, with or without an index to walk; what belongs to nobody is no endpoint."""
    site.create(hours(3))
    site.insert(hours(2, start=5), source=f"x#{ODD}")
    site.insert(hours(1, start=8), source="x#")
    site.execute(f"UPDATE {site.quoted()} SET Endpoint = NULL WHERE Endpoint = ''")
    site.insert(hours(1, start=9), source="x#")
    if not is_indexed:
        without_index(site)
    fresh = site.second()
    assert names(fresh) == sorted([SALES, OTHER, ODD])
    of_nobody = fresh.store.remarks()[-1]
    assert of_nobody.text.startswith("2 rows belong to no endpoint")
    fresh.close()


def test_the_walk_looks_once_for_each_endpoint(site: NHibernateSite) -> None:
    """A million rows of three endpoints are three looks, not a million rows."""
    site.create(hours(20))
    site.insert(hours(20, start=30), source="x#Z")
    asked: list[str] = []

    def note(*given: Any) -> None:
        asked.append(given[2].lower())

    event.listen(site.engine, "before_cursor_execute", note)
    found = names(site)
    event.remove(site.engine, "before_cursor_execute", note)
    assert found == [OTHER, SALES, "Z"]
    assert sum("min(" in statement for statement in asked) == 4
    assert not any("distinct" in statement for statement in asked)


def test_an_endpoint_whose_rows_are_all_claimed_is_still_one(site: NHibernateSite) -> None:
    """Else nobody could roll it back; the settings' endpoints are there without any row."""
    endpoint, lease = site.create(hours(2)), site.lease()
    claim = site.claim(endpoint, lease)
    fresh = site.second()
    assert names(fresh) == [OTHER, SALES]
    assert fresh.store.find(SALES) == endpoint
    fresh.close()
    site.claims.release(claim.batch, lease)
    assert site.legacy_rows() == hours(2)


def test_endpoints_of_the_settings_need_no_rows(
    build: Callable[..., NHibernateSite],
) -> None:
    """A dispatcher stores its first row there; who is not named and has none is unknown."""
    site = build(names=["New.One"])
    site.create()
    assert names(site) == ["New.One", OTHER]
    with pytest.raises(UnknownEndpoint) as caught:
        site.store.find(SALES)
    assert caught.value.known == ("New.One", OTHER)


def test_a_database_without_the_table_has_no_endpoints(site: NHibernateSite) -> None:
    """Empty is an answer, and so is what a source would be."""
    assert names(site) == []
    assert site.store.remarks() == []
    with pytest.raises(StoreError, match="timeoutentity#Sales" if site.has_schemas else "#"):
        site.store.legacy_table(f"{site.table}#Sales")


def test_letter_case_is_as_the_database_sees_it(build: Callable[..., NHibernateSite]) -> None:
    """Where it finds two names equal they are one endpoint, spelled as in the settings."""
    site = build(names=[SALES])
    site.create(hours(1))
    site.insert(hours(1, start=1), source=f"x#{SALES.upper()}")
    found = {str(endpoint.name): endpoint for endpoint in site.store.endpoints()}
    lease = site.lease()
    claim = site.claim(found[SALES], lease)
    if site.is_mysql or site.kind == "mssql":
        assert [*found] == [OTHER, SALES]
        assert site.store.find(SALES.upper()) == found[SALES]
        assert claim.batch.size == 2
        site.claims.release(claim.batch, lease)
        assert len(site.legacy_rows()) == 2
        with reading(site.engine) as connection:
            spelled = connection.scalars(text(f"SELECT Endpoint FROM {site.quoted()}")).all()
        assert sorted(spelled) == sorted([OTHER, SALES, SALES.upper()])  # each as it was
    else:
        assert sorted(found) == sorted([OTHER, SALES, SALES.upper()])
        assert claim.batch.size == 1


# ── the table ───────────────────────────────────────────────────────────────────────────────────


def test_table_and_columns_may_have_other_names(build: Callable[..., NHibernateSite]) -> None:
    """A naming strategy of NHibernate may have chosen them."""
    site = build(table="NSB_Timeouts", columns={"Time": "DueAt", "Endpoint": "Owner"})
    source = site.store.source_of(SALES)
    assert source.casefold().endswith("nsb_timeouts#sales.orders")
    create_table(site.engine, site.store.blank(source))
    columns = "Id, State, Headers, DueAt, Owner"
    value = "CAST(:due AS timestamp)" if site.has_schemas else ":due"
    site.execute(
        f"INSERT INTO NSB_Timeouts ({columns}) VALUES (:id, NULL, NULL, {value}, '{SALES}')",
        id=site.stored(timeout_id(1)),
        due=due_in(timedelta(hours=1)),
    )
    endpoint, lease = site.store.find(SALES), site.lease()
    claim = site.claim(endpoint, lease)
    assert site.ids(claim) == [timeout_id(1)]
    assert site.claims.release(claim.batch, lease) == 1


@pytest.mark.parametrize("kind", ["char(36)", "varchar(40)"])
def test_ids_may_be_text(site: NHibernateSite, kind: str) -> None:
    """As in MySQL's other dialects; in whatever letter case, they go back as they were."""
    name = site.table.rpartition(".")[2]
    big = "longblob" if site.is_mysql else "bytea" if site.has_schemas else "blob"
    site.execute(
        f"CREATE TABLE {name} (Id {kind} PRIMARY KEY, Destination varchar(1024), SagaId {kind}, "
        f"State {big}, Endpoint varchar(440), Time "
        f"{'datetime(6)' if site.is_mysql else 'timestamp'}, Headers text)"
    )
    ids = [timeout_id(1), "ABCDEF01-2345-6789-ABCD-EF0123456789"]
    for each in ids:
        site.execute(
            f"INSERT INTO {name} VALUES (:id, 'Billing', NULL, NULL, '{SALES}', :due, NULL)",
            id=each,
            due=NOW.replace(tzinfo=None) if site.has_schemas else due_in(timedelta(0)),
        )
    endpoint, lease = site.store.find(SALES), site.lease()
    claim = site.claim(endpoint, lease)
    assert sorted(site.ids(claim)) == sorted(ids)
    site.claims.release(claim.batch, lease)
    with site.engine.connect() as connection:
        rows = connection.exec_driver_sql(f"SELECT Id, Headers FROM {name}").all()
    assert sorted(tuple(row) for row in rows) == sorted((each, None) for each in ids)


def test_a_table_that_cannot_be_read_is_an_error(site: NHibernateSite) -> None:
    """What is missing is named, and no endpoint is made of the rest."""
    site.execute("CREATE TABLE TimeoutEntity (Id integer, Headers varchar(10))")
    told = r"is not a timeouts table of NHibernate: .* has no column Dest"
    with pytest.raises(StoreError, match=told):
        site.store.endpoints()


# ── what is remarked ────────────────────────────────────────────────────────────────────────────


def test_a_missing_index_is_told_with_what_makes_it(site: NHibernateSite) -> None:
    """The statement can be run as it is; with both of NHibernate's nothing is remarked."""
    site.create(hours(1))
    assert site.store.remarks() == []
    without_index(site)
    without_index(site, "SagaIdIdx")
    first, second = site.store.remarks()
    assert "no index on (endpoint, time)" in first.text.casefold()
    assert "each claim reads" in first.text
    assert "no index on (sagaid)" in second.text.casefold()
    for remark in (first, second):
        statement = remark.remedy.partition("have your DBA run: ")[2]
        assert statement.startswith("CREATE INDEX ")
        assert ("CONCURRENTLY" in statement) is site.has_schemas
        site.execute(statement.replace("CONCURRENTLY ", ""))
    assert site.store.remarks() == []


def test_an_index_the_other_way_round_does_not_do(site: NHibernateSite) -> None:
    """Some versions made it so; a claim would walk through the rows of all."""
    site.create(hours(1))
    without_index(site)
    site.execute(f"CREATE INDEX OtherWay ON {site.quoted()} (Time, Endpoint)")
    (found,) = site.store.remarks()
    assert "; there is otherway on (time, endpoint): each claim" in found.text.casefold()


# ── the vendor's tool ───────────────────────────────────────────────────────────────────────────


def test_only_what_is_in_the_vendors_tables_counts(site: NHibernateSite) -> None:
    """Any command of the tool makes them; history is no obstacle, and passwords stay unread."""
    site.create()
    site.execute(
        "CREATE TABLE MigrationsEntity (MigrationRunId varchar(32), EndpointName varchar(440), "
        "Status int, RunParameters varchar(100))"
    )
    site.execute("CREATE TABLE StagedTimeoutEntity (Id varchar(36), BatchState int)")
    assert site.store.unfinished_vendor_runs() == []
    for status in (2, 3):
        site.execute(f"INSERT INTO MigrationsEntity VALUES ('old', 'A', {status}, 'secret')")
    site.execute("INSERT INTO StagedTimeoutEntity VALUES ('x', 2)")
    assert site.store.unfinished_vendor_runs() == []
    site.execute("INSERT INTO MigrationsEntity VALUES ('abc', 'B', 1, 'secret')")
    (run,) = site.store.unfinished_vendor_runs()
    assert run.startswith("run abc of endpoint B is unfinished: resume or abort it")
    site.execute("INSERT INTO StagedTimeoutEntity VALUES ('y', 0)")
    assert {text.partition(" ")[0] for text in site.store.unfinished_vendor_runs()} == {
        "run",
        f"{site.table.rpartition('.')[0] + '.' if site.has_schemas else ''}"
        f"{'stagedtimeoutentity' if site.has_schemas else 'StagedTimeoutEntity'}",
    }


# ── its end ─────────────────────────────────────────────────────────────────────────────────────


def test_a_shared_table_is_never_dropped(site: NHibernateSite) -> None:
    """Rows are counted per endpoint, others' are told, and no SQL would end the table."""
    site.create(hours(2))
    store = DecommissionDatabase(site.engine, site.tables, site.store)
    found = store.look(site.source, ignoring=lambda _: False)
    assert (found.rows, found.others_with_rows, found.is_table_shared) == (2, [OTHER], True)
    assert store.statements(site.source) == {}
    with pytest.raises(StoreError, match="shared with others; it was not dropped"):
        store.drop(site.source)
    assert len(site.legacy_rows()) == 2
