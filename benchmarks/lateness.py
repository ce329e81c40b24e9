"""How late is everybody while stored timeouts are handed over in bulk?

    .venv/bin/python -m benchmarks.lateness minute
    .venv/bin/python -m benchmarks.lateness hour --scale 0.1 --versions v2 --modes staged
    .venv/bin/python -m benchmarks.lateness model

Starts a private PostgreSQL and a private RabbitMQ, measures what an exchange costs the levels,
and runs the real program on a store of its own for each combination:

* ``minute``: 20 000 rows due within one minute, from a minute ahead on;
* ``hour``: 100 000 rows due within an hour, from ten minutes ahead on;
* ``months``: 1 M rows over 90 days, whose arrivals cannot be awaited. What is to be seen of them
  is how the entry level lets go. So dues are 2^15 times nearer and rows a tenth: 90 days become
  237 s, level 22 becomes level 7, and the lower bits are as random;
* ``days``: 100 000 rows at random over 90 days, whose arrivals are not awaited either: only how
  fast they are handed over;
* ``model``: no program; each kind of delay published as fast as it goes, and what the model says.

Beside it a few messages a second are published natively, with random delays, into the same levels.
Arrivals are read by ``benchmarks/arrivals.py``, a process of its own. The capacity is that of one
level; *work* is what the rows that were handed over cost the narrowest of the levels that they go
through, each second: 0.6 means that one level alone would have been busy for 60 % of the time.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import math
import os
import random
import secrets
import subprocess
import sys
import tempfile
import threading
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import pika
from rich.console import Console
from rich.table import Table

from benchmarks.arrivals import body
from dev.postgres import PostgresServer
from dev.rabbit import RabbitNode
from migrator.delays.capacity import MeasuredCapacity, measure_capacity
from migrator.delays.releases import RECEIVING, forecast_late_s, load
from migrator.delays.routing import (
    DelaysVersion,
    address,
    delivery_binding_key,
    delivery_exchange,
    has_delay,
)
from migrator.nservicebus.incoming import RawMessage
from migrator.nservicebus.tags import Attempt
from migrator.nservicebus.timeouts import BatchId, QueueName
from migrator.rabbitmq.addresses import parse_addresses
from migrator.rabbitmq.connection import ConnectionSettings
from migrator.rabbitmq.event_loop import Connection, EventLoop
from migrator.rabbitmq.messages import EncodedMessage, PublishResult, encode_properties
from migrator.rabbitmq.publisher import Publisher, WindowLimits, encoded_bytes, in_chunks
from tests.e2e.rig import Rig
from tests.e2e.rows import row, usual_headers

QUEUE: Final = QueueName("Billing")
BODY_BYTES: Final = 400
NATIVE_PER_S: Final = 20
PATIENCE_S: Final = 90.0
STORED, NATIVE = "m", "n"


@dataclass(frozen=True, kw_only=True)
class Scenario:
    """Rows due in equal steps within a span that begins some time after the program does."""

    rows: int
    ahead_s: float
    within_s: float

    def scaled(self, factor: float) -> Scenario:
        """Return the same with fewer rows in less time: as many a second."""
        return replace(
            self,
            rows=max(1, round(self.rows * factor)),
            ahead_s=self.ahead_s * factor,
            within_s=self.within_s * factor,
        )


SCENARIOS: Final = {
    "minute": Scenario(rows=20_000, ahead_s=60, within_s=60),
    "hour": Scenario(rows=100_000, ahead_s=600, within_s=3600),
    "months": Scenario(rows=100_000, ahead_s=60, within_s=237),
}
KINDS: Final = {
    "2 s": (2, 2),
    "8 s": (8, 8),
    "12 s": (12, 12),
    "32 s": (32, 32),
    "33 s": (33, 33),
    "64 to 127 s": (64, 127),
}
"""Of delays: from and to, each as likely."""
MODEL_MESSAGES: Final = 6000


@dataclass(frozen=True, kw_only=True)
class Lateness:
    """Of one kind of messages in one run, in seconds."""

    messages: int
    early: int
    p50_s: float
    p99_s: float
    max_s: float

    @classmethod
    def of(cls, late_s: Sequence[float]) -> Lateness:
        """Return it for these."""
        found = sorted(late_s) or [0.0]
        return cls(
            messages=len(late_s),
            early=sum(each < 0 for each in late_s),
            p50_s=found[len(found) // 2],
            p99_s=found[len(found) * 99 // 100],
            max_s=found[-1],
        )


@dataclass(frozen=True, kw_only=True)
class Measured:
    """One run of the program."""

    scenario: str
    version: str
    mode: str
    pace: str
    daemons: int
    rows: Lateness
    natives: Lateness
    rows_per_s: float
    work: float
    exchange_cost_s: float
    reader_cpu_s: float
    reader_full_reads: int
    wall_s: float


# ── what reads and what disturbs ────────────────────────────────────────────────────────────────


class Reader:
    """The process that notes arrivals."""

    def __init__(self, url: str) -> None:
        """Start it; returns once it consumes."""
        self._file = Path(tempfile.mkdtemp()) / "arrivals.json"
        self._process = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.arrivals", url, QUEUE, str(self._file)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.count = 0
        self._is_ready = threading.Event()
        self._thread = threading.Thread(target=self._follow, daemon=True)
        self._thread.start()
        self._is_ready.wait()
        if self._process.poll() is not None:
            raise SystemExit("the reader of arrivals ended")

    def _follow(self) -> None:
        for line in self._process.stdout or ():
            if line.strip().isdigit():
                self.count = int(line)
            self._is_ready.set()
        self._is_ready.set()

    def wait(self, count: int, *, until_s: float) -> None:
        """Wait for so many arrivals, not longer than *until_s* (seconds since 1970)."""
        while self.count < count and time.time() < until_s:
            time.sleep(0.2)

    def end(self) -> dict[str, list[tuple[str, float, float]]]:
        """Return what it noted."""
        if self._process.stdin is not None:
            self._process.stdin.close()
        self._process.wait()
        self._thread.join()
        found: dict[str, list[tuple[str, float, float]]] = json.loads(self._file.read_text())
        return found


@contextlib.contextmanager
def natives(
    url: str, version: DelaysVersion, *, longest_s: int, until_s: float
) -> Iterator[list[float]]:
    """Publish natively until a message could not be back by then; yield what was sent, as dues."""
    sent: list[float] = []
    ended = threading.Event()

    def publish() -> None:
        dice = random.Random(7)
        with pika.BlockingConnection(pika.URLParameters(url)) as connection:
            channel = connection.channel()
            while not ended.wait(1 / NATIVE_PER_S):
                delay_s = dice.randint(1, longest_s)
                due_s = time.time() + delay_s
                if due_s > until_s:
                    continue
                to = address(version, delay_s, QUEUE)
                properties = pika.BasicProperties(headers=dict(usual_headers()), delivery_mode=2)
                channel.basic_publish(
                    to.exchange, to.routing_key, body(NATIVE, due_s, BODY_BYTES), properties
                )
                sent.append(due_s)

    thread = threading.Thread(target=publish, daemon=True)
    thread.start()
    try:
        yield sent
    finally:
        ended.set()
        thread.join()


# ── one run ─────────────────────────────────────────────────────────────────────────────────────


def prepared(postgres: PostgresServer, node: RabbitNode, version: DelaysVersion) -> tuple[Rig, str]:
    """Return an empty store, and the name of a virtual host with the levels, the queue bound."""
    vhost = f"bench-{secrets.token_hex(4)}"
    node.create_vhost(vhost)
    rig = Rig(
        database_url=postgres.url(postgres.create_database()),
        broker_url=node.amqp_url(vhost),
        delays=version,
        is_fresh=True,
    )
    rig.prepare(QUEUE)
    with rig.amqp() as connection:
        connection.channel().exchange_bind(
            QUEUE, delivery_exchange(version), delivery_binding_key(QUEUE)
        )
    return rig, vhost


def measured(
    postgres: PostgresServer,
    node: RabbitNode,
    capacity: MeasuredCapacity,
    *,
    name: str,
    scenario: Scenario,
    mode: str,
    pace: str,
    daemons: int,
) -> Measured:
    """Run the program once and return how late everything came."""
    version = capacity.broker.delays
    rig, vhost = prepared(postgres, node, version)
    rig.keep_exchange_cost(capacity.exchange_cost_s)
    begin_s = time.time() + 2 + scenario.rows * 0.0002
    first_s = begin_s + scenario.ahead_s
    step_s = scenario.within_s / scenario.rows
    last_s = first_s + scenario.within_s
    rig.insert(
        replace(
            row(body=body(STORED, due_s, BODY_BYTES)),
            due_at=datetime.fromtimestamp(round(due_s, 6), UTC),
            headers=json.dumps(usual_headers()),
        )
        for due_s in (first_s + n * step_s for n in range(scenario.rows))
    )
    reader = Reader(rig.broker_url)
    longest_s = int(scenario.ahead_s + scenario.within_s)
    settings = {
        "MIGRATOR_LOG__LEVEL": "warning",
        "MIGRATOR_HANDOVER__CUTOFF": "0s",
        "MIGRATOR_HANDOVER__PACE": pace,
    }
    time.sleep(max(0.0, begin_s - time.time()))
    began_s = time.time()
    with natives(rig.broker_url, version, longest_s=longest_s, until_s=last_s) as sent:
        running = [
            rig.start("run", "--endpoint", "Sales", "--once", "--mode", mode, **settings)
            for _ in range(daemons)
        ]
        for process in running:
            done = rig.finish(process, timeout=scenario.ahead_s + scenario.within_s + PATIENCE_S)
            if done.returncode:
                raise SystemExit(done.stderr[-3000:])
        wall_s = time.time() - began_s
        time.sleep(max(0.0, last_s - time.time()))
    reader.wait(scenario.rows + len(sent), until_s=last_s + PATIENCE_S)
    told = reader.end()
    rows_per_s, work = handed_over(rig, capacity)
    node.delete_vhost(vhost)
    late = {
        letter: Lateness.of([at - due for each, due, at in told["read"] if each == letter])
        for letter in (STORED, NATIVE)
    }
    if late[STORED].messages != scenario.rows or late[NATIVE].messages != len(sent):
        print(f"arrived: {late}; expected {scenario.rows} and {len(sent)}", file=sys.stderr)
    return Measured(
        scenario=name,
        version=str(version),
        mode=mode,
        pace=pace,
        daemons=daemons,
        rows=late[STORED],
        natives=late[NATIVE],
        rows_per_s=rows_per_s,
        work=work,
        exchange_cost_s=capacity.exchange_cost_s,
        reader_cpu_s=float(str(told["cpu_s"])),
        reader_full_reads=int(str(told["full_reads"])),
        wall_s=wall_s,
    )


def rate(
    postgres: PostgresServer,
    node: RabbitNode,
    capacity: MeasuredCapacity,
    *,
    rows: int,
    mode: str,
    pace: str,
) -> tuple[float, float]:
    """Hand over rows that are due within 90 days; return what ``handed_over`` does."""
    rig, vhost = prepared(postgres, node, capacity.broker.delays)
    rig.keep_exchange_cost(capacity.exchange_cost_s)
    dice, now_s = random.Random(5), time.time()
    due_s = (now_s + dice.uniform(3600.0, 90 * 86_400.0) for _ in range(rows))
    text, headers = body(STORED, now_s, BODY_BYTES), json.dumps(usual_headers())
    rig.insert(
        replace(row(body=text), due_at=datetime.fromtimestamp(round(each, 6), UTC), headers=headers)
        for each in due_s
    )
    rig.migrate("--mode", mode, MIGRATOR_LOG__LEVEL="warning", MIGRATOR_HANDOVER__PACE=pace)
    found = handed_over(rig, capacity)
    node.delete_vhost(vhost)
    return found


def rate_table(
    postgres: PostgresServer,
    node: RabbitNode,
    capacity: MeasuredCapacity,
    *,
    rows: int,
    runs: Sequence[tuple[str, str]],
) -> Table:
    """Return a line for each of *runs*: a mode and a pace."""
    shown = Table(title=f"{rows} rows due within 90 days")
    for name in ("run", "rows/s", "work"):
        shown.add_column(name, justify="left" if name == "run" else "right")
    for mode, pace in runs:
        rows_per_s, work = rate(postgres, node, capacity, rows=rows, mode=mode, pace=pace)
        name = f"{capacity.broker.delays} {mode}, pace {pace}"
        shown.add_row(name, f"{rows_per_s:,.0f}", f"{work:.2f}")
    return shown


def handed_over(rig: Rig, capacity: MeasuredCapacity) -> tuple[float, float]:
    """Return rows a second, and how many levels they would have kept busy all that time."""
    found = rig.query(
        "SELECT batch_id, extract(epoch FROM due - handed_over_at)::float8 FROM migrator.timeout"
        " JOIN migrator.batch b ON b.id = batch_id WHERE b.state = 'handed_over'"
    )
    ((seconds,),) = rig.query(
        "SELECT extract(epoch FROM max(handed_over_at) - min(claimed_at))::float8"
        " FROM migrator.batch WHERE state = 'handed_over'"
    )
    delays_s = defaultdict[int, list[int]](list)
    for batch, left_s in found:
        delays_s[batch].append(max(math.ceil(left_s), 0))
    receiving = RECEIVING[capacity.broker.delays]
    loads = (load(each, receiving=receiving) for each in delays_s.values())
    exchanges = sum(max(passed.values()) for each in loads for passed in each.passing.values())
    return len(found) / seconds, exchanges * capacity.exchange_cost_s / seconds


# ── the model ───────────────────────────────────────────────────────────────────────────────────


def modelled(
    postgres: PostgresServer, node: RabbitNode, capacity: MeasuredCapacity, delays_s: Sequence[int]
) -> tuple[float, float, float]:
    """Publish a message of each delay as fast as it goes.

    Return messages a second, and how many seconds late the latest was: predicted, and measured.
    """
    version = capacity.broker.delays
    rig, vhost = prepared(postgres, node, version)
    reader = Reader(rig.broker_url)
    sent_s: list[float] = []
    headers = usual_headers()
    properties = encode_properties(RawMessage(body=b"", headers=headers))

    def messages() -> Iterator[EncodedMessage]:
        for n, delay_s in enumerate(delays_s):
            to, now_s = address(version, delay_s, QUEUE), time.time()
            sent_s.append(now_s)
            text = body(STORED, now_s + delay_s, BODY_BYTES)
            yield EncodedMessage(n, to.exchange, to.routing_key, properties, text)

    loop = EventLoop()
    connection = Connection(loop, settings_of(rig.broker_url), "benchmark")
    publisher = Publisher(connection, WindowLimits(), has_delay=has_delay)
    chunks = in_chunks(messages(), bytes_of=encoded_bytes)
    publisher.publish(Attempt(batch=BatchId(0), number=0), chunks, PublishResult())
    loop.close()
    reader.wait(len(delays_s), until_s=time.time() + max(delays_s) + PATIENCE_S)
    late = Lateness.of([at - due for _, due, at in reader.end()["read"]])
    node.delete_vhost(vhost)
    groups = [(at - sent_s[0], delay, 1.0, 1.0) for at, delay in zip(sent_s, delays_s, strict=True)]
    predicted = forecast_late_s(groups, exchange_cost_s=capacity.exchange_cost_s)[-1]
    return len(sent_s) / (sent_s[-1] - sent_s[0]), predicted, late.max_s


def model_table(postgres: PostgresServer, node: RabbitNode, capacity: MeasuredCapacity) -> Table:
    """Return a line for each kind of delay."""
    dice = random.Random(3)
    shown = Table(title=f"{capacity.broker.delays}: the latest of {MODEL_MESSAGES} messages")
    for name in ("delay", "in, messages/s", "predicted s", "measured s", "ratio"):
        shown.add_column(name, justify="right")
    for kind, (shortest_s, longest_s) in KINDS.items():
        delays_s = [dice.randint(shortest_s, longest_s) for _ in range(MODEL_MESSAGES)]
        per_s, predicted_s, late_s = modelled(postgres, node, capacity, delays_s)
        ratio = f"{late_s / predicted_s:.2f}" if predicted_s else ""
        shown.add_row(kind, f"{per_s:,.0f}", f"{predicted_s:.2f}", f"{late_s:.2f}", ratio)
    return shown


# ── what is printed ─────────────────────────────────────────────────────────────────────────────


def settings_of(url: str) -> ConnectionSettings:
    """Return how the broker at *url* is reached."""
    return ConnectionSettings(nodes=parse_addresses(url))


def _seconds(late: Lateness) -> list[str]:
    return [f"{late.p50_s:.2f}", f"{late.p99_s:.2f}", f"{late.max_s:.2f}", str(late.early)]


def lateness_table(found: Sequence[Measured]) -> Table:
    """Return a line for each run; seconds late."""
    shown = Table(title="seconds late; one machine runs program, database and broker")
    shown.add_column("run")
    for name in ("rows", "p50", "p99", "max", "early", "natives", "p99", "max", "rows/s", "work"):
        shown.add_column(name, justify="right")
    for each in found:
        several = f", {each.daemons} daemons" if each.daemons > 1 else ""
        natives = _seconds(each.natives)
        shown.add_row(
            f"{each.scenario} {each.version} {each.mode}, pace {each.pace}{several}",
            str(each.rows.messages),
            *_seconds(each.rows),
            str(each.natives.messages),
            *natives[1:3],
            f"{each.rows_per_s:,.0f}",
            f"{each.work:.2f}",
        )
    return shown


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("scenario", choices=[*SCENARIOS, "days", "model"])
    parser.add_argument("--versions", nargs="+", default=["v1", "v2"])
    parser.add_argument("--modes", nargs="+", default=["staged", "direct"])
    parser.add_argument("--paces", nargs="+", default=["levels", "full"])
    parser.add_argument("--daemons", type=int, default=1)
    parser.add_argument("--scale", type=float, default=1.0, help="of rows and time alike")
    parser.add_argument("--rows", type=int, help="in the same time")
    parser.add_argument("--wal-mib", type=int, help="size of the broker's write-ahead log files")
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    console, found = Console(width=130), []
    config = f"raft.wal_max_size_bytes = {given.wal_mib * 2**20}" if given.wal_mib else ""
    with PostgresServer(fsync=True) as postgres, RabbitNode(extra_config=config) as node:
        for version in map(DelaysVersion, given.versions):
            rig, vhost = prepared(postgres, node, version)
            capacity = measure_capacity(settings_of(rig.broker_url), version, find_bindings=None)
            node.delete_vhost(vhost)
            print(
                f"{version}: an exchange costs {capacity.exchange_cost_s * 1000:.3f} ms; load "
                f"{os.getloadavg()[0]:.1f}",
                file=sys.stderr,
            )
            if given.scenario == "model":
                console.print(model_table(postgres, node, capacity))
                continue
            runs = [(mode, pace) for mode in given.modes for pace in given.paces]
            if given.scenario == "days":
                rows = given.rows or 100_000
                console.print(rate_table(postgres, node, capacity, rows=rows, runs=runs))
                continue
            scenario = SCENARIOS[given.scenario].scaled(given.scale)
            if given.rows:
                scenario = replace(scenario, rows=given.rows)
            for mode, pace in runs:
                found.append(
                    measured(
                        postgres,
                        node,
                        capacity,
                        name=given.scenario,
                        scenario=scenario,
                        mode=mode,
                        pace=pace,
                        daemons=given.daemons,
                    )
                )
                if given.json:
                    print(json.dumps(asdict(found[-1])), flush=True)
                else:
                    console.print(lateness_table(found))  # all so far: a run takes minutes


if __name__ == "__main__":
    main()
