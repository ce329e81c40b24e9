"""Mode forward: what old endpoints send to ``.Timeouts`` goes straight into the native delays."""

from __future__ import annotations

import time
import uuid
from pathlib import Path
from typing import Final

import pytest

from migrator.delays.routing import DelaysVersion
from migrator.nservicebus.wiretime import build_wire_time
from tests.e2e.arrivals import Arrival, Receiver, account_of
from tests.e2e.dispatching import (
    prepare_dispatcher,
    start_dispatcher,
    waiting,
    watch_table,
    written,
)
from tests.e2e.old_endpoint import CONFIRMATION_ID, EXPIRE, ROUTE_TO, OldEndpoint, OldMessage
from tests.e2e.rig import Rig

KILLED: Final = -9
TIME_SENT: Final = "NServiceBus.TimeSent"
DELAY: Final = "NServiceBus.Transport.RabbitMQ.DelayInSeconds"


@pytest.mark.parametrize(
    ("delays", "is_direct"),
    [
        (DelaysVersion.V2, False),
        pytest.param(DelaysVersion.V1, True, marks=pytest.mark.slow),
    ],
)
def test_messages_of_all_versions_arrive_by_way_of_the_delays(
    rig: Rig, tmp_path: Path, delays: DelaysVersion, is_direct: bool
) -> None:
    """Versions 5, 6 and 7, all kinds: never early, as native messages, and none is ever stored."""
    rig.delays = delays
    olds = [
        OldEndpoint(rig, core=5, is_direct=is_direct, machine="OLDBOX"),
        OldEndpoint(rig, core=6, is_direct=is_direct),
        OldEndpoint(rig, core=7, is_direct=is_direct),
    ]
    olds[0].declare("Billing")
    prepare_dispatcher(rig, tmp_path, mode="forward")
    watch_table(rig)
    process = start_dispatcher(rig)
    with Receiver(rig.broker_url, "Sales", "Billing", "error") as receiver:
        messages: list[OldMessage] = []
        for old in olds:
            of_old = [old.deferred(n / 4, to="Billing", body=b"\x00\xff") for n in range(-4, 16)]
            of_old.append(old.saga_timeout(2.2, saga_id=str(uuid.uuid4())))
            of_old.append(old.delayed_retry(1.7, retry=2, message_id=str(uuid.uuid4())))
            old.send(*of_old)
            messages += of_old
        arrivals = {each.key: each for each in receiver.wait_for(*messages)}
        time.sleep(0.5)
        rig.stop(process)
    account = account_of(messages, receiver.arrivals)
    print(f"{delays}, direct={is_direct}: {account}")
    assert (account.lost, account.duplicated, account.foreign, account.early) == ((), (), (), ())
    for message in messages:
        check_native(arrivals[message.key], message)
    assert (written(rig), rig.stored()) == (0, {})
    assert waiting(rig, "Sales.Timeouts") == 0


def check_native(found: Arrival, message: OldMessage) -> None:
    """Demand what *message* says, its due time and a delay, and nothing of timeout managers."""
    headers = {n: v for n, v in found.headers.items() if not n.startswith("x-")}
    assert message.due_at is not None
    assert headers.pop("NServiceBus.DeliverAt") == build_wire_time(message.due_at)
    assert isinstance(headers.pop(DELAY), int)
    wanted = message.headers | {"NServiceBus.NonDurableMessage": "False"}
    for gone in (EXPIRE, ROUTE_TO, CONFIRMATION_ID, TIME_SENT):
        wanted.pop(gone, None)
    assert headers.pop(TIME_SENT)
    assert headers == wanted
    for name in ("message_id", "correlation_id", "type", "delivery_mode"):
        assert getattr(found.properties, name) == getattr(message.properties, name)
    assert found.body == message.body


@pytest.mark.slow
def test_killed_between_confirm_and_acknowledgement(rig: Rig, tmp_path: Path) -> None:
    """Forwarded twice at most, with the same id, and none is lost."""
    endpoint = OldEndpoint(rig)
    endpoint.declare("Billing")
    prepare_dispatcher(rig, tmp_path, mode="forward", dispatch={"prefetch": 20})
    process = start_dispatcher(rig, fault="forward.confirmed:3")
    sent = [endpoint.deferred(2.5, to="Billing") for _ in range(100)]
    with Receiver(rig.broker_url, "Billing", "error") as receiver:
        endpoint.send(*sent)
        assert rig.finish(process).returncode == KILLED
        process = start_dispatcher(rig)
        receiver.wait_for(*sent)
        time.sleep(1.5)
        rig.stop(process)
    account = account_of(sent, receiver.arrivals)
    print(f"killed at forward.confirmed: {account}")
    assert (account.lost, account.foreign, account.early) == ((), (), ())
    assert 1 <= len(account.duplicated) <= 20
    assert all(each.properties.message_id == each.key[:-1] for each in receiver.arrivals)
