"""A system of twelve endpoints and two hundred destinations in which something small always fails.

``World`` has the tables, the queues, three daemons, a writer, a legacy timeout manager and what
arrives; ``harm`` notes what a fault touches and from when until when, so that ``Score`` can say of
each row whether anything that it needed was at fault. The faults are in ``chaos_faults.py``.
"""

from __future__ import annotations

import random
import subprocess
import threading
import time
from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from itertools import count
from pathlib import Path
from statistics import median
from typing import Any, Final
from urllib.parse import urlsplit

import pika
import psycopg
from pika.adapters.blocking_connection import BlockingChannel
from psycopg import sql

from dev.processes import wait_until
from dev.rabbit import RabbitNode
from migrator.nservicebus.headers import RELATED_TO_TIMEOUT_ID
from tests.e2e.rig import Rig
from tests.e2e.rows import Row, row

MIGRATED: Final = tuple(f"Staged{n}" for n in range(6))
DIRECT: Final = tuple(f"Direct{n}" for n in range(3))
DISPATCHED: Final = tuple(f"Old{n}" for n in range(3))
ENDPOINTS: Final = (*MIGRATED, *DIRECT, *DISPATCHED)
DESTINATIONS: Final = tuple(f"Dest{n:03}" for n in range(200))
RENAMED: Final = "Dest.Before"
"""Each daemon has another queue for it."""
RENAMED_TO: Final = {"staged": DESTINATIONS[7], "direct": DESTINATIONS[8]}
LEGACY: Final = DISPATCHED[2]
"""Its own timeout manager still runs beside the dispatcher."""
LEASE_S: Final = 16.0
_HEALED_S: Final = 40.0
"""A destination that was parked is tried again after so long at most, and what waits in a level for
it is sent again by the broker."""
_ADOPTED_S: Final = LEASE_S + 6.0
"""What a killed daemon had in hand is sent by itself or by another one after so long."""
_PROMISED_S: Final = 2.0
_RECHECK_S: Final = 15.0
"""Ten minutes, unless it is set."""
_WORKER_S: Final = 15.0
"""So long the broker waits until it sends again what a full queue refused: 180 s, unless set."""
_IN_FLIGHT_S: Final = 5.0
"""What a daemon sent itself, so long before it was killed, may come once more."""
_EVERY_S: Final = 0.25
"""Between two writes of some rows."""
YARDSTICK: Final = "Yardstick"
_YARDSTICK_PAUSE_S: Final = 0.1
LARGEST_BODY: Final = 16 * 1024 * 1024
"""Bytes; what RabbitMQ 4 takes, unless set."""


def now() -> datetime:
    """Return the time of the machine, aware."""
    return datetime.now(UTC)


@dataclass(frozen=True, kw_only=True)
class Written:
    """A row that is committed."""

    row: Row
    endpoint: str
    at: datetime
    arrives_at: str | None
    """The queue in which it has to arrive; None: it belongs into quarantine."""

    @property
    def due_at(self) -> datetime:
        """When it can be there at the earliest, and has to be soon after."""
        return max(self.row.due_at, self.at)


@dataclass(kw_only=True)
class Harm:
    """What a fault touches, and when."""

    fault: str
    begun: datetime
    ended: datetime | None = None
    destinations: frozenset[str] = frozenset()
    endpoints: frozenset[str] = frozenset()
    lasts_on_s: float = _HEALED_S
    closes_channels: bool = False
    """The broker closes a channel on which something is published to it, and answers nothing that
    is in flight there: dispatcher and ``direct`` send that once more."""

    def touches(self, written: Written) -> bool:
        """Return whether a row needed what was at fault, while it was."""
        if written.row.destination not in self.destinations and (
            written.endpoint not in self.endpoints
        ):
            return False
        ended = (self.ended or now()) + timedelta(seconds=self.lasts_on_s)
        return self.begun <= written.due_at + timedelta(seconds=_PROMISED_S) and written.at <= ended


@dataclass(frozen=True, kw_only=True)
class Came:
    """One message at a receiver."""

    at: datetime
    queue: str


class Arrivals(threading.Thread):
    """Consumes every destination's queue, also those that come and go."""

    def __init__(self, url: str) -> None:
        """Connect; queues are consumed once they are named."""
        super().__init__(name="arrivals", daemon=True)
        self.came: defaultdict[str, list[Came]] = defaultdict(list)
        self._connection = pika.BlockingConnection(pika.URLParameters(url))
        self._channels: dict[str, BlockingChannel] = {}
        self._ended = threading.Event()

    def run(self) -> None:
        """Serve the connection until told to end."""
        while not self._ended.is_set():
            self._connection.process_data_events(time_limit=0.05)
        self._connection.close()

    def end(self) -> None:
        """Stop consuming."""
        self._ended.set()
        self.join()

    def consume(self, *queues: str) -> None:
        """Begin to consume *queues*, which exist, all on one channel."""
        self._call(lambda: self._consume(queues))

    def leave(self, queue: str) -> None:
        """Stop consuming a queue that was named alone."""
        self._call(lambda: self._leave(queue))

    def _consume(self, queues: Sequence[str]) -> None:
        channel = self._connection.channel()
        channel.basic_qos(prefetch_count=500)
        for queue in queues:
            channel.basic_consume(queue, self._note(queue))
        self._channels[queues[0]] = channel

    def _leave(self, queue: str) -> None:
        channel = self._channels.pop(queue, None)
        if channel is not None and channel.is_open:
            channel.close()

    def _note(self, queue: str) -> Callable[..., None]:
        def note(channel: BlockingChannel, method: Any, properties: Any, _body: bytes) -> None:
            key = str((properties.headers or {}).get(RELATED_TO_TIMEOUT_ID))
            if not method.redelivered:
                self.came[key].append(Came(at=now(), queue=queue))
            channel.basic_ack(method.delivery_tag)

        return note

    def _call(self, work: Callable[[], None]) -> None:
        done = threading.Event()
        failed: list[Exception] = []

        def there() -> None:
            try:
                work()
            except Exception as exc:
                failed.append(exc)
            done.set()

        if not self.is_alive():
            there()
        else:
            self._connection.add_callback_threadsafe(there)
        assert done.wait(30), "the broker does not let the test consume"
        if failed:
            raise failed[0]


class Yardstick(threading.Thread):
    """Measures how long a committed row and a message take that nothing of ours touches.

    On a machine that is busy with something else, nothing can be sooner than that.
    """

    def __init__(self, rig: Rig, arrivals: Arrivals) -> None:
        super().__init__(name="yardstick", daemon=True)
        self._rig = rig
        self._arrivals = arrivals
        self._found: list[tuple[datetime, float]] = []
        self._ended = threading.Event()

    def run(self) -> None:
        with self._rig.sql() as connection, self._rig.amqp() as broker:
            channel = broker.channel()
            channel.confirm_delivery()
            connection.execute("CREATE TABLE yardstick (id int PRIMARY KEY)")
            for number in count():
                if self._ended.is_set():
                    return
                began_s = time.monotonic()
                connection.execute("INSERT INTO yardstick VALUES (%s)", [number])
                key = f"yardstick {number}"
                properties = pika.BasicProperties(
                    headers={RELATED_TO_TIMEOUT_ID: key}, delivery_mode=2
                )
                channel.basic_publish("", YARDSTICK, b"", properties, mandatory=True)
                while key not in self._arrivals.came and not self._ended.is_set():
                    time.sleep(0.005)
                self._found.append((now(), time.monotonic() - began_s))
                broker.sleep(_YARDSTICK_PAUSE_S)

    def end(self) -> None:
        """Stop."""
        self._ended.set()
        self.join()

    def seconds(self, begin: datetime, end: datetime) -> float:
        """Return how long, together, all took that was measured between *begin* and *end*."""
        first, last = bisect_left(self._found, (begin,)), bisect_left(self._found, (end,))
        return sum(took_s for _, took_s in self._found[first:last])

    @property
    def median_s(self) -> float:
        """How long one took."""
        return median(took_s for _, took_s in self._found)


@dataclass(kw_only=True)
class Daemon:
    """One daemon, which is started again whenever it was killed."""

    rig: Rig
    endpoints: Sequence[str]
    process: subprocess.Popen[str] | None = None

    def start(self) -> None:
        """Start it."""
        self.process = self.rig.start("run")

    def kill(self) -> None:
        """Kill -9."""
        assert self.process is not None
        self.rig.kill(self.process)


@dataclass(kw_only=True)
class World:
    """All of it; ``open_world`` makes one."""

    node: RabbitNode
    vhost: str
    user: str
    """The broker user of the daemons."""
    role: str
    """Their database user."""
    rig: Rig
    """The operator's: may do everything."""
    daemons: dict[str, Daemon]
    chance: random.Random
    arrivals: Arrivals
    yardstick: Yardstick
    written: list[Written] = field(default_factory=list)
    harms: list[Harm] = field(default_factory=list)
    odd_rows: list[Row] = field(default_factory=list)
    """What the writer shall write next, beside ordinary rows; each belongs into quarantine."""
    ended: threading.Event = field(default_factory=threading.Event)

    # ── what faults use ─────────────────────────────────────────────────────────────────────

    @contextmanager
    def harm(
        self,
        fault: str,
        *,
        destinations: Collection[str] = (),
        endpoints: Collection[str] = (),
        lasts_on_s: float = _HEALED_S,
        closes_channels: bool = False,
    ) -> Iterator[Harm]:
        """Note that rows for these may be late from now until the end of the block, and a while."""
        found = Harm(
            fault=fault,
            begun=now() - timedelta(seconds=1),
            destinations=frozenset(destinations),
            endpoints=frozenset(endpoints),
            lasts_on_s=lasts_on_s,
            closes_channels=closes_channels,
        )
        self.harms.append(found)
        yield found
        found.ended = now()

    def table(self, endpoint: str) -> sql.Identifier:
        """Return the table of *endpoint*."""
        return sql.Identifier("public", f"{endpoint}_TimeoutData")

    def execute(self, text: str, *names: sql.Composable) -> None:
        """Run one statement as the operator."""
        with self.rig.sql() as connection:
            connection.execute(sql.SQL(text).format(*names))

    @contextmanager
    def channel(self) -> Iterator[BlockingChannel]:
        """Yield a channel of the operator's."""
        with self.rig.amqp() as connection:
            yield connection.channel()

    def new_receiver(self, name: str, kind: str = "fanout") -> None:
        """Declare an endpoint's queue and exchange, and consume it."""
        with self.channel() as channel:
            channel.queue_declare(name, durable=True)
            channel.exchange_declare(name, kind, durable=True)
            channel.queue_bind(name, name, "")
        self.arrivals.consume(name)

    def delete_receiver(self, name: str) -> None:
        """Delete an endpoint's exchange, and its queue once all that is in it was consumed."""
        with self.channel() as channel:
            channel.exchange_delete(name)
            wait_until(lambda: _is_empty(channel, name), what=f"{name} to be consumed")
            self.arrivals.leave(name)
            channel.queue_delete(name)

    def kill(self, name: str) -> None:
        """Kill a daemon, and start it again a second later."""
        daemon = self.daemons[name]
        with self.harm(f"kill {name}", endpoints=daemon.endpoints, lasts_on_s=_ADOPTED_S) as harm:
            harm.begun -= timedelta(seconds=_IN_FLIGHT_S)
            daemon.kill()
            time.sleep(1)
            daemon.start()

    # ── what goes on meanwhile ──────────────────────────────────────────────────────────────

    def write(self, victims: Sequence[str]) -> None:
        """Write rows into all tables until the end; a table that takes none is left out."""
        with ExitStack() as stack:
            connection = stack.enter_context(self.rig.sql())
            connection.execute("SET lock_timeout = '100ms'")
            while not self.ended.wait(_EVERY_S):
                for _ in range(8):
                    self._write_one(connection, self._ordinary(victims))
                while self.odd_rows:
                    self._write_one(connection, self.odd_rows.pop(), is_odd=True)

    def greet(self, victims: Sequence[str]) -> None:
        """Have each daemon send something to each destination once, so that it knows them."""
        with self.harm("start", endpoints=ENDPOINTS, lasts_on_s=1.0), self.rig.sql() as connection:
            for daemon in self.daemons.values():
                daemon.start()
                for name in (*DESTINATIONS, *victims):
                    each = row(timedelta(0), destination=name)
                    self.write_row(connection, each, daemon.endpoints[0])
            wait_until(lambda: not missing(self), what="greetings")

    def _ordinary(self, victims: Sequence[str]) -> Row:
        roll = self.chance.random()
        destination = self.chance.choice(victims if roll < 0.1 else DESTINATIONS)
        if roll > 0.98:
            destination = RENAMED
        due_s = self.chance.choice([0.0, self.chance.uniform(0, 5), self.chance.uniform(5, 40)])
        return row(timedelta(seconds=due_s), destination=destination)

    def _write_one(
        self, connection: psycopg.Connection[Any], each: Row, *, is_odd: bool = False
    ) -> None:
        names = ENDPOINTS[:-1] if is_odd else ENDPOINTS  # the legacy one sends what is odd, too
        self.write_row(
            connection,
            each,
            self.chance.choice((*MIGRATED, *DIRECT) if each.destination == RENAMED else names),
            is_odd=is_odd,
        )

    def write_row(
        self, connection: psycopg.Connection[Any], each: Row, endpoint: str, *, is_odd: bool = False
    ) -> None:
        """Write one row, unless its table takes none just now."""
        insert = sql.SQL(
            'INSERT INTO {} ("Id", "Destination", "SagaId", "State", "Time", "Headers", '
            '"PersistenceVersion") VALUES (%s, %s, %s, %s, %s, %s, %s)'
        ).format(self.table(endpoint))
        values = (
            *(each.id, each.destination, each.saga_id, each.body),
            *(each.due_at.replace(tzinfo=None), each.headers, each.persistence_version),
        )
        with suppress(psycopg.Error):  # locked, gone or changed just now
            connection.execute(insert, values)
            arrives_at = None if is_odd else self._queue_of(endpoint, each.destination or "")
            self.written.append(
                Written(row=each, endpoint=endpoint, at=now(), arrives_at=arrives_at)
            )

    def _queue_of(self, endpoint: str, destination: str) -> str:
        if destination != RENAMED:
            return destination
        return RENAMED_TO["staged" if endpoint in MIGRATED else "direct"]

    def be_timeout_manager(self) -> None:
        """Send what is due of one endpoint, as its old timeout manager does, until the end."""
        due = sql.SQL(
            'DELETE FROM {0} WHERE "Id" IN (SELECT "Id" FROM {0} WHERE "Time" <= %s AND '
            """"Destination" LIKE 'Dest%%' ORDER BY "Time" LIMIT 3 FOR UPDATE SKIP LOCKED) """
            'RETURNING "Id", "Destination"'
        ).format(self.table(LEGACY))
        url = self.rig.database_url.replace("+psycopg", "")
        with psycopg.connect(url) as connection, self.channel() as channel:
            channel.confirm_delivery()
            connection.execute("SET lock_timeout = '100ms'")
            connection.commit()
            while not self.ended.is_set():
                channel.connection.sleep(0.4)  # the broker wants to hear of us
                with suppress(psycopg.Error), connection.transaction():
                    for key, destination in connection.execute(due, [_naive(now())]).fetchall():
                        headers = {RELATED_TO_TIMEOUT_ID: str(key)}
                        properties = pika.BasicProperties(headers=headers, delivery_mode=2)
                        channel.basic_publish("", destination, b"", properties, mandatory=True)


def _is_empty(channel: BlockingChannel, queue: str) -> bool:
    """Return whether nothing is ready in *queue*; its consumer acknowledges all it gets."""
    count: int = channel.queue_declare(queue, passive=True).method.message_count
    return count == 0


def _naive(at: datetime) -> datetime:
    return at.astimezone(UTC).replace(tzinfo=None)


@dataclass(frozen=True, kw_only=True)
class Score:
    """What became of all rows."""

    rows: int
    healthy: int
    lost: tuple[str, ...]
    doubled: tuple[str, ...]
    early: tuple[str, ...]
    elsewhere: tuple[str, ...]
    late: tuple[str, ...]
    worst_s: float
    median_s: float
    yardstick_s: float
    """What a row and a message take without us, median."""

    def __str__(self) -> str:
        return (
            f"attempted {self.rows}, found {self.rows - len(self.lost)}, lost {len(self.lost)}, "
            f"duplicated {len(self.doubled)}, foreign {len(self.elsewhere)}, early "
            f"{len(self.early)}, {self.healthy} healthy ones late {self.median_s:.2f} s (median), "
            f"{self.worst_s:.2f} s (worst), {len(self.late)} of them too late; a row and a message "
            f"without us: {self.yardstick_s:.3f} s"
        )


def missing(world: World) -> list[Written]:
    """Return the rows that have not arrived yet, but for those that never shall."""
    return [
        each for each in world.written if each.arrives_at and each.row.id not in world.arrivals.came
    ]


def score(world: World) -> Score:
    """Return what became of everything that was written."""
    late: list[str] = []
    lateness_s: list[float] = []
    found: dict[str, list[str]] = defaultdict(list)
    for each in world.written:
        came = world.arrivals.came.get(each.row.id, ())
        harms = [harm for harm in world.harms if harm.touches(each)]
        if not came:
            if each.arrives_at:
                found["lost"].append(_told(each, harms))
            continue
        if len(came) > 1 and not _was_in_flight(world, each, came):
            found["doubled"].append(_told(each, harms))
        if came[0].at < each.row.due_at - timedelta(milliseconds=20):
            found["early"].append(_told(each, harms))
        if {one.queue for one in came} != {each.arrives_at}:
            found["elsewhere"].append(_told(each, harms))
        if not harms:
            seconds = (came[0].at - each.due_at).total_seconds()
            lateness_s.append(seconds)
            busy_s = world.yardstick.seconds(each.due_at - timedelta(seconds=1), came[0].at)
            if seconds > _PROMISED_S + busy_s:
                late.append(f"{seconds:.2f} s {_told(each, harms)}")
    lateness_s.sort()
    return Score(
        rows=len(world.written),
        healthy=len(lateness_s),
        lost=tuple(found["lost"]),
        doubled=tuple(found["doubled"]),
        early=tuple(found["early"]),
        elsewhere=tuple(found["elsewhere"]),
        late=tuple(late),
        worst_s=lateness_s[-1] if lateness_s else 0.0,
        median_s=lateness_s[len(lateness_s) // 2] if lateness_s else 0.0,
        yardstick_s=world.yardstick.median_s,
    )


def _was_in_flight(world: World, each: Written, came: Sequence[Came]) -> bool:
    """Return whether its daemon may have lost an answer: it was killed, or a channel closed."""
    return any(
        each.at <= (harm.ended or now()) and harm.begun <= came[-1].at
        for harm in world.harms
        if (harm.fault.startswith("kill") and each.endpoint in harm.endpoints)
        or (harm.closes_channels and each.endpoint not in MIGRATED)
    )


def _told(each: Written, harms: Sequence[Harm]) -> str:
    faults = ", ".join(sorted({harm.fault for harm in harms})) or "none"
    at = each.due_at.strftime("%H:%M:%S.%f")[:-4]
    return f"{each.row.id} of {each.endpoint} to {each.row.destination}, due {at}, faults: {faults}"


def faults_told(world: World) -> str:
    """Return each fault with how often it came."""
    counts = Counter(harm.fault for harm in world.harms)
    return ", ".join(f"{name} {times}" for name, times in sorted(counts.items()))


# ── making it ─────────────────────────────────────────────────────────────────────────────────────


@contextmanager
def open_world(
    node: RabbitNode,
    vhost: str,
    database_url: str,
    folder: Path,
    *,
    seed: int,
    victims: Sequence[str],
) -> Iterator[World]:
    """Yield a world in which all is well; *victims* are destinations that faults will be about."""
    chance = random.Random(seed)
    role, user = f"mover_{chance.getrandbits(40):x}", f"mover-{chance.getrandbits(40):x}"
    rig = Rig(
        database_url=database_url,
        broker_url=node.amqp_url(vhost),
        management_url=node.management_url,
    )
    _prepare(rig, node, vhost, role=role, user=user)
    arrivals = Arrivals(rig.broker_url)
    _declare(rig, arrivals, victims)
    daemons = {
        name: Daemon(
            rig=_rig_of(rig, node, vhost, folder / f"{name}.toml", names, role=role, user=user),
            endpoints=names,
        )
        for name, names in (("staged", MIGRATED), ("direct", DIRECT), ("dispatch", DISPATCHED))
    }
    yardstick = Yardstick(rig, arrivals)
    world = World(
        node=node,
        vhost=vhost,
        user=user,
        role=role,
        rig=rig,
        daemons=daemons,
        chance=chance,
        arrivals=arrivals,
        yardstick=yardstick,
    )
    arrivals.start()
    yardstick.start()
    try:
        yield world
    finally:
        world.ended.set()
        for daemon in daemons.values():
            daemon.rig.close()
        yardstick.end()
        arrivals.end()
        node.delete_user(user)
        with rig.sql() as connection:
            connection.execute(sql.SQL("DROP OWNED BY {}").format(sql.Identifier(role)))
            connection.execute(sql.SQL("DROP ROLE {}").format(sql.Identifier(role)))


def _prepare(rig: Rig, node: RabbitNode, vhost: str, *, role: str, user: str) -> None:
    worker = "application:set_env(rabbit, dead_letter_worker_publisher_confirm_timeout, {})."
    node.evaluate(worker.format(int(_WORKER_S * 1000)))
    for endpoint in ENDPOINTS:
        Rig(database_url=rig.database_url, broker_url="", endpoint=endpoint).create_store()
    rig.create_ledger()
    rig.create_levels()
    node.add_user(user, "secret")
    node.set_permissions(vhost, user)
    mover = sql.Identifier(role)
    with rig.sql() as connection:
        connection.execute(sql.SQL("CREATE ROLE {} LOGIN").format(mover))
        for schema in ("public", "migrator"):
            for what in ("ALL ON SCHEMA", "ALL ON ALL TABLES IN SCHEMA"):
                grant = sql.SQL("GRANT " + what + " {} TO {}")
                connection.execute(grant.format(sql.Identifier(schema), mover))
        connection.execute(
            sql.SQL("GRANT ALL ON ALL SEQUENCES IN SCHEMA migrator TO {}").format(mover)
        )


def _declare(rig: Rig, arrivals: Arrivals, victims: Sequence[str]) -> None:
    rig.create_receivers(*DESTINATIONS, *victims, "error", YARDSTICK)
    with rig.amqp() as connection:
        for name in DISPATCHED:
            connection.channel().queue_declare(f"{name}.Timeouts", durable=True)
    arrivals.consume(*DESTINATIONS, YARDSTICK)
    for name in victims:
        arrivals.consume(name)


def _rig_of(
    rig: Rig,
    node: RabbitNode,
    vhost: str,
    config: Path,
    endpoints: Sequence[str],
    *,
    role: str,
    user: str,
) -> Rig:
    mode = "dispatch" if config.stem == "dispatch" else "migrate"
    config.write_text("".join(f'[[endpoints]]\nname = "{e}"\nmode = "{mode}"\n' for e in endpoints))
    config.chmod(0o600)
    address = urlsplit(rig.database_url)
    own = f"{address.scheme}://{role}@{address.hostname}:{address.port}{address.path}"
    settings = {
        "MIGRATOR_STORE__URL": own,
        "MIGRATOR_BROKER__URL": node.amqp_url(vhost, user=user, password="secret"),
        "MIGRATOR_BROKER__MAX_MESSAGE_BYTES": str(LARGEST_BODY),
        "MIGRATOR_HANDOVER__CUTOFF": "0s",
        "MIGRATOR_HANDOVER__LEASE": f"{LEASE_S:g}s",
        "MIGRATOR_BROKER__RECHECK_INTERVAL": f"{_RECHECK_S:g}s",  # binds anew what was made anew
    }
    if config.stem != "dispatch":
        mapped = RENAMED_TO[config.stem]
        settings["MIGRATOR_HANDOVER__MODE"] = config.stem
        settings["MIGRATOR_HANDOVER__DESTINATION_MAP"] = f'{{"{RENAMED}": "{mapped}"}}'
    if config.stem == "staged":
        settings["MIGRATOR_HANDOVER__LANES"] = "2"
    return Rig(
        database_url=rig.database_url,
        broker_url=rig.broker_url,
        management_url=rig.management_url,
        settings=settings,
        config=config,
    )
