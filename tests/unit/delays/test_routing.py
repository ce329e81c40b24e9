"""Tests of ``migrator.delays.routing``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from migrator.delays.routing import (
    DelaysVersion,
    DelayTooLong,
    Infrastructure,
    address,
    delivery_binding_key,
    delivery_exchange,
    entry_level,
    infrastructure,
    level_name,
    levels_passed,
    parse_routing_key,
    routing_key,
    suffix_collisions,
)
from migrator.nservicebus.timeouts import MAX_DELAY_S, MAX_QUEUE_NAME_BYTES, QueueName
from tests.unit.nservicebus.samples import vectors

DELAYS = st.integers(min_value=0, max_value=MAX_DELAY_S)
NAMES = st.text(min_size=1, max_size=60).map(QueueName)
VERSIONS = st.sampled_from(DelaysVersion)


# ── the vendor's own results ────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("vector", vectors(), ids=lambda v: f"{v['delay_s']}-{v['destination']}")
def test_keys_levels_and_paths_are_the_vendors(vector: dict[str, Any]) -> None:
    """Key, entry exchange of both generations and the levels passed equal the recorded ones."""
    delay, destination = vector["delay_s"], QueueName(vector["destination"])
    assert routing_key(delay, destination) == vector["routing_key"]
    assert entry_level(delay) == vector["level"]
    assert address(DelaysVersion.V1, delay, destination).exchange == vector["exchange_v1"]
    assert address(DelaysVersion.V2, delay, destination).exchange == vector["exchange_v2"]
    assert list(levels_passed(delay)) == vector["path"]
    assert parse_routing_key(vector["routing_key"]) == (delay, destination)


# ── laws ────────────────────────────────────────────────────────────────────────────────────


@given(delay=DELAYS, name=NAMES)
def test_a_routing_key_is_parsed_back(delay: int, name: QueueName) -> None:
    """Any delay and any name, dots and digits included, survive the round trip."""
    assert parse_routing_key(routing_key(delay, name)) == (delay, name)


@given(delay=DELAYS)
def test_the_levels_passed_add_up_to_the_delay(delay: int) -> None:
    """The waiting times of the levels on the way sum up to exactly the delay."""
    passed = list(levels_passed(delay))
    assert sum(2**level for level in passed) == delay
    assert passed == sorted(passed, reverse=True)
    assert not passed or passed[0] == entry_level(delay)


@given(delay=DELAYS, version=VERSIONS)
def test_an_address_is_level_exchange_and_key_of_the_same_delay(
    delay: int, version: DelaysVersion
) -> None:
    """The parts of an address belong together."""
    found = address(version, delay, QueueName("Sales"))
    assert found.exchange == level_name(version, found.level)
    assert parse_routing_key(found.routing_key) == (delay, "Sales")


@given(delay=DELAYS, version=VERSIONS)
def test_a_broker_with_these_bindings_holds_a_message_exactly_its_delay(
    delay: int, version: DelaysVersion
) -> None:
    """Walking the declared bindings, a message waits its delay and then reaches delivery."""
    start = address(version, delay, QueueName("Sales.Orders"))
    waited, exchange = _walk(infrastructure(version), start.exchange, start.routing_key)
    assert waited == delay
    assert exchange == delivery_exchange(version)


def _walk(broker: Infrastructure, exchange: str, key: str) -> tuple[int, str]:
    queues = {queue.name: queue.arguments for queue in broker.queues}
    waited_ms = 0
    while exchange.endswith(tuple(f"level-{n:02d}" for n in range(28))):
        hits = [b for b in broker.bindings if b.source == exchange and _matches(b.key, key)]
        assert len(hits) == 1, "a message goes exactly one way"
        if hits[0].target_is_queue:
            arguments = queues[hits[0].target.name]
            waited_ms += int(arguments["x-message-ttl"])
            exchange = str(arguments["x-dead-letter-exchange"])
        else:
            exchange = hits[0].target.name
    return waited_ms // 1000, exchange


def _matches(pattern: str, key: str) -> bool:
    """Match as a topic exchange does: ``*`` is one word, ``#`` any number of words."""
    return _match_words(pattern.split("."), key.split("."))


def _match_words(pattern: Sequence[str], words: Sequence[str]) -> bool:
    if not pattern:
        return not words
    if pattern[0] == "#":
        return any(_match_words(pattern[1:], words[n:]) for n in range(len(words) + 1))
    head = bool(words) and pattern[0] in ("*", words[0])
    return head and _match_words(pattern[1:], words[1:])


# ── limits ──────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("delay", [-1, MAX_DELAY_S + 1, 2**40])
def test_a_delay_that_does_not_fit_has_no_key(delay: int) -> None:
    """Nothing is cut off in silence."""
    with pytest.raises(DelayTooLong, match=str(delay)):
        routing_key(delay, QueueName("Sales"))


def test_the_longest_name_makes_a_key_of_255_bytes() -> None:
    """199 bytes of name are what a short string leaves."""
    assert MAX_QUEUE_NAME_BYTES == 199
    assert len(routing_key(1, QueueName("q" * MAX_QUEUE_NAME_BYTES)).encode()) == 255


@pytest.mark.parametrize(
    "key",
    [
        "",
        "Sales",
        "0." * 28,
        "0." * 27 + "Sales",
        "0." * 27 + "2.Sales",
        "0," * 28 + "Sales",
        "0" * 56 + "Sales",
        "0." * 27 + "0-Sales",
        "." * 56 + "Sales",
    ],
)
def test_other_text_is_no_routing_key(key: str) -> None:
    """Only 28 dotted bits and a name are parsed."""
    with pytest.raises(ValueError, match="not a routing key"):
        parse_routing_key(key)


# ── entities ────────────────────────────────────────────────────────────────────────────────


def test_version_1_is_declared_as_the_vendor_does() -> None:
    """Classic lazy queues whose time doubles, chained down to delivery."""
    broker = infrastructure(DelaysVersion.V1)
    assert broker.exchanges[:2] == ("nsb.delay-delivery", "nsb.delay-level-00")
    assert len(broker.exchanges) == 29
    assert broker.queues[0].arguments == {
        "x-message-ttl": 1000,
        "x-dead-letter-exchange": "nsb.delay-delivery",
        "x-queue-mode": "lazy",
    }
    assert broker.queues[27].name == "nsb.delay-level-27"
    assert broker.queues[27].arguments["x-message-ttl"] == 134_217_728_000


def test_version_2_is_declared_as_the_vendor_does() -> None:
    """Quorum queues that dead-letter at least once and refuse rather than drop."""
    broker = infrastructure(DelaysVersion.V2)
    assert broker.queues[1].name == "nsb.v2.delay-level-01"
    assert broker.queues[1].arguments == {
        "x-message-ttl": 2000,
        "x-dead-letter-exchange": "nsb.v2.delay-level-00",
        "x-queue-type": "quorum",
        "x-dead-letter-strategy": "at-least-once",
        "x-overflow": "reject-publish",
    }


@pytest.mark.parametrize("version", DelaysVersion)
def test_every_level_has_two_bindings(version: DelaysVersion) -> None:
    """One reads the bit as 1 and waits, one as 0 and goes on."""
    bindings = infrastructure(version).bindings
    assert len(bindings) == 56
    top = [b for b in bindings if b.source == level_name(version, 27)]
    assert [(b.key, b.target_is_queue) for b in top] == [("1.#", True), ("0.#", False)]
    bottom = [b for b in bindings if b.source == level_name(version, 0)]
    assert bottom[1].key == "*." * 27 + "0.#"
    assert bottom[1].target.name == delivery_exchange(version)


# ── suffix collisions ───────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        ({"Sales", "Billing"}, ()),
        ({"Sales", "My.Sales"}, (("Sales", "My.Sales"),)),
        ({"Sales", "MySales"}, ()),
        ({"sales", "My.Sales"}, ()),
        ({"C", "B.C", "A.B.C"}, (("B.C", "A.B.C"), ("C", "A.B.C"), ("C", "B.C"))),
        ({"Sales", "Sales.Orders"}, ()),
        ({"dot.", "Sales"}, ()),
        (set(), ()),
    ],
)
def test_dotted_suffixes_collide(names: set[str], expected: tuple[tuple[str, str], ...]) -> None:
    """Only whole dotted words count, and case does."""
    assert suffix_collisions(frozenset(map(QueueName, names))) == expected


@given(names=st.frozensets(st.from_regex(r"[ab](\.[ab]){0,3}", fullmatch=True).map(QueueName)))
def test_collisions_are_what_a_topic_exchange_would_deliver_twice(
    names: frozenset[QueueName],
) -> None:
    """A pair collides exactly when the first's binding matches a key of the second."""
    expected = {
        (catcher, caught)
        for catcher in names
        for caught in names
        if catcher != caught and _matches(delivery_binding_key(catcher), routing_key(1, caught))
    }
    assert set(suffix_collisions(names)) == expected
