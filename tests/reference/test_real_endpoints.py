"""What migrator stores and sends for captured timeouts, compared with a real timeout manager.

Each column of each row and each part of each message is compared; where ours may differ, and why,
are the tables in ``docs/reference/real-endpoints.md``. A difference that is not there fails, and
so does one that is there and no longer found. How much was compared is printed at the end.
"""

from __future__ import annotations

import json
import uuid
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from functools import cache
from pathlib import Path
from typing import Any, Final

import pytest

from dev.servers import wait_until
from migrator.nservicebus import headers as h
from migrator.nservicebus.wiretime import parse_wire_time
from tests.e2e.arrivals import Arrival, Receiver
from tests.e2e.dispatching import start_dispatcher
from tests.e2e.rig import Rig
from tests.e2e.rows import Row, row, usual_headers
from tests.reference.captured import Message, Timeout, timeouts
from tests.reference.conftest import QUEUES

PAGE: Final = Path(__file__).parents[2] / "docs/reference/real-endpoints.md"
COLUMNS: Final = ("Id", "Destination", "SagaId", "State", "Time", "Headers", "PersistenceVersion")
SAME, OTHER, ADDED, LEFT_OUT = "the same", "other", "added", "left out"
DUE_IN: Final = {
    "dispatch": timedelta(seconds=2),
    "forward": timedelta(seconds=4),
    **dict.fromkeys(("direct", "staged"), timedelta(seconds=6)),
    "overdue": timedelta(minutes=-1),
}
"""Until rows are due that a running daemon shall move before."""
SENT: Final = 22
"""Captured timeouts whose sent message was captured as well: all but one."""
PROPERTIES: Final = (
    *("message_id", "correlation_id", "type", "content_type", "reply_to", "delivery_mode"),
    *("content_encoding", "priority", "expiration", "timestamp", "user_id", "app_id"),
)
Orders = Callable[[str], Rig]

pytestmark = pytest.mark.punctual


Tell = Callable[[str, object], None]


@pytest.mark.parametrize("mode", DUE_IN)
def test_what_is_sent_is_what_a_real_timeout_manager_sent(
    orders: Orders, mode: str, record_property: Tell
) -> None:
    """Every captured timeout, from its row or its message to its destination's queue."""
    found = Compared(mode)
    for timeout, arrival in sent_by_migrator(orders, mode):
        real, sent = timeout.sent, as_message(arrival)
        assert sent.facts[h.NON_DURABLE] == timeout.on_timeouts.headers.get(h.NON_DURABLE, "False")
        if real is not None:
            found.add(sent.facts, real.facts)
    assert found.messages == SENT
    assert found.kinds == allowed("sent")[mode]
    record_property("told", str(found))


def test_what_is_stored_is_what_a_real_timeout_manager_stored(
    orders: Orders, record_property: Tell
) -> None:
    """Every captured message, from ``.Timeouts`` to the table: each column, Headers by its text."""
    rig = orders("dispatch")
    process = start_dispatcher(rig, queue="Sales.Timeouts")
    wanted = [each.moved(datetime.now(UTC) + timedelta(hours=1)) for each in timeouts()]
    publish(rig, wanted)
    wait_until(lambda: len(rig.stored()) == len(wanted), what="all rows")
    rig.stop(process)
    ours = {json.loads(columns[5])[h.MESSAGE_ID]: columns for columns in rig.stored().values()}
    found = {each.version: Compared(f"stored of {each.version}") for each in wanted}
    for each in wanted:
        stored, real = ours[each.logical_id], columns_of(each.row)
        found[each.version].add(dict(zip(COLUMNS, stored, strict=True)), real)
        assert stored[5] == without_confirmation(real["Headers"])
    assert {version: each.kinds for version, each in found.items()} == allowed("stored")
    for compared in found.values():
        record_property("told", str(compared))


def columns_of(row: Row) -> dict[str, Any]:
    """Return a row of a real timeout manager as the database has it."""
    due = row.due_at.replace(tzinfo=None)
    values = (uuid.UUID(row.id), row.destination, row.saga_id, row.body, due, row.headers)
    return dict(zip(COLUMNS, (*values, row.persistence_version), strict=True))


def without_confirmation(text: str) -> str:
    """Return the Headers column *text* without what transport 4.2 lets through to the table."""
    lines = [line for line in text.splitlines() if h.CONFIRMATION_ID not in line]
    return "\n".join(lines)


# ── how they are sent ───────────────────────────────────────────────────────────────────────


def sent_by_migrator(orders: Orders, mode: str) -> Sequence[tuple[Timeout, Arrival]]:
    """Return each timeout, with another due time, and what arrived of it."""
    if mode in ("dispatch", "forward"):
        rig = orders(mode)
        process = start_dispatcher(rig, queue="Sales.Timeouts")
    else:
        rig = orders("migrate")
        given = "direct" if mode == "overdue" else mode
        process = rig.start("run", "--endpoint", "Orders", "--mode", given)
        wait_until(rig.has_lane, what="a daemon that waits for rows")
    moved = [each.moved(datetime.now(UTC) + DUE_IN[mode]) for each in timeouts()]
    old = version_5(DUE_IN[mode])
    with Receiver(rig.broker_url, *QUEUES) as receiver:
        if mode == "forward":
            publish(rig, moved)
        else:
            rig.insert([old, *(each.row for each in moved)])
        count = len(moved) + (mode != "forward")
        receiver.wait(lambda: len(receiver.arrivals) >= count)
        rig.stop(process)
    arrived = {str(each.headers[h.MESSAGE_ID]): each for each in receiver.arrivals}
    assert len(arrived) == len(receiver.arrivals) == count
    if mode != "forward":
        assert arrived[json.loads(old.headers or "")[h.MESSAGE_ID]].properties.reply_to == "Sales"
    pairs = [(each, arrived[each.logical_id]) for each in moved]
    for timeout, arrival in pairs:
        check(timeout, arrival, mode)
    return pairs


def version_5(due_in: timedelta) -> Row:
    """Return a row that names no address for replies, as those of version 5 do."""
    headers = {**usual_headers(), h.VERSION: "5.2.26"}
    del headers[h.REPLY_TO_ADDRESS]
    made = row(due_in, destination="Sales")
    times = {k: v for k, v in json.loads(made.headers or "").items() if "Time" in k}
    return Row(
        id=made.id,
        destination="Sales",
        due_at=made.due_at,
        body=b"",
        headers=json.dumps({**headers, **times}),
    )


def publish(rig: Rig, messages: Sequence[Timeout]) -> None:
    """Put captured messages into ``.Timeouts``."""
    with rig.amqp() as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        for each in messages:
            message = each.on_timeouts
            channel.basic_publish("", "Sales.Timeouts", message.body, message.amqp, mandatory=True)


# ── how they are compared ───────────────────────────────────────────────────────────────────


def check(timeout: Timeout, arrival: Arrival, mode: str) -> None:
    """Demand of what differs from run to run that it is right."""
    assert arrival.at >= timeout.row.due_at
    assert arrival.queue == timeout.row.destination
    assert arrival.properties.message_id == timeout.logical_id
    sent_at = parse_wire_time(arrival.headers[h.TIME_SENT])
    if mode == "dispatch":
        assert timeout.row.due_at <= sent_at <= arrival.at
        return
    assert arrival.headers[h.TIME_SENT] == timeout.on_timeouts.headers[h.TIME_SENT]
    delay = timedelta(seconds=arrival.headers[h.DELAY_IN_SECONDS])
    assert timedelta(0) <= sent_at + delay - timeout.row.due_at < timedelta(seconds=1)
    assert parse_wire_time(arrival.headers[h.DELIVER_AT]) == timeout.row.due_at


def as_message(found: Arrival) -> Message:
    """Return what arrived in the form of what was captured."""
    properties = {name: getattr(found.properties, name) for name in PROPERTIES}
    return Message(
        exchange=found.exchange,
        routing_key=found.routing_key,
        properties={name: value for name, value in properties.items() if value is not None},
        headers=found.headers,
        body=found.body,
    )


class Compared:
    """What is different in one way of storing or sending, and how; over many messages."""

    def __init__(self, way: str) -> None:
        self._way = way
        self.messages = self._all = self._places = 0
        self._found: defaultdict[str, set[str]] = defaultdict(set)

    def add(self, ours: Mapping[str, Any], real: Mapping[str, Any]) -> None:
        """Compare each part; the real one's due time is that of another day."""
        self.messages += 1
        for name in ours.keys() | real.keys():
            self._all += 1
            if name in ours and name in real and ours[name] == real[name]:
                continue
            kind = ADDED if name not in real else LEFT_OUT if name not in ours else OTHER
            self._places += 1
            self._found[name].add(kind)

    @property
    def kinds(self) -> Mapping[str, str]:
        """How each part differs that does."""
        return {name: " or ".join(sorted(kinds)) for name, kinds in self._found.items()}

    def __str__(self) -> str:
        told = ", ".join(f"{name} {kind}" for name, kind in sorted(self.kinds.items()))
        return (
            f"real endpoints, {self._way}: {self._all} properties compared, {self._places} "
            f"different in the {len(self.kinds)} documented ways: {told}"
        )


@cache
def allowed(table: str) -> Mapping[str, Mapping[str, str]]:
    """Return a table of the page: by column, each part that differs and how."""
    _, _, text = PAGE.read_text("utf-8").partition(f"<!-- {table}: begin -->\n")
    rows = [
        [cell.strip() for cell in line.strip("|").split(" | ")]
        for line in text.partition(f"<!-- {table}: end -->\n")[0].splitlines()
    ]
    head, _, *body = rows
    return {
        name: {cells[0].replace("`", ""): cells[at] for cells in body if cells[at] != SAME}
        for at, name in enumerate(head[1:-1], 1)
    }
