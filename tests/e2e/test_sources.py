"""One table that fails, or is locked, harms its own endpoint alone; and heals by itself."""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from psycopg import sql
from sqlalchemy import make_url

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


@pytest.mark.punctual
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


@pytest.mark.punctual
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


# ── a start ─────────────────────────────────────────────────────────────────────────────────────


SICK = ("Locked", "Gone", "Narrow", "Closed", "Local", "Nowhere")
"""Endpoints that may not be served, each for a reason of its own."""


@dataclass
class Sick:
    """Tables beside a sound one of which each has something that refuses it."""

    rig: Rig
    others: dict[str, Rig]
    role: str
    lock: ExitStack = field(default_factory=ExitStack)

    @classmethod
    def beside(cls, rig: Rig, *names: str) -> Sick:
        """Make the tables; from here on the program is a user who may not do everything."""
        role = f"migrator_{uuid.uuid4().hex[:12]}"
        made = cls(rig, {each.endpoint: each for each in beside(rig, *names)}, role)
        made.execute(f'CREATE ROLE "{role}" LOGIN')
        made.grant()
        url = make_url(rig.database_url).set(username=role)
        rig.settings |= {"MIGRATOR_STORE__URL": url.render_as_string(hide_password=False)}
        for each in made.others.values():
            made.harm(each)
        return made

    def execute(self, *statements: str) -> None:
        with self.rig.sql() as connection:
            for each in statements:
                connection.execute(each.encode())

    def grant(self) -> None:
        for schema in ("public", "migrator"):
            for what in (f"SCHEMA {schema}", f"ALL TABLES IN SCHEMA {schema}"):
                self.execute(f'GRANT ALL ON {what} TO "{self.role}"')
        self.execute(f'GRANT ALL ON ALL SEQUENCES IN SCHEMA migrator TO "{self.role}"')

    def harm(self, other: Rig) -> None:
        table = f'public."{other.endpoint}_TimeoutData"'
        match other.endpoint:
            case "Locked":
                self.lock.enter_context(locked(other))
            case "Gone":
                self.execute(f"DROP TABLE {table}")
            case "Narrow":
                self.execute(f'ALTER TABLE {table} RENAME "Headers" TO "Head"')
            case "Closed":
                self.execute(f'REVOKE ALL ON {table} FROM "{self.role}"')
            case "Local":
                other.time_zone = "America/New_York"
                other.insert([row(timedelta(hours=n)) for n in range(3)])
            case "Nowhere":
                other.insert([row(destination="Nowhere")])

    def cure(self) -> None:
        """Undo all of it."""
        self.lock.close()
        for name, other in self.others.items():
            table = f'public."{name}_TimeoutData"'
            match name:
                case "Gone":
                    other.create_store()
                case "Narrow":
                    self.execute(f'ALTER TABLE {table} RENAME "Head" TO "Headers"')
                case "Local":
                    other.time_zone = "UTC"
                    self.execute(f"DELETE FROM {table}")
                case "Nowhere":
                    self.rig.create_receivers("Nowhere")
        self.grant()

    def end(self) -> None:
        self.lock.close()
        self.execute(f'DROP OWNED BY "{self.role}"', f'DROP ROLE "{self.role}"')


@pytest.fixture
def sick(rig: Rig) -> Iterator[Sick]:
    """All of them, beside the rig's sound one."""
    rig.prepare()
    made = Sick.beside(rig, *SICK)
    yield made
    rig.close()
    made.end()


@pytest.mark.punctual
def test_a_start_serves_what_is_sound_and_the_others_join_when_cured(
    rig: Rig, sick: Sick, tmp_path: Path
) -> None:
    """Each says why it waits, and no restart is needed."""
    began_s = time.monotonic()
    started(rig, tmp_path, *SICK)
    with Receiver(rig.broker_url, "Billing") as receiver:
        late_s = lateness_s(rig, receiver, times=2)
        assert time.monotonic() - began_s < 45.0  # a first start loads the program
        assert late_s[-1] < 2.0
        shown = {each["endpoint"]: each for each in status(rig)["working_on"]}
        assert {name: shown[name]["state"] for name in SICK} == dict.fromkeys(SICK, "refused")
        assert shown["Sales"]["state"] != "refused"
        reasons = {name: hold_of(rig, name) for name in SICK}
        for name, reason in {
            "Locked": "waited too long for a lock",
            "Gone": "does not exist",
            "Narrow": "has no column Headers",
            "Closed": "permission denied",
            "Local": "America/New_York",
            "Nowhere": "none of its destinations",
        }.items():
            assert reason in reasons[name], reasons
        sick.cure()
        for each in sick.others.values():
            each.insert([row(timedelta(seconds=-1))])
        receiver.wait(lambda: len(receiver.arrivals) >= 2 + len(SICK))
    wait_until(lambda: not any(hold_of(rig, name) for name in SICK), what="the end of holds")


def test_what_ends_says_what_it_left_and_could_not_ask(rig: Rig) -> None:
    """With one table locked each verb ends soon, with what it knows and a code of its own."""
    rig.prepare()
    (other,) = beside(rig, "Other")
    both = ("--endpoint", "Sales", "--endpoint", "Other")
    for each in (rig, other):
        each.insert([row() for _ in range(3)])
    rig.must("run", "--once", *both)
    for each in (rig, other):
        each.insert([row() for _ in range(3)])
    found: dict[str, tuple[int, str]] = {}
    with locked(other):
        for verb in (("preview", *both), ("verify",), ("status",), ("run", "--once", *both)):
            began_s = time.monotonic()
            done = rig.run(*verb)
            assert time.monotonic() - began_s < 20.0  # mostly for the start of the program
            assert "Other" in done.stdout
            assert "waited too long for a lock" in " ".join(done.stdout.split())
            found[verb[0]] = done.returncode, done.stdout
        assert {verb: code for verb, (code, _) in found.items()} == dict.fromkeys(found, 7)
        assert not rig.has_rows()
        assert rig.run("run", "--once", "--endpoint", "Other").returncode == 4
    rig.must("run", "--once", *both)
    assert not other.has_rows()
    assert "12 rows compared" in rig.must("verify")
