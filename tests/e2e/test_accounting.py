"""Two thousand timeouts of every kind: after one run each is where it belongs, and says why."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from typing import Final

import pytest

from dev.processes import PATIENCE_S
from dev.servers import wait_until
from migrator.delays.routing import DelaysVersion, entry_level, level_name, parse_routing_key
from migrator.nservicebus import headers as h
from migrator.nservicebus.wiretime import build_wire_time, parse_wire_time, seconds_up
from tests.e2e.rig import Rig
from tests.e2e.rows import Found, Row, nameless, row

CONVENTIONAL: Final = ("Billing", "Shipping.Orders.EU", "Größe-Ünïcode.队列")
DIRECT: Final = ("direct-only", "Direct.Dotted")
REASONS: Final = {
    "unreadable-headers",
    "no-destination",
    "destination-name-too-long",
    "destination-unusable",
    "property-too-long",
    "header-key-too-long",
    "headers-too-large",
    "body-too-large",
}
DAYS: Final = timedelta(days=1)


def good_rows(kinds: int) -> Iterator[Row]:
    """Yield rows that arrive: soon and late, near and far, small, empty and large."""
    receivers = (*CONVENTIONAL, *DIRECT)
    for n in range(kinds):
        yield row(timedelta(days=1 + n % 900, seconds=n), destination=receivers[n % 5])
    for n in range(60):
        yield row(-timedelta(minutes=n + 1), destination=receivers[n % 5])
    for n in range(60):
        yield row(timedelta(seconds=12 + n % 8), destination=receivers[n % 5])
    yield row(40 * DAYS, body=b"")
    yield row(40 * DAYS, body=None)
    yield from (row(41 * DAYS, body=b"x" * 2**20) for _ in range(5))
    yield row(3 * DAYS, destination="Billing@OLDMACHINE")
    yield row(3 * DAYS, headers={"NServiceBus.TimeSent": "yesterday"})
    yield row(3 * DAYS, headers={"Custom.Null": None, "x-death": "old", "Ключ": "значение"})


def bad_rows() -> dict[str, Row]:
    """Return one row per quarantine reason; an overdue unroutable one comes in its own test."""
    soon = 5 * DAYS
    broken = row(soon)
    return {
        "unreadable-headers": Row(
            id=broken.id, destination="Billing", due_at=broken.due_at, body=b"", headers="{oops"
        ),
        "no-destination": row(soon, destination=None, headers={"NServiceBus.ReplyToAddress": None}),
        "destination-name-too-long": row(soon, destination="é" * 100),
        "destination-unusable": row(soon, destination="Bil\nling"),
        "property-too-long": row(soon, headers={"NServiceBus.MessageId": "m" * 256}),
        "header-key-too-long": row(soon, headers={"k" * 256: "v"}),
        "headers-too-large": row(soon, headers={"Custom.Large": "v" * 120_000}),
        "body-too-large": row(soon, body=b"x" * 1_200_000),
    }


def lost_rows() -> dict[str, Row]:
    """Return one row per reason to be parked; only their headers say where they go."""
    soon = 5 * DAYS
    return {
        "destination-unknown": nameless("Nowhere", soon),
        "destination-unbound": nameless("exchange-without-queue", soon),
    }


@pytest.mark.parametrize("mode", ["staged", pytest.param("direct", marks=[pytest.mark.slow])])
def test_every_row_is_accounted_for(rig: Rig, mode: str) -> None:
    """Delivered, waiting in a level, left in the store, parked or quarantined: all 2 000."""
    rig.prepare(*CONVENTIONAL)
    rig.create_receivers(*DIRECT, direct=True)
    with rig.amqp() as connection:
        connection.channel().exchange_declare("exchange-without-queue", "fanout", durable=True)
    bad, lost = bad_rows(), lost_rows()
    beyond = [row(timedelta(days=9 * 365.25, seconds=n)) for n in range(20)]
    good = list(good_rows(2000 - len(bad) - len(lost) - len(beyond) - 130))
    rig.insert([*good, *bad.values(), *lost.values(), *beyond])
    rig.must(
        "run", "--endpoint", "Sales", "--once", "--mode", mode, "--cutoff", "0s",
        codes=(5,), MIGRATOR_BROKER__MAX_MESSAGE_BYTES="1100000",
    )  # fmt: skip
    assert rig.stored_ids() == {each.id for each in beyond}
    assert rig.quarantined() == {each.id: reason for reason, each in bad.items()}
    assert set(bad) == REASONS
    assert rig.parked() == {each.id: reason for reason, each in lost.items()}
    found = _wait_and_take(rig, good)
    assert Counter(each.timeout_id for each in found) == Counter(each.id for each in good)
    by_id = {each.id: each for each in good}
    for each in found:
        _check(each, by_id[each.timeout_id], rig.delays)


@pytest.mark.punctual
@pytest.mark.parametrize(
    ("mode", "delays"),
    [
        ("staged", DelaysVersion.V2),
        pytest.param("staged", DelaysVersion.V1, marks=[pytest.mark.slow]),
        pytest.param("direct", DelaysVersion.V2, marks=[pytest.mark.slow]),
        pytest.param("direct", DelaysVersion.V1, marks=[pytest.mark.slow]),
    ],
)
def test_two_hundred_timeouts_arrive_on_time(rig: Rig, mode: str, delays: DelaysVersion) -> None:
    """Due 2 to 11 s ahead with cutoff 0s: none early, half of them late by under 2.5 s.

    Delays are rounded up to whole seconds. How late the last ones are is the machine's affair,
    but for a lane that stands still.
    """
    rig.delays = delays
    rig.prepare()
    process = rig.start("run", "--endpoint", "Sales", "--mode", mode, "--cutoff", "0s")
    wait_until(rig.has_lane, what="a lane")
    rig.insert(row(timedelta(seconds=2 + 9 * n / 199)) for n in range(200))
    late: list[float] = []
    with rig.amqp() as connection:
        channel = connection.channel()
        ends = time.monotonic() + PATIENCE_S
        while len(late) < 200 and time.monotonic() < ends:
            method, properties, _ = channel.basic_get("Billing", auto_ack=True)
            if method is None:
                time.sleep(0.01)
                continue
            due = parse_wire_time(properties.headers[h.DELIVER_AT])
            late.append((datetime.now(UTC) - due).total_seconds())
    rig.kill(process)
    late.sort()
    print(f"{mode} {delays}: p50 {late[99]:.3f} s, p99 {late[197]:.3f} s, worst {late[-1]:.3f} s")
    assert len(late) == 200
    assert late[0] >= 0
    assert late[99] < 2.5
    assert late[197] < 6


def _wait_and_take(rig: Rig, good: Sequence[Row]) -> list[Found]:
    """Wait for the near rows to arrive, then take everything that is on the broker."""
    near = {each.id for each in good if each.due_at - datetime.now(UTC) < timedelta(minutes=1)}
    found: list[Found] = []

    def all_arrived() -> bool:
        found.extend(rig.drain(*CONVENTIONAL, *DIRECT))
        return near <= {each.timeout_id for each in found}

    wait_until(all_arrived, what="what is due soon")
    found += rig.drain_levels()
    assert {each.timeout_id for each in found} == {each.id for each in good}
    return found


def _check(found: Found, original: Row, delays: DelaysVersion) -> None:
    """It is the timeout that was stored; tests/reference compare every header with real ones."""
    stored = json.loads(original.headers or "{}")
    sent, properties = found.properties.headers, found.properties
    destination = (original.destination or "").partition("@")[0]
    assert found.body == (original.body or b"")
    assert (properties.message_id, properties.reply_to) == (
        stored["NServiceBus.MessageId"],
        "Sales",
    )
    assert properties.delivery_mode == 2
    dropped = {h.EXPIRE, h.ROUTE_EXPIRED_TO, h.TIME_SENT, "x-death"}
    assert {key: sent.get(key) for key in stored.keys() - dropped} == {
        key: value for key, value in stored.items() if key not in dropped
    }
    assert not {h.EXPIRE, h.ROUTE_EXPIRED_TO} & sent.keys()
    due = parse_wire_time(stored[h.EXPIRE])
    assert sent[h.DELIVER_AT] == build_wire_time(due)
    claimed_due = parse_wire_time(sent[h.TIME_SENT]) + timedelta(seconds=sent[h.DELAY_IN_SECONDS])
    if original.due_at > datetime.now(UTC):
        assert timedelta(0) <= claimed_due - due < timedelta(seconds=1)
    if not found.queue.startswith("nsb."):
        assert found.queue == destination
        assert due <= datetime.now(UTC)
        return
    delay_s, key_destination = parse_routing_key(found.routing_key)
    assert key_destination == destination
    assert found.queue == level_name(delays, entry_level(delay_s))
    remaining_s = seconds_up(due - datetime.now(UTC))
    assert 0 <= delay_s - remaining_s <= 300  # it was published since the test began
