"""What is stored and what is delivered, column by column, header by header, property by property.

The expectations come from reference ``timeout-manager.md`` sections 4, 7 and 10, written here once
more. Three things differ on purpose from a timeout manager: the AMQP message id is the logical
id, the headers that address a timeout manager are gone, and nothing is delivered early.
"""

from __future__ import annotations

import json
import uuid
from pathlib import Path
from typing import Any

import pytest

from dev.servers import wait_until
from migrator.nservicebus.wiretime import parse_wire_time
from tests.e2e.arrivals import Arrival, Receiver, books
from tests.e2e.dispatching import (
    prepare_dispatcher,
    start_dispatcher,
    waiting,
    watch_table,
    written,
)
from tests.e2e.old_endpoint import CONFIRMATION_ID, EXPIRE, ROUTE_TO, Core, OldEndpoint, OldMessage
from tests.e2e.rig import Rig
from tests.e2e.rows import NO_SAGA

TIME_SENT = "NServiceBus.TimeSent"
RELATED = "NServiceBus.RelatedToTimeoutId"
NON_DURABLE = "NServiceBus.NonDurableMessage"
ODD = {"Größe": 'z\u0001\t"\\ \u2028'}
"""A header that JSON has to escape."""


def as_read(message: OldMessage) -> dict[str, str]:
    """Return the headers that the transports 4.3 to 7 make of *message* (section 4)."""
    headers = {k: v for k, v in message.headers.items() if k != CONFIRMATION_ID}
    return {**headers, NON_DURABLE: "False"}


def as_stored(message: OldMessage, row_id: str, saga_id: uuid.UUID) -> tuple[Any, ...]:
    """Return the columns that the SQL persistence writes for *message* (section 7)."""
    assert message.due_at is not None
    return (
        uuid.UUID(row_id),
        message.headers[ROUTE_TO].split("@")[0],
        saga_id,
        message.body,
        message.due_at.replace(tzinfo=None),
        json.dumps(as_read(message), indent=2, ensure_ascii=False),
        "6.6.5.0",
    )


def saga_of(message: OldMessage) -> uuid.UUID:
    """Return the saga that *message* belongs to, the zero one if it belongs to none."""
    return uuid.UUID(message.headers.get("NServiceBus.SagaId", str(NO_SAGA)))


def check_properties(found: Arrival, message: OldMessage, endpoint: OldEndpoint) -> None:
    """Demand the properties of section 4, made from the stored headers."""
    properties, headers = found.properties, message.headers
    wanted = {
        "message_id": headers["NServiceBus.MessageId"],
        "correlation_id": headers["NServiceBus.CorrelationId"],
        "type": headers["NServiceBus.EnclosedMessageTypes"].split(",")[0],
        "content_type": headers["NServiceBus.ContentType"],
        "reply_to": endpoint.name,
        "delivery_mode": 2,
        "content_encoding": None,
        "priority": None,
        "expiration": None,
        "timestamp": None,
        "user_id": None,
        "app_id": None,
    }
    assert {name: getattr(properties, name) for name in wanted} == wanted
    assert (found.exchange, found.routing_key) == endpoint.address_of(found.queue)
    assert found.body == message.body


@pytest.mark.parametrize(
    ("core", "is_direct", "machine"),
    [
        (5, False, "OLDBOX"),
        (6, True, None),
        (7, False, None),
        pytest.param(5, True, None, marks=pytest.mark.slow),
        pytest.param(6, False, None, marks=pytest.mark.slow),
    ],
)
def test_stored_and_delivered_as_by_a_timeout_manager(
    rig: Rig, tmp_path: Path, core: Core, is_direct: bool, machine: str | None
) -> None:
    """Deferred messages, saga timeouts and delayed retries: the row, then what is delivered."""
    endpoint = OldEndpoint(rig, core=core, is_direct=is_direct, machine=machine)
    endpoint.declare("Billing")
    prepare_dispatcher(rig, tmp_path)
    process = start_dispatcher(rig)
    retried = str(uuid.uuid4())
    messages = [
        endpoint.deferred(
            6.0, to="Billing", body=b"\x00\xff", changes={"Größe": 'z\u0001\t"\\ \u2028'}
        ),
        endpoint.saga_timeout(6.1, saga_id=str(uuid.uuid4())),
        endpoint.delayed_retry(6.2, retry=1, message_id=retried),
        endpoint.delayed_retry(6.3, retry=2, message_id=retried),
    ]
    with Receiver(rig.broker_url, "Sales", "Billing", "error") as receiver:
        endpoint.send(*messages)
        wait_until(lambda: len(rig.stored()) == 4, what="four rows")
        rows = {str(each[5]): each for each in rig.stored().values()}
        ids: dict[str, str] = {}
        for message in messages:
            wanted = as_stored(message, NO_SAGA.hex, saga_of(message))
            row = rows[str(wanted[5]).replace("\u2028", "\\u2028")]  # as Newtonsoft.Json has it
            ids[message.key] = str(row[0])
            assert row[1:5] + row[6:] == wanted[1:5] + wanted[6:]
            assert isinstance(row[3], bytes)
        assert waiting(rig, endpoint.timeouts) == 0
        arrivals = {each.key: each for each in receiver.wait_for(*messages)}
    account = books(messages, receiver.arrivals)
    assert (account.arrived, account.early) == (4, ())
    for message in messages:
        found = arrivals[message.key]
        headers = found.headers
        sent_at = parse_wire_time(headers.pop(TIME_SENT))
        assert message.due_at is not None
        assert message.due_at <= sent_at <= found.at
        wanted_headers = as_read(message) | {RELATED: ids[message.key]}
        for gone in (EXPIRE, ROUTE_TO, TIME_SENT):
            del wanted_headers[gone]
        assert headers == wanted_headers
        assert found.queue == message.headers[ROUTE_TO].split("@")[0]
        check_properties(found, message, endpoint)
    wait_until(lambda: rig.stored() == {}, what="an empty table")
    rig.stop(process)


@pytest.mark.parametrize(
    ("core", "is_direct"), [pytest.param(5, False, marks=pytest.mark.slow), (6, True)]
)
def test_due_at_once_is_passed_on_and_never_stored(
    rig: Rig, tmp_path: Path, core: Core, is_direct: bool
) -> None:
    """Due within a second, or overdue: its own id and headers, unstored, never early."""
    endpoint = OldEndpoint(rig, core=core, is_direct=is_direct)
    endpoint.declare("Billing")
    prepare_dispatcher(rig, tmp_path)
    watch_table(rig)
    process = start_dispatcher(rig)
    with Receiver(rig.broker_url, "Billing") as receiver:
        messages = [
            endpoint.deferred(seconds, to="Billing", body=str(seconds).encode())
            for seconds in (-86_400, -1, 0, 0.2, 0.5, 0.8)
        ]
        endpoint.send(*messages)
        arrivals = {each.key: each for each in receiver.wait_for(*messages)}
    account = books(messages, receiver.arrivals)
    assert (account.arrived, account.early) == (6, ())
    for message in messages:
        found = arrivals[message.key]
        assert found.headers == {
            name: value
            for name, value in as_read(message).items()
            if name not in (EXPIRE, ROUTE_TO)
        }
        if core != 5:  # passed on as it came: version 5 said nothing of replies
            check_properties(found, message, endpoint)
    assert written(rig) == 0
    wait_until(lambda: waiting(rig, endpoint.timeouts) == 0, what="an empty queue")
    rig.stop(process)
