"""Levels, routing keys and entity names of the native delays, both generations; pure.

The broker holds a delay as 28 queues, one per bit of the delay in seconds. A message enters at
the level of its highest set bit; when a level's time is over it is dead-lettered to the next
lower exchange, whose bindings read one more bit of the routing key.
Source: reference ``native-delays.md`` sections 2 and 3; docs/adr/0004-delay-rounding.md.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Final

from migrator.errors import TargetUnavailable
from migrator.nservicebus.conversion import Reason
from migrator.nservicebus.timeouts import BITS, KEY_PREFIX_CHARS, MAX_DELAY_S, QueueName
from migrator.nservicebus.wiretime import seconds_up
from migrator.rabbitmq.entities import Binding, exchange_entity, queue_entity

PROBED: Final = "probe"
"""As the audit log and the schedule name a look at the delays by probes."""
CAPACITY_MEASURED: Final = "capacity_measured"
"""As the audit log names a measurement of how fast levels let go; the latest one is in force."""
TOP_LEVEL: Final = BITS - 1
_DOTS: Final = "." * BITS
LONGEST_DELAY: Final = timedelta(seconds=MAX_DELAY_S - 3600)
"""Rows due later wait in the store; an hour's margin for the time between claim and publish."""


JUST_DUE: Final = timedelta(hours=1)
"""What was due longer ago has most probably arrived."""


class DelayTooLong(TargetUnavailable):
    """The delay needs more than 28 bits. Nothing was sent, and trying again is safe.

    Rows are claimed with a margin, so a clock was set back since: preparing the row again puts it
    into quarantine, or finds the clock as it was.
    """


def delay_s(due_at: datetime, *, now: datetime) -> int:
    """Return whole seconds from *now* until *due_at*, rounded up; 0 when already due.

    Rounding up is what keeps a message from being early; it makes it late by under a second.

    Args:
        due_at: Aware, UTC.
        now: Aware, UTC; read once per chunk, just before the chunk is published.

    Raises:
        DelayTooLong: Above ``MAX_DELAY_S``. Nothing was sent.
    """
    delay = seconds_up(due_at - now)
    if delay > MAX_DELAY_S:
        raise DelayTooLong(f"a delay of {delay} s needs more than {BITS} bits")
    return max(delay, 0)


class DelaysVersion(StrEnum):
    """Generation of the delay infrastructure; the two live side by side."""

    V1 = "v1"
    V2 = "v2"


class Topology(StrEnum):
    """How endpoints are reached: by a fanout exchange of their name, or by the queue itself."""

    AUTO = "auto"
    CONVENTIONAL = "conventional"
    DIRECT = "direct"


_PREFIX: Final = {DelaysVersion.V1: "nsb.delay-", DelaysVersion.V2: "nsb.v2.delay-"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Address:
    """Where to publish a message so that it waits exactly *delay_s* seconds."""

    level: int
    exchange: str
    routing_key: str


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueSpec:
    """One level queue: durable, shared, never deleted by itself."""

    name: str
    arguments: dict[str, str | int] = field(hash=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Infrastructure:
    """All entities of one generation, in the order in which they can be declared."""

    exchanges: tuple[str, ...]
    """Durable topic exchanges: the delivery exchange first, then levels 00 up to 27."""
    queues: tuple[QueueSpec, ...]
    """Level queues 00 up to 27."""
    bindings: tuple[Binding, ...]


def delays_prefix(version: DelaysVersion) -> str:
    """Return how the names of all exchanges and queues of a generation begin."""
    return _PREFIX[version]


@dataclass(frozen=True, slots=True, kw_only=True)
class Unreachable:
    """Why messages for a destination may not enter the delays."""

    reason: Reason
    detail: str


def unroutable(destination: QueueName | str) -> Unreachable:
    """Return why a message without a delay came back to us."""
    detail = f"the broker returned it: nothing is bound for {destination!r}"
    return Unreachable(reason=Reason.UNROUTABLE, detail=detail)


def refused(destination: QueueName | str) -> Unreachable:
    """Return why the broker refused (nack) a message without a delay, which passes no level."""
    detail = (
        f"the broker refuses messages for {destination!r}: its queue, or another one behind its "
        "exchange, is full or unavailable; consume what is in it, raise its limit, or repair it"
    )
    return Unreachable(reason=Reason.REFUSED, detail=detail)


def no_answer(destination: QueueName | str) -> Unreachable:
    """Return why nothing more is sent to a queue that has answered nothing for a while."""
    detail = (
        f"the queue of {destination!r} answers nothing, though the broker does: see whether it has "
        "a leader, and whether its node is well; a message that was sent may still arrive, and a "
        "copy that is sent later has the same message id"
    )
    return Unreachable(reason=Reason.NO_ANSWER, detail=detail)


def delivery_exchange(version: DelaysVersion) -> str:
    """Return the exchange that a message reaches once its whole delay is over."""
    return f"{_PREFIX[version]}delivery"


def level_name(version: DelaysVersion, level: int) -> str:
    """Return the name shared by a level's exchange and its queue."""
    return f"{_PREFIX[version]}level-{level:02d}"


def routing_key(delay_s: int, destination: QueueName) -> str:
    """Return the 28 bits of *delay_s*, highest first, each with a dot, then *destination*.

    Raises:
        DelayTooLong: The delay has more than 28 bits; higher ones would be lost in silence.
    """
    if not 0 <= delay_s <= MAX_DELAY_S:
        raise DelayTooLong(f"a delay of {delay_s} s does not fit {BITS} bits")
    return ".".join(f"{delay_s:0{BITS}b}") + "." + destination


def parse_routing_key(key: str) -> tuple[int, QueueName]:
    """Return the delay in seconds and the destination that *key* was built from.

    Raises:
        ValueError: Not 28 dotted bits followed by a name.
    """
    digits, destination = key[:KEY_PREFIX_CHARS:2], key[KEY_PREFIX_CHARS:]
    is_key = not digits.strip("01") and key[1:KEY_PREFIX_CHARS:2] == _DOTS
    if not is_key or not destination:
        raise ValueError(f"{key!r} is not a routing key of the native delays")
    return int(digits, 2), QueueName(destination)


def has_delay(key: str) -> bool:
    """Return whether *key* is one of the native delays, with a delay above 0."""
    try:
        return parse_routing_key(key)[0] > 0
    except ValueError:
        return False


def entry_level(delay_s: int) -> int:
    """Return the level of the highest set bit; level 0 also for a delay of 0."""
    return max(delay_s.bit_length() - 1, 0)


def probe_delay_s(level: int) -> int:
    """Return the delay, in seconds, whose message waits in *level* alone."""
    return int(2**level)


def parse_levels(text: str) -> Sequence[int]:
    """Return the levels that *text* lists, such as ``0,1,2``: ascending, each once.

    Raises:
        ValueError: It lists none, or something that is no level.
    """
    words = [word.strip() for word in text.split(",")]
    if not all(word.isascii() and word.isdigit() and int(word) < BITS for word in words):
        raise ValueError(f"must be levels from 0 to {BITS - 1} with commas between, such as 0,1,2")
    return sorted({int(word) for word in words})


def address(version: DelaysVersion, delay_s: int, destination: QueueName) -> Address:
    """Return the native exchange and key for a message that shall wait *delay_s* seconds.

    Raises:
        DelayTooLong: More than 28 bits.
    """
    key = routing_key(delay_s, destination)
    level = entry_level(delay_s)
    return Address(level=level, exchange=level_name(version, level), routing_key=key)


def delivery_binding_key(destination: QueueName) -> str:
    """Return the key that binds *destination* to the delivery exchange."""
    return f"#.{destination}"


def suffix_collisions(names: frozenset[QueueName]) -> tuple[tuple[QueueName, QueueName], ...]:
    """Return pairs (catcher, caught): messages for the second reach the first as well.

    ``#.Sales`` matches every key that ends in ``.Sales``, also that of ``My.Sales``.
    Sorted; empty when no bound name is a dotted suffix of another.
    Source: reference ``native-delays.md`` section 5.1 (measured).
    """
    found = []
    for caught in names:
        rest = caught
        while "." in rest:
            rest = QueueName(rest.partition(".")[2])
            if rest in names:
                found.append((rest, caught))
    return tuple(sorted(found))


def infrastructure(version: DelaysVersion) -> Infrastructure:
    """Return every exchange, queue and binding of a generation, as the vendor declares them."""
    levels = range(BITS)
    return Infrastructure(
        exchanges=(delivery_exchange(version), *(level_name(version, n) for n in levels)),
        queues=tuple(
            QueueSpec(name=level_name(version, n), arguments=_queue_arguments(version, n))
            for n in levels
        ),
        bindings=tuple(binding for n in levels for binding in _level_bindings(version, n)),
    )


def _queue_arguments(version: DelaysVersion, level: int) -> dict[str, str | int]:
    arguments: dict[str, str | int] = {
        "x-message-ttl": 2**level * 1000,  # ms
        "x-dead-letter-exchange": _next_exchange(version, level),
    }
    if version is DelaysVersion.V1:
        return arguments | {"x-queue-mode": "lazy"}
    return arguments | {
        "x-queue-type": "quorum",
        "x-dead-letter-strategy": "at-least-once",
        "x-overflow": "reject-publish",
    }


def _level_bindings(version: DelaysVersion, level: int) -> tuple[Binding, Binding]:
    name = level_name(version, level)
    skipped = "*." * (TOP_LEVEL - level)
    return (
        Binding(source=name, target=queue_entity(name), key=f"{skipped}1.#"),
        Binding(
            source=name, target=exchange_entity(_next_exchange(version, level)), key=f"{skipped}0.#"
        ),
    )


def _next_exchange(version: DelaysVersion, level: int) -> str:
    return level_name(version, level - 1) if level else delivery_exchange(version)
