"""One odd row beside ordinary ones: they go on, it waits aside, and nothing turns in circles."""

from __future__ import annotations

import json
import os
import secrets
import subprocess
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any, Final

import psycopg
import pytest

from dev.postgres import PostgresServer
from dev.processes import wait_until
from tests.conftest import Vhost
from tests.e2e.daemon import listen
from tests.e2e.dispatching import prepare_dispatcher
from tests.e2e.mariadb_rig import MariadbRig
from tests.e2e.rig import Rig
from tests.e2e.rows import Row, row

ORDINARY: Final = 40
_REST_S: Final = 2.0


def cpu_s(process: subprocess.Popen[str]) -> float:
    """Return the processor time that *process* has used, in seconds."""
    fields = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def batches(rig: Rig) -> int:
    """Return the highest number of a batch."""
    return int(rig.query("SELECT coalesce(max(id), 0) FROM migrator.batch")[0][0])


def is_at_rest(rig: Rig, process: subprocess.Popen[str], seconds: float = _REST_S) -> None:
    """Demand that the daemon makes no batch and uses next to no processor time."""
    before, used_s = batches(rig), cpu_s(process)
    time.sleep(seconds)
    new, used_s = batches(rig) - before, cpu_s(process) - used_s
    print(f"at rest: {new} new batches and {used_s:.2f} s of CPU in {seconds:.0f} s")
    assert (new, used_s < 0.2 * seconds) == (0, True), (new, used_s)


def previewed(rig: Rig, code: int = 0) -> dict[str, int]:
    """Return how many rows `preview` would put into quarantine, by reason."""
    (found,) = json.loads(rig.must("preview", "--json", "--endpoint", "Sales", codes=(code,)))[
        "endpoints"
    ]
    return {each["reason"]: each["count"] for each in found["quarantine"]}


def moves_beside(rig: Rig, odd: dict[str, str], *, parked: int = 0) -> None:
    """Demand that a daemon hands over all but *odd* rows, whose reasons are given; all go back.

    So many as are *parked* are left out as well.
    """
    before = rig.stored()
    process = rig.start("run", "--endpoint", "Sales")
    try:
        wait_until(
            lambda: sent(rig) == len(before) - len(odd) - parked, seconds=20, what="the ordinary"
        )
        wait_until(lambda: rig.quarantined() == odd, seconds=10, what="the odd ones")
        is_at_rest(rig, process)
    finally:
        print(
            f"{sent(rig)} handed over, in quarantine: {rig.quarantined()}, {batches(rig)} batches"
        )
    assert '"lane_trouble"' not in stopped(rig, process)
    shown = [rig.must("quarantine", "list"), *(rig.must("quarantine", "show", o) for o in odd)]
    assert all(text.isprintable() for each in shown for text in each.splitlines())
    rig.must("verify", "--endpoint", "Sales", codes=(5,))
    rig.must("rollback", "--endpoint", "Sales", "--yes")
    assert rig.stored() == before


def dispatches_beside(rig: Rig, odd: dict[str, str]) -> None:
    """Demand that a dispatcher sends all but *odd* rows, whose reasons are given."""
    before = rig.stored()
    process = rig.start("run", "--endpoint", "Sales")
    try:
        wait_until(lambda: not rig.has_rows(), seconds=20, what="all are claimed")
        wait_until(lambda: rig.quarantined() == odd, seconds=10, what="the odd ones")
        is_at_rest(rig, process)
    finally:
        print(f"{batches(rig)} batches, aside: {rig.quarantined()}", process.poll())
    stopped(rig, process)
    assert len(rig.drain("Billing")) == len(before) - len(odd)
    assert rig.stored_ids() == set()


def sent(rig: Rig) -> int:
    """Return how many rows are handed over."""
    counts = rig.query(
        "SELECT count(*) FROM migrator.timeout t JOIN migrator.batch b ON b.id = t.batch_id "
        "WHERE b.state = 'handed_over' AND t.state IS NULL"
    )
    return int(counts[0][0])


def stopped(rig: Rig, process: subprocess.Popen[str]) -> str:
    """End a daemon that leaves rows in quarantine; return what it logged."""
    process.terminate()
    done = rig.finish(process)
    assert done.returncode == 5, done.stderr[-4000:]
    return done.stderr


def ordinary() -> list[Row]:
    """Return rows that are due one after the other, around the odd ones."""
    return [row(timedelta(days=3, seconds=n)) for n in range(ORDINARY)]


NAMES: Final = ("Bil\0ling", "Bil\nling")


def test_a_destination_that_no_queue_can_have(mariadb_rig: MariadbRig) -> None:
    """It can be neither bound nor left out of a claim, so its row waits in quarantine."""
    rig = mariadb_rig
    odd = [row(timedelta(days=3, seconds=20.5), destination=name) for name in NAMES]
    rig.prepare()
    rig.insert([*ordinary(), *odd])
    assert previewed(rig) == {"destination-unusable": 2}
    moves_beside(rig, {each.id: "destination-unusable" for each in odd})


@pytest.mark.slow
def test_a_dispatcher_sets_aside_what_no_queue_can_have(
    mariadb_rig: MariadbRig, tmp_path: Path
) -> None:
    """As a migration does."""
    rig = mariadb_rig
    prepare_dispatcher(rig, tmp_path)
    rig.create_receivers("Billing", "Sales.Timeouts", "Sales.TimeoutsDispatcher", "error")
    odd = [row(timedelta(seconds=-1), destination=name) for name in NAMES]
    rig.insert([*odd, *(row(timedelta(seconds=-1)) for _ in range(ORDINARY))])
    dispatches_beside(rig, {each.id: "destination-unusable" for each in odd})


@pytest.mark.slow
def test_a_destination_longer_than_the_ledgers_columns(mariadb_rig: MariadbRig) -> None:
    """The queue before the @ decides: it is handed over, parked or set aside; others go on."""
    rig, machine = mariadb_rig, "m" * 601
    rig.prepare()
    with rig.cursor() as cursor:  # as NHibernate makes it
        cursor.execute("ALTER TABLE `Sales_TimeoutData` MODIFY Destination TEXT")
    missing, long = (
        row(timedelta(days=3, seconds=20), destination=name)
        for name in (f"Missing@{machine}", "n" * 609)
    )
    rig.insert([*ordinary(), row(destination=f"Billing@{machine}"), missing, long])
    moves_beside(rig, {long.id: "destination-name-too-long"}, parked=1)


KEEPER: Final = """
CREATE FUNCTION keep() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
    IF OLD."Id" = '{}' THEN RAISE EXCEPTION 'it is kept'; END IF; RETURN OLD; END $$;
CREATE TRIGGER keep BEFORE DELETE ON "Sales_TimeoutData" FOR EACH ROW EXECUTE FUNCTION keep()
"""


def test_a_row_that_the_table_does_not_give_up(rig: Rig, tmp_path: Path) -> None:
    """It stays in the store, log and status name it, and it goes once the table gives it up."""
    odd = row(timedelta(days=3, seconds=-1))  # the first that a claim finds
    rig.prepare()
    listen(rig, tmp_path)
    rig.insert([*ordinary(), odd])
    with rig.sql() as connection:
        connection.execute(KEEPER.format(odd.id).encode())
    process = rig.start("run", "--endpoint", "Sales")
    try:
        wait_until(lambda: sent(rig) == ORDINARY, seconds=20, what="the ordinary")
        is_at_rest(rig, process)
        told = json.loads(rig.must("status", "--daemon", "--json"))["not_known"]
        assert any("1 row cannot be claimed" in text and odd.id in text for text in told), told
    finally:
        print(f"{sent(rig)} handed over, {batches(rig)} batches, {process.poll()}")
    assert rig.stored_ids() == {odd.id}
    log = rig.stop(process)
    assert log.count('"row_left"') == 1
    assert "it is kept" in log
    with rig.sql() as connection:
        connection.execute('DROP TRIGGER keep ON "Sales_TimeoutData"')
    rig.migrate()
    assert sent(rig) == ORDINARY + 1


@dataclass
class RawRig(Rig):
    """A rig of a database whose text may be no text: rows are read as bytes."""

    def stored(self) -> dict[str, tuple[Any, ...]]:
        """Return id → all columns; text as bytes."""
        url = self.database_url.replace("+psycopg", "").replace("=utf8", "=sql_ascii")
        with psycopg.connect(url) as connection:
            found = connection.execute('SELECT * FROM "Sales_TimeoutData"').fetchall()
        return {str(each[0]): each for each in found}


@pytest.fixture
def raw_rig(
    postgres_server: PostgresServer, vhost: Vhost, new_rig: Callable[..., Rig]
) -> Iterator[Rig]:
    """A rig with a database of SQL_ASCII, which takes any bytes for text."""
    name = f"ascii_{secrets.token_hex(6)}"
    address = postgres_server.url().replace("+psycopg", "")
    with psycopg.connect(address, autocommit=True) as connection:
        connection.execute(
            f"CREATE DATABASE {name} ENCODING 'SQL_ASCII' LC_COLLATE 'C' LC_CTYPE 'C' "
            "TEMPLATE template0".encode()
        )
    url = f"{postgres_server.url(name)}?client_encoding=utf8"
    rig = new_rig(RawRig, vhost=vhost, database_url=url)
    yield rig
    rig.close()
    postgres_server.drop_database(name)


def spoil(rig: Rig, odd: Row, column: str) -> None:
    """Put bytes into a row that are no text of UTF-8."""
    with rig.sql() as connection:
        connection.execute("SET client_encoding = 'SQL_ASCII'")
        statement = f"""UPDATE "Sales_TimeoutData" SET "{column}" =
            overlay("{column}" placing E'\\xff\\xfe' from 3 for 1) WHERE "Id" = '{odd.id}'"""
        connection.execute(statement.encode())


def test_bytes_that_are_no_text(raw_rig: Rig) -> None:
    """They are set aside as they are, by a claim, and go back byte for byte."""
    rig = raw_rig
    odd = [row(timedelta(days=3, seconds=20)) for _ in range(2)]
    rig.prepare()
    rig.insert([*ordinary(), *odd])
    spoil(rig, odd[0], "Headers")
    spoil(rig, odd[1], "Destination")
    assert previewed(rig) == {"unprocessable": 2}
    moves_beside(rig, {each.id: "unprocessable" for each in odd})


def test_a_dispatcher_and_bytes_that_are_no_text(raw_rig: Rig, tmp_path: Path) -> None:
    """As a migration does."""
    rig = raw_rig
    prepare_dispatcher(rig, tmp_path)
    rig.create_receivers("Billing", "Sales.Timeouts", "Sales.TimeoutsDispatcher", "error")
    odd = [row(timedelta(seconds=-1)) for _ in range(2)]
    rig.insert([*odd, *(row(timedelta(seconds=-1)) for _ in range(ORDINARY))])
    spoil(rig, odd[0], "Headers")
    spoil(rig, odd[1], "Destination")
    dispatches_beside(rig, {each.id: "unprocessable" for each in odd})
