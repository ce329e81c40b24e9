"""A whole small system for the real program: a legacy table, a broker, receivers' queues.

The legacy table is created and filled with plain SQL of its own, so that a mistake in
migrator's stores cannot hide behind the same mistake here.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import chain
from pathlib import Path
from typing import Any, LiteralString
from zoneinfo import ZoneInfo

import pika
import psycopg
from pika.adapters.blocking_connection import BlockingChannel
from psycopg import sql
from psycopg.sql import Composed

from dev.processes import PATIENCE_S
from migrator.database.engine import open_engine
from migrator.delays.capacity import MeasuredCapacity, capacity_document, find_broker
from migrator.delays.routing import CAPACITY_MEASURED, DelaysVersion, level_name
from migrator.delays.topology import create_delays
from migrator.ledger.batches import SqlRuns
from migrator.ledger.migrations import upgrade
from migrator.ledger.tables import build_tables, names_for
from migrator.rabbitmq.addresses import parse_addresses
from migrator.rabbitmq.connection import ConnectionSettings
from tests.e2e.rows import Account, Found, Row
from tests.support.documents import check_output
from tests.support.fork_server import Forked
from tests.support.levels import make_levels

FAULT_VARIABLE = "MIGRATOR_FAULT_POINT"
_PROGRAM_S = 200.0
"""How long the program may take to end, in seconds: some of it waits for a broker or a lease."""


@dataclass
class Rig:
    """One endpoint's store in one database, and one virtual host of one broker."""

    database_url: str
    broker_url: str
    management_url: str | None = None
    endpoint: str = "Sales"
    schema: str = "public"
    table_name: str | None = None
    """When the endpoint's name does not say it."""
    delays: DelaysVersion = DelaysVersion.V2
    time_zone: str = "UTC"
    """In which the persister writes due times."""
    settings: dict[str, str] = field(default_factory=dict)
    config: Path | None = None
    """The program's configuration file, if it shall have one."""
    is_fresh: bool = False
    """Start the program in a fresh interpreter, not as a fork of one that has it loaded."""
    said: dict[subprocess.Popen[str], Future[tuple[str, str]]] = field(default_factory=dict)
    """What each program wrote, once it has ended. Read all the time: a full pipe would stop it."""

    # ── the legacy side ─────────────────────────────────────────────────────────────────────

    @property
    def table(self) -> sql.Identifier:
        return sql.Identifier(self.schema, self._table_name)

    @property
    def _table_name(self) -> str:
        return self.table_name or self.endpoint.replace(".", "_") + "_TimeoutData"

    def sql(self) -> psycopg.Connection[tuple[Any, ...]]:
        """Return a connection of the test's own."""
        return psycopg.connect(self.database_url.replace("+psycopg", ""), autocommit=True)

    def query(self, text: LiteralString | Composed, *values: object) -> list[tuple[Any, ...]]:
        """Return all rows of what *text* asks the database."""
        with self.sql() as connection:
            return connection.execute(text, values or None).fetchall()

    def create_store(self) -> None:
        """Create the table as the vendor's script does."""
        schema, name = sql.Identifier(self.schema), self._table_name
        statements = [
            sql.SQL("CREATE SCHEMA IF NOT EXISTS {}").format(schema),
            sql.SQL(
                'CREATE TABLE {} ("Id" uuid NOT NULL PRIMARY KEY,'
                ' "Destination" character varying(200), "SagaId" uuid, "State" bytea,'
                ' "Time" timestamp, "Headers" text, "PersistenceVersion" character varying(23))'
            ).format(self.table),
        ]
        statements += [
            sql.SQL("CREATE INDEX {} ON {} USING btree ({} ASC NULLS LAST)").format(
                sql.Identifier(name + suffix), self.table, sql.Identifier(column)
            )
            for suffix, column in (("_SagaIdx", "SagaId"), ("_TimeIdx", "Time"))
        ]
        with self.sql() as connection:
            for statement in statements:
                connection.execute(statement)

    def create_ledger(self) -> None:
        """Create the ledger, in this process: a start of the program costs a second."""
        engine = open_engine(self.database_url)
        upgrade(engine, build_tables(names_for(engine)))
        engine.dispose()

    def insert(self, rows: Iterable[Row]) -> None:
        """Store *rows* as the persister would."""
        copy = sql.SQL("COPY {} FROM STDIN").format(self.table)
        with self.sql() as connection, connection.cursor().copy(copy) as writer:
            for each in rows:
                writer.write_row(
                    (
                        each.id,
                        each.destination,
                        each.saga_id,
                        each.body,
                        each.due_at.astimezone(ZoneInfo(self.time_zone)).replace(tzinfo=None),
                        each.headers,
                        each.persistence_version,
                    )
                )

    def stored_ids(self) -> set[str]:
        """Return the ids that are still in the legacy table."""
        return {str(i) for (i,) in self.query(sql.SQL('SELECT "Id" FROM {}').format(self.table))}

    def has_rows(self) -> bool:
        """Return whether any are left there, without reading them."""
        query = sql.SQL("SELECT EXISTS (SELECT 1 FROM {})").format(self.table)
        return bool(self.query(query)[0][0])

    def stored(self) -> dict[str, tuple[Any, ...]]:
        """Return id → all columns of everything that is still in the legacy table."""
        found = self.query(sql.SQL("SELECT * FROM {}").format(self.table))
        return {str(each[0]): each for each in found}

    def first_handed_over(self, count: int) -> list[str]:
        """Return the ids of the *count* rows that were handed over and are due first."""
        found = self.query(
            "SELECT store_id FROM migrator.timeout JOIN migrator.batch b ON b.id = batch_id "
            "WHERE b.state = 'handed_over' ORDER BY due LIMIT %s",
            count,
        )
        return [str(each) for (each,) in found]

    def quarantined(self) -> dict[str, str]:
        """Return id → reason code of everything in quarantine."""
        query = "SELECT store_id, reason FROM migrator.timeout WHERE state = 'quarantined'"
        return {str(each): str(reason) for each, reason in self.query(query)}

    def parked(self) -> dict[str, str]:
        """Return id → reason code of everything that is parked."""
        query = (
            "SELECT t.store_id, h.reason FROM migrator.timeout t"
            " JOIN migrator.batch b ON b.id = t.batch_id AND b.state = 'parked'"
            " JOIN migrator.held_destination h"
            " ON h.source = b.source AND h.destination = b.destination"
        )
        return {str(each): str(reason) for each, reason in self.query(query)}

    def batch_states(self) -> Counter[str]:
        """Return how many batches are in which state."""
        return Counter(dict(self.query("SELECT state, count(*) FROM migrator.batch GROUP BY 1")))

    def has_handed_over(self, batches: int) -> bool:
        """Return whether so many batches, or more, are handed over."""
        return self.batch_states()["handed_over"] >= batches

    def is_done(self) -> bool:
        """Return whether all was claimed and handed over.

        A program that is told to end while its link is lost leaves what it claimed to the next run.
        """
        return not self.has_rows() and set(self.batch_states()) == {"handed_over"}

    def ledger_id(self) -> str:
        """Return the id that names the ledger's queues."""
        ((found,),) = self.query("SELECT id FROM migrator.ledger")
        return str(found)

    def doing(self) -> str:
        """Return what the ledger says of the only lane that is held; empty: none is."""
        found = self.query("SELECT doing FROM migrator.lease WHERE owner <> ''")
        return "".join(str(doing) for (doing,) in found)

    def has_lane(self) -> bool:
        """Return whether a lane was ever taken: the first daemon has begun then."""
        return bool(self.query("SELECT 1 FROM migrator.lease WHERE token > 0"))

    # ── the program ─────────────────────────────────────────────────────────────────────────

    program = (sys.executable, "-m", "migrator")

    def environment(self, **more: str) -> dict[str, str]:
        settings = {
            "MIGRATOR_STORE__URL": self.database_url,
            "MIGRATOR_STORE__SCHEMA": self.schema,
            "MIGRATOR_BROKER__URL": self.broker_url,
            "MIGRATOR_BROKER__DELAYS": str(self.delays),
            "MIGRATOR_LOG__FORMAT": "json",
            "MIGRATOR_PROBE__CAPACITY": "false",  # each daemon here is the first one on its broker
            "MIGRATOR_WEB__SOCKET": "",  # not where a daemon of whoever runs the tests may listen
        }
        if self.management_url:
            settings["MIGRATOR_BROKER__MANAGEMENT_URL"] = self.management_url
        # the switches of dev/test (MIGRATOR_NO_INSTALL ...) are no settings of the program
        inherited = {k: text for k, text in os.environ.items() if not k.startswith("MIGRATOR_")}
        return {**inherited, **settings, **self.settings, **more}

    def start(self, *args: str, fault: str | None = None, **env: str) -> subprocess.Popen[str]:
        """Start the real program; *fault* is ``name:hit`` of the step to be killed at."""
        environment = self.environment(**env)
        if fault is not None:
            environment[FAULT_VARIABLE] = fault
        given = ("--config", str(self.config)) if self.config else ()
        process = (
            subprocess.Popen(
                [*self.program, *given, *args],
                env=environment,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
            if self.is_fresh
            else Forked([*given, *args], env=environment)
        )
        self.said[process] = Future()
        threading.Thread(target=_read, args=(process, self.said[process]), daemon=True).start()
        return process

    def run(
        self, *args: str, fault: str | None = None, timeout: float = _PROGRAM_S, **env: str
    ) -> subprocess.CompletedProcess[str]:
        """Run the real program to its end and return what it said."""
        return self.finish(self.start(*args, fault=fault, **env), timeout=timeout)

    def finish(
        self, process: subprocess.Popen[str], *, timeout: float = _PROGRAM_S
    ) -> subprocess.CompletedProcess[str]:
        """Wait for *process* to end and return what it said; several may have been started."""
        out, err = self.said[process].result(timeout)
        if process.returncode >= 0:  # what was killed may have ended within a line
            check_output(process.args, out, err)
        return subprocess.CompletedProcess(process.args, process.returncode, out, err)

    def stop(self, process: subprocess.Popen[str]) -> str:
        """Ask *process* to end as systemd would, demand that it does, return its stderr."""
        process.send_signal(signal.SIGTERM)
        done = self.finish(process)
        assert done.returncode == 0, done.stderr[-4000:]
        return done.stderr

    def must(self, *args: str, codes: Sequence[int] = (0,), **more: Any) -> str:
        """Run the program, demand one of *codes*, return its stdout."""
        done = self.run(*args, **more)
        assert done.returncode in codes, f"{args} ended {done.returncode}:\n{done.stderr[-4000:]}"
        return done.stdout

    def migrate(self, *args: str, **more: Any) -> str:
        """Migrate everything that can be migrated now."""
        return self.must("run", "--endpoint", self.endpoint, "--once", *args, codes=(0, 5), **more)

    def kill(self, process: subprocess.Popen[str]) -> None:
        """Kill -9, and wait until the kernel is done with it."""
        process.send_signal(signal.SIGKILL)
        self.finish(process)

    def close(self) -> None:
        """Stop whatever still runs."""
        for process in self.said:
            self.kill(process)

    # ── the broker ──────────────────────────────────────────────────────────────────────────

    def amqp(self) -> pika.BlockingConnection:
        """Return a connection of the test's own."""
        return pika.BlockingConnection(pika.URLParameters(self.broker_url))

    def create_receivers(self, *names: str, direct: bool = False) -> None:
        """Declare the queues of receiving endpoints, conventional unless *direct*."""
        with self.amqp() as connection:
            channel = connection.channel()
            for name in names:
                channel.queue_declare(name, durable=True)
                if not direct:
                    channel.exchange_declare(name, "fanout", durable=True)
                    channel.queue_bind(name, name, "")

    def create_levels(self) -> None:
        """Declare the levels, over all nodes in turn as the program does where there are more."""
        settings = ConnectionSettings(nodes=parse_addresses(self.broker_url))
        if self.management_url and len(settings.nodes) == 1:
            make_levels(self.management_url, settings.nodes[0].vhost, self.delays)
        else:
            create_delays(settings, self.delays)

    def prepare(self, *receivers: str) -> None:
        """Create store, ledger, levels and receivers: everything a migration needs.

        The verbs that make ledger and levels have tests of their own.
        """
        self.create_store()
        self.create_ledger()
        self.create_levels()
        self.create_receivers(*(receivers or ("Billing",)))

    def keep_exchange_cost(self, cost_s: float) -> None:
        """Write into the ledger what an exchange costs the broker, as if it had been measured."""
        settings = ConnectionSettings(nodes=parse_addresses(self.broker_url))
        measured = MeasuredCapacity(
            exchange_cost_s=cost_s,
            measured_at=datetime.now(UTC),
            broker=find_broker(settings, self.delays),
        )
        engine = open_engine(self.database_url)
        runs = SqlRuns(engine, build_tables(names_for(engine)), actor="test", version="0")
        runs.record(CAPACITY_MEASURED, detail=capacity_document(measured), batch=None)
        engine.dispose()

    def drain(self, *queues: str) -> list[Found]:
        """Take every message out of *queues*."""
        with self.amqp() as connection:
            channel = connection.channel()
            channel.basic_qos(prefetch_count=1000)
            return [found for queue in queues for found in _drain(channel, queue)]

    def drain_levels(self) -> list[Found]:
        """Take every message out of the delay levels."""
        return self.drain(*(level_name(self.delays, level) for level in range(27, -1, -1)))

    def account(
        self, rows: Sequence[Row], *receivers: str, settle_s: float = PATIENCE_S
    ) -> Account:
        """Count each timeout on the broker; waits until what is dead-lettered has arrived."""
        aside = self.stored_ids() | {*self.quarantined(), *self.parked()}
        expected = {each.id for each in rows} - aside
        found: Counter[str] = Counter()
        deadline = time.monotonic() + settle_s
        while True:
            taken = [*self.drain_levels(), *self.drain(*receivers)]
            found.update(each.timeout_id for each in taken)
            if not taken and (expected <= set(found) or time.monotonic() > deadline):
                break
            time.sleep(0.3)
        return Account.of(expected, found, attempted=len(rows))


def _read(process: subprocess.Popen[str], said: Future[tuple[str, str]]) -> None:
    """Read what *process* writes until it ends."""
    try:
        said.set_result(process.communicate())
    except ValueError as exc:  # no text: whoever asks for it is told
        said.set_exception(exc)


def _drain(channel: BlockingChannel, queue: str) -> Iterable[Found]:
    """Yield what is in *queue*, each acknowledged once it is ours, until the broker says: empty.

    In bulk, and a consumer cannot know whether there is more or it is only slow. Never with
    automatic acknowledgement: what is on its way when the consumer is cancelled would be gone,
    and would look like a message that migrator lost.
    """
    while (got := channel.basic_get(queue))[0] is not None:
        for method, properties, body in chain(
            [got], channel.consume(queue, inactivity_timeout=0.1)
        ):
            if method is None:
                break
            yield Found(
                queue=queue, routing_key=method.routing_key, properties=properties, body=body
            )
            channel.basic_ack(method.delivery_tag)
        channel.cancel()
