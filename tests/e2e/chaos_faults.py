"""Twenty small faults: each a context manager that begins one, and ends it when it is left.

A fault notes by ``World.harm`` which destinations or endpoints it is about. What belongs into
quarantine is written by the writer; those rows harm nothing, so they name nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from datetime import timedelta
from typing import Final

import pika
from psycopg import sql

from migrator.delays.routing import DelaysVersion, level_name, routing_key
from migrator.nservicebus.timeouts import Lane, QueueName
from migrator.rabbitmq.names import receipts_queue, staging_name
from tests.e2e.chaos import DIRECT, DISPATCHED, ENDPOINTS, LARGEST_BODY, MIGRATED, World
from tests.e2e.rows import row

FULL: Final = "Victim.Full"
SILENT: Final = "Victim.Silent"
MISSING: Final = "Victim.Missing"
RENAMED: Final = "Victim.Renamed"
FORBIDDEN: Final = "Victim.Forbidden"
TYPED: Final = "Victim.Typed"
COLLIDING: Final = "Your.Victim.Caught"
CATCHER: Final = "Victim.Caught"
VICTIMS: Final = (FULL, SILENT, MISSING, RENAMED, FORBIDDEN, TYPED, COLLIDING)
"""Destinations of ordinary rows that something happens to now and then."""

Fault = Callable[[World], AbstractContextManager[None]]


# ── destinations ──────────────────────────────────────────────────────────────────────────────────


@contextmanager
def full_queue(world: World) -> Iterator[None]:
    """A queue takes no more, and refuses; its receiver stands still."""
    with world.harm("full queue", destinations=[FULL]):
        world.arrivals.leave(FULL)
        world.node.set_policy(
            world.vhost, "full", pattern=r"^Victim\.Full$", max_length=1, overflow="reject-publish"
        )
        with world.channel() as channel:
            channel.basic_publish("", FULL, b"", pika.BasicProperties(delivery_mode=2))
        yield
        world.node.delete_policy(world.vhost, "full")
        world.arrivals.consume(FULL)


@contextmanager
def silent_queue(world: World) -> Iterator[None]:
    """A queue's process hangs: it answers nothing at all."""
    find = (
        f'{{ok, Q}} = rabbit_amqqueue:lookup(rabbit_misc:r(<<"{world.vhost}">>, queue, '
        f'<<"{SILENT}">>)), sys:{{}}(amqqueue:get_pid(Q)).'
    )
    with world.harm("silent queue", destinations=[SILENT], lasts_on_s=30):
        world.node.evaluate(find.replace("{}", "suspend"))
        yield
        world.node.evaluate(find.replace("{}", "resume"))


@contextmanager
def missing_queue(world: World) -> Iterator[None]:
    """A receiver is gone with queue and exchange, and is deployed again."""
    with world.harm("missing queue", destinations=[MISSING], closes_channels=True):
        world.delete_receiver(MISSING)
        yield
        world.new_receiver(MISSING)


@contextmanager
def renamed_queue(world: World) -> Iterator[None]:
    """A receiver was renamed, while rows go on naming the old one; then somebody mends it."""
    with world.harm("renamed queue", destinations=[RENAMED], closes_channels=True):
        world.delete_receiver(RENAMED)
        world.new_receiver("Victim.NewName")
        yield
        world.delete_receiver("Victim.NewName")
        world.new_receiver(RENAMED)


@contextmanager
def forbidden_binding(world: World) -> Iterator[None]:
    """A receiver is deployed anew where the daemons' user may not bind it."""
    with world.harm("forbidden binding", destinations=[FORBIDDEN], closes_channels=True):
        world.delete_receiver(FORBIDDEN)
        world.node.set_permissions(world.vhost, world.user, write=r"^(?!Victim\.Forbidden$).*$")
        world.new_receiver(FORBIDDEN)
        yield
        world.node.set_permissions(world.vhost, world.user)


@contextmanager
def wrong_exchange(world: World) -> Iterator[None]:
    """The exchange of a receiver's name is no fanout."""
    with world.harm("wrong exchange", destinations=[TYPED], closes_channels=True):
        world.delete_receiver(TYPED)
        world.new_receiver(TYPED, "direct")
        yield
        world.delete_receiver(TYPED)
        world.new_receiver(TYPED)


@contextmanager
def colliding_name(world: World) -> Iterator[None]:
    """Another endpoint binds itself to the delays whose name is the end of a receiver's."""
    with world.harm("colliding name", destinations=[COLLIDING]):
        with world.channel() as channel:
            channel.queue_declare(CATCHER, durable=True)
            channel.queue_bind(CATCHER, "nsb.v2.delay-delivery", f"#.{CATCHER}")
        yield
        with world.channel() as channel:
            channel.queue_delete(CATCHER)


@contextmanager
def internal_name(world: World) -> Iterator[None]:
    """Rows name queues and exchanges of the delays and of migrator."""
    ledger_id = world.rig.ledger_id()
    names = (
        level_name(DelaysVersion.V2, 3),
        staging_name(DelaysVersion.V2, ledger_id, Lane(0)),
        receipts_queue(ledger_id, Lane(0)),
        "amq.direct",
    )
    world.odd_rows += [row(timedelta(0), destination=name) for name in names]
    yield


# ── tables ────────────────────────────────────────────────────────────────────────────────────────


def _some_endpoint(world: World) -> str:
    """Return an endpoint whose table a fault is about; no two at a time are about the same."""
    broken = {name for harm in world.harms if harm.ended is None for name in harm.endpoints}
    # the legacy timeout manager of one of them is the test's own, and does not expect faults
    return world.chance.choice([e for e in ENDPOINTS[:-1] if e not in broken])


@contextmanager
def locked_table(world: World) -> Iterator[None]:
    """Somebody alters a table in a transaction that does not end."""
    endpoint = _some_endpoint(world)
    with (
        world.harm("locked table", endpoints=[endpoint], lasts_on_s=32),
        world.rig.sql() as session,
    ):
        session.execute("BEGIN")
        session.execute(
            sql.SQL("LOCK TABLE {} IN ACCESS EXCLUSIVE MODE").format(world.table(endpoint))
        )
        yield
        session.execute("ROLLBACK")


@contextmanager
def dropped_table(world: World) -> Iterator[None]:
    """A table is gone; in the end it is there again, with its rows."""
    endpoint = _some_endpoint(world)
    gone = sql.Identifier(f"{endpoint}_gone")
    with world.harm("dropped table", endpoints=[endpoint], lasts_on_s=32):
        world.execute("ALTER TABLE {} RENAME TO {}", world.table(endpoint), gone)
        yield
        name = sql.Identifier(f"{endpoint}_TimeoutData")
        world.execute("ALTER TABLE public.{} RENAME TO {}", gone, name)


@contextmanager
def revoked_rights(world: World) -> Iterator[None]:
    """The daemons' user may not read a table any more."""
    endpoint = _some_endpoint(world)
    role = sql.Identifier(world.role)
    with world.harm("revoked rights", endpoints=[endpoint], lasts_on_s=32):
        world.execute("REVOKE ALL ON {} FROM {}", world.table(endpoint), role)
        yield
        world.execute("GRANT ALL ON {} TO {}", world.table(endpoint), role)


@contextmanager
def altered_table(world: World) -> Iterator[None]:
    """A column that is needed has another name."""
    endpoint = _some_endpoint(world)
    rename = "ALTER TABLE {} RENAME COLUMN {} TO {}"
    name, other = sql.Identifier("Headers"), sql.Identifier("Header")
    with world.harm("altered table", endpoints=[endpoint], lasts_on_s=32):
        world.execute(rename, world.table(endpoint), name, other)
        yield
        world.execute(rename, world.table(endpoint), other, name)


@contextmanager
def undeletable_rows(world: World) -> Iterator[None]:
    """A trigger keeps rows of a table from being deleted."""
    endpoint = _some_endpoint(world)
    with world.harm("undeletable rows", endpoints=[endpoint], lasts_on_s=32):
        world.execute(
            "CREATE OR REPLACE FUNCTION keep() RETURNS trigger LANGUAGE plpgsql AS "
            "$$BEGIN RETURN NULL; END$$"
        )
        world.execute(
            "CREATE TRIGGER keep BEFORE DELETE ON {} FOR EACH ROW EXECUTE FUNCTION keep()",
            world.table(endpoint),
        )
        yield
        world.execute("DROP TRIGGER keep ON {}", world.table(endpoint))


@contextmanager
def locked_rows(world: World) -> Iterator[None]:
    """Another program holds locks on the rows that a table has now."""
    endpoint = _some_endpoint(world)
    with world.harm("locked rows", endpoints=[endpoint], lasts_on_s=5), world.rig.sql() as session:
        session.execute("BEGIN")
        session.execute(sql.SQL('SELECT "Id" FROM {} FOR UPDATE').format(world.table(endpoint)))
        yield
        session.execute("ROLLBACK")


# ── rows and messages ─────────────────────────────────────────────────────────────────────────────


@contextmanager
def nul_in_name(world: World) -> Iterator[None]:
    """A row's headers name a queue with a NUL in its name, and its column none."""
    header: dict[str, str | None] = {"NServiceBus.Timeout.RouteExpiredTimeoutTo": "Dest\0ination"}
    world.odd_rows.append(row(timedelta(0), destination=None, headers=header))
    yield


@contextmanager
def bad_bytes(world: World) -> Iterator[None]:
    """A row's headers are no JSON."""
    found = row(timedelta(0), destination="Dest000")
    world.odd_rows.append(
        type(found)(
            id=found.id,
            destination="Dest000",
            due_at=found.due_at,
            body=b"\xff\xfe",
            headers="{oops",
        )
    )
    yield


@contextmanager
def huge_row(world: World) -> Iterator[None]:
    """A row's body is larger than the broker takes."""
    world.odd_rows.append(row(timedelta(0), destination="Dest000", body=b"x" * (LARGEST_BODY + 1)))
    yield


@contextmanager
def odd_row(world: World) -> Iterator[None]:
    """A row names a queue of more bytes than any name in AMQP has room for."""
    world.odd_rows.append(row(timedelta(0), destination="é" * 150))
    yield


@contextmanager
def stray_in_our_queues(world: World) -> Iterator[None]:
    """Somebody's messages come into the staging and receipts queues, and into a level."""
    ledger_id = world.rig.ledger_id()
    names = (
        staging_name(DelaysVersion.V2, ledger_id, Lane(0)),
        receipts_queue(ledger_id, Lane(0)),
    )
    with world.channel() as channel:
        for name in names:
            channel.basic_publish("", name, b"stray", pika.BasicProperties(delivery_mode=2))
        exchange = level_name(DelaysVersion.V2, 1)
        channel.basic_publish(exchange, routing_key(2, QueueName("Dest001")), b"stray")
    yield


def killed(name: str) -> Fault:
    """Return the fault that a daemon is killed, and starts again a second later.

    Whoever adopts what it had in hand has another map for some names.
    """

    @contextmanager
    def kill(world: World) -> Iterator[None]:
        world.kill(name)
        yield

    return kill


FAULTS: Final[Mapping[str, Fault]] = {
    "full queue": full_queue,
    "silent queue": silent_queue,
    "missing queue": missing_queue,
    "renamed queue": renamed_queue,
    "forbidden binding": forbidden_binding,
    "wrong exchange": wrong_exchange,
    "colliding name": colliding_name,
    "internal name": internal_name,
    "locked table": locked_table,
    "dropped table": dropped_table,
    "revoked rights": revoked_rights,
    "altered table": altered_table,
    "undeletable rows": undeletable_rows,
    "locked rows": locked_rows,
    "NUL in a name": nul_in_name,
    "bad bytes": bad_bytes,
    "huge row": huge_row,
    "odd row": odd_row,
    "stray messages": stray_in_our_queues,
    "kill of a daemon with another map": killed("direct"),
}
"""Twenty of them; daemons are killed besides."""
KILLS: Final[Mapping[str, Fault]] = {
    f"kill {name}": killed(name) for name in ("staged", "dispatch", "direct")
}
assert len(FAULTS) == 20
assert set(MIGRATED) | set(DIRECT) | set(DISPATCHED) == set(ENDPOINTS)
