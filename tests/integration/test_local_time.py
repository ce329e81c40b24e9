"""Due columns in local time, as the vendor's persister writes them with Npgsql 6 and later.

What is expected is computed with the zones of Python; PostgreSQL converts by its own.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final
from zoneinfo import ZoneInfo

import pytest
from sqlalchemy import event, select

from migrator.database.engine import open_engine, writing
from migrator.ledger.claims import insert_trial_run
from migrator.ledger.states import BatchState, Mode
from migrator.ledger.work import Lease, StoreEndpoint
from migrator.nservicebus.conversion import BrokerLimits
from migrator.nservicebus.satellites import DelayedMessage
from migrator.nservicebus.timeouts import RECALL_LANE, BatchId, Lane, TimeoutId
from migrator.nservicebus.wiretime import build_wire_time
from migrator.preview import count
from migrator.recall.rules import Scope
from migrator.stores.endpoints import Selection
from migrator.stores.sql.nhibernate import NHibernateOptions
from migrator.stores.sql.seeding import SeedSpec, insert_rows, invent
from tests.contract.nhibernate_site import NHibernateSite
from tests.contract.site import LegacyRow, Site, timeout_id

ROWS: Final = Path(__file__).parents[1] / "fixtures/real/v7/v7-rows-npgsql9-non-utc-session.json"
EXPIRE: Final = "NServiceBus.Timeout.Expire"


def _utc(*given: int) -> datetime:
    return datetime(*given, tzinfo=UTC)  # type: ignore[misc, arg-type] # as datetime takes it


CHANGES: Final = {
    "Europe/Berlin": (_utc(2027, 3, 28, 1), _utc(2027, 10, 31, 1)),
    "America/New_York": (_utc(2027, 3, 14, 7), _utc(2027, 11, 7, 6)),
    "Australia/Lord_Howe": (_utc(2027, 10, 2, 15, 30), _utc(2027, 4, 3, 15)),
    "Europe/Dublin": (_utc(2027, 3, 28, 1), _utc(2027, 10, 31, 1)),
}
"""When clocks are put forward, and back, in UTC; on Lord Howe by half an hour only."""
STEP: Final = timedelta(minutes=10)
Opener = Callable[..., Site]


@pytest.fixture(params=["sql", "nhibernate"])
def kind(request: pytest.FixtureRequest) -> str:
    """The vendor's persistence."""
    return str(request.param)


@pytest.fixture(autouse=True)
def _odd_session(database: str) -> None:
    """Have sessions begin in a zone of their own: ours is told another, and never asked."""
    engine = open_engine(database)
    with writing(engine) as connection:
        connection.exec_driver_sql(
            f"ALTER DATABASE {engine.url.database} SET timezone = 'Pacific/Chatham'"
        )
    engine.dispose()


@pytest.fixture
def opened(database: str) -> Iterator[Opener]:
    """Open the database, whose due columns are in a zone."""
    with ExitStack() as stack:

        def of(zone: str | None, kind: str = "sql") -> Site:
            engine = open_engine(database)
            shared = NHibernateOptions(time_zone=zone)
            site = (
                NHibernateSite(engine=engine, options=shared)
                if kind == "nhibernate"
                else Site(engine=engine, time_zone=zone)
            )
            stack.callback(site.close)
            return site

        yield of


def local(moment: datetime, zone: str) -> datetime:
    """Return what a session in *zone* makes of *moment*."""
    return moment.astimezone(ZoneInfo(zone)).replace(tzinfo=None)


def row_due(number: int, column: datetime, expire: datetime | None) -> LegacyRow:
    """Return a row as the persister leaves it."""
    headers = {"NServiceBus.MessageId": f"m-{number}", "Text": f'a "{EXPIRE}": "2000-01-01'}
    if expire is not None:
        headers[EXPIRE] = build_wire_time(expire)
    return LegacyRow(
        id=timeout_id(number),
        due=column.replace(tzinfo=None).isoformat(" ", "microseconds"),
        headers=json.dumps(headers, indent=2),
    )


def around(change: datetime, zone: str) -> list[tuple[LegacyRow, datetime]]:
    """Return rows of the hours around *change*, each with the moment at which it is due."""
    moments = [change + STEP * n for n in range(-15, 16)]
    found = []
    for number, moment in enumerate(moments):
        column = local(moment, zone)
        later = max(
            column.replace(tzinfo=ZoneInfo(zone), fold=fold).astimezone(UTC) for fold in (0, 1)
        )
        found.append((row_due(2 * number, column, moment), moment))
        found.append((row_due(2 * number + 1, column, None), later))
    skipped = local(moments[15] - timedelta(microseconds=1), zone) + timedelta(minutes=10)
    utc = skipped.replace(tzinfo=ZoneInfo(zone)).astimezone(UTC)
    found.append((row_due(999, skipped, None), utc))
    return found


def claimed(site: Site, endpoint: StoreEndpoint, **changes: Any) -> dict[str, datetime]:
    """Return what a claim takes, with what the ledger says of when it is due; roll it back."""
    legacy, row = site.store.legacy_table(endpoint.source), site.tables.timeout.c
    lease = Lease(lane=Lane(0), owner="me", token=0)
    with writing(site.engine) as connection:
        run = insert_trial_run(connection, site.tables, endpoint)
        request = site.request(endpoint, lease, run=run, **changes)
        claim = site.claims.claim_within(connection, legacy, request)
        query = select(row.store_id, row.due).where(
            row.batch_id == (claim.batch.id if claim else BatchId(0))
        )
        found = {each.store_id: each.due for each in connection.execute(query)}
        connection.rollback()
    return found


@pytest.mark.parametrize(
    ("kind", "zone"), [*(("sql", zone) for zone in CHANGES), ("nhibernate", "Europe/Berlin")]
)
def test_a_claim_takes_what_is_due_and_nothing_else_when_clocks_are_changed(
    opened: Opener, kind: str, zone: str
) -> None:
    """For every bound: neither early nor left behind, though local time is not in order."""
    site = opened(zone, kind)
    for change in CHANGES[zone]:
        known = around(change, zone)
        due = {row.id: moment for row, moment in known}
        endpoint = site.create()
        site.execute(f"DELETE FROM {site.quoted()}")
        site.insert([row for row, _ in known])
        for n in range(-13, 14, 3):
            bound = change + STEP * n
            past = claimed(site, endpoint, due_until=bound)
            assert past == {id_: at for id_, at in due.items() if at <= bound}
            coming = {"due_after": bound, "due_until": bound + timedelta(hours=2)}
            near = claimed(site, endpoint, **coming)
            assert near == {
                id_: at for id_, at in due.items() if bound < at <= bound + timedelta(hours=2)
            }


@pytest.mark.parametrize(
    ("kind", "zone"), [("sql", "Australia/Lord_Howe"), ("nhibernate", "Europe/Berlin")]
)
def test_the_database_counts_local_time_as_it_is_converted(
    opened: Opener, kind: str, zone: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Around both changes of the clocks, and with a due time that is never."""
    monkeypatch.setattr(count, "SAMPLE_ROWS", 10)
    site = opened(zone, kind)
    known = [row for change in CHANGES[zone] for row, _ in around(change, zone)]
    never = replace(row_due(0, _utc(2027, 1, 1), None), due="infinity")
    rows = [replace(row, id=timeout_id(n)) for n, row in enumerate([*known, never])]
    endpoint = site.create(rows)
    for change in CHANGES[zone]:
        selection = Selection(cutoff=timedelta(minutes=25), horizon=timedelta(hours=2))
        exact, found = (
            count.scan(
                site.store,
                endpoint,
                selection=selection,
                rules=BrokerLimits(),
                now=change - STEP * 7,
                is_exact=is_exact,
            )
            for is_exact in (True, False)
        )
        assert found.sample is not None
        found.sample, found.zone_offsets = None, exact.zone_offsets
        assert replace(found, reply_queues=exact.reply_queues) == exact
        assert min(exact.left, exact.to_migrate, exact.beyond_horizon, exact.without_due_time) > 0


@pytest.mark.parametrize(
    ("kind", "zone"), [("sql", "America/New_York"), ("nhibernate", "Europe/Berlin")]
)
def test_claims_from_cursor_to_cursor_take_every_row_and_give_it_back_as_it_was(
    opened: Opener, kind: str, zone: str
) -> None:
    """Around both changes of the clocks; the setting is gone when rows go back."""
    site = opened(zone, kind)
    known = [each for change in CHANGES[zone] for each in around(change, zone)]
    known = [(replace(row, id=timeout_id(n)), at) for n, (row, at) in enumerate(known)]
    endpoint, lease = site.create([row for row, _ in known]), site.lease()
    until = _utc(2028, 1, 1)
    claims = site.claim_all(endpoint, lease, max_rows=25, due_until=until)
    assert sum(claim.batch.size for claim in claims) == len(known)
    due = {row.store_id: row.due for row in site.ledger_rows()}
    assert due == {row.id: at for row, at in known}
    other = opened(None, kind)
    assert sum(other.claims.release(claim.batch, lease) for claim in claims) == len(known)
    assert site.legacy_rows() == [row for row, _ in known]


def test_what_was_claimed_as_utc_goes_back_as_it_was(opened: Opener, kind: str) -> None:
    """The setting was made too late; nothing that is in the ledger is read by it."""
    wrong = opened(None, kind)
    row = row_due(1, _utc(2026, 3, 1, 13), _utc(2026, 3, 1, 12))
    endpoint, lease = wrong.create([row]), wrong.lease()
    claim = wrong.claim(endpoint, lease)
    right = opened("Europe/Berlin", kind)
    assert right.claims.release(claim.batch, lease) == 1
    assert right.legacy_rows() == [row]
    again = right.claim(endpoint, lease)
    assert again.cursor.due_at == _utc(2026, 3, 1, 12)


def test_rows_of_two_zones_are_made_of_one_by_the_statement_of_the_docs(opened: Opener) -> None:
    """Rows that are local time already are left as they are."""
    zone = "Europe/Berlin"
    site = opened(zone)
    moments = [_utc(2027, 6, 1, hour) for hour in range(4)]
    columns = [moments[0], moments[1], *(local(each, zone) for each in moments[2:])]
    endpoint = site.create(
        [row_due(n, columns[n], moment) for n, moment in enumerate(moments)],
    )
    page = Path(__file__).parents[2] / "docs/what-if.md"
    (statement,) = re.findall(r"```sql\n(.*?);", page.read_text(), re.DOTALL)
    with writing(site.engine) as connection:
        connection.exec_driver_sql(
            statement.replace('"Sales_TimeoutData"', site.quoted()).replace("%", "%%")
        )
    found = [each.due_at for page_ in site.store.scan(endpoint) for each in page_]
    assert sorted(each for each in found if each) == moments


def captured(endpoint: str) -> tuple[str, Sequence[LegacyRow]]:
    """Return rows of a real timeout manager, and the zone of its session."""
    of_endpoint = json.loads(ROWS.read_text())[endpoint]
    rows = [
        LegacyRow(
            id=row["id"],
            destination=row["destination"],
            saga_id=row["saga_id"],
            body=row["state_b64"].encode(),
            due=row["time"],
            headers=row["headers_text"],
            version=row["persistence_version"],
        )
        for row in of_endpoint["rows"]
    ]
    return of_endpoint["session_timezone"], sorted(rows, key=lambda row: row.id)


def expire(row: LegacyRow) -> datetime:
    """Return what the message itself says."""
    text = json.loads(row.headers or "")[EXPIRE]
    return datetime.strptime(text, "%Y-%m-%d %H:%M:%S:%f Z").replace(tzinfo=UTC)


@pytest.mark.parametrize("endpoint_name", ["SalesT4", "SalesT5"])
def test_captured_rows_are_due_when_their_headers_say(opened: Opener, endpoint_name: str) -> None:
    """Claimed, scanned, counted, recalled and released; the column is as it was afterwards."""
    zone, rows = captured(endpoint_name)
    site = opened(zone)
    endpoint = site.create(rows)
    due = {row.id: expire(row) for row in rows}
    scanned = {row.id: row.due_at for page in site.store.scan(endpoint) for row in page}
    assert scanned == due
    soonest, last = min(due.values()), max(due.values())
    counted = site.store.count(endpoint.source, soonest)
    assert counted.due == [("overdue", 1), ("up to 1m", 1), ("up to 1h", 2)]
    assert claimed(site, endpoint, due_until=soonest - timedelta(microseconds=1)) == {}
    assert claimed(site, endpoint, due_after=last, due_until=last + timedelta(days=1)) == {}
    assert claimed(site, endpoint, due_until=last, mode=Mode.DISPATCH) == due
    lease = site.lease()
    claim = site.claim(endpoint, lease, due_until=last)
    assert site.hand_over(claim, lease).state is BatchState.HANDED_OVER
    recall = site.lease(RECALL_LANE, "recall")
    site.recalls().restore(
        site.tagged_messages(), Scope(), recall, not_before=soonest - timedelta(days=1)
    )
    assert site.legacy_rows() == rows


def test_what_is_stored_is_local_time_as_well(opened: Opener, kind: str) -> None:
    """A real timeout manager, and another claim, find it due when it is."""
    zone = "America/New_York"
    site = opened(zone, kind)
    endpoint, lease = site.create(), site.lease()
    moments = [CHANGES[zone][1] + STEP * n for n in range(-9, 9)]
    new = [
        DelayedMessage(
            native_id="m",
            headers={},
            id=TimeoutId(timeout_id(n)),
            destination="Billing",
            saga_id=timeout_id(0),
            body=b"{}",
            due_at=moment,
            headers_text=row_due(n, moment, moment).headers or "",
        )
        for n, moment in enumerate(moments)
    ]
    assert site.intake.apply(endpoint, new, lease).stored == len(moments)
    assert site.intake.apply(endpoint, new, lease).known == len(moments)
    stored = [row.due for row in site.legacy_rows()]
    assert stored == [local(each, zone).isoformat(" ", "microseconds") for each in moments]
    found = claimed(site, endpoint, due_until=moments[-1])
    assert found == {timeout_id(n): moment for n, moment in enumerate(moments)}


def test_invented_rows_are_written_as_local_time(opened: Opener) -> None:
    """A rehearsal is like the store it stands for."""
    zone = "America/New_York"
    site = opened(zone)
    endpoint, start = site.create(), CHANGES[zone][1] - timedelta(hours=2)
    until = start + timedelta(hours=4)
    names = {"endpoint": "Sales.Orders", "destinations": ["Billing"]}
    what = SeedSpec(count=50, due_from=start, due_until=until, **names)  # type: ignore[arg-type]
    rows = list(invent(what))
    insert_rows(site.engine, site.blank(endpoint.source), rows)
    assert claimed(site, endpoint, due_until=until) == {row.id: row.due_at for row in rows}


@pytest.mark.parametrize("moment", [CHANGES["Europe/Berlin"][1], _utc(2027, 6, 1)])
def test_a_claim_walks_the_index_of_the_due_column(opened: Opener, moment: datetime) -> None:
    """Bounds are made local, not the column, also while clocks are changed."""
    site = opened("Europe/Berlin")
    endpoint, asked = site.create(), []
    site.execute(
        f'INSERT INTO {site.quoted()} ("Id", "Time", "Headers", "PersistenceVersion") '
        "SELECT gen_random_uuid(), timestamp '2027-01-01' + n * interval '20 minutes', '{}', '' "
        "FROM generate_series(1, 26000) n"
    )

    @event.listens_for(site.engine, "before_cursor_execute")
    def _note(_connection: Any, _cursor: Any, statement: str, parameters: Any, *_: Any) -> None:
        asked.append((statement, parameters))

    assert claimed(site, endpoint, due_after=moment, due_until=moment + timedelta(hours=6))
    (move,) = [each for each in asked if "DELETE FROM" in each[0]]
    with writing(site.engine) as connection:
        connection.exec_driver_sql("SET LOCAL enable_seqscan = off")
        lines = connection.exec_driver_sql("EXPLAIN " + move[0], move[1]).scalars().all()
        connection.rollback()
    plan = "\n".join(lines)
    assert "_TimeIdx" in plan
    assert plan.count('Index Cond: (("Time" <=') + plan.count('Index Cond: (("Time" >=') == 1, plan
