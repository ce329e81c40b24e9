"""The vendor's own types, and others who use the same table, on a real MariaDB server.

The server's time zone is +05:45 (``dev.mariadb``): what does not pin its session shows at once.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from threading import Event
from typing import Any

import pytest
from sqlalchemy import text

from dev.servers import MariadbServer
from migrator.database import mysql
from migrator.database.engine import open_engine, reading, writing
from migrator.database.failures import translating
from migrator.database.sessions import DEFAULT_TIMEOUTS, Timeouts
from migrator.errors import LeaseLost, LedgerError, RowRefused, StoreError, StoreUnavailable
from migrator.ledger.claims import hold_lease
from migrator.ledger.rights import GrantedTable, Purpose, Work, grants
from migrator.ledger.states import BatchState
from migrator.ledger.work import StoreEndpoint
from migrator.nservicebus.satellites import ClearTimeouts, DelayedMessage
from migrator.nservicebus.timeouts import Lane, TimeoutId, content_hash
from migrator.preflight.queries import LedgerFacts
from migrator.stores.sql.dialects.mysql import MysqlDialect
from migrator.stores.sql.moving import Move
from migrator.stores.sql.seeding import SeedSpec, create_table, insert_rows, invent
from migrator.verify.stores import SqlAudit
from tests.contract.site import LONG, NOW, Site, hours, locked, timeout_id
from tests.support.mariadb import IS_MYSQL, new_server

pytestmark = pytest.mark.mariadb

SCRIPT = """
CREATE TABLE "Sales_Orders_TimeoutData" (
    "Id" varchar(38) NOT NULL, "Destination" nvarchar(200), "SagaId" varchar(38),
    "State" longblob, "Time" datetime, "Headers" json NOT NULL,
    "PersistenceVersion" varchar(23) NOT NULL, PRIMARY KEY ("Id"),
    INDEX "Index_SagaId" ("SagaId"), INDEX "Index_Time" ("Time")
) DEFAULT CHARSET=ascii
"""
"""As the vendor's script makes it (reference 1.2)."""


@pytest.fixture(scope="module")
def mariadb_server(private_mariadb: MariadbServer) -> MariadbServer:
    """One that no other test uses: settings of the whole server change here, and it is killed."""
    return private_mariadb


@pytest.fixture
def site(mariadb_database: str) -> Iterator[Site]:
    """A MariaDB database with a ledger."""
    engine = open_engine(mariadb_database)
    yield Site(engine=engine)
    engine.dispose()


@pytest.fixture
def endpoint(site: Site) -> StoreEndpoint:
    """An endpoint whose table is the vendor's, to the letter."""
    site.execute(SCRIPT)
    return site.store.find("Sales.Orders")


HEADERS = {"NServiceBus.MessageId": "ä€😀"}


def insert(site: Site, *numbers: int, due: str = "2026-03-01 13:00:00") -> None:
    """Write rows with a number, otherwise alike."""
    for number in numbers:
        site.execute(
            f"INSERT INTO {site.quoted()} VALUES (:id, 'Billing', :saga, 'x', :due, :headers, '6')",
            id=timeout_id(number),
            saga=timeout_id(0),
            due=due,
            headers=json.dumps(HEADERS, indent=2),
        )


def rename(site: Site, number: int, name: str) -> None:
    """Give a row another id."""
    statement = f'UPDATE {site.quoted()} SET "Id" = :name WHERE "Id" = :id'
    site.execute(statement, name=name, id=timeout_id(number))


@contextmanager
def told(server: MariadbServer, **settings: object) -> Iterator[None]:
    """Have a server give new sessions other *settings*."""
    usual = server.sql("SELECT " + ", ".join(f"@@GLOBAL.{name}" for name in settings)).split("\t")
    try:
        for name, value in settings.items():
            server.sql(f"SET GLOBAL {name} = {value!r}")
        yield
    finally:
        for name, before in zip(settings, usual, strict=True):
            word = before if before.isdigit() else f"'{before}'"
            server.sql(f"SET GLOBAL {name} = {word}")


def _new(*, due_at: datetime = NOW + timedelta(hours=1), body: bytes = b"") -> DelayedMessage:
    return DelayedMessage(
        native_id="m",
        headers={},
        id=TimeoutId(timeout_id(1)),
        destination="Billing",
        saga_id=timeout_id(0),
        body=body,
        due_at=due_at,
        headers_text="{}",
    )


def stored(site: Site) -> list[Any]:
    """Return the table as it is, by id."""
    with reading(site.engine) as connection:
        query = text(f'SELECT *, hex("State") FROM {site.quoted()} ORDER BY "Id"')
        return [tuple(row) for row in connection.execute(query)]


# ── the vendor's types ──────────────────────────────────────────────────────────────────────────


def test_what_is_claimed_and_released_is_the_same_row(site: Site, endpoint: StoreEndpoint) -> None:
    """Every column, the JSON and its Unicode too; and the ledger has the due time in UTC."""
    insert(site, 1)
    insert(site, 2, due="2026-03-01 14:00:00")
    before, lease = stored(site), site.lease()
    claim = site.claim(endpoint, lease)
    assert stored(site) == []
    first, second = site.batches.rows(claim.batch)
    assert first.due_at == datetime(2026, 3, 1, 13, tzinfo=UTC)
    assert json.loads(str(second.headers_text)) == HEADERS
    assert site.claims.release(claim.batch, lease) == 2
    assert stored(site) == before


def test_no_row_is_lost_or_taken_twice_at_the_edge_of_a_second(
    site: Site, endpoint: StoreEndpoint
) -> None:
    """The column has whole seconds, what it is compared with has not."""
    for number in range(9):
        insert(site, number, due=f"2026-03-01 12:00:0{number % 3}")
    lease = site.lease()
    ends = [timedelta(seconds=s) for s in (-0.5, 0, 0.4, 1.0, 1.999999, 2)]
    found, taken = [0], list[str]()
    for start, end in zip([timedelta(seconds=-2), *ends], ends, strict=False):
        for claim in site.claim_all(
            endpoint, lease, max_rows=2, due_after=NOW + start, due_until=NOW + end
        ):
            taken += site.ids(claim)
        found.append(len(taken))
    assert found == [0, 0, 3, 3, 6, 6, 9]
    assert sorted(taken) == [timeout_id(number) for number in range(9)]


@pytest.mark.parametrize(
    ("due_at", "kept"),
    [
        (datetime(2026, 3, 2, tzinfo=UTC), "2026-03-02 00:00:00"),
        (datetime(2026, 3, 2, microsecond=1, tzinfo=UTC), "2026-03-02 00:00:01"),
        (datetime(9999, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC), "9999-12-31 23:59:59"),
    ],
)
def test_a_new_timeout_is_never_due_sooner_than_it_says(
    site: Site, endpoint: StoreEndpoint, due_at: datetime, kept: str
) -> None:
    """MariaDB would cut the fraction off; at the end of the calendar there is no next second."""
    new, lease = _new(due_at=due_at), site.lease()
    assert site.intake.apply(endpoint, [new], lease).stored == 1
    assert site.intake.apply(endpoint, [new], lease).known == 1
    assert str(stored(site)[0][4]) == kept


def test_a_message_too_large_for_the_server_is_refused(site: Site, endpoint: StoreEndpoint) -> None:
    """The server hangs up on it, which would look like an outage, again and again."""
    lease = site.lease()
    with reading(site.engine) as connection:
        room = int(connection.scalar(text("SELECT @@max_allowed_packet")) or 0)
    for size in (room * 2, room, room // 2):
        with pytest.raises(RowRefused, match="max_allowed_packet"):
            site.intake.apply(endpoint, [_new(body=b"x" * size)], lease)
    body = bytes(room // 2 - 2100)
    assert site.intake.apply(endpoint, [_new(body=body)], lease).stored == 1
    claim = site.claim(endpoint, lease)
    assert [row.body for row in site.batches.rows(claim.batch)] == [body]


def test_rows_too_large_for_the_server_to_hash_are_claimed_and_verified(
    site: Site, endpoint: StoreEndpoint, mariadb_server: MariadbServer
) -> None:
    """Where max_allowed_packet was lowered since: they are read instead, and stop nobody."""
    lowered, lease = 1024 * 1024, site.lease()
    insert(site, 1, 2, 3)
    large = f"UPDATE {site.quoted()} SET \"State\" = repeat('x', {lowered - 10})"
    site.execute(f'{large} ORDER BY "Id" LIMIT 2')
    with told(mariadb_server, max_allowed_packet=lowered):
        other = Site(open_engine(site.engine.url))
        claim = other.claim(endpoint, lease)
        rows = other.batches.rows(claim.batch)
        made = {str(row.id): content_hash(row.headers_text, row.body) for row in rows}
        kept = {row.store_id: row.content_hash for row in other.ledger_rows()}
        assert (kept, len(kept)) == (made, 3)
        site.execute("UPDATE migrator_timeout SET content_hash = 'x' WHERE row_index = 1")
        audit = SqlAudit(other.engine, other.tables, other.store)
        first, second, third = (row.id for row in other.ledger_rows())
        assert audit.intact([first, second, third]) == {
            first: True,
            second: False,
            third: True,
        }
        found = {row.id: row.is_intact for row in audit.rows(after=0, at_most=9)}
        assert found == {first: True, second: False, third: True}
        other.close()


def test_ids_are_found_by_the_index_that_was_asked_for(site: Site, endpoint: StoreEndpoint) -> None:
    """A table without a primary key is remarked; what the remark has run, is enough."""
    site.execute(f"ALTER TABLE {site.quoted()} DROP PRIMARY KEY")
    (remark,) = site.store.remarks()
    site.execute(remark.remedy.partition("have your DBA run: ")[2])
    assert site.store.remarks() == []
    lease = site.lease()
    assert site.intake.apply(endpoint, [_new()], lease).stored == 1
    assert site.intake.apply(endpoint, [_new()], lease).known == 1
    claim = site.claim(endpoint, lease, only=(timeout_id(1),))
    assert site.ids(claim) == [timeout_id(1)]


@pytest.mark.parametrize("query", [{"charset": "utf8"}, {"charset": "latin1", "sql_mode": "ANSI"}])
def test_no_address_changes_what_text_is(
    site: Site, endpoint: StoreEndpoint, query: dict[str, str]
) -> None:
    """Addresses are copied from elsewhere; a claim with four-byte characters must still work."""
    insert(site, 1)
    other = Site(engine=open_engine(site.engine.url.update_query_dict(query)))
    (row,) = other.batches.rows(other.claim(endpoint, other.lease()).batch)
    assert json.loads(str(row.headers_text)) == HEADERS
    with reading(other.engine) as connection:
        mode = connection.scalar(text("SELECT @@sql_mode"))
    assert "STRICT_ALL_TABLES" in str(mode)
    other.engine.dispose()


@pytest.mark.parametrize(
    "kind", ["utf8mb4 COLLATE utf8mb4_unicode_ci", "latin1 COLLATE latin1_german1_ci", "utf8mb3"]
)
def test_an_id_of_other_letters_is_a_row_like_any(
    site: Site, endpoint: StoreEndpoint, kind: str
) -> None:
    """It would stop its endpoint for ever, as the rows beside it are picked with it each time."""
    site.execute(
        f'ALTER TABLE {site.quoted()} MODIFY "Id" varchar(100) CHARACTER SET {kind} NOT NULL'
    )
    insert(site, 1, 2)
    rename(site, 1, "Bestellung-ä")
    before, lease = stored(site), site.lease()
    claim = site.claim(endpoint, lease)
    assert sorted(site.ids(claim)) == [timeout_id(2), "Bestellung-ä"]
    assert site.claims.release(claim.batch, lease) == 2
    assert sorted(stored(site)) == sorted(before)


def test_a_row_is_asked_for_by_its_very_name(site: Site, endpoint: StoreEndpoint) -> None:
    """To the column's collation, which ignores case and accents, they are the same."""
    kind = "varchar(100) CHARACTER SET utf8mb4 COLLATE utf8mb4_general_ci"
    site.execute(f'ALTER TABLE {site.quoted()} MODIFY "Id" {kind} NOT NULL')
    insert(site, 1, 0xAB)
    rename(site, 1, "Bär")
    lease = site.lease()
    for other in ("Bar", "bär", "BÄR"):
        request = site.request(endpoint, lease, only=(other,))
        assert site.claims.claim(request) is None
    claim = site.claim(endpoint, lease, only=("Bär", timeout_id(0xAB).upper()))
    assert sorted(site.ids(claim)) == [timeout_id(0xAB), "Bär"]


def test_ids_that_differ_in_letter_case_are_two_rows(site: Site, endpoint: StoreEndpoint) -> None:
    """Where the key of the table tells them apart, so does the ledger."""
    site.execute(f'ALTER TABLE {site.quoted()} MODIFY "Id" varchar(100) COLLATE ascii_bin NOT NULL')
    insert(site, 1, 2)
    rename(site, 1, "order")
    rename(site, 2, "Order")
    lease = site.lease()
    claim = site.claim(endpoint, lease, max_rows=1)
    other = site.claim(endpoint, lease)
    assert {*site.ids(claim), *site.ids(other)} == {"order", "Order"}


def test_a_name_that_no_ledger_takes_is_told(site: Site) -> None:
    """Before anything is claimed, and in words."""
    name: Any = "x" * 256
    endpoint = StoreEndpoint(name=name, source="x_TimeoutData")
    told = "256 characters, and a ledger in mysql stores at most 255"
    with pytest.raises(LedgerError, match=told):
        site.runs.begin(endpoint, {})
    site.endpoint_name = "x"
    site.create()
    with pytest.raises(StoreError, match="256 characters"):
        site.store.trial_claim(endpoint)


def test_a_zero_date_is_no_time(site: Site, endpoint: StoreEndpoint) -> None:
    """Old tables may have some; nobody ever sends them, and nothing breaks."""
    with writing(site.engine) as connection:
        connection.exec_driver_sql("SET sql_mode = 'ANSI_QUOTES'")
        connection.exec_driver_sql(
            f"INSERT INTO {site.quoted()} VALUES ('a', NULL, NULL, NULL, 0, '{{}}', '6')"
        )
    (rows,) = site.store.scan(endpoint)
    assert [row.due_at for row in rows] == [None]
    assert site.claims.claim(site.request(endpoint, site.lease())) is None


def test_a_table_without_transactions_is_refused(site: Site, endpoint: StoreEndpoint) -> None:
    """A crash between copying and removing would double its rows."""
    site.execute(f"ALTER TABLE {site.quoted()} ENGINE=MyISAM")
    with pytest.raises(StoreError, match=r"MyISAM.*ENGINE=InnoDB"):
        site.store.trial_claim(endpoint)
    site.execute(f"ALTER TABLE {site.quoted()} ENGINE=InnoDB")
    site.store.trial_claim(endpoint)


@pytest.mark.slow
def test_a_table_has_one_source_where_the_server_folds_names() -> None:
    """On Windows they are kept in lower case; a row must not be claimable under two names."""
    with new_server(settings={"lower_case_table_names": "1"}) as server:
        engine = open_engine(server.url(server.create_database()))
        site = Site(engine=engine)
        create_table(engine, site.store.blank(site.source))
        (discovered,) = site.store.endpoints()
        named = site.store.find("Sales.Orders")
        assert discovered.source == named.source == "sales_orders_timeoutdata"
        assert discovered.name == "sales_orders"
        engine.dispose()


def test_sessions_depend_on_no_default_of_the_server(
    site: Site, endpoint: StoreEndpoint, mariadb_server: MariadbServer
) -> None:
    """A batch that is read in part would be handed over in part, and nobody would know."""
    insert(site, *range(20))
    odd = {"sql_select_limit": 5, "max_join_size": 10, "sql_safe_updates": 1}
    odd |= {"sql_auto_is_null": 1, "sql_quote_show_create": 0, "completion_type": 2}
    odd["transaction_read_only" if IS_MYSQL else "tx_read_only"] = 1
    with told(mariadb_server, **odd):
        other = Site(engine=open_engine(site.engine.url))
        lease = other.lease()
        claim = other.claim(endpoint, lease)
        assert other.ids(claim) == [timeout_id(number) for number in range(20)]
        assert other.parking.park(claim.batch, {0: "Gone"}, lease).size == 19
        clear = ClearTimeouts(saga_id=timeout_id(5))
        assert other.intake.apply(endpoint, [_new(), clear], lease).known == 1
        other.close()


@pytest.mark.skipif(not IS_MYSQL, reason="MariaDB has no such optimizer")
def test_claims_are_planned_by_the_usual_optimizer(
    site: Site, mariadb_server: MariadbServer
) -> None:
    """The other one reads the whole table to remove some rows, and waits for all that is locked."""
    endpoint = site.create(hours(3))
    with told(mariadb_server, optimizer_switch="hypergraph_optimizer=on"):
        other = Site(engine=open_engine(site.engine.url))
        with writing(site.engine) as manager:
            locked(manager, site.quoted(), timeout_id(0))
            claim = other.claim(endpoint, other.lease())
        assert other.ids(claim) == [timeout_id(1), timeout_id(2)]
        other.close()


def test_a_password_may_have_any_letters(site: Site) -> None:
    """It is sent as UTF-8, which is how the server was told of it."""
    user, password = f"user-{timeout_id(8)[-6:]}", "ü€ geheim"
    site.execute(f"DROP USER IF EXISTS `{user}`")
    site.execute(f"CREATE USER `{user}` IDENTIFIED BY '{password}'")
    site.execute(f"GRANT SELECT ON `{site.engine.url.database}`.* TO `{user}`")
    engine = open_engine(site.engine.url.set(username=user, password=password))
    with reading(engine) as connection:
        assert str(connection.scalar(text("SELECT current_user()"))).startswith(user)
    engine.dispose()
    site.execute(f"DROP USER `{user}`")


# ── others at the same table ────────────────────────────────────────────────────────────────────


def test_claimers_whose_lanes_are_renewed_all_the_time_take_all_rows(site: Site) -> None:
    """Two lanes at once; nothing twice, nothing left, nobody gives up."""
    endpoint = site.create(hours(140))
    run, is_over, renewed = site.run(endpoint), threading.Event(), list[int]()
    leases = [site.lease(lane, f"owner {lane}") for lane in (0, 1)]

    def renew() -> None:
        while not is_over.is_set():
            for lease in leases:
                site.leases.renew(lease, LONG, doing="claiming")
                renewed.append(lease.lane)

    def work(lane: int) -> list[str]:
        found = list[str]()
        while claim := site.claims.claim(
            site.request(endpoint, leases[lane], run=run, max_rows=7, due_until=NOW + LONG * 9999)
        ):
            found += site.ids(claim)
        return found

    with ThreadPoolExecutor(3) as pool:
        keeper = pool.submit(renew)
        try:
            first, second = pool.map(work, (0, 1))
        finally:
            is_over.set()
        keeper.result()
    assert sorted(first + second) == [timeout_id(n) for n in range(140)]
    assert renewed
    assert site.legacy_rows() == []


def test_claim_skips_rows_a_timeout_manager_is_deleting(site: Site) -> None:
    """A row locked by a running delete is left to it, without waiting."""
    endpoint, lease = site.create(hours(3)), site.lease()
    with writing(site.engine) as manager:
        locked(manager, site.quoted(), timeout_id(0))
        claim = site.claim(endpoint, lease)
    assert site.ids(claim) == [timeout_id(1), timeout_id(2)]


def test_taking_a_lane_over_waits_for_a_claim_under_way(site: Site) -> None:
    """Whoever is just claiming keeps the lane until that is committed."""
    lease = site.lease(0, "me")
    site.execute("UPDATE migrator_lease SET until = '2000-01-01'")
    with ThreadPoolExecutor(1) as pool:
        with writing(site.engine) as claiming:
            hold_lease(claiming, site.tables, lease)
            taking = pool.submit(site.leases.acquire, Lane(0), "other", LONG)
            time.sleep(0.3)
            assert not taking.done()
        found = taking.result(timeout=20)
    assert found is not None
    assert found.token == lease.token + 1


def test_closing_a_batch_waits_for_whoever_takes_its_lane(site: Site) -> None:
    """Neither stands in the other's way, and then somebody has the lane."""
    batch = site.claim(site.create(hours(1)), site.lease()).batch.id
    site.execute("UPDATE migrator_batch SET state = 'claiming'")
    site.execute("UPDATE migrator_lease SET until = '2000-01-01'")
    event = site.runs.event("batch_resolved", detail={}, batch=batch)
    with ThreadPoolExecutor(1) as pool:
        with writing(site.engine) as taking:
            taking.execute(text("SELECT * FROM migrator_lease FOR UPDATE"))
            closing = pool.submit(
                site.unresolved.close_half_done,
                batch,
                BatchState.RELEASED,
                evidence="",
                event=event,
            )
            time.sleep(0.3)
            taking.execute(text("UPDATE migrator_batch SET lease_token = 9"))
            taking.execute(text("UPDATE migrator_lease SET owner = 'new', until = '2999-01-01'"))
        with pytest.raises(LedgerError, match="new owns lane 0"):
            closing.result(timeout=20)


@pytest.fixture
def held_up(site: Site, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Event, Event]]:
    """Claims that say when they have moved their rows, and wait before they go on."""
    is_there, may_go = threading.Event(), threading.Event()
    move = MysqlDialect.move

    def slow(*args: Any) -> Any:
        moved = move(*args)
        is_there.set()
        assert may_go.wait(60)
        return moved

    monkeypatch.setattr(MysqlDialect, "move", slow)
    yield is_there, may_go
    may_go.set()


@pytest.mark.parametrize("is_lost", [False, True])
def test_a_renewal_does_not_wait_for_a_claim_and_who_lost_the_lane_takes_nothing(
    site: Site, held_up: tuple[Event, Event], is_lost: bool
) -> None:
    """The lease must not run out under a claim; if another owner came, the rows stay."""
    endpoint, lease = site.create(hours(2)), site.lease()
    request = site.request(endpoint, lease)
    with ThreadPoolExecutor(1) as pool:
        claiming = pool.submit(site.claims.claim, request)
        assert held_up[0].wait(20)
        if is_lost:
            site.leases.evict(lease.lane, lease.owner)
        else:  # if it waited, it would fail: the claim goes on only afterwards
            site.leases.renew(lease, LONG, doing="claiming")
        held_up[1].set()
        with pytest.raises(LeaseLost) if is_lost else nullcontext():
            claiming.result(timeout=20)
    assert len(site.legacy_rows()) == (2 if is_lost else 0)
    assert site.states() == ({} if is_lost else {"claimed": 2})


@pytest.mark.parametrize("is_lost", [False, True])
def test_a_renewal_does_not_wait_for_what_waits_for_a_row(site: Site, is_lost: bool) -> None:
    """Storing locks rows first and the lane last, as a claim does."""
    endpoint, lease = site.create(hours(1)), site.lease()
    site.claim(endpoint, lease)
    row_id = timeout_id(0)
    redelivered = replace(_new(), id=TimeoutId(row_id))

    def work() -> object:
        return site.intake.apply(endpoint, [redelivered], lease).known

    insertion = f"INSERT INTO {site.quoted()} (Id, Time, Headers, PersistenceVersion)"
    with ThreadPoolExecutor(1) as pool:
        with writing(site.engine) as other:
            other.execute(text(f"{insertion} VALUES (:id, now(), '{{}}', '6')"), {"id": row_id})
            working = pool.submit(work)
            time.sleep(0.5)
            assert not working.done()
            if is_lost:
                site.leases.evict(lease.lane, lease.owner)
            else:  # fails if it waits: the row is locked until afterwards
                site.leases.renew(lease, LONG, doing="waiting")
            other.rollback()
        if is_lost:
            with pytest.raises(LeaseLost):
                working.result(timeout=20)
        else:
            assert working.result(timeout=20) == 1
    assert site.legacy_rows() == []


def test_claims_walk_the_index_on_time(site: Site, endpoint: StoreEndpoint) -> None:
    """Without statistics and over a whole table: reading it all would lock it all."""
    what = SeedSpec(
        endpoint="Sales.Orders",
        count=500,
        due_from=NOW,
        due_until=NOW + timedelta(days=9),
        destinations=["Billing"],
        body_bytes=20,
    )
    insert_rows(site.engine, site.store.blank(site.source), invent(what))
    request = site.request(endpoint, site.lease(), max_rows=400)
    legacy = site.store.legacy_table(site.source)
    move = Move(legacy=legacy, ledger=site.tables, request=request, batch_id=1)
    query = MysqlDialect().picking(move, "Index_Time")
    plain = query.compile(site.engine, compile_kwargs={"literal_binds": True})
    with reading(site.engine) as connection:
        rows = connection.exec_driver_sql(f"EXPLAIN FORMAT=TRADITIONAL {plain}").mappings().all()
    assert rows[0]["key"] == "Index_Time"
    assert "filesort" not in rows[0]["Extra"]
    assert rows[1]["key"] == "migrator_timeout_open"


# ── timeouts ────────────────────────────────────────────────────────────────────────────────────


def test_a_lock_held_for_too_long_is_unavailable(site: Site) -> None:
    """The pulse gives up after a second, and tells so; afterwards sessions wait as before."""
    site.create(hours(1))
    with site.engine.connect() as other:
        other.exec_driver_sql(f"LOCK TABLES {site.quoted()} WRITE")
        asked = site.store.access_latency_s(site.source, timeout=timedelta(seconds=1))
        other.exec_driver_sql("UNLOCK TABLES")
    assert 1 <= asked < 4.5  # sessions wait for 5 s else
    with reading(site.engine) as connection:
        waits = connection.scalar(text("SELECT @@lock_wait_timeout"))
    assert waits == DEFAULT_TIMEOUTS.lock.total_seconds()


def test_a_transaction_in_which_nothing_happens_is_ended(site: Site) -> None:
    """A stopped process must not keep its locks."""
    lease = site.lease(0, "me")
    short = Timeouts(
        lock=timedelta(seconds=1), statement=timedelta(seconds=1), idle=timedelta(seconds=1)
    )
    with site.engine.connect() as stopped:
        mysql.change_timeouts(stopped, short)
        hold_lease(stopped, site.tables, lease)
        time.sleep(2.5)
        site.leases.release(lease)  # waits for nobody any more
        with pytest.raises(StoreUnavailable), translating(StoreError, doing="going on"):
            stopped.execute(text("SELECT 1"))


def test_a_server_that_is_away_is_unavailable_and_comes_back(
    mariadb_server: MariadbServer, mariadb_database: str
) -> None:
    """Sessions of the pool that died with it are replaced; no password is told."""
    engine = open_engine(mariadb_database.replace("root@", "root:hunter2@"))
    with pytest.raises(LedgerError, match="denied") as caught:
        Site(engine=engine)
    assert "hunter2" not in str(caught.value)
    engine.dispose()
    mariadb_server.sql("SET GLOBAL innodb_flush_log_at_trx_commit = 1")  # until it is killed
    site = Site(engine=open_engine(mariadb_database))
    request = site.request(site.create(hours(2)), site.lease())
    mariadb_server.kill()
    try:
        with pytest.raises(StoreUnavailable, match="cannot be reached"):
            site.claims.claim(request)
    finally:
        mariadb_server.start()
    claim = site.claims.claim(request)
    assert claim is not None
    assert claim.batch.size == 2
    site.engine.dispose()


def test_a_server_that_may_forget_commits_is_known(
    site: Site, mariadb_server: MariadbServer
) -> None:
    """Only the whole server can be told not to."""
    facts = LedgerFacts(site.engine, site.tables)
    assert facts.lossy_setting() == "innodb_flush_log_at_trx_commit is 2"
    with told(mariadb_server, innodb_flush_log_at_trx_commit=1):
        assert facts.lossy_setting() is None


# ── rights ──────────────────────────────────────────────────────────────────────────────────────


def test_the_printed_grants_are_enough(site: Site, mariadb_server: MariadbServer) -> None:
    """A user with them claims, gives back and stores; without them, the missing one is named."""
    endpoint = site.create(hours(3))
    user = f"user-{timeout_id(7)[-6:]}"
    database = str(site.engine.url.database)
    mariadb_server.sql(f"DROP USER IF EXISTS `{user}`; CREATE USER `{user}`")
    legacy = site.store.legacy_table(site.source)
    table = GrantedTable(schema="", name=site.source, lock_column=legacy.lock_column)
    statements = grants(site.tables.names, user, [table], Work(purposes=[*Purpose]))
    url = site.engine.url.set(username=user)
    mariadb_server.sql(statements.replace("DELETE, UPDATE (", "UPDATE ("), database)
    limited = Site(engine=open_engine(url))
    with pytest.raises(StoreError, match="DELETE command denied"):
        limited.store.trial_claim(endpoint)
    mariadb_server.sql(statements, database)
    limited.store.trial_claim(endpoint)
    lease = limited.lease()
    claim = limited.claim(endpoint, lease)
    assert limited.parking.park(claim.batch, {0: "Gone"}, lease).size == 2
    assert limited.claims.release(claim.batch, lease) == 2
    limited.queries.progress()
    limited.settled_rows.purge(before=NOW + timedelta(days=9999))
    limited.leases.release(lease)
    limited.engine.dispose()
    assert len(site.legacy_rows()) == 2  # one is parked
