"""How fast delay levels let messages go, measured by short bursts of our own.

A message that leaves a level is routed through the exchange of each lower level until one has its
bit set, or to the delivery exchange. The exchanges it passes are what that costs: about 0.1 ms
each, in the level's own process. Two bursts, whose messages pass a different number of exchanges,
tell the cost on this broker. (A queue without those exchanges would be ten times too fast.)

The rules of ``probe`` hold here, too: the queue outlives us, expires by itself, and is removed only
when every message is back. A burst keeps its level busy for less than half a second.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import Any, Final

from migrator.delays.probe import new_probe_queue, refuse_unusable
from migrator.delays.routing import DelaysVersion, address, has_delay, parse_routing_key
from migrator.delays.topology import FindBindings
from migrator.errors import TargetError
from migrator.nservicebus.headers import DELAY_IN_SECONDS, TIME_SENT
from migrator.nservicebus.incoming import OutgoingMessage
from migrator.nservicebus.tags import Attempt
from migrator.nservicebus.timeouts import BatchId, QueueName
from migrator.nservicebus.wiretime import build_wire_time
from migrator.rabbitmq.admin import admin_session
from migrator.rabbitmq.connection import ConnectionSettings
from migrator.rabbitmq.event_loop import Connection, open_link
from migrator.rabbitmq.messages import EncodedMessage, PublishResult, encode_properties
from migrator.rabbitmq.publisher import Publisher, WindowLimits, encoded_bytes, in_chunks
from migrator.rabbitmq.server import server_facts

DELAYS_S: Final = (8, 2)
"""Of the bursts, the one with the longest delay first: powers of two, which are in one level only.

A message of 2ⁿ seconds passes n + 1 exchanges when its level lets it go.
"""
_MESSAGES: Final = 500
_PATIENCE_S: Final = 30.0
"""So long after its delay a burst must be back."""
_ROUNDS: Final = 3
"""One after the other; what a round tells differs by 29 % within minutes."""
_IS_SLOWER: Final = 1.2
"""A level that lets go in so many times the time of publishing was what took the time."""

_NO_ATTEMPT: Final = Attempt(batch=BatchId(0), number=0)
_BODY: Final = b"x" * 400
_USUAL_HEADERS: Final = {f"Migrator.Probe.{n}": "as long as usual headers" for n in range(13)}
"""With two more a message has fifteen: the broker reads them when it lets a message go."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SentBurst:
    """Many messages of one delay, published at once."""

    delay_s: int
    """A power of two."""
    messages: int
    published_s: float
    """Seconds from the first message to the last confirm."""
    released_s: float
    """Seconds from the first arrival to the last."""

    @property
    def exchanges(self) -> int:
        """How many exchanges each message passes when its level lets it go."""
        return self.delay_s.bit_length()

    @property
    def per_second(self) -> float:
        """Messages a second that the level let go."""
        return 1 / self.cost_s

    @property
    def cost_s(self) -> float:
        """Seconds for each message."""
        return max(self.released_s, 1e-6) / max(self.messages - 1, 1)

    @property
    def is_released_slower(self) -> bool:
        """Whether the level took longer than publishing: else it may be faster than it seems."""
        return self.released_s > _IS_SLOWER * self.published_s


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredBroker:
    """What a measurement holds for; another broker, or another version of it, is measured anew."""

    delays: DelaysVersion
    broker_version: str
    cluster: str
    vhost: str


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredCapacity:
    """What it costs one level to let a message go, on one broker."""

    exchange_cost_s: float
    """Seconds of the level's process for each exchange that a message passes."""
    measured_at: datetime
    """Aware, UTC; this machine's clock."""
    broker: MeasuredBroker
    bursts: tuple[SentBurst, ...] = ()
    """What it was fitted to; empty when it was read from the ledger."""

    def per_second(self, exchanges: int) -> float:
        """Return how many messages a second a level lets go that pass so many exchanges each."""
        return 1 / (exchanges * self.exchange_cost_s)


def fit_exchange_cost_s(bursts: Sequence[SentBurst]) -> float:
    """Return the cost of an exchange, in seconds, that explains *bursts* best; not empty.

    Least squares of cost = exchanges * cost of one. A burst that was not let go more slowly than
    it was published only tells that the level is at least so fast; it counts where none tells
    more, which makes the cost too high, never too low.
    """
    told = [burst for burst in bursts if burst.is_released_slower] or bursts
    return sum(b.exchanges * b.cost_s for b in told) / sum(b.exchanges**2 for b in told)


def find_broker(settings: ConnectionSettings, delays: DelaysVersion) -> MeasuredBroker:
    """Ask the broker who it is.

    Raises:
        TargetUnavailable, AccessRefused: It does not answer, or does not let us in.
    """
    server = server_facts(settings)
    return MeasuredBroker(
        delays=delays,
        broker_version=server.version,
        cluster=server.cluster_name,
        vhost=settings.address.vhost,
    )


def measure_capacity(
    settings: ConnectionSettings,
    version: DelaysVersion,
    *,
    find_bindings: FindBindings | None,
    guard: Callable[[], None] = lambda: None,
    messages: int = _MESSAGES,
    delays_s: Sequence[int] = DELAYS_S,
    rounds: int = _ROUNDS,
) -> MeasuredCapacity:
    """Send bursts of *messages* through the levels; return the cost of an exchange.

    Takes *rounds* times as long as the longest delay. The middle one counts: the fastest is too
    good to be true later on, and the slowest may be for somebody else's work.

    Args:
        settings: Where to.
        version: Through which generation.
        find_bindings: From the management API; None: nobody can tell who would listen in.
        guard: Called many times a second; raises what breaks the measurement off.
        messages: Of each burst.
        delays_s: Powers of two, in seconds, the longest first.
        rounds: How often; odd.

    Raises:
        PreflightRefused: The delays are not as they must be, or somebody else would get the
            messages. Nothing was sent.
        TargetError: The broker did not do what was asked. What was sent comes into our queue.
        Whatever *guard* raises: Our queue stays for what was sent, and removes itself.
    """
    refuse_unusable(settings, version, find_bindings)
    broker = find_broker(settings, version)
    found: list[tuple[float, tuple[SentBurst, ...]]] = []
    for _ in range(rounds):
        with admin_session(settings, purpose="measure capacity") as admin:
            queue = new_probe_queue(admin, version, find_bindings)
        with open_link(settings, publish="migrator capacity", guard=guard) as link:
            bursts = _send(link.publishing, version, queue, messages=messages, delays_s=delays_s)
        with admin_session(settings, purpose="measure capacity") as admin:
            admin.delete_queue(queue, if_empty=False)
        found.append((fit_exchange_cost_s(bursts), bursts))
    cost_s, bursts = sorted(found, key=lambda each: each[0])[rounds // 2]
    return MeasuredCapacity(
        exchange_cost_s=cost_s,
        measured_at=datetime.now(UTC),
        broker=broker,
        bursts=bursts,
    )


def _send(
    connection: Connection,
    version: DelaysVersion,
    queue: QueueName,
    *,
    messages: int,
    delays_s: Sequence[int],
) -> tuple[SentBurst, ...]:
    """Publish a burst of each delay and wait until all are back.

    Raises:
        TargetUnavailable: They are not, or were not taken. The queue waits for them.
    """
    arrived_s: dict[int, list[float]] = {delay_s: [] for delay_s in delays_s}

    def on_message(_channel: Any, method: Any, _properties: Any, _body: bytes) -> None:
        arrived_s[parse_routing_key(method.routing_key)[0]].append(time.monotonic())

    channel = connection.channel()
    connection.call(channel.basic_consume, queue, on_message, auto_ack=True)
    publisher = Publisher(connection, WindowLimits(), has_delay=has_delay)
    published_s: dict[int, float] = {}
    for delay_s in delays_s:
        result, began_s = PublishResult(), time.monotonic()
        burst = _messages(version, queue, delay_s, messages)
        publisher.publish(_NO_ATTEMPT, in_chunks(burst, bytes_of=encoded_bytes), result)
        published_s[delay_s] = time.monotonic() - began_s
        if len(result.confirmed) < messages:
            raise TargetError(f"the {version} levels did not take all messages of a measurement")
    timeout_s = max(delays_s) + _PATIENCE_S
    for _ in connection.loop.events(timeout_s):
        if all(len(found) >= messages for found in arrived_s.values()):
            break
    else:
        raise TargetError(
            f"messages of a measurement are not back after {timeout_s:g} s; "
            f"queue {queue} waits for them, and the broker deletes it after a day"
        )
    return tuple(
        SentBurst(
            delay_s=delay_s,
            messages=messages,
            published_s=published_s[delay_s],
            released_s=arrived_s[delay_s][-1] - arrived_s[delay_s][0],
        )
        for delay_s in delays_s
    )


def _messages(
    version: DelaysVersion, queue: QueueName, delay_s: int, count: int
) -> Iterator[EncodedMessage]:
    where = address(version, delay_s, queue)
    headers: dict[str, str | int | None] = {
        **_USUAL_HEADERS,
        TIME_SENT: build_wire_time(datetime.now(UTC)),
        DELAY_IN_SECONDS: delay_s,
    }
    properties = encode_properties(
        OutgoingMessage(message_id=queue, headers=headers, body=_BODY),
        app_id="migrator-probe",
    )
    for n in range(count):
        yield EncodedMessage(n, where.exchange, where.routing_key, properties, _BODY)


# ── as the ledger has it ──────────────────────────────────────────────────────────────────────


def capacity_document(measured: MeasuredCapacity) -> dict[str, object]:
    """Return *measured* as plain values; ``read_capacity`` reads them."""
    return {
        "exchange_cost_s": measured.exchange_cost_s,
        "measured_at": measured.measured_at.isoformat(),
        **asdict(measured.broker),
        "bursts": [
            {
                "delay_s": burst.delay_s,
                "exchanges": burst.exchanges,
                "messages": burst.messages,
                "per_second": round(burst.per_second, 1),
                "is_released_slower": burst.is_released_slower,
            }
            for burst in measured.bursts
        ],
    }


def read_capacity(document: Mapping[str, object]) -> MeasuredCapacity | None:
    """Return what ``capacity_document`` wrote, without the bursts; None: it is not that."""
    try:
        found = MeasuredCapacity(
            exchange_cost_s=float(str(document["exchange_cost_s"])),
            measured_at=datetime.fromisoformat(str(document["measured_at"])),
            broker=MeasuredBroker(
                delays=DelaysVersion(str(document["delays"])),
                broker_version=str(document["broker_version"]),
                cluster=str(document["cluster"]),
                vhost=str(document["vhost"]),
            ),
        )
    except (KeyError, ValueError):
        return None
    return found if found.exchange_cost_s > 0 else None
