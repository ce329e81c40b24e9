"""Messages nobody can carry out, sagas that end, and copies: each is dealt with for itself."""

from __future__ import annotations

import struct
import time
import uuid
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pika

from dev.servers import wait_until
from migrator.nservicebus.wiretime import parse_wire_time
from tests.e2e.arrivals import Arrival, Receiver, books
from tests.e2e.dispatching import prepare_dispatcher, start_dispatcher, waiting
from tests.e2e.old_endpoint import EXPIRE, ROUTE_TO, Changes, OldEndpoint, OldMessage, keys
from tests.e2e.rig import Rig

SAGA_ID = "NServiceBus.SagaId"
EXCEPTION = "NServiceBus.ExceptionInfo."
MALFORMED: dict[str, Changes] = {
    "no date": {EXPIRE: "2026-13-45 99:99:99:123456 Z"},
    "a date of another format": {EXPIRE: "2026-03-15T08:00:00Z"},
    "no due time": {EXPIRE: None},
    "no saga id": {SAGA_ID: "9a1e0c52-3f77"},
    "nothing cleared": {"NServiceBus.ClearTimeouts": "True"},
    "no destination": {ROUTE_TO: ""},
    "too long a destination": {ROUTE_TO: "x" * 201},
}


class Undecodable(pika.BasicProperties):  # type: ignore[misc]  # pika has no types
    """Properties whose headers no reader can decode: a moment billions of years from now."""

    def encode(self) -> list[bytes]:
        """Return flags, and a table with a timestamp out of any range."""
        entry = b"\x04When" + b"T" + struct.pack(">Q", 2**62)
        return [struct.pack(">H", 1 << 13), struct.pack(">I", len(entry)) + entry]


def check_failed(found: Arrival, message: OldMessage, queue: str) -> None:
    """Demand the fault headers of versions 6 and 7, beside all that was there."""
    headers = found.headers
    fault = {name: headers.pop(name, None) for name in [*headers] if name not in message.headers}
    assert headers == {k: v for k, v in message.headers.items() if k in headers}
    assert fault["NServiceBus.FailedQ"] == queue
    at = parse_wire_time(fault["NServiceBus.TimeOfFailure"])
    assert abs(datetime.now(UTC) - at) < timedelta(minutes=1)
    for name in ("ExceptionType", "Message", "StackTrace", "Source"):
        assert fault[EXCEPTION + name]
    for name in ("ProcessingMachine", "ProcessingEndpoint"):
        assert fault[f"NServiceBus.{name}"]
    assert len(fault["$.diagnostics.hostid"]) == 32
    assert found.properties.message_id == message.properties.message_id
    assert found.properties.correlation_id == message.properties.correlation_id
    assert found.properties.delivery_mode == 2
    assert found.body == message.body


def test_malformed_messages_go_to_the_error_queue_and_the_others_go_on(
    rig: Rig, tmp_path: Path
) -> None:
    """What can never be understood is in ``error`` at once, said why, and nobody waits for it."""
    endpoint = OldEndpoint(rig)
    endpoint.declare("Billing")
    prepare_dispatcher(rig, tmp_path)
    process = start_dispatcher(rig)
    bad = {
        name: endpoint.deferred(60, to="Billing", body=name.encode(), changes=changes)
        for name, changes in MALFORMED.items()
    }
    bad_control = endpoint.control("no id at all")
    nameless = endpoint.deferred(60, to="Billing", body=b"nameless")
    nameless.properties.message_id = None
    good = [endpoint.deferred(2, to="Billing") for _ in range(len(bad))]
    mixed = [each for pair in zip(bad.values(), good, strict=True) for each in pair]
    with Receiver(rig.broker_url, "Billing", "error") as receiver:
        endpoint.send(nameless, *mixed, bad_control)
        receiver.wait(lambda: len(receiver.at("error")) >= len(bad) + 2)
        receiver.wait_for(*good)
        time.sleep(0.3)  # another copy would come soon
        rig.stop(process)
    account = books(good, receiver.at("Billing"))
    assert (account.arrived, account.early, account.lost) == (len(good), (), ())
    assert len(receiver.at("error")) == len(bad) + 2
    by_body = {each.body.decode(): each for each in receiver.at("error")}
    for name, message in bad.items():
        check_failed(by_body[name], message, endpoint.timeouts)
    (control,) = (each for each in receiver.at("error") if each.headers.get("Timeout.Id"))
    assert control.headers["NServiceBus.MessageId"] == bad_control.properties.message_id
    check_failed(control, bad_control, endpoint.dispatcher)
    nameless.properties.message_id = nameless.headers["NServiceBus.MessageId"]  # what it gains
    check_failed(by_body["nameless"], nameless, endpoint.timeouts)
    assert waiting(rig, endpoint.timeouts) == waiting(rig, endpoint.dispatcher) == 0
    assert rig.stored() == {}


def test_headers_that_nobody_can_decode_stop_nothing(rig: Rig, tmp_path: Path) -> None:
    """Such a message is moved to ``error`` byte for byte; the ones around it are delivered."""
    endpoint = OldEndpoint(rig)
    endpoint.declare("Billing")
    prepare_dispatcher(rig, tmp_path)
    process = start_dispatcher(rig)
    odd = OldMessage(queue=endpoint.timeouts, properties=Undecodable(), body=b"odd")
    with rig.amqp() as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        channel.basic_publish(*endpoint.address_of(odd.queue), odd.body, odd.properties)
    good = [endpoint.deferred(seconds, to="Billing") for seconds in (0.3, 2)]
    with Receiver(rig.broker_url, "Billing") as receiver:
        endpoint.send(*good)
        receiver.wait_for(*good)
    wait_until(lambda: waiting(rig, "error") == 1, what="one failed message")
    rig.stop(process)
    assert waiting(rig, endpoint.timeouts) == 0


def test_completed_sagas_are_cleared_in_the_order_of_messages(rig: Rig, tmp_path: Path) -> None:
    """Cleared before they are due: gone. Not cleared: all. Requested again afterwards: comes."""
    endpoint = OldEndpoint(rig)
    endpoint.declare()
    prepare_dispatcher(rig, tmp_path)
    process = start_dispatcher(rig)
    ended, kept, again = (str(uuid.uuid4()) for _ in range(3))

    def timeouts(old: OldEndpoint, saga_id: str, due_in_s: float) -> list[OldMessage]:
        return [old.saga_timeout(due_in_s, saga_id=saga_id) for _ in range(10)]

    of_ended, before = timeouts(endpoint, ended, 3600), timeouts(endpoint, again, 3600)
    of_kept, after = timeouts(endpoint, kept, 2.5), timeouts(endpoint, again, 2.5)
    old = OldEndpoint(rig, core=5)
    of_old = timeouts(old, ended, 3600)
    with Receiver(rig.broker_url, "Sales", "error") as receiver:
        endpoint.send(*of_ended, *of_kept, *before, endpoint.clear_timeouts(again), *after)
        old.send(*of_old, old.clear_timeouts(ended))
        receiver.wait_for(*of_kept, *after)
        wait_until(lambda: rig.stored() == {}, what="nothing left to be sent")
        rig.stop(process)
    account = books([*of_kept, *after], receiver.arrivals)
    assert (account.lost, account.foreign, account.duplicated) == ((), (), ())
    assert rig.stored() == {}


def test_clearing_races_with_dispatch(rig: Rig, tmp_path: Path) -> None:
    """Cleared while its timeouts get due: each is removed or delivered, none twice, none stays.

    However slow the machine is, the first saga is served before it ends, and the last one is not.
    """
    endpoint = OldEndpoint(rig)
    endpoint.declare()
    prepare_dispatcher(rig, tmp_path, dispatch={"look_ahead": "200ms", "poll_interval": "100ms"})
    process = start_dispatcher(rig)
    served, *racing, ended = (str(uuid.uuid4()) for _ in range(30))
    first = endpoint.saga_timeout(0, saga_id=served)
    rows = [
        endpoint.saga_timeout(2 + n / 30, saga_id=saga)
        for n, saga in enumerate(racing)
        for _ in range(5)
    ]
    last = endpoint.saga_timeout(3600, saga_id=ended)
    with Receiver(rig.broker_url, "Sales", "error") as receiver:
        endpoint.send(last, *rows, first)
        receiver.wait_for(first)
        due_at: list[Any] = sorted(each.due_at for each in rows)
        time.sleep(max(0.0, (due_at[0] - datetime.now(UTC)).total_seconds() - 0.2))
        for saga in (served, *racing, ended):
            endpoint.send(endpoint.clear_timeouts(saga))
            time.sleep(0.03)
        time.sleep(max(0.0, (due_at[-1] - datetime.now(UTC)).total_seconds()))
        wait_until(lambda: rig.stored() == {}, what="none that stays")
        time.sleep(0.5)  # another copy would come soon
        rig.stop(process)
    rows = [first, *rows, last]
    account = books(rows, receiver.arrivals)
    print(f"{account.arrived} of {len(rows)} were faster than their end: {account}")
    assert {each.key for each in receiver.arrivals} & {first.key, last.key} == {first.key}
    assert (account.duplicated, account.foreign, account.early) == ((), (), ())
    assert {each.key for each in receiver.arrivals} <= keys(rows)
    assert rig.stored() == {}
    assert set(rig.batch_states()) <= {"dispatched"}
