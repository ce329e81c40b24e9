"""`delays migrate` and `transfer` on a real broker: nothing lost, and nothing early."""

from __future__ import annotations

import json
import time
import uuid
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

import pika
import pytest

from migrator.delays.routing import Address, DelaysVersion, address, level_name, parse_routing_key
from migrator.nservicebus.headers import (
    DELAY_IN_SECONDS,
    DELIVER_AT,
    EXPIRE,
    MESSAGE_ID,
    TIME_SENT,
)
from migrator.nservicebus.timeouts import QueueName
from migrator.nservicebus.wiretime import build_wire_time, parse_wire_time
from migrator.transfer.rules import RETRIES, RETRIES_TIMESTAMP
from tests.conftest import Vhost
from tests.e2e.arrivals import Arrival, Receiver
from tests.e2e.rig import Rig
from tests.e2e.rows import chance
from tests.reference.captured import Message, entering

V1, V2 = DelaysVersion.V1, DelaysVersion.V2
DAY_S = 86_400
MARGIN = timedelta(milliseconds=5)
"""Headers were written just before they were published."""
RECEIVERS = ("Billing", "Acme.Billing.Invoices", "Sales", "My.Sales.Orders", "Orders")


Kind = tuple[float, Mapping[str, str | None]]
"""How much older a message's TimeSent is than its publishing, and its other headers."""
HONEST: Kind = (0, {})
"""As a native sender publishes it."""
RETRIED: Kind = (3600, {RETRIES: "1", RETRIES_TIMESTAMP: None})
"""Its TimeSent is that of the original."""
BY_VENDOR_TOOL: Kind = (2, {EXPIRE: None})
"""What the vendor's migration tool makes of a stored timeout."""
LYING: Kind = (400 * DAY_S, {})
"""An old TimeSent, and nothing that tells why."""
KINDS = (HONEST, RETRIED, BY_VENDOR_TOOL, LYING)


def _kind(real: Message) -> Kind:
    """Return a message of a real endpoint, to be published now; its times become those of today.

    A retry keeps the ``DeliverAt`` of the delay before, which is past, as it was.
    """
    headers = dict(real.headers)
    del headers[MESSAGE_ID]
    delay = timedelta(seconds=headers.pop(DELAY_IN_SECONDS))
    sent_at, moved = parse_wire_time(headers.pop(TIME_SENT)), RETRIES_TIMESTAMP
    if RETRIES in headers:
        published_at = parse_wire_time(headers[RETRIES_TIMESTAMP])
    else:
        published_at, moved = parse_wire_time(headers[DELIVER_AT]) - delay, DELIVER_AT
    age_s = max(0.0, (published_at - sent_at).total_seconds())
    return age_s, {**headers, moved: None}


NATIVE = {
    version: [_kind(each) for each in entering() if each.exchange.startswith(prefix)]
    for version, prefix in ((V1, "nsb.delay-"), (V2, "nsb.v2.delay-"))
}
"""As versions 7 and 10 delay them: saga timeouts, deferred ones, and their retries."""


@dataclass
class Sent:
    """One message as some endpoint, or tool, put it into the delays."""

    kind: Kind
    destination: str = "Billing"
    delay_s: int = DAY_S
    age_s: float | None = None
    """Instead of what is usual for its kind."""
    id: str = field(default_factory=lambda: str(uuid.uuid4()))
    published_at: datetime = datetime(1, 1, 1, tzinfo=UTC)

    @property
    def due_at(self) -> datetime:
        """When it has to arrive."""
        return self.published_at + timedelta(seconds=self.delay_s)

    def headers(self) -> dict[str, Any]:
        """Return what it says, published now."""
        usual_s, more = self.kind
        age = timedelta(seconds=usual_s if self.age_s is None else self.age_s)
        due = dict.fromkeys((EXPIRE, DELIVER_AT), self.due_at)
        times = {RETRIES_TIMESTAMP: self.published_at, **due}
        return {
            MESSAGE_ID: self.id,
            TIME_SENT: build_wire_time(self.published_at - age),
            DELAY_IN_SECONDS: self.delay_s,
            "NServiceBus.Umlaut": "Zürich ☃",
            "Custom": [1, {"deep": True}],
            **{key: value or build_wire_time(times[key]) for key, value in more.items()},
        }


def publish(rig: Rig, version: DelaysVersion, messages: Sequence[Sent]) -> None:
    """Put *messages* into the levels, confirmed."""
    with rig.amqp() as client:
        channel = client.channel()
        channel.confirm_delivery()  # one that closes drops what a busy queue has not taken yet
        for message in messages:
            to = address(version, message.delay_s, QueueName(message.destination))
            message.published_at = datetime.now(UTC)
            properties = pika.BasicProperties(
                message_id=message.id,
                headers=message.headers(),
                type="Acme.Remind",
                priority=3,
                delivery_mode=2,
                app_id="somebody",
            )
            channel.basic_publish(to.exchange, to.routing_key, message.id.encode(), properties)


def due_by_key(found: Arrival) -> datetime:
    """Return when a message arrives that has been found in the first level on its way."""
    return found.at + timedelta(seconds=parse_routing_key(found.routing_key)[0])


def due_by_headers(found: Arrival) -> datetime:
    """Return what the vendor's tools would make of it."""
    headers = found.headers
    return parse_wire_time(headers[TIME_SENT]) + timedelta(seconds=headers[DELAY_IN_SECONDS])


def take(url: str, *queues: str, count: int = 0) -> list[Arrival]:
    """Take what is in *queues*: wait until that is *count*, and for a moment for one too many."""
    with Receiver(url, *queues) as receiver:
        receiver.wait(lambda: len(receiver.arrivals) >= count)
        time.sleep(0.4)
    return receiver.arrivals


def by_id(found: Sequence[Arrival]) -> dict[str, Arrival]:
    """Return messages by their id."""
    return {str(each.properties.message_id): each for each in found}


def all_levels(version: DelaysVersion) -> list[str]:
    """Return the names of the level queues."""
    return [level_name(version, level) for level in range(28)]


@pytest.fixture
def rig(vhost: Vhost) -> Iterator[Rig]:
    """Both generations of delays on one virtual host; no store is needed."""
    rig = Rig(database_url="sqlite:///nowhere.db", broker_url=vhost.amqp_url)
    for rig.delays in (V1, V2):
        rig.create_levels()
    rig.create_receivers(*RECEIVERS, direct=True)
    yield rig
    rig.close()


@pytest.fixture
def other(vhost: Vhost) -> Iterator[Rig]:
    """Another broker, as far as a client can tell, with the delays v2."""
    node, name = vhost.node, f"{vhost.name}-b"
    node.create_vhost(name)
    rig = Rig(database_url="", broker_url=node.amqp_url(name))
    rig.create_levels()
    rig.create_receivers(*RECEIVERS, direct=True)
    yield rig
    node.delete_vhost(name)


def _document(rig: Rig, *args: str, code: int = 0) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(rig.must("delays", *args, "--json", codes=(code,)))
    return found


def _time_to_move_s(rig: Rig) -> int:
    """Return within how many seconds the program has moved a few messages on this machine, now."""
    began_s = time.monotonic()
    _document(rig, "migrate", "--dry-run")
    return 5 + int(3 * (time.monotonic() - began_s))


# ── none early ──────────────────────────────────────────────────────────────────────────────────


def test_everything_arrives_and_nothing_early(rig: Rig) -> None:
    """Honest or lying, dotted or not: moved, each arrives once, when it is due.

    The destination is the whole rest of the key; that the broker itself may copy is said.
    """
    url = rig.broker_url
    soon_s = _time_to_move_s(rig)
    short = [Sent(kind, to, soon_s) for kind in KINDS for to in RECEIVERS[:2] for _ in range(2)]
    short += [Sent(kind, "Billing", soon_s) for kind in NATIVE[V1]]
    orders = Sent(HONEST, "My.Sales.Orders", 2 * DAY_S)
    other = Sent(HONEST, "Sales", soon_s + 1)
    days = [Sent(HONEST, "Billing", 3 * DAY_S), Sent(RETRIED, "Billing", 9 * DAY_S, age_s=DAY_S)]
    days += [Sent(BY_VENDOR_TOOL, "Acme.Billing.Invoices", 10 * DAY_S, age_s=2 * DAY_S)]
    days += [Sent(LYING, "Acme.Billing.Invoices", 20 * DAY_S), Sent(HONEST, "Orders", DAY_S)]
    days += [Sent(kind, "Billing", 5 * DAY_S) for kind in NATIVE[V1]]
    publish(rig, V1, [*days, orders, *short, other])
    document = _document(rig, "migrate", "--yes")
    assert (document["moved"], document["left"], document["poison"]) == (29, 0, 0)
    assert document["uncertain"]["messages"] == 5
    assert document["collisions"] == [{"catcher": "Orders", "caught": "My.Sales.Orders"}]
    far = [*days, orders]
    waiting = by_id(take(url, *all_levels(V2)[14:], count=len(far)))
    # nobody knows when a message whose headers cannot be believed came into its level
    took = datetime.now(UTC) - min(each.published_at for each in far) + timedelta(seconds=2)
    for message in far:
        found = waiting[message.id]
        assert -MARGIN < due_by_headers(found) - message.due_at < took
        assert -MARGIN < due_by_key(found) - message.due_at < took
        headers = found.headers
        assert not [key for key in headers if key.startswith("x-")]
        assert headers["Custom"] == [1, {"deep": True}]
        assert headers["NServiceBus.Umlaut"] == "Zürich ☃"
        assert (found.properties.priority, found.properties.app_id) == (3, "somebody")
        assert (found.properties.type, found.properties.delivery_mode) == ("Acme.Remind", 2)
        assert found.body == message.id.encode()
        assert found.routing_key[56:] == message.destination
    near = {message.id: message for message in (*short, other)}
    arrived = take(url, "Billing", "Acme.Billing.Invoices", "Sales", count=len(near))
    assert Counter(str(each.properties.message_id) for each in arrived) == Counter(near.keys())
    for each in arrived:
        assert each.at > near[str(each.properties.message_id)].due_at - MARGIN


def test_transfer_to_another_broker(rig: Rig, other: Rig) -> None:
    """Messages of v2 wait on the other broker for what is left, and are gone here.

    The same place is refused, by whatever name: there they would be met again for ever.
    """
    url = rig.broker_url
    same = url.replace("127.0.0.1", "localhost")
    refused = rig.run("delays", "transfer", "--to-url", same, "--yes")
    assert (refused.returncode, "the same virtual host" in refused.stderr) == (2, True)
    sent = [Sent(kind, delay_s=DAY_S + n) for kind in (HONEST, RETRIED, LYING) for n in range(5)]
    native = [Sent(kind, delay_s=2 * DAY_S) for kind in NATIVE[V2]]
    sent += native
    publish(rig, V2, sent)
    document = _document(rig, "transfer", "--to-url", other.broker_url, "--yes")
    assert (document["moved"], document["left"]) == (len(sent), 0)
    assert document["uncertain"]["messages"] == 5
    taken = take(other.broker_url, *all_levels(V2), count=len(sent))
    found = by_id(taken)
    assert (set(found), len(taken)) == ({each.id for each in sent}, len(sent))
    assert all(due_by_key(found[each.id]) > each.due_at - MARGIN for each in sent)
    for each in native:
        headers, said = found[each.id].headers, each.headers()
        assert {n for n in said if headers.get(n) != said[n]} <= {TIME_SENT, DELAY_IN_SECONDS}
        assert -MARGIN < due_by_headers(found[each.id]) - each.due_at < timedelta(seconds=2)
    assert take(url, *all_levels(V2), "Billing") == []


# ── what cannot be moved ────────────────────────────────────────────────────────────────────────


def test_what_cannot_be_moved_is_left_or_put_aside(rig: Rig) -> None:
    """A missing destination, copies wished for, unreadable messages: none stops the rest.

    A dry run says the same before, by level and destination, and leaves all as it was.
    """
    url = rig.broker_url
    to = address(V1, DAY_S, QueueName("Billing"))
    _publish_oddities(rig, to)
    others = [Sent(HONEST, "Nowhere") for _ in range(30)] + [Sent(HONEST) for _ in range(4)]
    publish(rig, V1, [*others, Sent(HONEST, "Sales", 2**20)])
    for args in (("--dry-run",), ("--yes",)):
        document = _document(rig, "migrate", *args, code=5)
        assert (document["moved"], document["left"], document["poison"]) == (5, 31, 2)
        assert document["why_left"] == {"copies": 1, "destination-unknown": 30}
        levels = {each["level"]: each["moved"] for each in document["levels"] if each["found"]}
        assert levels == {20: 1, 16: 4}
        names = {each["name"]: each["left"] for each in document["destinations"]}
        assert names == {"Billing": 1, "Nowhere": 30, "Sales": 0}
    assert len(take(url, *(level_name(version, 16) for version in (V1, V2)), count=35)) == 35
    aside = {each.body: each for each in take(url, "migrator.poison.migrate", count=2)}
    assert aside[b"odd"].headers["Migrator.Found.RoutingKey"] == "odd"
    assert aside[b"odd"].properties.expiration is None
    assert aside[b"deep"].headers["Migrator.Found.RoutingKey"] == to.routing_key


def _publish_oddities(rig: Rig, to: Address) -> None:
    """Publish what has no key, what nobody can read, and what asks for copies."""
    with rig.amqp() as client:
        channel = client.channel()
        channel.confirm_delivery()
        properties = pika.BasicProperties(expiration="9000000", user_id="guest", headers={})
        channel.queue_bind(level_name(V1, 16), "amq.direct", "odd")
        channel.basic_publish("amq.direct", "odd", b"odd", properties)
        deep: dict[str, Any] = {}
        for _ in range(20):
            deep = {"x": deep}
        for headers in (deep, {"CC": ["elsewhere"]}):
            given = pika.BasicProperties(headers=headers)
            channel.basic_publish(to.exchange, to.routing_key, b"deep", given)


# ── kill -9 ─────────────────────────────────────────────────────────────────────────────────────


_START_S = 1.1
"""About when the program begins to move something."""


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize(("kills", "count"), [(3, 2000), (20, 20_000)])
def test_kills_lose_nothing(rig: Rig, kills: int, count: int) -> None:
    """Killed at random moments and run again: all there, none early, copies have the same id."""
    url = rig.broker_url
    dice = chance(kills)
    sent = [
        Sent(dice.choice(KINDS), dice.choice(RECEIVERS[:2]), dice.randrange(DAY_S, 200 * DAY_S))
        for _ in range(count)
    ]
    publish(rig, V1, sent)
    for _ in range(kills):
        process = rig.start("delays", "migrate", "--yes")
        time.sleep(_START_S + dice.random() * count / kills / 3000)
        rig.kill(process)
    print(f"left for the last run: {_document(rig, 'migrate', '--yes')['moved']}")
    taken = take(url, *all_levels(V2), count=count)
    found = by_id(taken)
    duplicated = len(taken) - len(found)
    print(f"kills {kills}, messages {count}, lost {count - len(found)}, duplicated {duplicated}")
    assert found.keys() == {each.id for each in sent}
    assert duplicated <= 2000 * kills
    due_at = {each.id: each.due_at - MARGIN for each in sent}
    for each in taken:
        id_ = str(each.properties.message_id)
        assert each.body == id_.encode()
        assert min(due_by_headers(each), due_by_key(each)) >= due_at[id_]
    assert take(url, *all_levels(V1)) == []
