"""Being the timeout manager: what is stored, what is delivered, and what becomes of the rest.

The expectations come from reference ``timeout-manager.md`` sections 4, 7 and 10, written here once
more. Three things differ on purpose from a timeout manager: the AMQP message id is the logical
id, the headers that address a timeout manager are gone, and nothing is delivered early.
"""

from __future__ import annotations

import json
import struct
import uuid
from collections import Counter
from datetime import timedelta
from pathlib import Path
from typing import Any

import pika
import pytest

from dev.servers import wait_until
from migrator.nservicebus.wiretime import parse_wire_time
from tests.conftest import Vhost
from tests.e2e.arrivals import Arrival, Receiver, account_of
from tests.e2e.dispatching import (
    prepare_dispatcher,
    start_dispatcher,
    waiting,
    watch_table,
    written,
)
from tests.e2e.old_endpoint import (
    CONFIRMATION_ID,
    EXPIRE,
    ROUTE_TO,
    Core,
    OldEndpoint,
    OldMessage,
)
from tests.e2e.rig import Rig
from tests.e2e.rows import NO_SAGA, row

TIME_SENT = "NServiceBus.TimeSent"
RELATED = "NServiceBus.RelatedToTimeoutId"
SAGA_ID = "NServiceBus.SagaId"
ODD = {"Größe": 'z\u0001\t"\\ \u2028'}
"""A header that JSON has to escape."""


# ── stored, or passed on, and delivered ─────────────────────────────────────────────────────


def as_read(message: OldMessage) -> dict[str, str]:
    """Return the headers that the transports 4.3 to 7 make of *message* (section 4)."""
    headers = {k: v for k, v in message.headers.items() if k != CONFIRMATION_ID}
    return {**headers, "NServiceBus.NonDurableMessage": "False"}


def as_stored(message: OldMessage) -> tuple[Any, ...]:
    """Return the columns that the SQL persistence writes for *message* (section 7)."""
    assert message.due_at is not None
    text = json.dumps(as_read(message), indent=2, ensure_ascii=False)
    return (
        message.headers[ROUTE_TO].split("@")[0],
        uuid.UUID(message.headers.get(SAGA_ID, str(NO_SAGA))),
        message.body,
        message.due_at.replace(tzinfo=None),
        text.replace("\u2028", "\\u2028"),  # as Newtonsoft.Json has it
        "6.6.5.0",
    )


def _headers(text: str, *, in_order: bool) -> str:
    """Return stored headers as they are, or with their names sorted where order is lost."""
    return text if in_order else json.dumps(json.loads(text), sort_keys=True)


def check_properties(found: Arrival, message: OldMessage, endpoint: OldEndpoint) -> None:
    """Demand the properties of section 4, made from the stored headers."""
    headers = message.headers
    wanted = {
        "message_id": headers["NServiceBus.MessageId"],
        "correlation_id": headers["NServiceBus.CorrelationId"],
        "type": headers["NServiceBus.EnclosedMessageTypes"].split(",")[0],
        "content_type": headers["NServiceBus.ContentType"],
        "reply_to": endpoint.name,
        "delivery_mode": 2,
    }
    absent = ("content_encoding", "priority", "expiration", "timestamp", "user_id", "app_id")
    wanted |= dict.fromkeys(absent)
    assert {name: getattr(found.properties, name) for name in wanted} == wanted
    assert (found.exchange, found.routing_key) == endpoint.address_of(found.queue)
    assert found.body == message.body


@pytest.mark.parametrize(("core", "is_direct", "machine"), [(5, False, "OLDBOX"), (6, True, None)])
def test_stored_and_delivered_as_by_a_timeout_manager(
    rig: Rig, vhost: Vhost, tmp_path: Path, core: Core, is_direct: bool, machine: str | None
) -> None:
    """Every kind of message: the row, what is delivered; none of a saga that is complete.

    What is due within a second, or overdue, is passed on as it came and never stored.
    """
    endpoint = OldEndpoint(rig, core=core, is_direct=is_direct, machine=machine)
    endpoint.declare("Billing")
    prepare_dispatcher(rig, tmp_path)
    watch_table(rig)
    process = start_dispatcher(rig)
    retried, ended = str(uuid.uuid4()), str(uuid.uuid4())
    at_once = [endpoint.deferred(s, to="Billing", body=b"%d" % s) for s in (-86_400, 0, 0.8)]
    stored = [
        endpoint.deferred(6.0, to="Billing", body=b"\x00\xff", changes=ODD),
        endpoint.saga_timeout(6.1, saga_id=str(uuid.uuid4())),
        endpoint.delayed_retry(6.2, retry=1, message_id=retried),
        endpoint.delayed_retry(6.3, retry=2, message_id=retried),
    ]
    with Receiver(rig.broker_url, "Sales", "Billing", "error") as receiver:
        endpoint.send(*at_once, *stored, endpoint.saga_timeout(3600, saga_id=ended))
        wait_until(lambda: written(rig) == 5, what="five rows")
        endpoint.send(endpoint.clear_timeouts(ended))
        wait_until(lambda: len(rig.stored()) == 4, what="a saga without timeouts")
        in_order = vhost.node.release < (4,)  # later ones sort a message's headers by their names
        rows = {_headers(str(each[5]), in_order=in_order): each for each in rig.stored().values()}
        ids = {}
        for message in stored:
            *wanted, text, version = as_stored(message)
            found_id, *columns, _, version_found = rows[_headers(text, in_order=in_order)]
            ids[message.key] = found_id
            assert (columns, version_found) == (wanted, version)
        arrivals = {each.key: each for each in receiver.wait_for(*stored, *at_once)}
        wait_until(lambda: rig.stored() == {}, what="an empty table")
        wait_until(lambda: waiting(rig, endpoint.timeouts) == 0, what="an empty queue")
        rig.stop(process)
    account = account_of([*stored, *at_once], receiver.arrivals)
    assert (account.found, account.early, written(rig)) == (7, (), 5)
    for message in stored + at_once:
        found, headers = arrivals[message.key], as_read(message)
        del headers[EXPIRE], headers[ROUTE_TO]
        if message in stored:
            sent_at = parse_wire_time(found.headers[TIME_SENT])
            assert message.due_at is not None
            assert message.due_at <= sent_at <= found.at
            headers |= {RELATED: str(ids[message.key]), TIME_SENT: found.headers[TIME_SENT]}
        assert found.headers == headers
        if message in stored or core != 5:  # version 5 says nothing of replies
            check_properties(found, message, endpoint)


def test_near_rows_are_sent_and_far_rows_are_moved(rig: Rig, tmp_path: Path) -> None:
    """Mode migrate with near_due = dispatch: what is too near to be moved is sent when it is due.

    The queues of the timeout manager are none of its business.
    """
    endpoint = OldEndpoint(rig)
    endpoint.declare("Billing")
    near_due = {"near_due": "dispatch", "cutoff": "10s"}
    prepare_dispatcher(rig, tmp_path, mode="migrate", handover=near_due)
    left_alone = endpoint.deferred(60)
    endpoint.send(left_alone)
    near = [row(timedelta(seconds=n)) for n in (-60, 3.5, 4, 4.5)]
    far = [row(timedelta(days=3)) for _ in range(50)]
    rig.insert([*near, *far])
    process = rig.start("run", "--endpoint", "Sales")
    with Receiver(rig.broker_url, "Billing") as receiver:
        receiver.wait(lambda: len(receiver.arrivals) >= len(near))
        wait_until(lambda: rig.stored() == {}, what="an empty table")
        rig.stop(process)
    at = {each.headers[RELATED]: each.at for each in receiver.arrivals}
    assert (len(receiver.arrivals), {*at}) == (len(near), {each.id for each in near})
    assert all(at[each.id] >= each.due_at for each in near)
    assert {each.timeout_id for each in rig.drain_levels()} == {each.id for each in far}
    (kept,) = rig.drain(endpoint.timeouts)
    assert kept.properties.message_id == left_alone.properties.message_id


# ── what fails ──────────────────────────────────────────────────────────────────────────────


class Undecodable(pika.BasicProperties):  # type: ignore[misc]  # pika has no types
    """Properties whose headers no reader can decode: a moment billions of years from now."""

    def encode(self) -> list[bytes]:
        """Return flags, and a table with a timestamp out of any range."""
        entry = b"\x04When" + b"T" + struct.pack(">Q", 2**62)
        return [struct.pack(">H", 1 << 13), struct.pack(">I", len(entry)) + entry]


# ── there and back ──────────────────────────────────────────────────────────────────────────


def test_control_messages_are_served_and_the_rest_is_left_as_it_was(
    rig: Rig, tmp_path: Path
) -> None:
    """A due row is sent once; one that is not there, or not due yet, is none of their business.

    Stopped in good order, it leaves queues that are empty and rows as they were; a message that
    nobody can decode is moved to ``error`` as it came.
    """
    endpoint = OldEndpoint(rig)
    endpoint.declare("Billing")
    prepare_dispatcher(rig, tmp_path, dispatch={"poll_interval": "1m", "look_ahead": "1m"})
    rig.insert([row(timedelta(seconds=-60))])
    process = start_dispatcher(rig)
    with Receiver(rig.broker_url, "Billing") as receiver:
        receiver.wait(lambda: len(receiver.arrivals) == 1)  # it has polled, and waits for a minute
        receiver.arrivals.clear()
        one, two, unnamed = (row(timedelta(seconds=-60)) for _ in range(3))
        later = row(timedelta(hours=1))
        rig.insert([one, two, unnamed, later])
        before = rig.stored()
        with rig.amqp() as connection:
            connection.channel().basic_publish("", endpoint.timeouts, b"odd", Undecodable())
        endpoint.core = 7
        named = (two.id.upper(), two.id, str(uuid.uuid4()), later.id)  # SQL Server writes capitals
        endpoint.send(*map(endpoint.control, named))
        endpoint.core = 5
        endpoint.send(endpoint.control(one.id))  # the last: when it is served, all are
        receiver.wait(lambda: len(receiver.arrivals) >= 2)
        wait_until(lambda: waiting(rig, endpoint.dispatcher) == 0, what="all served")
        wait_until(lambda: waiting(rig, "error") == 1, what="one failed message")
        rig.stop(process)
    assert sorted(each.headers[RELATED] for each in receiver.arrivals) == sorted([one.id, two.id])
    assert rig.stored() == {each.id: before[each.id] for each in (unnamed, later)}
    assert waiting(rig, endpoint.dispatcher) == waiting(rig, endpoint.timeouts) == 0


# ── before it begins ────────────────────────────────────────────────────────────────────────


def checked(rig: Rig, *, code: int) -> dict[str, set[str]]:
    """Return which queues `preview` speaks of, by level; it must end with *code*."""
    found: dict[str, set[str]] = {}
    for each in json.loads(rig.must("preview", "--json", codes=(code,)))["findings"]:
        if each["check"] == "satellite-queues":
            found.setdefault(each["level"], set()).add(each["subject"])
    return found


@pytest.mark.slow
def test_the_printed_permissions_are_enough_once_the_queues_are_there(
    rig: Rig, vhost: Any, tmp_path: Path
) -> None:
    """Refused without its queues, warned of whoever consumes them; nothing is refused at work.

    A user with exactly these rights stores, sends, retries and gives up.
    """
    prepare_dispatcher(rig, tmp_path, dispatch={"retry_delays": ["1s"]})
    rig.create_receivers("Billing")
    assert checked(rig, code=3)["refused"] == {"Sales.Timeouts", "error"}
    assert rig.run("run", "--endpoint", "Sales").returncode == 3
    endpoint = OldEndpoint(rig)
    endpoint.declare()
    assert checked(rig, code=0) == {"ok": {endpoint.timeouts, endpoint.dispatcher, "error"}}

    grants = ("db", "grants", "--broker", "--json", "--destination", "Billing")
    wanted = json.loads(rig.must(*grants))
    patterns = {key: wanted[key] for key in ("configure", "write", "read")}
    vhost.node.add_user("least", "pw")
    vhost.node.set_permissions(vhost.name, "least", **patterns)
    rig.insert([row(-timedelta(seconds=5))])
    endpoint.send(
        endpoint.deferred(0, to="Nowhere"),
        endpoint.deferred(0, to="Billing"),
        endpoint.deferred(0, changes={EXPIRE: None}),
    )
    full_url = rig.broker_url
    rig.broker_url = vhost.node.amqp_url(vhost.name, user="least", password="pw")
    process = rig.start("run", "--endpoint", "Sales")
    rig.broker_url = full_url
    with Receiver(rig.broker_url, "Billing", "error") as receiver:
        receiver.wait(lambda: len(receiver.arrivals) == 4)
        wait_until(lambda: endpoint.timeouts in checked(rig, code=0).get("warning", ()), what="one")
    assert Counter(each.queue for each in receiver.arrivals) == {"Billing": 2, "error": 2}
    assert "ACCESS_REFUSED" not in rig.stop(process)
