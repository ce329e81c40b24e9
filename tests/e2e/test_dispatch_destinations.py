"""Destinations that are missing, unbound, gone, of another form: only their own messages wait."""

from __future__ import annotations

import itertools
import json
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from dev.servers import wait_until
from migrator.nservicebus.wiretime import parse_wire_time
from tests.e2e.arrivals import Receiver, books
from tests.e2e.dispatching import prepare_dispatcher, start_dispatcher, waiting
from tests.e2e.old_endpoint import OldEndpoint, OldMessage
from tests.e2e.rig import Rig
from tests.e2e.rows import row


def held(rig: Rig) -> dict[str, dict[str, Any]]:
    """Return what `status --json` says of held destinations, by name."""
    found: Sequence[dict[str, Any]] = json.loads(rig.must("status", "--json"))["held"]
    return {str(each["destination"]): each for each in found}


def test_a_destination_that_goes_away_holds_up_nobody_else(rig: Rig, tmp_path: Path) -> None:
    """Its way was known and is gone: others are delivered meanwhile, its own when it is back.

    Ours may come twice: the broker closes a channel that names an exchange that is gone, before it
    has confirmed all.
    """
    endpoint = OldEndpoint(rig)
    endpoint.declare("Billing", "Shipping")
    prepare_dispatcher(rig, tmp_path)
    process = start_dispatcher(rig)
    with Receiver(rig.broker_url, "Billing", "error") as receiver:
        first = endpoint.deferred(1.5, to="Shipping")
        endpoint.send(first)
        with Receiver(rig.broker_url, "Shipping") as shipping:
            shipping.wait_for(first)
        with rig.amqp() as connection:
            connection.channel().queue_delete("Shipping")
            connection.channel().exchange_delete("Shipping")
        ours = [endpoint.deferred(1.5 + n / 4, to="Billing") for n in range(12)]
        theirs = [endpoint.deferred(1.5 + n / 4, to="Shipping") for n in range(3)]
        endpoint.send(*theirs, *ours)
        receiver.wait_for(*ours)
        wait_until(lambda: set(held(rig)) == {"Shipping"}, what="a held destination")
        rig.create_receivers("Shipping")
        with Receiver(rig.broker_url, "Shipping") as shipping:
            shipping.wait_for(*theirs)
            assert books(theirs, shipping.arrivals).duplicated == ()
        rig.stop(process)
    account = books(ours, receiver.arrivals)
    print(f"beside a destination that went away: {account}")
    assert (account.lost, account.foreign, account.early) == ((), (), ())
    assert account.arrived <= len(ours) * (1 + len(theirs))


@pytest.mark.punctual
def test_a_message_due_at_once_is_retried_as_configured(rig: Rig, tmp_path: Path) -> None:
    """For a missing destination: in ``error`` after all delays; created meanwhile: delivered."""
    endpoint = OldEndpoint(rig)
    endpoint.declare()
    prepare_dispatcher(rig, tmp_path, dispatch={"retry_delays": ["1s", "6s"]})
    process = start_dispatcher(rig)
    never = endpoint.deferred(0, to="Nowhere", body=b"never")
    later = endpoint.deferred(0, to="Later", body=b"later")
    with Receiver(rig.broker_url, "error") as receiver:
        sent_at = datetime.now(UTC)
        endpoint.send(never, later)
        time.sleep(2)  # after the first delay, and long before the end of the second
        rig.create_receivers("Later")
        with Receiver(rig.broker_url, "Later") as created:
            created.wait_for(later)
            (found,) = created.arrivals
        (failed,) = receiver.wait_for(never)
        time.sleep(1)
        assert len(receiver.arrivals) == 1
        rig.stop(process)
    took_s = (failed.at - sent_at).total_seconds()
    print(f"in error after {took_s:.2f} s, delivered after {(found.at - sent_at).total_seconds()}")
    assert 7 <= took_s < 20
    assert found.at - sent_at < timedelta(seconds=20)
    assert found.properties.message_id == later.properties.message_id
    assert not [name for name in found.headers if name.startswith(("x-", "Migrator"))]
    headers = failed.headers
    assert headers["NServiceBus.FailedQ"] == endpoint.timeouts
    assert headers["NServiceBus.MessageId"] == never.properties.message_id
    assert headers["NServiceBus.Timeout.Expire"] == never.headers["NServiceBus.Timeout.Expire"]
    assert parse_wire_time(headers["NServiceBus.TimeOfFailure"]) >= sent_at + timedelta(seconds=7)
    assert "Nowhere" in headers["NServiceBus.ExceptionInfo.Message"]
    assert not [name for name in headers if name.startswith(("x-", "Migrator"))]
    assert waiting(rig, endpoint.timeouts) == 0


@pytest.mark.slow
@pytest.mark.punctual
def test_messages_that_nobody_can_receive_hold_up_nobody_else(rig: Rig, tmp_path: Path) -> None:
    """Many of them, for many missing queues, all due at once: what can be delivered is on time."""
    endpoint, lost = OldEndpoint(rig), OldEndpoint(rig)
    endpoint.declare("Billing")
    prepare_dispatcher(rig, tmp_path)
    rig.settings["MIGRATOR_LOG__LEVEL"] = "error"  # nobody reads what is said meanwhile
    process = start_dispatcher(rig)
    ended, numbers = threading.Event(), itertools.count()
    sent: list[OldMessage] = []
    with Receiver(rig.broker_url, "Billing") as receiver, ThreadPoolExecutor(1) as pool:
        flood = pool.submit(
            lost.send_until,
            ended,
            make=lambda: lost.deferred(0, to=f"Missing{next(numbers) % 50}"),
            every_s=0.01,
        )
        try:
            for _ in range(150):
                pair = [endpoint.deferred(seconds, to="Billing") for seconds in (0.5, 2.5)]
                endpoint.send(*pair)
                sent += pair
                time.sleep(0.03)
        finally:
            ended.set()
        in_vain = len(flood.result())
        receiver.wait_for(*sent)
        rig.stop(process)
    account = books(sent, receiver.arrivals)
    print(f"beside {in_vain} in vain: {account}")
    assert (account.lost, account.duplicated, account.early) == ((), (), ())
    assert account.worst_s < 5


def test_one_timeout_manager_for_many_destinations(rig: Rig, tmp_path: Path) -> None:
    """As an external timeout manager: many senders, conventional and direct receivers, machines.

    Rows of other days that name ``Queue@MACHINE`` go to the queue as well.
    """
    host = OldEndpoint(rig)
    host.declare()
    conventional = [f"Fan.{n}" for n in range(6)]
    direct = [f"Plain-{n}" for n in range(6)]
    rig.create_receivers(*conventional)
    rig.create_receivers(*direct, direct=True)
    prepare_dispatcher(rig, tmp_path)
    process = start_dispatcher(rig)
    rig.insert(row(timedelta(seconds=1), destination=f"{name}@OLDBOX") for name in conventional)
    senders = [OldEndpoint(rig, core=5, machine="OLDBOX"), host, OldEndpoint(rig, core=7)]
    messages = [
        sender.deferred(seconds, to=name, body=name.encode())
        for sender in senders
        for name in (*conventional, *direct)
        for seconds in (0.5, 2.5)
    ]
    with Receiver(rig.broker_url, *conventional, *direct, "error") as receiver:
        for sender in senders:
            sender.send(*messages[senders.index(sender) * 24 :][:24])
        receiver.wait_for(*messages)
        receiver.wait(lambda: len(receiver.arrivals) >= len(messages) + len(conventional))
        rig.stop(process)
    ours = [each for each in receiver.arrivals if each.body != b'{"a": 1}']
    account = books(messages, ours)
    assert (account.lost, account.duplicated, account.foreign, account.early) == ((), (), (), ())
    assert all(each.body.decode() == each.queue for each in ours)
    rows = [each.queue for each in receiver.arrivals if each.body == b'{"a": 1}']
    assert sorted(rows) == conventional
    exchanges = {each.queue: each.exchange for each in receiver.arrivals}
    assert exchanges == {name: name for name in conventional} | dict.fromkeys(direct, "")
