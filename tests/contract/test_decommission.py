"""The database's side of a decommission: is anything left, and the end of the table."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import pytest
from sqlalchemy import Connection, event

from migrator.database.engine import writing
from migrator.decommission.queries import BEGUN, ENDED, UNDONE, DecommissionDatabase
from migrator.decommission.rules import DatabaseSnapshot, bindings_record
from migrator.errors import StoreUnavailable
from migrator.ledger.states import Event, Mode
from migrator.rabbitmq.entities import Binding, queue_entity
from tests.contract.site import LONG, LegacyRow, Site, hours, timeout_id

ODD = 'We"ird %s: % Sales_TimeoutData'
BINDING = Binding(source="q", target=queue_entity("q"), key="k", arguments={"x": 1})


def database(site: Site) -> DecommissionDatabase:
    """Return what is tested, over the site's database."""
    return DecommissionDatabase(site.engine, site.tables, site.store)


def look(
    site: Site, source: str = "", *, ignoring: Callable[[str], bool] = lambda _: False
) -> DatabaseSnapshot:
    """Return what store and ledger know of the site's endpoint, or another."""
    return database(site).look(source or site.source, ignoring=ignoring)


# ── the table ───────────────────────────────────────────────────────────────────────────────────


def test_rows_are_counted_and_a_missing_table_is_none(site: Site) -> None:
    """No table is not the same as an empty one; others that have rows are named."""
    assert look(site) == DatabaseSnapshot(rows=None, others_with_rows=[], vendor_runs=[])
    site.create(hours(3))
    site.create([], source=site.source_of("Empty_TimeoutData"))
    site.create(hours(1), source=site.source_of("Bills_TimeoutData"))
    assert (look(site).rows, look(site).others_with_rows) == (3, ["Bills"])


def test_an_empty_table_is_dropped(site: Site) -> None:
    """Whatever it is called; once more does no harm."""
    source = site.source_of(ODD)
    site.create([], source=source)
    assert database(site).drop(source) == 0
    assert look(site, source).rows is None
    assert database(site).drop(source) == 0
    assert database(site).statements(source) == {}


def test_a_table_with_rows_is_never_dropped(site: Site) -> None:
    """It says how many there are."""
    site.create(hours(2))
    assert database(site).drop(site.source) == 2
    assert len(site.legacy_rows()) == 2


def test_a_row_on_its_way_keeps_the_table(site: Site) -> None:
    """What somebody is about to commit is waited for, and then seen, or the drop gives up."""
    site.create()
    other, quick = site.second(), site.second()

    def be_quick(connection: Connection) -> None:
        quick = {"mysql": "SET lock_wait_timeout = 1", "mssql": "SET LOCK_TIMEOUT 100"}
        connection.exec_driver_sql(quick.get(site.kind, "SET lock_timeout = '100ms'"))

    with writing(other.engine) as connection:
        connection.exec_driver_sql(
            f"INSERT INTO {site.quoted()} (\"Id\") VALUES ('{timeout_id(1)}')"
        )
        if not site.is_sqlite:  # there a writer is alone, and others wait for five seconds
            event.listen(quick.engine, "begin", be_quick)
            with pytest.raises(StoreUnavailable):
                database(quick).drop(site.source)
    assert database(site).drop(site.source) == 1
    for each in (other, quick):
        each.close()


@pytest.mark.parametrize("table", ["Sales_TimeoutData", ODD, "plain", "x" * 50])
def test_the_sql_that_is_shown_can_be_run(site: Site, table: str) -> None:
    """The archive keeps its rows under another name, one that the database takes whole."""
    source = site.source_of(table)
    site.create(hours(1), source=source)
    statements = database(site).statements(source)
    assert list(statements) == ["archive", "drop"]
    raw = site.engine.raw_connection()
    try:
        raw.cursor().execute(statements["archive"])  # without parameters: as a person would
        raw.commit()
    finally:
        raw.close()
    assert look(site, source).rows is None
    archived = site.source_of(table[:48] + "_decommissioned")
    assert len(site.legacy_rows(archived)) == 1
    assert archived not in [each.source for each in site.store.endpoints()]


# ── the ledger ──────────────────────────────────────────────────────────────────────────────────


def test_open_rows_and_who_works_are_told(site: Site) -> None:
    """Also that the last run has not ended; leases of those who do not count are left out."""
    site.claim(site.create(hours(3)), site.lease())
    found = look(site)
    assert (found.open_rows, found.is_running, found.lanes) == (3, True, ("lane.0 (me)",))
    assert look(site, ignoring=lambda owner: owner == "me").lanes == ()


def test_open_batches_of_others_are_told_apart(site: Site) -> None:
    """They are no reason, but need what is shared."""
    bills = site.create(hours(2), source=site.source_of("Bills_TimeoutData"))
    site.claim(bills, site.lease())
    assert (look(site).open_rows, look(site).open_elsewhere) == (0, 1)


def test_doubtful_batches_and_quarantined_rows_are_told(site: Site) -> None:
    """Each needs a person."""
    lease = site.lease()
    batch = site.claim(site.create(hours(2)), lease, mode=Mode.DIRECT).batch
    site.set_aside(batch, lease, 0)
    site.advance(batch, lease, Event.BEGIN_PUBLISHING, Event.GIVE_UP)
    found = look(site)
    assert (found.doubtful, found.quarantined, found.open_rows) == ((batch.id,), 1, 0)


def test_what_could_be_recalled_is_told(site: Site) -> None:
    """Only what is not due yet, and until when."""
    far = datetime.now(UTC).replace(microsecond=0) + timedelta(days=3)
    rows = [
        LegacyRow(id=timeout_id(0)),  # due long ago
        LegacyRow(id=timeout_id(1), due=far.replace(tzinfo=None).isoformat(" ", "microseconds")),
    ]
    site.handed_over(site.create(rows), site.lease(), due_until=far)
    found = look(site)
    assert (found.recallable, found.last_due, found.open_rows) == (1, far, 0)


def test_the_dispatcher_of_the_endpoint_is_told(site: Site) -> None:
    """By its lease, while it runs."""
    endpoint = site.create()
    lane = site.leases.dispatcher_lane(endpoint)
    assert look(site).dispatcher is None
    assert site.leases.acquire(lane, "dispatcher", LONG) is not None
    assert look(site).dispatcher == "dispatcher"
    bills = site.create([], source=site.source_of("Bills_TimeoutData"))
    assert site.leases.acquire(site.leases.dispatcher_lane(bills), "other", LONG) is not None
    assert look(site).dispatcher == "dispatcher"


def test_what_was_cut_is_known_until_it_ended(site: Site) -> None:
    """By the last word of the audit trail about this table."""
    ledger = database(site)
    assert not ledger.was_begun(site.source)
    left: list[Binding] = []
    for kind, expected in (
        (BEGUN, [BINDING]),
        (UNDONE, [BINDING]),  # an end of it was gone
        (UNDONE, left),
        (BEGUN, [BINDING]),
        (ENDED, left),
    ):
        detail = {"source": site.source, "bindings": bindings_record(expected)}
        site.runs.record(kind, detail=detail, batch=None)
        assert list(look(site).unfinished) == expected
        assert not look(site, "other").unfinished
    assert ledger.was_begun(site.source)
    assert not ledger.was_begun("other")
