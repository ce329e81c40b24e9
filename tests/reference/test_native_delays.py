"""What real endpoints delayed natively, and made for it: our arithmetic of levels says the same."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import cast

import pytest

from migrator.delays.routing import (
    DelaysVersion,
    address,
    entry_level,
    infrastructure,
    level_name,
    parse_routing_key,
    routing_key,
)
from migrator.delays.tagged import Place
from migrator.nservicebus import headers as h
from migrator.nservicebus.conversion import BrokerLimits, convert
from migrator.nservicebus.incoming import IncomingMessage
from migrator.nservicebus.satellites import ClearTimeouts, read_control, read_delayed
from migrator.nservicebus.timeouts import NativeMessage, QueueName, StoredTimeout, TimeoutId
from migrator.nservicebus.wiretime import parse_wire_time
from migrator.transfer.rules import (
    DEATHS,
    RETRIES,
    RETRIES_TIMESTAMP,
    due_of,
    last_passed,
    lower_s,
)
from tests.reference.captured import (
    Message,
    clear_and_control,
    definitions_by_installers,
    entering,
    native,
    received_by_version_10,
)

MOMENTS = (0.0, 0.5, 1.0)
"""How much of its time in a level is over when a message is found there."""
SECOND = timedelta(seconds=1)
ALL = pytest.mark.parametrize(
    "message",
    [
        pytest.param(each, id=f"{each.exchange}-{each.headers[h.MESSAGE_ID][:8]}")
        for each in native()
    ],
)


def version_of(message: Message) -> DelaysVersion:
    """Return in which generation of the delays it was found."""
    is_v2 = message.exchange.startswith("nsb.v2.")
    return DelaysVersion.V2 if is_v2 else DelaysVersion.V1


def next_level(message: Message) -> int | None:
    """Return the level it waits in next; None: it is on its way out."""
    if not message.exchange[-2:].isdigit():
        return None
    delay_s, _ = parse_routing_key(message.routing_key)
    rest_s = lower_s(int(message.exchange[-2:]) + 1, delay_s)
    return entry_level(rest_s) if rest_s else None


def promised(message: Message) -> datetime:
    """Return when its endpoint wanted it to arrive."""
    headers = message.headers
    if RETRIES in headers:  # beside the DeliverAt of the delay before
        delay = timedelta(seconds=headers[h.DELAY_IN_SECONDS])
        return parse_wire_time(headers[RETRIES_TIMESTAMP]) + delay
    return parse_wire_time(headers[h.DELIVER_AT])


@ALL
def test_the_way_of_a_message_is_the_one_that_we_compute(message: Message) -> None:
    """Key and entry are those we would publish with; the levels it passed are those of its bits."""
    version = version_of(message)
    delay_s, destination = parse_routing_key(message.routing_key)
    assert delay_s == message.headers[h.DELAY_IN_SECONDS]
    assert routing_key(delay_s, destination) == message.routing_key
    if message in entering():
        sent_to = address(version, delay_s, destination)
        assert (sent_to.exchange, sent_to.level) == (message.exchange, next_level(message))
    level = next_level(message)
    over = range(0 if level is None else level + 1, 28)
    passed = {level_name(version, each) for each in over if delay_s >> each & 1}
    assert {each["queue"] for each in message.headers.get(DEATHS, [])} == passed


def entered_at(message: Message, level: int) -> datetime:
    """Return when it was in *level*, and less than a second longer: the broker cuts those off."""
    headers = message.headers
    delay_s, _ = parse_routing_key(message.routing_key)
    if (passed := last_passed(level, delay_s)) is None:
        return max(
            parse_wire_time(headers[h.TIME_SENT]), promised(message) - timedelta(seconds=delay_s)
        )
    queue = level_name(version_of(message), passed)
    (left_at,) = (each["time"] for each in headers[DEATHS] if each["queue"] == queue)
    return cast("datetime", left_at) + SECOND


@ALL
def test_a_message_of_a_level_is_due_when_its_endpoint_wanted(message: Message) -> None:
    """Found at any moment: never before, and not after the broker would have let it go.

    Headers say less of a saga's timeouts than they were delayed by: they count from when its
    handler asked for them, and the delay from when it was done.
    """
    level = next_level(message)
    if level is None:
        return
    delay_s, _ = parse_routing_key(message.routing_key)
    came_at, stay = entered_at(message, level), timedelta(seconds=2**level)
    arrives_at = came_at + stay + timedelta(seconds=lower_s(level, delay_s))
    for over in MOMENTS:
        place, seen_at = Place(level, delay_s, version_of(message)), came_at + over * stay
        due = due_of(message.headers, place, seen_at=seen_at)
        proved = due_of(message.headers, place, seen_at=seen_at, believe_headers=False)
        assert not due.is_proved
        assert promised(message) <= due.at <= arrives_at + SECOND
        assert promised(message) <= proved.at <= arrives_at + max(SECOND, proved.uncertainty)
        assert DEATHS not in message.headers or proved.uncertainty <= SECOND


@ALL
def test_an_endpoint_names_no_application(message: Message) -> None:
    """By the app-id that we set, a recall tells our messages from theirs."""
    assert "app_id" not in message.properties


def test_installers_make_the_levels_that_we_make() -> None:
    """Every queue, exchange and binding of v2, with type and arguments, and nothing beside."""
    found, ours = definitions_by_installers(), infrastructure(DelaysVersion.V2)
    assert {each["name"]: each["arguments"] for each in found["queues"]} == {
        each.name: each.arguments for each in ours.queues
    }
    assert {each["name"] for each in found["exchanges"]} == set(ours.exchanges)
    assert all((e["type"], e["arguments"]) == ("topic", {}) for e in found["exchanges"])
    assert all(e["durable"] for e in (*found["queues"], *found["exchanges"]))
    assert {
        (b["source"], b["destination_type"], b["destination"], b["routing_key"])
        for b in found["bindings"]
    } == {(b.source, b.target.kind, b.target.name, b.key) for b in ours.bindings}


def test_version_10_sees_of_a_row_what_we_made_of_it() -> None:
    """All headers but the delay, which its transport takes away, and the properties."""
    for row, headers, native_properties in received_by_version_10():
        timeout = StoredTimeout(
            id=TimeoutId(row.id),
            row_index=0,
            destination=row.destination,
            due_at=row.due_at,
            body=row.body or b"",
            headers_text=row.headers,
        )
        made = convert(timeout, rules=BrokerLimits(), now=row.due_at - SECOND)
        assert isinstance(made, NativeMessage)
        assert {k: v for k, v in made.headers.items() if k != h.DELAY_IN_SECONDS} == headers
        properties = {
            "messageId": made.message_id,
            "correlationId": made.correlation_id,
            "replyTo": made.reply_to,
            "type": made.type,
            "contentType": made.content_type,
            "deliveryMode": 2,
        }
        assert properties.items() <= native_properties.items()
        assert made.destination == parse_routing_key(native_properties["routingKey"])[1]


# ── what a timeout manager is told ──────────────────────────────────────────────────────────


def _incoming(message: Message) -> IncomingMessage:
    given = {"correlation_id": None, "type": None, "reply_to": None, **message.properties}
    return IncomingMessage(
        **given,
        raw_headers=message.headers,
        body=message.body,
        raw_properties=b"",
    )


def test_a_finished_saga_and_the_poller_are_understood() -> None:
    """The message that clears names the saga of its timeouts; the poller's names its row."""
    *timeouts, clear, control = map(_incoming, clear_and_control())
    queue = QueueName("SalesK.Timeouts")
    found = read_delayed(clear, queue=queue)
    assert isinstance(found, ClearTimeouts)
    assert {read_delayed(each, queue=queue).saga_id for each in timeouts} == {found.saga_id}
    assert read_control(control) == control.raw_headers["Timeout.Id"]
