"""One table that fails, or is locked, harms its own endpoint alone; and heals by itself."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

from psycopg import sql

from dev.processes import wait_until
from tests.e2e.arrivals import Receiver
from tests.e2e.daemon import listen, listens, status
from tests.e2e.rig import Rig
from tests.e2e.rows import row

OTHERS = [f"Other{n}" for n in range(6)]


def beside(rig: Rig, *names: str) -> list[Rig]:
    """Return rigs of other endpoints in the same database, whose tables are there."""
    made = [Rig(rig.database_url, rig.broker_url, endpoint=name) for name in names]
    for each in made:
        each.create_store()
    return made


def started(rig: Rig, folder: Path, *others: str, **env: str) -> None:
    """Start a daemon for the rig's endpoint and *others*, without a cutoff; wait for its socket."""
    listen(rig, folder)
    rig.settings |= {"MIGRATOR_HANDOVER__CUTOFF": "0s"}
    chosen = [part for name in (rig.endpoint, *others) for part in ("--endpoint", name)]
    rig.start("run", *chosen, **env)
    wait_until(lambda: listens(rig), what="a daemon that listens")


@contextmanager
def locked(rig: Rig) -> Iterator[None]:
    """Keep everybody else out of the rig's table, as ALTER TABLE does."""
    with rig.sql() as connection, connection.transaction():
        connection.execute(sql.SQL("LOCK TABLE {} IN ACCESS EXCLUSIVE MODE").format(rig.table))
        yield


def lateness_s(rig: Rig, receiver: Receiver, *, times: int, every_s: float = 0.4) -> list[float]:
    """Store overdue rows one after the other; return how long each took to arrive, sorted."""
    stored: dict[str, datetime] = {}
    for _ in range(times):
        one = row(timedelta(seconds=-1))
        rig.insert([one])
        stored[one.id] = datetime.now(UTC)
        time.sleep(every_s)

    def came() -> dict[str, datetime]:
        return {
            str(each.headers["NServiceBus.RelatedToTimeoutId"]): each.at
            for each in receiver.arrivals
        }

    wait_until(lambda: stored.keys() <= came().keys(), what="overdue rows")
    at = came()
    return sorted((at[each] - stored[each]).total_seconds() for each in stored)


def handed_over_s(rig: Rig, rows: int) -> float:
    """Store so many rows of later, and return the seconds until all have left the table."""
    rig.insert([row() for _ in range(rows)])
    began_s = time.monotonic()
    wait_until(lambda: not rig.has_rows(), what="all rows handed over")
    return time.monotonic() - began_s


def hold_of(rig: Rig, endpoint: str) -> str:
    """Return what the daemon says of the table of *endpoint*; empty: nothing."""
    found = [each for each in status(rig)["holds"] if each["endpoint"] == endpoint]
    return " ".join(f"{each['signal']}: {each['observed']}; {each['limit']}" for each in found)


def test_dropped_tables_do_not_hold_up_the_one_that_is_there(rig: Rig, tmp_path: Path) -> None:
    """Six of seven are dropped while it runs; each has its reason, until it is there again."""
    rig.prepare()
    others = beside(rig, *OTHERS)
    started(rig, tmp_path, *OTHERS)
    for each in others:
        with rig.sql() as connection:
            connection.execute(sql.SQL("DROP TABLE {}").format(each.table))
    with Receiver(rig.broker_url, "Billing") as receiver:
        late_s = lateness_s(rig, receiver, times=6)
        took_s = handed_over_s(rig, 4000)
        assert late_s[-1] < 2.0
        assert took_s < 15.0
        wait_until(lambda: all("does not exist" in hold_of(rig, e) for e in OTHERS), what="holds")
        cured = others[0]
        cured.create_store()
        lateness_s(cured, receiver, times=1)
        wait_until(lambda: not hold_of(rig, cured.endpoint), what="the end of a hold")


def test_a_locked_table_does_not_hold_up_the_others(rig: Rig, tmp_path: Path) -> None:
    """A stuck transaction has it: others are late by a second at most, once; then it goes on."""
    rig.prepare()
    (other,) = beside(rig, "Other")
    started(rig, tmp_path, "Other")
    with Receiver(rig.broker_url, "Billing") as receiver:
        with locked(other):
            late_s = lateness_s(rig, receiver, times=6)
            assert late_s[-1] < 2.0
            wait_until(lambda: "table_failing" in hold_of(rig, "Other"), what="a hold")
        lateness_s(other, receiver, times=1)
        wait_until(lambda: not hold_of(rig, "Other"), what="the end of a hold")
